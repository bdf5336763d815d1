# Tests HTTP/3: headers, rejections, the status 444, and that each stream of a
# connection counts as a separate request. An nginx that is built without HTTP/3
# reports that.
#
# This is a plain Perl test, because its client is that of ngtcp2. lib/OwnNginx.pm
# describes its environment.
#
# Windows have 366 days, so that none ends during a test (see limit.t).

use strict;
use warnings;

use FindBin;
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Certificate;
use OwnNginx;

# With reuseport, all packets of a connection reach the same worker.
my @http3 = (listen => 'quic reuseport', server => certificate($root));

if (qx('$binary' -V 2>&1) !~ /--with-http_v3_module/) {
    configure(http => '', zone => 'counters:1m', workers => 1, rule => 'limit=1/366d', @http3);
    my $output = qx('$binary' -t -p '$root' -e '$log' -c '$root/nginx.conf' 2>&1);
    like($output, qr/\[emerg\] .*"quic"/, 'this nginx has no HTTP/3');
    done_testing();
    exit;
}

subtest 'an admitted request has the headers, in lower case' => sub {
    start(@http3, rule => 'limit=3/366d');
    my ($answer) = exchange('/t?k=a');
    is($answer->{':status'}, 200, 'admitted');
    is($answer->{'ratelimit-policy'}, '"default-366d";q=3;w=31622400', 'policy');
    like($answer->{ratelimit}, qr/^"default-366d";r=2;t=\d+$/, 'the remaining hits');
    is($answer->{'retry-after'}, undef, 'no Retry-After');
    stop();
};

subtest 'a request above the limit is rejected' => sub {
    start(@http3, rule => 'limit=2/366d');
    my @answers = map { exchange('/t?k=a') } 1 .. 4;
    is(summary(@answers), '200 r=1, 200 r=0, 429 r=0, 429 r=0', 'on connections of their own');
    like($_->{'retry-after'}, qr/^[1-9]\d*$/, 'Retry-After') for @answers[2, 3];
    stop();
};

subtest 'the streams of a connection are counted one by one' => sub {
    start(@http3, rule => 'limit=3/366d');
    my @answers = exchange(map {"/t?k=$_"} qw(a a b a a b));
    is(summary(sorted(@answers)), '200 r=0, 200 r=1, 200 r=1, 200 r=2, 200 r=2, 429 r=0', 'by their keys');
    stop();
};

subtest 'streams at the same time are admitted exactly up to the limit' => sub {
    # Each request waits for the upstream while the next ones are decided.
    my %given = @http3;
    start(
        @http3,
        rule   => 'off',
        server => qq[
            $given{server}
            location /proxied {
                ratelimit  limit=20/366d;
                proxy_pass http://unix:$root/upstream.sock;
            }],
        http => "server { listen unix:$root/upstream.sock; return 200; }",
    );
    my @answers = exchange(('/proxied') x 40);
    my @left    = map {"200 r=$_"} 0 .. 19;
    is(summary(sorted(@answers)), join(', ', sort(@left), ('429 r=0') x 20), 'each takes one');
    stop();
    unlink "$root/upstream.sock";
};

subtest 'rejections take the bodies of requests' => sub {
    start(@http3, rule => 'limit=0.5/366d');
    my $body = "$root/body";
    open my $file, '>', $body or die "cannot write $body: $!\n";
    print $file 'x' x 200_000;
    close $file or die "cannot write $body: $!\n";
    my @answers = exchange({ options => "--data='$body' --http-method=POST" }, ('/t?k=a') x 3);
    is(summary(@answers), '429 r=0, 429 r=0, 429 r=0', 'of all streams');
    stop();
};

subtest 'the status 444 ends without an answer' => sub {
    start(@http3, rule => 'limit=1/366d; ratelimit_status 444');
    is(summary(exchange('/t?k=a')), '200 r=0', 'admitted');
    is(summary(exchange('/t?k=a')), '',        'no answer');
    is(summary(exchange('/t?k=b')), '200 r=0', 'another key is admitted');
    stop();
};

subtest 'another status, HEAD, all headers, a rejection in precontent' => sub {
    start(@http3, rule => 'limit=1/366d; ratelimit_status 503; ratelimit_phase precontent;'
            . ' ratelimit_headers ietf draft03 legacy');
    my @answers = map { exchange({ options => '--http-method=HEAD' }, '/t?k=a') } 1, 2;
    is(summary(@answers), '200 r=0, 503 r=0', 'statuses');
    for my $answer (@answers) {
        is($answer->{'ratelimit-limit'},                1, 'draft03, limit');
        is($answer->{'ratelimit-remaining'},            0, 'draft03, remaining');
        is($answer->{'x-ratelimit-limit-31622400'},     1, 'legacy, limit');
        is($answer->{'x-ratelimit-remaining-31622400'}, 0, 'legacy, remaining');
    }
    stop();
};

subtest 'streams that a rate holds back wait by themselves' => sub {
    start(@http3, rule => 'rate=20/1s burst=9 delay=all');
    my $begin   = time;
    my @answers = exchange(('/t?k=a') x 7, '/t?k=b');
    is(scalar(grep { $_->{':status'} == 200 } @answers), 8, 'all are admitted');
    # The time of six hits, minus a tolerance for rounding and for the difference between nginx's two clocks.
    cmp_ok(time - $begin, '>=', 0.29, 'the last not before its time');
    stop();
};

done_testing();

# Requests the paths as streams of one connection. Returns the headers of each response by name, with the
# case of the names unchanged, in the order of the streams.
sub exchange {
    my $given  = ref $_[0] ? shift : { options => '' };
    my $urls   = join ' ', map {"'https://127.0.0.1:$port$_'"} @_;
    my $output = qx(gtlsclient --no-quic-dump --no-http-dump --timeout=20s --exit-on-all-streams-close \\
        $given->{options} 127.0.0.1 $port $urls 2>&1);
    my %answer;
    while ($output =~ /^http: stream 0x([0-9a-f]+) \[(:?[^:\s]+): (.*)\]$/mg) {
        my ($stream, $name, $value) = (hex $1, $2, $3);
        my $twice = exists $answer{$stream}{$name};
        $answer{$stream}{$name} = $twice ? "twice: $value" : $value;
    }
    return map { $answer{$_} } sort { $a <=> $b } keys %answer;
}

# Sorts responses, because packets, and so streams, may arrive out of order.
sub sorted {
    my @answers = @_;
    return sort { summary($a) cmp summary($b) } @answers;
}

sub summary {
    return join ', ', map {
        my ($left) = ($_->{ratelimit} // '') =~ /^"[^"]*";(r=\d+)/;
        join ' ', $_->{':status'}, $left // '';
    } @_;
}
