# A Redis Cluster of three primaries with a replica each, and its faults. See Cluster.pm.
#
# Its servers name each other by their own addresses, so there is no proxy between them and nodes. A
# `pair` is a server and the one that replicates it, whichever is the primary.

package ClusterStore;

use strict;
use warnings;

use parent 'Store';

use List::Util qw(first);

use Node;
use Plan;
use Redis;
use RedisCluster;

use constant {
    PAIRS  => 3,
    SHARDS => 16,    # those of a namespace
    SPARE  => 'prefix spare',
};

sub kinds {
    my %one   = (takes => \&Plan::store, draw => \&a_pair);
    my %all   = (takes => \&Plan::store);
    my %aside = (takes => sub { ('store shared') }, draw => \&a_pair);
    return (
        # The replica takes over without the writes that it lacks, or the server is back before
        # that. A server waits 2 s after its start before it writes, so this takes some time.
        'kill primary' => {
            %one, weight => 6, rounds => 'losing', hold => [0.3, 4], rest => 3,
            begin => sub { my ($self, $fault) = @_; $self->away($fault)->kill },
            undo  => sub { my ($self, $fault) = @_; $fault->{away}->start },
        },
        'restart empty' => {
            %one, weight => 1, rounds => 'losing', hold => [0.1, 0.7], rest => 3,
            begin => sub { my ($self, $fault) = @_; $self->away($fault)->kill },
            undo  => sub { my ($self, $fault) = @_; start_with($fault->{away}, undef) },
        },
        'restart old' => {
            %one, weight => 2, rounds => 'losing', hold => [0.1, 1], rest => 3,
            begin => sub { my ($self, $fault) = @_; copy_data($self->away($fault)) },
            undo  => sub {
                my ($self, $fault) = @_;
                $fault->{away}->kill;
                start_with($fault->{away}, 'copy');
            },
        },
        # A replica that has received nothing for a while takes over without a vote.
        'takeover' => {
            %one, weight => 4, rounds => 'losing', hold => [0.2, 2], rest => 1.5,
            begin => sub {
                my ($self, $fault) = @_;
                my $replica = $fault->{replica} = $self->replica($fault->{pair});
                $replica->cli(CONFIG => 'SET', 'masterauth', 'another');
                $replica->cli(CLIENT => 'KILL', 'TYPE', 'master');
            },
            undo => sub {
                my ($self, $fault) = @_;
                $fault->{replica}->cli(CLUSTER => 'FAILOVER', 'TAKEOVER');
                $fault->{replica}->cli(CONFIG => 'SET', 'masterauth', $self->{password});
            },
        },
        'flush' => {
            %all, weight => 1, rounds => 'losing',
            begin => sub { $_->cli('FLUSHALL') for $_[0]->primaries },
        },
        'flush one primary' => {
            %one, weight => 1, rounds => 'losing',
            begin => sub {
                my ($self, $fault) = @_;
                $self->primary($fault->{pair})->cli('FLUSHALL');
            },
        },
        'restart' => {
            %one, weight => 3, rounds => 'keeping', hold => [0.1, 1.5], rest => 3,
            begin => sub { my ($self, $fault) = @_; $self->away($fault)->kill },
            undo  => sub { my ($self, $fault) = @_; $fault->{away}->start },
        },
        # The primary waits for the replica, so nothing is lost.
        'failover' => {
            %one, weight => 5, rounds => 'both', rest => 1,
            begin => sub {
                my ($self, $fault) = @_;
                my $replica = $self->replica($fault->{pair});
                $replica->cli(CLUSTER => 'FAILOVER');
                Node::wait_until(30, sub { is_primary($replica) });
            },
        },
        'stop primary' => {
            %one, weight => 5, rounds => 'both', hold => [0.1, 3], rest => 2,
            begin => sub { my ($self, $fault) = @_; $self->away($fault)->pause },
            undo  => sub { my ($self, $fault) = @_; $fault->{away}->go_on },
        },
        # Moves some keys of the slots that a shard of each namespace is in, and the others later.
        'move slot' => {
            weight => 12, rounds => 'both', hold => [0.05, 1.5], rest => 0.5,
            takes  => sub { ('store shared', 'slots') },
            draw   => sub {
                my ($plan) = @_;
                my %drawn = (shard => $plan->number(SHARDS), pair => $plan->number(PAIRS));
                return (%drawn, part => $plan->time(0, 1));
            },
            begin => \&begin_move,
            undo  => \&end_move,
        },
        'script flush' => {
            %aside, weight => 2, rounds => 'both',
            begin => sub {
                my ($self, $fault) = @_;
                $self->primary($fault->{pair})->cli('SCRIPT', 'FLUSH');
            },
        },
        'client kill' => {
            %aside, weight => 4, rounds => 'both',
            begin => sub {
                my ($self, $fault) = @_;
                $self->primary($fault->{pair})->cli('CLIENT', 'KILL', 'TYPE', 'normal');
            },
        },
        'wrong password' => {
            %all, weight => 2, rounds => 'both', hold => [0.2, 1.5],
            begin => sub { $_[0]->change_password('another') },
            undo  => sub { $_[0]->change_password($_[0]{password}) },
        },
        'out of memory' => {
            %one, weight => 3, rounds => 'both', hold => [0.2, 1.5],
            begin => sub {
                my ($self, $fault) = @_;
                $self->away($fault)->cli('CONFIG', 'SET', 'maxmemory', '1');
            },
            undo => sub {
                my ($self, $fault) = @_;
                $fault->{away}->cli('CONFIG', 'SET', 'maxmemory', '0');
            },
        },
    );
}

