# Faults of the configuration, the program and the clock of a node. Kinds are as in Plan.pm, with functions that make and
# undo each: their arguments are the cluster and the fault.

package NodeFaults;

use strict;
use warnings;

use Plan;

# The longest jump of a clock, in seconds.
use constant JUMP => 7200;

# Configurations that nginx refuses, by what it says. The one with a port that is taken, by the store without faults, fails
# after its zones and namespaces were made.
my %WRONG = (
    'unknown directive "ratelimit_chaos"' => sub { 'ratelimit_chaos on;' },
    '"chaos" is too small' => sub { 'ratelimit_zone zone=chaos:8k;' },
    'namespace "api" is duplicate' => sub { 'ratelimit_namespace api { } ratelimit_namespace api { }' },
    'bind\(\) to 127\.0\.0\.1:\d+ failed|still could not bind\(\)' => sub { "ratelimit_zone zone=chaos:1m; server { listen 127.0.0.1:$_[0]{other}{port}; }" },
);
my @WRONG = sort keys %WRONG;

# Returns whether a line of a log is about a wrong configuration of these.
sub is_expected { my ($line) = @_; return $line =~ /\[emerg\]/ && grep { $line =~ /$_/ } @WRONG }

sub kinds {
    my ($store) = @_;
    my %reload = (hold => [0.3, 1], takes => \&Plan::reload);
    my %whole  = (rounds => 'keeping', hold => [0.3, 2], takes => \&Plan::whole);
    my %turn   = (begin => \&change, undo => \&settle);
    my %back   = (begin => \&change, undo => sub { settle(@_); change_back(@_); settle(@_) });
    return (
        'reload with other rules' => {
            %reload, %turn, weight => 4, rounds => 'both',
            draw => sub {
                my ($plan) = @_;
                my @algorithms = $store->can('decides') ? 'fixed' : qw(fixed moving elastic rate);
                return (Plan::a_worker($plan), change => {
                    window => $plan->one_of(qw(sliding fixed)), limit => 40 + $plan->number(60),
                    algorithm => $plan->one_of(@algorithms),
                });
            },
        },
        'reload with another name' => {
            %reload, %back, weight => 4, rounds => 'both', hold => [0.3, 2],
            draw => sub { (Plan::a_worker(@_), change => {name => $_[0]->one_of(qw(api other)), is_alone => 1}, back => {is_alone => 0}) },
        },
        # The store that is left has counts that come back with it, so nodes that end would lose theirs.
        'reload with another store' => {
            %reload, %back, weight => 3, rounds => 'losing', hold => [0.5, 2],
            draw => sub { (Plan::a_worker(@_), change => {place => $_[0]->one_of(qw(spare other))}, back => {place => 'main'}) },
        },
        # A store that loses its data loses what it decided.
        'reload that lets the store decide' => {
            %reload, %back, weight => 3, rounds => 'keeping', hold => [0.5, 2],
            draw => sub { (Plan::a_worker(@_), change => {decides => 1}, back => {decides => 0}) },
        },
        # The former zone ends with its workers, which push what is left.
        'reload with another zone' => {
            %whole, %turn, weight => 4,
            draw => sub { (Plan::a_worker(@_), change => {zone => $_[0]->one_of(qw(counters others)), size => $_[0]->one_of(qw(32m 24m))}) },
        },
        'wrong configuration' => {
            weight => 3, rounds => 'both', hold => [0.1, 1], takes => \&Plan::reload,
            draw  => sub { (Plan::a_worker(@_), wrong => $_[0]->one_of(@WRONG)) },
            begin => \&begin_wrong, undo => \&end_wrong,
        },
        # Two masters side by side; then one of them ends.
        'upgrade' => {
            %whole, weight => 6,
            draw  => sub { (Plan::a_worker(@_), is_older => $_[0]->number(2), rolls_back => $_[0]->number(2)) },
            begin => \&begin_upgrade, undo => \&end_upgrade,
        },
        'clock' => {
            weight => 4, rounds => 'both', takes => sub { ("clock $_[0]{node}") },
            draw  => sub {
                my ($plan) = @_;
                my $most = $plan->one_of(1, 10, 100, 1000, JUMP);
                return (node => $plan->one_of($plan->nodes), offset => $plan->time(-$most, $most));
            },
            begin => sub { my ($cluster, $fault) = @_; $cluster->set_clock(@$fault{qw(node offset)}) },
        },
    );
}

# Reloads.

sub change      { my ($cluster, $fault) = @_; $cluster->begin_reload($fault, $fault->{change}) }
sub change_back { my ($cluster, $fault) = @_; $cluster->begin_reload($fault, $fault->{back}) }
sub settle      { my ($cluster, $fault) = @_; $cluster->wait_for_reload($fault) }

sub begin_wrong {
    my ($cluster, $fault) = @_;
    my $node = $cluster->node_of($fault);
    $fault->{said} = $node->logged(qr/\[emerg\]/);
    $node->configure($cluster->configuration($fault->{node}, $WRONG{$fault->{wrong}}->($cluster)));
    kill HUP => $node->{master};
}

sub end_wrong {
    my ($cluster, $fault) = @_;
    my $node = $cluster->node_of($fault);
    $node->wait_for('an [emerg]', sub { $node->logged(qr/\[emerg\]/) > $fault->{said} });
    # A port that is taken is tried again, for two seconds.
    $node->wait_for('the end of the tries', sub { $node->logged(qr/could not bind/) == $node->logged(qr/try again to bind/) / 5 })
        if $fault->{wrong} =~ /bind/;
    $node->configure($cluster->configuration($fault->{node}));
}

# Upgrades.

# The second master loads the module, or an older version of it, if the script has built one.
sub begin_upgrade {
    my ($cluster, $fault) = @_;
    my $node = $cluster->node_of($fault);
    my $old  = $fault->{old} = $node->{master};
    $fault->{module} = $node->{module};
    $node->{module} = $fault->{is_older} && $ENV{NGINX_OLDER_MODULE} || $ENV{TEST_NGINX_LOAD_MODULES};
    $node->configure;
    kill USR2 => $old;
    $node->wait_for('a second nginx', sub {
        open my $file, '<', "$node->{root}/nginx.pid" or return;
        my ($new) = (<$file> // '') =~ /^(\d+)\n/ or return;
        return if $new == $old;
        $node->{master} = $fault->{new} = $new;
        return $node->settled;
    });
}

# Both have pushed what they counted when they have ended.
sub end_upgrade {
    my ($cluster, $fault) = @_;
    my $node = $cluster->node_of($fault);
    my ($ends, $stays) = $fault->{rolls_back} ? @$fault{qw(new old)} : @$fault{qw(old new)};
    $node->{master} = $ends;
    $cluster->end_master($fault->{node}, 'QUIT');
    $node->{master} = $stays;
    $node->{module} = $fault->{module} if $fault->{rolls_back};
    $node->configure;
    $node->wait_for('the other master', sub { $node->settled && -e "$node->{root}/nginx.pid" && !-e "$node->{root}/nginx.pid.oldbin" });
}

1;
