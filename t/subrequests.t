# Tests subrequests that wait for a store: each continues exactly once, whatever happens to the connection
# meanwhile. Upstreams get one request each, and pages with includes are complete.
#
# This is a plain Perl test, like synchronous.t. It uses the ports TEST_NGINX_PORT + 2 to + 5.

use strict;
use warnings;

use FindBin;
use IO::Select;
use IO::Socket::INET;
use Socket qw(SHUT_WR);
use Test::More;

use lib "$FindBin::Bin/lib";
use Http2Client;
use Nginx qw(http2);
use Node;
use Redis;

my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $a     = Node->new(a => $port + 2);
my $redis = Redis->new(port => $port + 4);
my $asked = "$a->{root}/asked.log";
my $lost  = qr/\[error\] .*ratelimit_store "main" is lost/;

# The contents of each include in the page: a response of an upstream, a small file and a large one, another
# page with includes, and another location that waits for a store.
my $large   = join '', map {"line $_ of a large file\n"} 1 .. 20_000;
my %content = ('/proxied' => '<proxied>', '/file/small' => 'a small file', '/file/large' => $large);
$content{'/nested.html'} = "nested($content{'/proxied'},$content{'/file/small'})";

write_file('small', $content{'/file/small'});
write_file('large', $large);
write_file('nested.html', 'nested(' . include('/proxied') . ',' . include('/file/small') . ')');

my %includes = (
    'one of an upstream'          => [qw(/proxied)],
    'several of upstreams'        => [('/proxied') x 5],
    'files'                       => [('/file/small') x 4],
    'a large file'                => [qw(/file/large)],
    'files, large ones, upstreams' => [qw(/file/small /proxied /file/large /proxied /file/large /proxied /file/small)],
    'pages with includes'         => [qw(/nested.html /proxied /nested.html)],
);

begin();
for my $attributes ('', 'wait="yes"') {
    for my $name (sort keys %includes) {
        subtest "includes: $name $attributes" => sub {
            my ($before, $counted) = (asked(), $redis->total(api => 'k'));
            my @includes = @{$includes{$name}};
            write_file('page.html', page(map { include($_, $attributes) } @includes));
            my $whole = page(map { $content{$_} } @includes);
            my $times = grep { $_ eq '/proxied' } map { $_ eq '/nested.html' ? '/proxied' : $_ } @includes;
            for (1 .. 5) {
                is(answer(client('/page.html')) eq $whole, 1, 'whole, and in order') or last;
            }
            is(asked(), $before + 5 * $times, 'upstreams are asked once for each');
            is($redis->total(api => 'k'), $counted + 5, 'a request is counted once');
        };
    }
}
stop();

subtest 'includes, while the client takes its time' => sub {
    begin();
    my @includes = (qw(/file/small /file/large /proxied /file/large /file/large /proxied));
    write_file('page.html', page(map { include($_) } @includes));
    my @clients = map {
        my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port + 5) or die "cannot connect: $!\n";
        request($client, '/page.html');
    } 1 .. 4;
    # All responses have begun before any client reads. Then reading makes the connections writable.
    $a->wait_for('the first bytes', sub { scalar(my @readable = IO::Select->new(@clients)->can_read(0)) == @clients });
    my $whole = page(map { $content{$_} } @includes);
    is(answer($_) eq $whole, 1, 'whole, and in order') for @clients;
    is(asked(), 8, 'upstreams are asked once for each');
    stop();
};

subtest 'includes that wait longer than the page takes' => sub {
    begin();
    write_file('page.html', page($large, include('/proxied'), $large, map { include($_) } ('/proxied', '/file/small') x 2));
    $redis->pause;
    my @clients = map { client('/page.html') } 1 .. 4;
    is(length(read_some($_, 200_000)), 200_000, 'the preceding part is sent') for @clients;
    $redis->go_on;
    for my $client (@clients) {
        my $rest = answer($client);
        my $end  = join '', $large, '|', join '|', ('<proxied>', 'a small file') x 2;
        is(substr($rest, -length("$end|end")) eq "$end|end", 1, 'whole, and in order');
    }
    is(asked(), 12, 'upstreams are asked once for each');
    stop();
};

subtest 'includes over HTTP/2' => sub {
    begin();
    my @includes = (qw(/file/small /proxied /file/large /nested.html /proxied));
    write_file('page.html', page(map { include($_) } @includes));
    my $url   = 'http://127.0.0.1:' . ($port + 3) . '/page.html';
    my $whole = page(map { $content{$_} } @includes);
    is(qx(nghttp --timeout=20 $url) eq $whole, 1, 'whole, and in order') for 1 .. 3;
    is(asked(), 9, 'upstreams are asked once for each');
    my $load = qx(h2load -n 200 -c 2 -m 20 $url 2>&1);
    like($load, qr/ 200 succeeded, 0 failed, 0 errored, 0 timeout/, 'many streams') or diag($load);
    is(asked(), 609, 'upstreams are asked once for each');
    stop();
};

