# The library's functions in Lua where a store has the counters: `sync` and `fetch`. Without a store: lua.t.
#
# A plain Perl test, with Debian's lua-nginx-module; its environment is told in lib/OwnNginx.pm. It takes the
# ports TEST_NGINX_PORT + 2 to + 4. Windows are of 366 days, so that no test meets the end of one.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";

my $has_lua;

BEGIN {
    require LuaNode;
    $has_lua = LuaNode::is_there();
}
use Node;
use Redis;
use TwoNodes;

if (!$has_lua) {
    pass('there is no lua-nginx-module for this nginx');
    done_testing();
    exit;
}

die "redis-server is not installed\n" if !Redis::is_there();

my ($a, $b) = @nodes;

$store = Redis->new(port => $port + 4);

subtest 'no sync is skipped, whatever is under way' => sub {
    $store->be_empty;
    # After the first cycle, the next one would come in an hour.
    $a->start(with_lua(sync_rate => '1h'));
    $a->wait_for_first_sync;
    for my $number (1 .. 3) {
        $a->hit(hit => 'k');
        is(lua($a, 'return rl.sync(false, "api")'), 'true true', 'a sync');
        eventually(sub { $store->total(api => 'k') }, $number, 'pushes what was counted');
    }
    $store->pause;
    $a->hit(hit => 'k');
    my %asked;
    # One worker has the lease, and waits for the store; the other waits for that one.
    $a->wait_for('a sync of both workers', sub {
        $asked{lua($a, 'return rl.sync(false, "api") and ngx.worker.id()')} = 1;
        return keys %asked == 2;
    });
    $a->hit(hit => 'k');
    is(lua($a, 'return rl.sync(false, "api")'), 'true true', 'another sync while they wait');
    $store->go_on;
    eventually(sub { $store->total(api => 'k') }, 5, 'pushes what was counted meanwhile');
    stop();
};

done_testing();

# The configuration of a node that has Lua, too.
sub with_lua {
    my %conf = conf(@_);
    my %lua  = LuaNode::conf();
    return (%conf, %lua, http => $conf{http} . $lua{http});
}

sub lua { LuaNode::run(@_) }