sub a_pair { my ($plan) = @_; return (pair => $plan->number(PAIRS)) }

# The servers keep their files on disk, so those to lose are removed.
sub new {
    my ($class, %self) = @_;
    my $self     = bless {%self}, $class;
    my $password = $self->{password};
    $self->{server} = RedisCluster->new(
        port => $self->{port}, password => $password, node_timeout => 1000,
        args => [
            '--requirepass', $password, '--masterauth', $password,
            '--appendonly', 'yes', '--appendfsync', 'always',
            '--repl-diskless-sync-delay', '0',
        ],
    );
    return $self;
}

sub has_way { 0 }
sub conf { my ($self) = @_; return join ' ', 'strategy redis;', $self->{server}->servers, "password $self->{password};" }

# A replica takes over from a primary that was down for a second, and may lack acknowledged writes.
# If nothing may be lost, it takes over only on command.
sub keep {
    my ($self, $is_keeping) = @_;
    my @setting = ('cluster-replica-no-failover', $is_keeping ? 'yes' : 'no');
    for my $server ($self->servers) {
        $server->cli(CONFIG => 'SET', @setting);
        $server->{args} = [@{$server->{args}}, "--$setting[0]", $setting[1]];
    }
    $self->ready;
}

# Waits until there are three primaries with a complete replica each, and all servers agree on that.
sub ready {
    my ($self) = @_;
    my (%views, @ill);
    my $is_well = sub {
        %views = map { (view($_) => 1) } $self->servers;
        my ($view, @others) = keys %views;
        @ill = grep { !is_well($_) } $self->servers;
        return !@ill && !@others && $view !~ /fail|handshake|noaddr|silent/ &&
            PAIRS == (() = $view =~ / slave /g);
    };
    eval { Node::wait_until(60, $is_well) }
        or die join "\n", 'the cluster does not get well:', (map {"$_\n"} keys %views),
            (map {"not well: $_->{port}"} @ill), '';
}

# Returns a server's view of all servers: name, role, primary and slots. Names are hexadecimal
# numbers, so no flag for a problem looks like one.
sub view {
    my ($server) = @_;
    my @lines = split /\n/, eval { $server->cli(CLUSTER => 'NODES') } // 'silent';
    return join "\n", sort map {
        s/ \[.*?\]|,nofailover//gr =~ s/^(\S+) \S+ (?:myself,)?(\S+ \S+) \S+ \S+ \S+ \S+/$1 $2/r
    } @lines;
}

sub is_well {
    my ($server) = @_;
    return eval {
        my $is_linked = is_primary($server) ||
            $server->cli(INFO => 'replication') =~ /^master_link_status:up/m;
        my $info = $server->cli(INFO => 'persistence');
        $is_linked && $server->cli(CLUSTER => 'INFO') =~ /^cluster_state:ok/ &&
            $info =~ /^aof_enabled:1/m && $info !~ /^aof_rewrite_(?:in_progress|scheduled):1/m;
    };
}

sub servers    { return @{$_[0]{server}{all}} }
sub is_primary { my ($server) = @_; return $server->cli('ROLE')->[0] eq 'master' }
sub pair       { my ($self, $pair) = @_; return @{$self->{server}{all}}[$pair, $pair + PAIRS] }
sub primary    { my ($self, $pair) = @_; return first { is_primary($_) } $self->pair($pair) }
sub replica    { my ($self, $pair) = @_; return first { !is_primary($_) } $self->pair($pair) }
sub primaries  { my ($self) = @_; return map { $self->primary($_) } 0 .. PAIRS - 1 }

