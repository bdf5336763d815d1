# A private etcd, and queries for its contents.
#
# Nodes reach it through a proxy (see Proxy.pm), since etcd has no command that cuts connections. A killed or paused etcd
# is a real one.

package Etcd;

use strict;
use warnings;

use File::Path qw(remove_tree);
use HTTP::Tiny;
use JSON::PP qw(decode_json encode_json);
use MIME::Base64 qw(decode_base64 encode_base64);
use Processes;
use Proxy;

# port => the port of the proxy, to which nodes connect. The server uses the ports port + 1 and port + 2.
sub new {
    my ($class, %self) = @_;
    my $self = bless {prefix => 'rl', http => HTTP::Tiny->new(timeout => 10), %self}, $class;
    $self->{dir}   = memory_dir('own-etcd');
    $self->{proxy} = Proxy->new(port => $self->{port}, to => $self->server_port);
    return $self;
}

# The port of the server itself.
sub server_port { $_[0]{port} + 1 }
sub address     { 'http://127.0.0.1:' . $_[0]->server_port }
sub is_there    { system('etcd --version >/dev/null 2>&1') == 0 }

# Calls a method of the JSON gateway, and returns the answer.
sub ask {
    my ($self, $method, $request) = @_;
    my %headers = $self->{token} ? (Authorization => $self->{token}) : ();
    my $url     = $self->address . "/v3/$method";
    my $answer  = $self->{http}->post($url, {content => encode_json($request), headers => \%headers});
    die "$method: $answer->{content}\n" if !$answer->{success};
    return decode_json($answer->{content});
}

