# Tests the alerts in contrib/prometheus/alerts.yml with promtool, on series that nodes report during real faults.
#
# This is a plain Perl test. It uses the ports TEST_NGINX_PORT + 2, + 4 and + 6. Each phase reads the metrics of a node
# 24 times; the series for promtool have these samples at intervals of 15 seconds.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use JSON::PP;
use Test::More;
use Time::HiRes qw(sleep time);

use lib "$FindBin::Bin/lib";
use Node;
use Redis;

use constant {
    SAMPLES  => 24,    # of a phase
    INTERVAL => 15,    # seconds between two of them, for promtool
};

die "redis-server is not installed\n" if !Redis::is_there();

my $alerts   = "$FindBin::Bin/../contrib/prometheus/alerts.yml";
my $promtool = "$FindBin::Bin/../target/prometheus/usr/bin/promtool";
-x $promtool or die "promtool is missing: see unpacked in scripts/lib.sh\n";
my $dir      = tempdir('alerts-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my $port     = $ENV{TEST_NGINX_PORT} || 1984;
my $redis    = Redis->new(port => $port + 4);
$redis->be_empty;
my ($one, $two) = (Node->new(one => $port + 2), Node->new(two => $port + 6));
my %conf = (
    http => <<"    END",
        ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; timeout 5s; connect_timeout 5s; }
        ratelimit_namespace api  { zone counters; store main; sync_rate 100ms; sync_early off; }
        ratelimit_namespace slow { zone counters; store main; sync_rate 1s; sync_early off; }
        ratelimit_namespace now  { zone counters; store main; sync_rate 0; on_error local; timeout 5s; }
        ratelimit_zone zone=small:64k;
        ratelimit_namespace local { zone small; }
        ratelimit_zone zone=synced:64k;
        ratelimit_namespace few { zone synced; store main; sync_rate 100ms; }
    END
    rules => {
        hit    => 'api limit=1000000/366d',
        tight  => 'api limit=1/366d window=fixed',
        shared => 'slow limit=10/366d window=fixed',
        now    => 'now limit=1000000/366d window=fixed',
        local  => 'local limit=5/366d',
        few    => 'few limit=5/366d',
    },
);
$one->start(%conf);
$one->wait_for_first_sync;

my $all = 0;    # keys so far

is_quiet('requests within their limits', sub { $one->hit($_ => 'k' . $all++) for qw(hit now) });

fires(RatelimitZoneTooSmall => 'a zone that is too small', sub { $one->hit(local => 'm' . $all++) for 1 .. 100 });
fires(RatelimitManyRejected => 'more rejected than admitted', sub { $one->hit(tight => 'k') for 1 .. 3 });

$redis->kill;
fires(RatelimitStoreDown    => 'a store that is down', sub { $one->hit(hit => 'k') });
fires(RatelimitSyncStale    => 'a namespace that is not synced', sub { });
fires(RatelimitFallbacks    => 'requests that a store does not decide', sub { $one->hit(now => 'k') });
fires(RatelimitEvictsUnsent => 'hits that no store gets', sub { $one->hit(few => 'f' . $all++) for 1 .. 100 });
$redis->start;
$one->wait_for('the store', sub { $one->body('/metrics') =~ /^ratelimit_store_up\{.*\} 1$/m });
is_quiet('the store is back', sub { $one->hit($_ => 'k' . $all++) for qw(hit now) });

# Each node admits the whole limit of a key until it learns of the other's hits.
$two->start(%conf, clock => '+30s');
$two->wait_for_first_sync;
my $keys   = 0;
my $shared = sub {
    $keys++;
    for my $node ($one, $two) { $node->hit(shared => "s$keys") for 1 .. 10 }
};
# The node that pushes last counts them. If both sync at nearly the same times, that is the same one for long. On a busy
# machine it is not, and then the test tries again.
my $excess_of = sub { $_[0]->body('/metrics') =~ /^ratelimit_excess_hits_total\{namespace="slow"\} (\S+)$/m ? $1 : 0 };
my $firing;
for (1 .. 5) {
    my ($last, %before);
    $before{$_} = $excess_of->($_) for $one, $two;
    $one->wait_for('an excess', sub {
        $shared->();
        ($last) = grep { $excess_of->($_) > $before{$_} } $one, $two;
    });
    $firing = firing($last, $shared);
    last if $firing->{RatelimitExcessHits};
}
ok($firing->{RatelimitExcessHits}, 'RatelimitExcessHits: hits above a limit') or diag(join ', ', sort keys %$firing);
fires(RatelimitClockSkew => 'a clock that is off', sub { $two->hit(hit => 'k') }, $two);

$_->stop(qr/ratelimit/) for $one, $two;
done_testing();

# Runs `work` before each sample of a phase. Tests that this alert fires at the end.
sub fires {
    my ($alert, $name, $work, $node) = @_;
    my $firing = firing($node // $one, $work);
    ok($firing->{$alert}, "$alert: $name") or diag(join ', ', sort keys %$firing);
}

# Runs `work` before each sample of a phase. Tests that no alert fires at the end.
sub is_quiet {
    my ($name, $work) = @_;
    is(join(', ', sort keys %{firing($one, $work)}), '', "no alert: $name");
}

# Records a phase. Returns the alerts that fire at its end, as keys of a hash.
sub firing {
    my ($node, $work) = @_;
    my (%series, @times);
    for my $sample (0 .. SAMPLES - 1) {
        $work->();
        sleep 0.1;
        push @times, time;
        for (split /\n/, $node->body('/metrics')) {
            my ($name, $value) = /^(ratelimit_\S+) (\S+)\z/ or next;
            $series{$name}[$sample] = $value;
        }
    }
    # promtool's time begins at zero.
    my $past = sub { my ($at) = @_; return INTERVAL * SAMPLES * ($at - $times[0]) / ($times[-1] - $times[0]) };
    my @input = map {
        my $name = $_;
        my @values = map { !defined ? '_' : $name =~ /_timestamp_/ ? $past->($_) : 0 + $_ } @{$series{$name}};
        {series => $name =~ s/\}\z/,instance="node"}/r =~ s/^([^{]*)\z/$1\{instance="node"}/r, values => "@values"};
    } sort keys %series;
    # The tests expect no alerts, so that promtool names each one that fires.
    my @tests = map {
        {eval_time => INTERVAL * (SAMPLES - 1) . 's', alertname => $_, exp_alerts => []}
    } names();
    open my $file, '>', "$dir/test.yml" or die "cannot write: $!\n";
    print $file encode_json({
        rule_files => [$alerts], evaluation_interval => INTERVAL . 's',
        tests => [{interval => INTERVAL . 's', input_series => \@input, alert_rule_test => \@tests}],
    });
    close $file;
    my $said = `$promtool test rules $dir/test.yml 2>&1`;
    my %firing = map { $_ => 1 } $said =~ /alertname: ?(\w+)/g;
    die "promtool: $said" if ($? != 0) != (%firing != 0);
    return \%firing;
}

# Returns the names of all alerts.
sub names {
    open my $file, '<', $alerts or die "no alerts: $!\n";
    return map { /^ *- alert: (\w+)/ ? $1 : () } <$file>;
}