# Returns the primary that a fault affects.
sub away {
    my ($self, $fault) = @_;
    return $fault->{away} = $self->primary($fault->{pair});
}

sub copy_data {
    my ($server) = @_;
    my ($data, $copy) = map {"$server->{dir}/$_"} qw(appendonlydir copy);
    system(qw(rm -rf), $copy) == 0 && system(qw(cp -r), $data, $copy) == 0
        or die "cannot copy what a server has\n";
}

# Starts a server with a copy of its files, or empty.
sub start_with {
    my ($server, $copy) = @_;
    my $dir = $server->{dir};
    system(qw(rm -rf), "$dir/appendonlydir") == 0 or die "cannot remove what a server has\n";
    if ($copy) { rename "$dir/$copy", "$dir/appendonlydir" or die "cannot rename: $!\n" }
    $server->start;
}

sub change_password {
    my ($self, $password) = @_;
    for my $server ($self->servers) {
        $server->cli('CONFIG', 'SET', 'requirepass', $password);
        $server->{password} = $password;
        $server->cli('CLIENT', 'KILL', 'TYPE', 'normal');
    }
}

# Moves slots as redis-cli does.
sub begin_move {
    my ($self, $fault) = @_;
    my ($any) = $self->servers;
    my @slots = map { $any->cli(CLUSTER => 'KEYSLOT', "rl:{$_:$fault->{shard}}") } @Cluster::NAMESPACES;
    $fault->{moves} = [map { $self->begin_move_of_slot($_, $fault) } @slots];
}

sub begin_move_of_slot {
    my ($self, $slot, $fault) = @_;
    my @primaries = $self->primaries;
    my $from = first { has_slot($primaries[$_], $slot) } 0 .. $#primaries;
    my $to   = $fault->{pair} == $from ? ($from + 1) % PAIRS : $fault->{pair};
    my $move = {slot => $slot, source => $primaries[$from], target => $primaries[$to]};
    my ($source_id, $target_id) = map { $_->cli(CLUSTER => 'MYID') } @$move{qw(source target)};
    $move->{target}->cli(CLUSTER => 'SETSLOT', $slot, 'IMPORTING', $source_id);
    $move->{source}->cli(CLUSTER => 'SETSLOT', $slot, 'MIGRATING', $target_id);
    my @keys = @{$move->{source}->cli(CLUSTER => 'GETKEYSINSLOT', $slot, 1000)};
    $self->move_keys($move, @keys[0 .. int(@keys * $fault->{part}) - 1]);
    return $move;
}

sub end_move {
    my ($self, $fault) = @_;
    for my $move (@{$fault->{moves}}) {
        my ($slot, $source, $target) = @$move{qw(slot source target)};
        while (my @keys = @{$source->cli(CLUSTER => 'GETKEYSINSLOT', $slot, 1000)}) {
            $self->move_keys($move, @keys);
        }
        my $id = $target->cli(CLUSTER => 'MYID');
        $_->cli(CLUSTER => 'SETSLOT', $slot, 'NODE', $id) for $target, $source;
        # Servers trust the node with the greater epoch. A target that was restarted meanwhile has
        # forgotten that it imports the slot, and takes it without a new epoch.
        $target->cli(CLUSTER => 'BUMPEPOCH');
        # A replica that takes over before it knows of the move would claim the slot, and the target
        # would delete its keys.
        Node::wait_until(30, sub { !grep { $id ne (owner($_, $slot) // '') } $self->servers });
    }
}

# After CLIENT KILL the connection between the two ends, so the command is repeated.
sub move_keys {
    my ($self, $move, @keys) = @_;
    return if !@keys;
    my @to = ('127.0.0.1', $move->{target}{port}, '', 0, 5000, 'AUTH', $self->{password});
    # While another primary is silent, on a busy machine, no server takes commands with keys.
    Node::wait_until(30, sub {
        return 1 if eval { $move->{source}->cli(MIGRATE => @to, KEYS => @keys) } || $@ =~ /^IOERR/;
        die $@ if $@ !~ /^CLUSTERDOWN/;
        return 0;
    });
}

sub has_slot { my ($server, $slot) = @_; return $server->cli(CLUSTER => 'MYID') eq (owner($server, $slot) // '') }

# Returns the node of a slot, in a server's view.
sub owner {
    my ($server, $slot) = @_;
    for (split /\n/, $server->cli(CLUSTER => 'NODES')) {
        my @words = split ' ';
        for (grep {/^\d/} @words[8 .. $#words]) {
            my ($from, $to) = split /-/;
            return $words[0] if $slot >= $from && $slot <= ($to // $from);
        }
    }
    return;
}

1;