# Returns the pairs of keys and values whose keys have this prefix.
sub range {
    my ($self, $prefix) = @_;
    my $answer = $self->ask('kv/range', {key => encode_base64($prefix, ''), range_end => encode_base64(after($prefix), '')});
    return map { map { decode_base64($_ // '') } @$_{qw(key value)} } @{$answer->{kvs} // []};
}

sub after {
    my ($prefix) = @_;
    return substr($prefix, 0, -1) . chr(1 + ord substr $prefix, -1);
}

# The interface of a store that nodes share: see TwoNodes.pm.

sub label       { 'etcd' }
sub software    { qr/etcd \d+\.\d+/ }
sub strategy    { 'etcd' }
sub second      { 300 }
sub credentials { "username ${\ $_[0]->user}; password $_[1];" }
sub tells_no_time { 1 }

sub place {
    my (undef, $number) = @_;
    my $prefix = $number ? "place-$number" : 'rl';
    return ("prefix $prefix;", prefix => $prefix);
}

sub start {
    my ($self) = @_;
    remove_tree("$self->{dir}/data") if !$self->{keeps};
    my ($clients, $peers) = ($self->address, 'http://127.0.0.1:' . ($self->{port} + 2));
    my @command = (
        'etcd', '--data-dir', "$self->{dir}/data", '--listen-client-urls', $clients, '--advertise-client-urls', $clients,
        '--listen-peer-urls', $peers, '--initial-advertise-peer-urls', $peers, '--initial-cluster', "default=$peers",
        # A password is checked in less than a millisecond.
        '--bcrypt-cost', '4',
        # The only member elects itself at once.
        '--heartbeat-interval', '10', '--election-timeout', '50',
    );
    delete $self->{token};
    $self->{pid} = start_server(
        name     => 'etcd',
        command  => \@command,
        port     => $self->server_port,
        log      => "$self->{dir}/log",
        is_ready => sub { $self->ask('maintenance/status', {})->{leader} },
    );
    $self->{proxy}->pass;
}

sub runs    { defined $_[0]{pid} }
sub pause   { stop_processes($_[0]{pid}) }
sub go_on   { kill CONT => $_[0]{pid} }
sub restart { $_[0]->kill; $_[0]->start }

sub kill {
    my ($self) = @_;
    $self->{proxy}->refuse;
    $self->end;
}

sub end {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    end_process($pid);
}

sub be_empty {
    my ($self, %is) = @_;
    $self->kill;
    $self->{keeps} = 0;
    $self->start;
    $self->{keeps} = $is{keeps};
}

sub be_away {
    my ($self) = @_;
    $self->{keeps} = 0;
    $self->kill;
}

sub flush { $_[0]->ask('kv/deleterange', {key => 'AA==', range_end => 'AA=='}) }

# Deletes all that ends, and keeps the rest, before anybody writes again: as if nodes and server had been away for so long.
sub revoke_leases {
    my ($self) = @_;
    $self->alarm('ACTIVATE');
    while (my @leases = @{$self->ask('lease/leases', {})->{leases} // []}) {
        # One that ends meanwhile is not found.
        eval { $self->ask('lease/revoke', {ID => $_->{ID}}) } for @leases;
    }
    $self->alarm('DEACTIVATE');
}

# Activates or deactivates the alarm of a full server, which then refuses to write.
sub alarm {
    my ($self, $action) = @_;
    my $member = $self->ask('maintenance/status', {})->{header}{member_id};
    $self->ask('maintenance/alarm', {action => $action, memberID => $member, alarm => 'NOSPACE'});
}

sub cut_connections { $_[0]{proxy}->reset }

# Returns the number of watches. Each node has one for a namespace.
sub listeners {
    my ($self) = @_;
    my $metrics = $self->{http}->get($self->address . '/metrics')->{content};
    return ($metrics =~ /^etcd_debugging_mvcc_watcher_total (\d+)/m)[0] // 0;
}

sub disturbances {
    my ($self) = @_;
    return (
        ['del --from-key', sub { $self->flush }],
        ['lease revoke',   sub { $self->revoke_leases }],
        ['reset',          sub { $self->cut_connections }],
    );
}

sub lock {
    my ($self, $password) = @_;
    my $user  = $self->user;
    my $right = {permType => 'READWRITE', key => encode_base64('rl/', ''), range_end => encode_base64('rl0', '')};
    $self->ask('auth/role/add',   {name => 'ratelimit'});
    $self->ask('auth/role/grant', {name => 'ratelimit', perm => $right});
    for my $name ('root', $user) {
        $self->ask('auth/user/add',   {name => $name, password => $password});
        $self->ask('auth/user/grant', {user => $name, role => $name eq 'root' ? 'root' : 'ratelimit'});
    }
    $self->ask('auth/enable', {});
    $self->log_in($password);
}

# Returns the name of the user of nodes. It occurs nowhere else, so that the log can be searched for it.
sub user { return "locked-$$" }

sub log_in {
    my ($self, $password) = @_;
    $self->{token} = $self->ask('auth/authenticate', {name => 'root', password => $password})->{token};
}

sub change_password {
    my ($self, $password) = @_;
    $self->ask('auth/user/changepw', {name => $self->user, password => $password});
}

sub unlock {
    my ($self) = @_;
    $self->ask('auth/disable', {});
    delete $self->{token};
}

sub epoch {
    my ($self, $namespace) = @_;
    my %head = $self->range("$self->{prefix}/$namespace/0/head");
    return (map { (split ' ')[0] } values %head)[0];
}

sub totals {
    my ($self, $namespace, $size) = @_;
    my $epoch    = $self->epoch($namespace) // return {};
    my %counters = $self->range("$self->{prefix}/$namespace/0/$epoch/c/");
    my %totals;
    for my $name (keys %counters) {
        my ($of, $key) = $name =~ m{/c/(\d+)/\d+/(.*)\z}s or die "a counter has the name $name\n";
        next if defined $size && $of != $size;
        $totals{$key} += $counters{$name};
    }
    $_ /= 1000 for values %totals;
    return \%totals;
}

sub total {
    my ($self, $namespace, $key, $size) = @_;
    return $self->totals($namespace, $size)->{$key} // 0;
}

1;
