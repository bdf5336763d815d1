# Tests the output and the exit status of scripts/ratelimitctl with a running node.
#
# This is a plain Perl test. It uses the ports TEST_NGINX_PORT + 2, + 4 and + 6. Windows have 366 days, so that none
# ends during a test (see limit.t).

use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Redis;

die "redis-server is not installed\n" if !Redis::is_there();

my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $node  = Node->new(a => $port + 2);
my $redis = Redis->new(port => $port + 4);
$redis->be_empty;
$node->start(
    http => <<"    END",
        ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; timeout 5s; connect_timeout 5s; }
        ratelimit_namespace api   { store main; sync_rate 1h; sync_early off; window_sizes 30d 366d; }
        ratelimit_namespace local { window_sizes 366d; }
    END
    rules  => {
        hit   => 'api limit=2/366d window=fixed',
        login => 'api limit=1/366d window=fixed counter=login',
        local => 'local limit=1/366d window=fixed',
    },
    server => 'location /rw/ { ratelimit off; ratelimit_api write=on; }',
);
$node->wait_for_first_sync;

# Runs ratelimitctl; returns its exit status, its output and its error output.
sub ratelimitctl {
    my (@arguments) = @_;
    local $ENV{RATELIMIT_API} = "http://127.0.0.1:$node->{port}/rw/";
    my $command = join ' ', map { "'" . s/'/'\\''/gr . "'" } "$FindBin::Bin/../scripts/ratelimitctl", @arguments;
    my $errors  = "/tmp/ratelimitctl-$$";
    my $output  = `$command 2>$errors`;
    my $code    = $? >> 8;
    open my $file, '<', $errors or die "no $errors: $!\n";
    local $/;
    my $complaint = <$file> // '';
    unlink $errors;
    return [$code, $output, $complaint];
}