subtest 'an include that is rejected, and those that follow' => sub {
    begin(limit => 1);
    write_file('page.html', page(map { include($_) } qw(/proxied /file/small /proxied)));
    is(answer(client('/page.html')), page('<proxied>', 'a small file', '<proxied>'), 'admitted');
    like(answer(client('/page.html')), qr/^(begin)\|(.*429 Too Many.*\|){3}end$/s, 'rejected');
    is(asked(), 2, 'upstreams are asked once for each');
    stop(qr/rejected by/);
};

subtest 'mirrors, auth_request, error pages' => sub {
    begin(limit => 3);
    is(answer(client('/mirrored')), "<mirrored>", 'a mirrored request') for 1 .. 3;
    $a->wait_for('the mirrors', sub { asked() >= 6 });
    is(asked(), 6, 'is asked once, and once mirrored');
    is($redis->total(api => 'k'), 3, 'and counted once');
    is(answer(client('/mirrored')), "<mirrored>", 'one the mirror of which is rejected');
    is(asked(), 7, 'is asked once');
    is(answer(client('/sorry')), '<sorry>', 'a page for a rejection');
    is(asked(), 8, 'is asked once');
    $redis->cli('FLUSHALL');
    $a->wait_for('the store', sub { answer(client('/authorized')) eq '<authorized>' });
    my $before = asked();
    is(answer(client('/authorized')), '<authorized>', 'after a subrequest that authorizes');
    is(asked(), $before + 2, 'that and the request are asked once');
    stop(qr/auth request unexpected status: 429/);
};

subtest 'clients that leave while an include waits' => sub {
    begin();
    write_file('page.html', page(map { include($_) } ('/proxied') x 3));
    for my $leave (sub { close $_[0] }, sub { shutdown $_[0], SHUT_WR }) {
        $redis->pause;
        my @clients = map { client('/page.html') } 1 .. 3;
        $leave->($_) for @clients;
        $a->wait_for('their end', sub { active() == 1 });
        $redis->go_on;
        is($a->status(hit => 'k'), 'PASSED', 'the store goes on');
        is(asked(), 0, 'no upstream is asked for them');
    }
    stop();
};

subtest 'a client that leaves while its request waits: what is done after it, is done once' => sub {
    begin();
    $redis->pause;
    my $client = client('/after');
    close $client;
    $a->wait_for('what is done after it', sub { asked() });
    $redis->go_on;
    is($a->status(hit => 'k'), 'PASSED', 'the store goes on') for 1 .. 3;
    is(asked(), 1, 'once');
    stop();
};

subtest 'a body that is thrown away while the page for an error waits' => sub {
    begin();
    $redis->pause;
    my $client = $a->connection;
    syswrite $client, "POST /denied HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf ";
    ok(!IO::Select->new($client)->can_read(0.1), 'it waits');
    syswrite $client, "body\n";
    ok(!IO::Select->new($client)->can_read(0.1), 'it still does');
    $redis->go_on;
    like(read_until($client, qr/<sorry>/), qr{^HTTP/1\.1 403 .*<sorry>$}s, 'the page');
    my $begin = time;
    syswrite $client, "GET /plain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    like(read_until($client, qr/<plain>/), qr{^HTTP/1\.1 200 .*<plain>$}s, 'the next request of the connection');
    cmp_ok(time - $begin, '<', 4, 'at once');
    stop(qr/access forbidden by rule/);
};

subtest 'HTTP/2 streams that are reset while an include waits' => sub {
    begin();
    write_file('page.html', page(map { include($_) } ('/proxied') x 3));
    $redis->pause;
    my $url = 'http://127.0.0.1:' . ($port + 3) . '/page.html';
    qx(nghttp --timeout=1 --null-out $url 2>&1);
    $a->wait_for('their end', sub { active() == 1 });
    $redis->go_on;
    is($a->status(hit => 'k'), 'PASSED', 'the store goes on');
    is(asked(), 0, 'no upstream is asked for them');
    stop();
};

subtest 'HTTP/2 streams that are reset while a subrequest waits and their frames are queued' => sub {
    begin();
    my $filling = 'x' x 8_000_000;
    write_file('filling', $filling);
    write_file('page.html', page(include('/proxied')));
    for my $path ('/mirrored', '/page.html') {
        my $before = asked();
        $redis->pause;
        my $client = Http2Client->new(port => $port + 3, window => 2**30);
        my $first = $client->ask('/filling');
        $a->wait_for('a full socket', sub { $client->is_full });
        my $stream = $client->ask($path);
        $a->wait_for('the upstream', sub { asked() > $before }) if $path eq '/mirrored';
        is(active(), 2, "$path: its subrequest waits");
        $client->reset($stream);
        is(active(), 2, 'the stream is reset');
        $redis->go_on;
        is($a->status(hit => 'k'), 'PASSED', 'the store goes on');
        is($client->answers(0, $first)->{$first}{body} eq $filling, 1, 'the other stream is complete');
        is(asked(), $before + ($path eq '/mirrored'), 'no upstream is asked for the subrequest');
    }
    stop();
};

