# Tests a store that responds but refuses writes. The log reports once that it is lost, and once that it is back, when
# it accepts writes again. Other responses do not count as back.
#
# This is a plain Perl test, like synchronous.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Postgres;
use Redis;
use TwoNodes;

my ($a) = @nodes;
my $keys = 0;

# Makes a store refuse writes and tests the log; a reload does not change the result. `attempts` returns the number of
# attempts of the nodes so far, and `location` is the location that the test requests.
sub refusal {
    my ($name, %is) = @_;
    subtest $store->label . ": $name" => sub {
        $store->be_empty;
        my %conf = ($is{conf} // \&synchronous)->(namespace => '', @{$is{more} // []});
        $conf{server} = 'ratelimit_log_level off;';
        $conf{rules}{moving} = 'api limit=1000/1h window=moving' if $is{location};
        $a->start(%conf);
        my $location = $is{location} // 'hit';
        $a->wait_for('the store', sub { $a->status($location => 'k' . $keys++) eq 'PASSED' });
        $a->wait_for_first_sync;
        $is{refuse}->();
        $a->wait_for('an [error]', sub { $a->hit($location => 'k' . $keys++); $a->logged($lost) });
        for my $reloads (@{$is{reloads} // [1, 0]}) {
            my $before = $is{attempts}->();
            my $health = 503;
            $a->wait_for('some attempts', sub {
                $a->hit($location => 'k' . $keys++);
                my $now = $a->plain('/api/health');
                $health = $now if $now ne 503;
                $is{attempts}->() >= $before + 4;
            });
            is($health, 503, 'it stays lost');
            is_deeply([$a->logged($lost), $a->logged($back)], [1, 0], 'of which one line tells');
            $a->reload if $reloads;
        }
        $is{grant}->();
        eventually(sub { $a->hit($location => 'k' . $keys++); $a->plain('/api/health') }, 200, 'it is back when it does what it refused');
        $a->wait_for('an answer', sub { $a->status($location => 'k' . $keys++) eq 'PASSED' });
        # The worker that logs the event need not be the one that answers.
        eventually(sub { [$a->logged($lost), $a->logged($back)] }, [1, 1], 'of which one line tells');
        stop($lost);
    };
}

sub redis_refusals {
    my $calls = sub {
        my ($line) = grep {/^cmdstat_evalsha:/} split /\r?\n/, $store->cli(INFO => 'commandstats');
        return ($line // '') =~ /calls=(\d+)/ ? $1 : 0;
    };
    my %full = (
        refuse   => sub { $store->cli(CONFIG => SET => maxmemory => 1) },
        grant    => sub { $store->cli(CONFIG => SET => maxmemory => 0) },
        attempts => $calls,
    );
    refusal("no memory is left, on_error $_", %full, more => [namespace => "on_error $_;"]) for qw(deny local);
    refusal('no memory is left, while hits are pushed', %full, conf => \&conf);
    for ([hit => 'xadd'], [moving => 'set']) {
        my ($location, $command) = @$_;
        refusal("a right is taken away, $command",
            refuse   => sub { $store->cli(ACL => SETUSER => default => "-$command") },
            grant    => sub { $store->cli(ACL => SETUSER => default => "+$command") },
            attempts => $calls,
            location => $location,
            # The first request in a new configuration tries windows.
            reloads => [$location eq 'hit' ? (1, 0) : 0],
            more     => [namespace => 'on_error deny;'],
        );
    }
}

sub postgres_refusals {
    my $set = sub { $store->sql("ALTER SYSTEM SET default_transaction_read_only = $_[0]"); $store->sql('SELECT pg_reload_conf()') };
    my $asked     = 0;
    my %read_only = (
        refuse   => sub { $set->('on') },
        grant    => sub { $set->('off') },
        # A node opens a new connection after each refusal, and so does each of these queries.
        attempts => sub { $store->sql('SELECT sessions FROM pg_stat_database WHERE datname = current_database()') - ++$asked },
    );
    refusal('transactions only read', %read_only, more => [namespace => 'on_error deny;']);
    refusal('transactions only read, while hits are pushed', %read_only, conf => \&conf);
}

$store = Redis->new(port => $port + 4);
redis_refusals();
$store->kill;

$store = Postgres->new(port => $port + 4);
postgres_refusals();

done_testing();
