# Tests subrequests with their own variables, as Lua's ngx.location.capture makes them. The decision belongs to
# the main request, which is counted once, charged when it ends, and gets the headers about the limits.
#
# This is a plain Perl test that needs Debian's lua-nginx-module; lib/OwnNginx.pm describes its environment. It uses
# the ports TEST_NGINX_PORT + 2 and + 4. Windows have 366 days, so that none ends during a test.

use strict;
use warnings;

use FindBin;
use IO::Select;
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";

my $has_lua;

BEGIN {
    require LuaNode;
    $has_lua = LuaNode::is_there();
}
use Node;
use Redis;

if (!$has_lua) {
    pass('there is no lua-nginx-module for this nginx');
    done_testing();
    exit;
}

my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $node  = Node->new(a => $port + 2);
my $redis = Redis->new(port => $port + 4);

# Lua code that makes subrequests: with their own variables, empty or copied, and with those of the main request;
# sequentially and in parallel.
my %captures = (
    own    => 'for i = 1, 3 do add(capture("/limited")) end',
    copied => 'for i = 1, 3 do add(capture("/limited", { copy_all_vars = true })) end',
    shared => 'for i = 1, 3 do add(capture("/limited", { share_all_vars = true })) end',
    beside => 'add(ngx.location.capture_multi { { "/limited" }, { "/limited" }, { "/limited" } })',
);