sub is_answered {
    my ($got, $code, $pattern, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is($got->[0], $code, "$name: ends with $code");
    like($got->[$code ? 2 : 1], $pattern, $name) or diag($got->[2]);
}

my $key = q(a b'"$(x)/%2F&+{"key":]},);
$node->hit(hit => $key) for 1 .. 5;
$node->hit(local => '203.0.113.9') for 1 .. 3;

is_answered(ratelimitctl('-n', 'api', 'show', $key), 0, qr/^ *WINDOW +RATE +CURRENT.*\n2592000s +0 .*\n31622400s +2 +2 +0 +2 +0\n\z/,
    'show');
is_answered(ratelimitctl('-n', 'local', 'show', '203.0.113.9'), 0, qr/\n31622400s +1 +1 +0 +1 +0\n\z/, 'show of one window');
is_answered(ratelimitctl('-n', 'api', '-w', '366d', '-t', 'fixed', 'show', $key), 0, qr/\n366d +2 +2 +0 +2 +0\n\z/, 'a window');
is_answered(ratelimitctl('-n', 'local', '-r', '1/1s', 'show', 'unseen'), 0, qr{\n1/1s +0 +0 +0 +0 +0\n\z}, 'a rate');
is_answered(ratelimitctl('-n', 'api', '-w', '1m', 'show', $key), 1, qr/^ratelimitctl: the window 1m is not one/, 'a wrong window');

my $top = ratelimitctl(qw(-n api top));
is_answered($top, 0, 
    qr/^REJECTED +ERROR +RULE +LIMIT +AGAIN IN +COUNTER +KEY\n +[0-3] +0 +nginx\.conf:\d+ +api-\S+ +\d+ s +- +a%20b\S+\n\z/, 'top');
my ($encoded) = $top->[1] =~ /(\S+)\n\z/;
is_answered(ratelimitctl('-n', 'api', '-e', 'show', $encoded), 0, qr/\n31622400s +2 +2 /, 'a key as top has it');
is_answered(ratelimitctl(qw(-n local top 1)), 0, qr/ 203\.0\.113\.9\n\z/, 'top of another namespace');

is_answered(ratelimitctl(qw(-n api sync)), 0, qr/^Synced: 1 pushed, \d fetched\.\n\z/, 'sync');
is($redis->total(api => $key), 2, 'the store has it');
is_answered(ratelimitctl(qw(-n local sync)), 1, qr/^ratelimitctl: the namespace is not synced/, 'nothing to sync with');

my $why = ratelimitctl('-n', 'api', 'why', $key);
is_answered($why, 0, qr/^RULE +LIMIT +COUNTED +OF +ADMITS +AGAIN IN\nnginx\.conf:\d+ +api-\S+ +2 +2 +no +\d+ s\n\z/, 'why');
is_answered(ratelimitctl(qw(-n api why unseen)), 0, qr/^No rule of namespace api has counted the key lately\.\n\z/, 'why, of another key');
is_answered(ratelimitctl(qw(-n none why k)), 1, qr/there is no such namespace/, 'why, in no namespace');

# These hits count in a named counter and in another namespace.
$node->hit(login => $key) for 1, 2;
$node->hit(local => $key);
is_answered(ratelimitctl('-n', 'api', 'show', $key), 0,
    qr/\n31622400s +2 .*\n\nALSO IN +TYPE +COUNTER +RATE\n31622400s +sliding +login +1\n\z/, 'show tells of other counters');
is_answered(ratelimitctl('-n', 'api', '-c', 'default', 'reset', $key), 0,
    qr/^RESET IN +TYPE .*\n31622400s +sliding +default +2\n\nSTILL COUNTED IN +WINDOW .*
api +31622400s +sliding +login +1\nlocal +31622400s +sliding +default +1\n\z/,
    'reset of one counter: what it reset, and what else has the key');
is($node->hit(login => $key), 429, 'as the client sees');
is_answered(ratelimitctl('-n', 'api', 'reset', $key), 0,
    qr/^RESET IN .*\n31622400s +sliding +login +1\n\nSTILL COUNTED IN .*\nlocal .*\n\z/, 'reset');
is($node->hit(login => $key), 200, 'after which the client is admitted');
is_answered(ratelimitctl('-n', 'api', '-c', 'login', 'reset', $key), 0, qr/\n31622400s +sliding +login +1\n/, 'reset by name');
is_answered(ratelimitctl('-n', 'local', 'reset', $key), 0, qr/^RESET IN .*\n31622400s +sliding +default +1\n\z/, 'nothing is left');
is_answered(ratelimitctl('-n', 'local', 'reset', $key), 0, qr/^Nothing was counted of the key in namespace local\.\n\z/, 'nor to reset');
is_answered(ratelimitctl('-n', 'api', '-c', 'other', 'reset', $key), 1, qr/no counter "other".*expected default, login/, 'a wrong counter');
my $is_pushed = sub { ratelimitctl('-n', 'api', 'show', $key)->[1] =~ /\n31622400s +0 +0 +0 +0 +0\n\z/ };
$node->wait_for('the push', $is_pushed);
pass('it counts zero, and so it does in the store');
is_answered(ratelimitctl(qw(-n local -w 1h reset 203.0.113.9)), 1, qr/the window 1h is not one/, 'reset of a wrong window');

my $status = ratelimitctl('status');
is_answered($status, 0, qr/^STORE +STRATEGY +UP +CLOCK OFFSET\nmain +redis +true +-?\d/, 'status: the store');
like($status->[1], qr/\nZONE +SIZE +KEYS.*\ncounters +4194304 +3 +0 +0\n/, 'the zone');
like($status->[1], qr/\nNAMESPACE +ZONE .*\napi +counters +main +3600 +2 +4 +5 +ok +\d+\n/, 'a namespace');
like($status->[1], qr/\nlocal +counters +- +off +1 +2 +2 +- +-\n/, 'and one without a store');
is_answered(ratelimitctl(qw(-n api status)), 0, qr/\nNAMESPACE.*\napi .*\n\z/, 'status of one namespace');
is_answered(ratelimitctl(qw(-n none status)), 1, qr/there is no such namespace/, 'status of none');

is_answered(ratelimitctl('-a', "http://127.0.0.1:$node->{port}/api", 'reset', 'k'), 1, qr/read-only/, 'an API that is read-only');
is_answered(ratelimitctl('-a', "http://127.0.0.1:$node->{port}/x", 'status'), 3, qr/is not the API of this module: .* 404/, 'no API');
is_answered(ratelimitctl('-a', 'http://127.0.0.1:1/', 'status'), 3, qr/^ratelimitctl: no answer from \S+: curl: \(7\)/, 'no node');
is_answered(ratelimitctl(@$_), 2, qr/\S/, "wrong usage: @$_") for [], ['x'], ['show'], [qw(show a b)], [qw(status x)], ['-z'],
    [qw(-r 1/1s -w 1m show a)], ['-e', 'lift', 'sha256:' . 'a' x 64];
is(system("$FindBin::Bin/../scripts/ratelimitctl -a http://127.0.0.1:$node->{port}/rw status >/dev/full 2>&1") >> 8, 1, 'no room for the output');
is_answered(ratelimitctl('-h'), 0, qr/^Usage: ratelimitctl/, 'help');

# If the server is not the API, ratelimitctl prints nothing to stdout and its exit status is never 0.
my $overview = '{"version":"1","zones":[],"namespaces":[],"stores":[]}';
my $answers  = "/tmp/ratelimitctl-answer-$$";
my $made     = "ratelimitctl-made-$$";
my $listen   = IO::Socket::INET->new(LocalAddr => '127.0.0.1:' . ($port + 6), Listen => 16, ReuseAddr => 1)
    or die "no port: $!\n";
defined(my $other = fork) or die "cannot fork: $!\n";
answer_by($listen, $answers) if !$other;
write_answer(answer('application/json', '{"error":"a\\u001b[2J\\u009b\\nb"}', '404 Not Found'));
is_answered(ratelimitctl('-a', 'http://127.0.0.1:' . ($port + 6), 'status'), 1, qr/^ratelimitctl: a \[2J  b\n\z/, 'a message that commands the terminal');
for (
    ['text',           answer('text/plain', '200 ok')],
    ['a page',         answer('text/html', '<html><body>ok</body></html>')],
    ['JSON, as text',  answer('text/plain', $overview)],
    ['nothing',        answer('application/json', '')],
    ['a part',         answer('application/json', substr $overview, 0, -9)],
    ['two',            answer('application/json', '{}{}')],
    ['a list',         answer('application/json', '[]')],
    ['a number',       answer('application/json', '200')],
    ['null',           answer('application/json', 'null')],
    ['other JSON',     answer('application/json', '{"status":"ok"}')],
    ['other fields',   answer('application/json', '{"version":1,"zones":{},"namespaces":"x","stores":[1],"keys":[1],"reset":[1],"counters":1}')],
    ['a command to the terminal', answer('application/json', qq({"version":"1","namespaces":[],"zones":[],"stores":[{"name":"\\u001b[2J"}],)
        . qq("reset":[{"window":60,"window_type":"\\u009b2J","counter":null,"rate":1}],"counters":[]}))],
    ['a list as a cell', answer('application/json', '{"version":"1","namespaces":[],"zones":[],"stores":[{"name":"a","strategy":[]}],'
        . '"reset":[{"window":[],"window_type":"fixed","counter":{},"rate":1}],"counters":[]}')],
    ['text as a number', answer('application/json', '{"version":"1","namespaces":[],"stores":[],"zones":[{"name":"a","size":"x"}],'
        . '"reset":[{"window":60,"window_type":"fixed","counter":null,"rate":"1"}],"counters":[],"window_sizes":[60],"rate":1,'
        . '"current":"x","followed":1,"keys":[{"key":"a","rejected":"1","error":0}]}')],
    ['a name that sed executes', answer('application/json', '{"version":"1","stores":[],"zones":[],"reset":[],'
        . qq("namespaces":[{"name":"touch\${IFS}$made;#/e;s/x/"}],)
        . '"counters":[{"window":60,"window_type":"fixed","counter":null,"rate":1}]}')],
    ['a name of a file', answer('application/json', '{"version":"1","stores":[],"zones":[],"reset":[],"namespaces":[{"name":"/*"}],"counters":[]}')],
    ['an error of another API', answer('application/json', '{"timestamp":1,"status":404,"error":"Not Found","path":"/"}', '404 Not Found')],
    ['a redirection',  "HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"],
    ['no content',     "HTTP/1.1 204 No Content\r\n\r\n"],
    ['a page of 502',  answer('text/html', '<html>Bad Gateway</html>', '502 Bad Gateway')],
    ['JSON of 500',    answer('application/json', '{"message":"no"}', '500 Error')],
    ['a short body',   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n$overview"],
    ['no HTTP',        "+PONG\r\n"],
    ['no end',         "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\nENDLESS"],
    ['no answer',      'HANG'],
) {
    my ($name, $text) = @$_;
    write_answer($text);
    local $ENV{RATELIMIT_TIMEOUT} = $text eq 'HANG' ? 1 : 20;
    my @commands = (['status'], [qw(reset k)]);
    pop @commands if $text =~ /HANG|ENDLESS/;
    push @commands, [qw(show k)], [qw(why k)], ['top'], ['sync'] if $name =~ /^(?:text|other fields|text as a number)\z/;
    for my $command (@commands) {
        my $got = ratelimitctl('-a', 'http://127.0.0.1:' . ($port + 6), @$command);
        is("$got->[0] '$got->[1]'", "3 ''", "$name: @$command ends with 3, and prints nothing");
        like($got->[2], qr/^ratelimitctl: (?:no answer from \S+: .|\S+ is not the API of this module: .).*\n\z/, 'but says why');
    }
}
ok(!unlink($made), 'nothing that an answer names is executed');
kill KILL => $other;
waitpid $other, 0;
unlink $answers;

{
    # An error names a required program that is missing.
    my $programs = "/tmp/ratelimitctl-programs-$$";
    mkdir $programs;
    for my $program (qw(sh curl printf tr cat env mktemp rm)) {
        my ($path) = grep { -x } map {"$_/$program"} split /:/, $ENV{PATH};
        symlink $path, "$programs/$program" if $path;
    }
    local $ENV{PATH} = $programs;
    is_answered(ratelimitctl('status'), 3, qr/^ratelimitctl: jq is not installed/, 'without jq');
    system "/bin/rm -r $programs";
}

$redis->kill;
$node->hit(hit => 'k');
is_answered(ratelimitctl(qw(-n api sync)), 1, qr/the store has not answered in time/, 'a store that is gone');
is_answered(ratelimitctl('status'), 1, qr/^ratelimitctl: stores are down: main\n/, 'status says so');
$node->stop(qr/\[error\]/);
done_testing();

# Returns an HTTP response.
sub answer {
    my ($type, $body, $status) = @_;
    $status //= '200 OK';
    return "HTTP/1.1 $status\r\nContent-Type: $type\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
}

# Sets the response that each connection gets.
sub write_answer {
    my ($text) = @_;
    open my $file, '>', $answers or die "no $answers: $!\n";
    print $file $text;
    close $file;
}

# Answers each connection with the contents of a file.
sub answer_by {
    my ($listen, $answers) = @_;
    local $SIG{PIPE} = 'IGNORE';
    while (my $client = $listen->accept) {
        while (defined(my $line = <$client>)) { last if $line eq "\r\n" }
        open my $file, '<', $answers or next;
        my $text = do { local $/; <$file> } // '';
        sleep 60 if $text eq 'HANG';
        my $is_endless = $text =~ s/ENDLESS\z//;
        print $client $text;
        my $more = ' ' x (1 << 20);
        while ($is_endless) { print $client $more or last }
    }
}