done_testing();

sub begin {
    my (%given) = (limit => 1_000_000, @_);
    $redis->start;
    open my $file, '>', $asked or die "cannot write $asked: $!\n";
    close $file;
    my $upstream = "http://unix:$a->{root}/upstream.sock:";
    my $limited  = "ratelimit_key k; ratelimit api limit=$given{limit}/366d window=fixed;";
    my ($parameter, $directive) = http2();
    unlink "$a->{root}/upstream.sock";
    $a->start(workers => 1, rules => {hit => 'api limit=1000000/366d window=fixed'}, http => <<"    END", server => <<"    END");
        ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; timeout 30s; connect_timeout 30s; }
        ratelimit_namespace api { store main; sync_rate 0; timeout 20s; }
        log_format asked '\$request_uri';
        server {
            listen     unix:$a->{root}/upstream.sock;
            access_log $asked asked;
            location / { return 200 "<\$arg_of>"; }
        }
    END
        listen 127.0.0.1:@{[$port + 3]} $parameter;
        listen 127.0.0.1:@{[$port + 5]} sndbuf=16k;
        $directive
        root $a->{root}/pages;
        proxy_http_version 1.0;
        location = /page.html   { ssi on; }
        location = /nested.html { ssi on; $limited }
        location = /proxied     { $limited proxy_pass $upstream/?of=proxied; }
        location /file/         { $limited alias $a->{root}/pages/; }
        location = /mirrored    { mirror /mirror; proxy_pass $upstream/?of=mirrored; }
        location = /mirror      { internal; $limited proxy_pass $upstream/?of=mirror; }
        location = /sorry       { $limited error_page 429 = /sorry_page; empty_gif; }
        location = /sorry_page  { proxy_pass $upstream/?of=sorry; }
        location = /authorized  { auth_request /authorize; proxy_pass $upstream/?of=authorized; }
        location = /authorize   { internal; $limited proxy_pass $upstream/?of=authorize; }
        location = /after       { $limited post_action /done; empty_gif; }
        location = /done        { internal; proxy_pass $upstream/?of=done; }
        location = /denied      { deny all; error_page 403 /denied_page; }
        location = /denied_page { $limited proxy_pass $upstream/?of=sorry; proxy_method GET; proxy_pass_request_body off; }
        location = /filling     { alias $a->{root}/pages/filling; }
        location = /plain       { proxy_pass $upstream/?of=plain; }
        location = /active      { stub_status; }
    END
    $a->wait_for('the store', sub { $a->status(hit => 'k') eq 'PASSED' });
    $redis->cli('FLUSHALL');
    $a->wait_for('the store', sub { $a->status(hit => 'other') eq 'PASSED' });
}

sub stop {
    my ($expected) = @_;
    $redis->go_on;
    $a->stop(defined $expected ? qr/$expected|$lost/ : $lost);
    $redis->kill;
}

sub write_file {
    my ($name, $text) = @_;
    mkdir "$a->{root}/pages";
    open my $file, '>', "$a->{root}/pages/$name" or die "cannot write $name: $!\n";
    print $file $text;
    close $file or die "cannot write $name: $!\n";
}

sub page { return join '|', 'begin', @_, 'end' }

sub include {
    my ($path, $attributes) = @_;
    return qq(<!--# include virtual="$path" ) . ($attributes // '') . ' -->';
}

# Returns the number of requests to upstreams.
sub asked {
    open my $file, '<', $asked or die "cannot read $asked: $!\n";
    my @lines = <$file>;
    return scalar @lines;
}

# Returns the number of open connections, including this one.
sub active { return $a->body('/active') =~ /^Active connections: (\d+)/ ? $1 : 0 }

# Opens a connection and requests a path.
sub client { return request($a->connection, @_) }

sub request {
    my ($client, $path) = @_;
    syswrite $client, "GET $path HTTP/1.0\r\n\r\n";
    return $client;
}

# Reads the body, or the rest of it.
sub answer {
    my ($client) = @_;
    my $text = read_until($client);
    $text =~ s{\AHTTP/1\..*?\r\n\r\n}{}s;
    return $text;
}

sub read_some {
    my ($client, $length) = @_;
    my $text = '';
    while (length $text < $length) {
        IO::Select->new($client)->can_read(10) or last;
        sysread $client, $text, $length - length $text, length $text or last;
    }
    return $text;
}

# Reads until the data matches the pattern, if there is one, or the connection ends.
sub read_until {
    my ($client, $pattern) = @_;
    my $text = '';
    while (!$pattern || $text !~ $pattern) {
        IO::Select->new($client)->can_read(10) or return "$text (no more in time)";
        sysread $client, $text, 65536, length $text or last;
    }
    return $text;
}