# Lua code of the locations: `add` collects the statuses, and `done` sends them as the response.
my $lua = <<'END';
    local statuses, capture = {}, ngx.location.capture
    local function add(...) for _, res in ipairs { ... } do statuses[#statuses + 1] = res.status end end
    local function done() ngx.print(table.concat(statuses, " ")) end
END

# Returns a location that runs Lua code.
sub lua { my ($path, $code, $more) = @_; return "location = $path { " . ($more // '') . " content_by_lua_block { $lua $code } }\n" }

subtest 'a request is counted once, and told about the limits' => sub {
    start(limit => 'limit=4/366d window=fixed');
    my $left = 4;
    for my $how (sort keys %captures) {
        my $answer = ask("/$how");
        $left--;
        is($answer->{body}, '200 200 200', "$how: each is answered");
        like($answer->{head}, qr/\r\nRateLimit: "default-366d";r=$left;t=\d+\r\n/, 'the limits are those of the request');
        like($answer->{head}, qr/\r\nStatus: PASSED\r\n/, 'and so are its variables');
    }
    for my $how (sort keys %captures) {
        my $answer = ask("/$how");
        is($answer->{body}, '429 429 429', "$how: each is rejected");
        is($answer->{status}, 200, 'but not the request, which decides what becomes of it');
        like($answer->{head}, qr/\r\nRetry-After: \d+\r\n/, 'it is told when to come again');
        like($answer->{head}, qr/\r\nStatus: REJECTED\r\n/, 'and has the decision');
    }
    is($node->logged(qr/rejected by/), 4, 'each rejection is logged once');
    like(requests(), qr/"passed":4,"rejected":4,/, 'and counted once');
    stop();
};

subtest 'requests of one connection are counted each' => sub {
    start(limit => 'limit=2/366d window=fixed');
    my $socket = $node->connection;
    is(ask('/own', $socket)->{body}, '200 200 200', 'admitted') for 1, 2;
    is(ask('/own', $socket)->{body}, '429 429 429', 'rejected');
    stop();
};

# Each kind of rule admits four requests, however they make their subrequests. `rate` is what the API then finds.
for my $case (
    ['limit=4/366d',                                 'window=366d'],
    ['limit=4/366d window=moving',                   'window=366d&window_type=moving'],
    ['limit=4/366d window=elastic',                  'window=366d&window_type=elastic'],
    ['rate=1/366d burst=3',                          'rate=1/366d&burst=3'],
    ['limit=4/month',                                'window=month'],
    ['limit=4/366d limit=9/365d window=fixed',       'window=365d'],
    ['limit=9/366d; ratelimit limit=4/365d window=moving', 'window=366d'],
    ['limits=$four window=fixed; ratelimit limit=99/366d counter=x', 'window=366d'],
    ['limit=8/366d cost=2 window=fixed',             'window=366d', 8],
    ['limit=4/366d charge=$one window=moving',       'window=366d&window_type=moving'],
    ['limit=4/366d charge=$one window=elastic',      'window=366d&window_type=elastic'],
    ['rate=1/366d burst=3 charge=$one',              'rate=1/366d&burst=3'],
    ['limit=8/366d cost=1 charge=2 window=moving',   'window=366d&window_type=moving', 8],
    ['limit=4/366d window=fixed unless=$zero status=499', 'window=366d', 4, 499],
    ['limit=4/366d window=moving; ratelimit_count_rejected on', 'window=366d&window_type=moving', 8],
    ['limit=4/366d; ratelimit_phase precontent; ratelimit_message text/plain no', 'window=366d'],
) {
    my ($limit, $counter, $rate, $status) = @$case;
    $rate   //= 4;
    $status //= 429;
    subtest "each request is decided on once: $limit" => sub {
        start(limit => $limit, http => 'map $arg_x $four { default 4/366d; } map $status $one { volatile; default 1; } map $arg_x $zero { default 0; }');
        my @answers = map { ask("/$_") } (sort keys %captures) x 2;
        is(join(', ', map { $_->{body} } @answers), join(', ', ('200 200 200') x 4, ("$status $status $status") x 4), 'four are admitted');
        is(join(' ', map { $_->{head} =~ /\r\nStatus: (\w+)/ } @answers), join(' ', ('PASSED') x 4, ('REJECTED') x 4), 'as they are told');
        is_deeply([map { scalar(() = $_->{head} =~ /\r\nRateLimit: /g) } @answers], [(1) x 8], 'by one header');
        is_deeply([map { scalar(() = $_->{head} =~ /\r\nRetry-After: /g) } @answers], [(0) x 4, (1) x 4], 'and when to come again');
        my $body = $node->body("/api/namespaces/default/keys/k?$counter");
        like($body, qr/"rate":$rate,/, 'the key has their hits');
        stop();
    };
}

subtest 'a request with subrequests is under way until it ends' => sub {
    my $code = 'if ngx.var.arg_wait then ngx.sleep(30) end add(capture("/limited")) done()';
    start(limit => 'concurrent=2', server => lua('/waits', "add(capture('/limited'), capture('/limited')) $code"));
    my @held = map { request('/waits?wait=1') } 1, 2;
    my $under_way = sub { $node->body('/metrics') =~ /^ratelimit_concurrent\{namespace="default"\} (\d+)$/m ? $1 : 'none' };
    $node->wait_for('two requests', sub { $under_way->() == 2 });
    is(ask('/own')->{body}, '429 429 429', 'a third is rejected');
    close $_ for splice @held;
    $node->wait_for('their end', sub { $under_way->() == 0 });
    is(ask('/beside')->{body}, '200 200 200', 'one that comes later is not');
    $node->stop;
};

subtest 'variables within a subrequest are those of the decision' => sub {
    start(limit => 'limit=9/366d window=fixed', server => 'location = /limited { '
        . 'ratelimit limit=9/366d window=fixed key=k; content_by_lua_block { ngx.print(ngx.var.ratelimit_remaining, ngx.var.ratelimit_key) } }'
        . lua('/inner', 'ngx.print(tostring(ngx.var.ratelimit_status), capture("/limited").body, capture("/limited").body, ngx.var.ratelimit_status)'));
    is(ask('/inner')->{body}, 'nil8k8kPASSED', 'before it, in it, and after it');
    stop();
};

subtest 'charges are known with the response of the request' => sub {
    my $charged = 'limit=3/366d window=fixed charge=$is_failed';
    start(limit => $charged, http => 'map $status $is_failed { volatile; 401 1; default 0; }',
        server => lua('/login', 'local res = capture("/limited") ngx.status = res.status == 200 and tonumber(ngx.var.arg_status) or res.status ngx.print("done")'));
    is(ask('/login?status=200')->{status}, 200, 'a login that succeeds is free') for 1 .. 5;
    is(ask('/login?status=401')->{status}, 401, 'one that fails is charged') for 1 .. 3;
    is(ask('/login?status=200')->{status}, 429, 'after three, none is tried');
    stop();
};

subtest 'rules of the request itself come first, in whatever phase' => sub {
    start(limit => 'limit=1/366d window=fixed', server => join('',
        lua('/first', 'done()', 'ratelimit_phase precontent; ratelimit limit=9/366d name=first key=first; access_by_lua_block { ngx.location.capture("/limited") }'),
        # A subrequest can make another one.
        lua('/outer', 'add(capture("/middle"), capture("/middle")) done()'),
        lua('/middle', 'done()', 'ratelimit_phase precontent; ratelimit limit=9/366d name=middle key=middle; access_by_lua_block { ngx.location.capture("/limited") }'),
        # An internal redirect can follow them.
        lua('/exec', 'add(capture("/limited")) ngx.exec("/after")'),
        lua('/after', 'ngx.print("after")', 'ratelimit limit=9/366d name=after key=after;')));
    like(ask('/first')->{head}, qr/\r\nRateLimit: "first";r=$_;/, 'a request that is decided on later') for 8, 7;
    like(ask('/outer')->{head}, qr/\r\nRateLimit: "middle";r=$_;/, 'a subrequest that is decided on later') for 8, 7;
    my $answer = ask('/exec');
    is($answer->{body}, 'after', 'a redirect after a subrequest');
    like($answer->{head}, qr/\r\nRateLimit: "default-366d";r=0;/, 'is not counted again');
    is(ask('/own')->{body}, '429 429 429', 'all of them counted once where the subrequests lead');
    stop();
};

subtest 'statuses that mean something else to nginx' => sub {
    my @odd = (408, 494 .. 499);
    my %paths = map { $_ => lua("/odd$_", "add(capture('/limited$_'), capture('/limited$_')) done()")
            . "location = /limited$_ { ratelimit limit=0.5/366d key=k; ratelimit_status $_; content_by_lua_block { ngx.print(1) } }" } @odd;
    start(limit => 'limit=0.5/366d', server => join '', values %paths);
    for my $status (@odd) {
        my $answer = ask("/odd$status");
        is($answer->{body}, "$status $status", "$status is what a subrequest is answered");
        is($answer->{status}, 200, 'and the request goes on');
    }
    stop();
};

subtest 'a dry run rejects none' => sub {
    start(limit => 'limit=1/366d window=fixed; ratelimit_dry_run on');
    is(ask('/beside')->{body}, '200 200 200', 'answered') for 1, 2;
    like(ask('/own')->{head}, qr/\r\nStatus: REJECTED_DRY_RUN\r\n/, 'the header has the status of the dry run');
    like(requests(), qr/"passed":1,"rejected":0,"rejected_dry_run":2,/, 'counted once');
    stop();
};

subtest 'a rate holds a request back with all its subrequests' => sub {
    start(limit => 'rate=1/366d burst=9 delay=all', server => lua('/seen', 'ngx.print(t.seen or 0) t.seen = 0'));
    is(ask('/beside')->{body}, '200 200 200', 'the first is not');
    is(ask('/seen')->{body}, 3, 'and reaches what is limited');
    my $held = request('/beside');
    $node->wait_for('the second', sub { $node->logged(qr/\[warn\] .*ratelimit: delayed by "default-rate".* for \d+ms, /) == 1 });
    ok(!IO::Select->new($held)->can_read(0), 'the second is');
    is(ask('/seen')->{body}, 0, 'and none of its subrequests reaches it');
    $node->stop(undef, 'TERM');
    start(limit => 'rate=20/1s burst=9 delay=all');
    my $begin = time;
    my @held = map { request($_ % 2 ? '/beside' : '/own') } 1 .. 6;
    is(read_answer($_)->{body}, '200 200 200', 'those that go on') for @held;
    cmp_ok(time - $begin, '>=', 0.24, 'go on at the rate of requests');
    like(requests(), qr/"passed":6,/, 'and are counted once');
    stop();
};

subtest 'a store decides once, and all wait for it' => sub {
    $redis->start;
    my $http = qq[ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; timeout 30s; connect_timeout 30s; }
        ratelimit_namespace api { store main; sync_rate 0; timeout 20s; }];
    start(limit => 'api limit=6/366d window=fixed', http => $http, server => lua('/seen', 'ngx.print(t.seen or 0) t.seen = 0'));
    $node->wait_for('the store', sub { ask('/other')->{head} =~ /\r\nStatus: PASSED/ });
    $redis->cli('FLUSHALL');
    $node->wait_for('the store', sub { ask('/other')->{head} =~ /\r\nStatus: PASSED/ });
    is(ask("/$_")->{body}, '200 200 200', "$_: admitted") for sort keys %captures;
    is($redis->total(api => 'k'), 4, 'counted once');
    is(ask('/seen')->{body}, 12, 'the limited location was reached as often');
    $redis->pause;
    my @held = map { request('/beside') } 1, 2;
    ok(!IO::Select->new(@held)->can_read(0.1), 'they wait while it is paused');
    is(ask('/seen')->{body}, 0, 'and nothing is reached');
    $redis->go_on;
    is(read_answer($_)->{body}, '200 200 200', 'they go on') for @held;
    is(ask("/$_")->{body}, '429 429 429', "$_: rejected") for sort keys %captures;
    is($redis->total(api => 'k'), 6, 'as the limit is');
    is(ask('/seen')->{body}, 6, 'and nothing is reached');
    $node->stop(qr/ratelimit_store "main"/);
    $redis->kill;
};

done_testing();

# Starts the node with these rules in the location /limited.
sub start {
    my (%given) = (http => '', server => '', @_);
    my %conf    = LuaNode::conf();
    my $limited = $given{server} =~ m{location = /limited } ? '' : "location = /limited { ratelimit_key k; ratelimit $given{limit}; "
        . 'content_by_lua_block { t.seen = (t.seen or 0) + 1 ngx.print("limited") } }';
    my ($namespace) = $given{limit} =~ /^(\w+) limit/;
    my $other = $namespace ? "location = /other { ratelimit_key other; ratelimit $namespace limit=1000/366d window=fixed; empty_gif; }" : '';
    $node->start(
        workers => 1,
        rules   => {hit => 'off'},
        http    => "$conf{http} $given{http}",
        server  => join('', $conf{server}, $given{server}, $limited, $other, map { lua("/$_", "$captures{$_} done()") } sort keys %captures),
    );
}

sub stop { $node->stop }

sub requests { return $node->body('/api/namespaces/default') =~ /"requests":\{([^}]*)\}/ ? $1 : '' }

# Requests a path, on the given connection or on a new one; returns the response.
sub ask { return read_answer(request(@_)) }

sub request {
    my ($path, $socket) = @_;
    my $keep = $socket ? 'keep-alive' : 'close';
    $socket //= $node->connection;
    syswrite $socket, "GET $path HTTP/1.1\r\nHost: localhost\r\nConnection: $keep\r\n\r\n";
    return $socket;
}

# Reads a response; returns its status, its head, and its body, which is chunked.
sub read_answer {
    my ($socket) = @_;
    my $text = '';
    while (!is_whole($text)) {
        IO::Select->new($socket)->can_read(20) or return {status => 'none in time', head => $text, body => $text};
        sysread $socket, $text, 65536, length $text or last;
    }
    my ($status, $head, $rest) = $text =~ m{^HTTP/1\.1 (\d+)(.*?\r\n)\r\n(.*)}s or return {status => 'none', head => '', body => $text};
    my $body = '';
    $body .= substr $rest, 0, hex $1, '' while $head =~ /chunked/ && $rest =~ s/^\r?\n?([0-9a-f]+)\r\n//;
    return {status => $status, head => $head, body => $head =~ /chunked/ ? $body : $rest};
}

sub is_whole {
    my ($text) = @_;
    my ($head, $body) = $text =~ /^(.*?\r\n)\r\n(.*)/s or return 0;
    return $body =~ /\r\n0\r\n\r\n\z/ if $head =~ /chunked/;
    return $head =~ /\r\nContent-Length: (\d+)\r\n/ && length $body >= $1;
}
