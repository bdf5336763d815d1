# Tests HTTP/2, in clear text and over TLS: headers, rejections, the status 444, and
# that each stream of a connection counts as a separate request.
#
# This is a plain Perl test, because its client is nghttp. lib/OwnNginx.pm describes
# its environment.
#
# Windows have 366 days, so that none ends during a test (see limit.t).

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Certificate;
use Nginx qw(http2);
use OwnNginx;

my ($parameter, $directive) = http2();
my $tls = certificate($root);

my %scheme = (
    'in clear text' => { url => 'http',  listen => '',    server => '' },
    'within TLS'    => { url => 'https', listen => 'ssl', server => $tls },
);

for my $name (sort keys %scheme) {
    my $scheme = $scheme{$name};
    my $ask    = sub { exchange($scheme->{url}, @_) };
    my $begin  = sub {
        my %given = (server => '', @_);
        start(
            %given,
            listen => "$scheme->{listen} $parameter",
            server => "$directive $scheme->{server} $given{server}",
        );
    };

    subtest "$name, an admitted request has the headers, in lower case" => sub {
        $begin->(rule => 'limit=3/366d');
        my ($answer) = $ask->('/t?k=a');
        is($answer->{':status'}, 200, 'admitted');
        is($answer->{'ratelimit-policy'}, '"default-366d";q=3;w=31622400', 'policy');
        like($answer->{ratelimit}, qr/^"default-366d";r=2;t=\d+$/, 'the remaining hits');
        is($answer->{'retry-after'}, undef, 'no Retry-After');
        stop();
    };

    subtest "$name, what is above the limit is rejected" => sub {
        $begin->(rule => 'limit=2/366d');
        my @answers = map { $ask->('/t?k=a') } 1 .. 4;
        is(summary(@answers), '200 r=1, 200 r=0, 429 r=0, 429 r=0', 'on connections of their own');
        like($_->{'retry-after'}, qr/^[1-9]\d*$/, 'Retry-After') for @answers[2, 3];
        stop();
    };

    subtest "$name, the streams of a connection are counted one by one" => sub {
        $begin->(rule => 'limit=3/366d');
        my @answers = $ask->(map {"/t?k=$_"} qw(a a b a a b));
        is(summary(@answers), '200 r=2, 200 r=1, 200 r=2, 200 r=0, 429 r=0, 200 r=1', 'by their keys');
        stop();
    };

    subtest "$name, streams at the same time are admitted exactly up to the limit" => sub {
        # Each request waits for the upstream while the next ones are decided.
        $begin->(
            rule   => 'off',
            server => qq[
                location /proxied {
                    ratelimit  limit=20/366d;
                    proxy_pass http://unix:$root/upstream.sock;
                }],
            http => "server { listen unix:$root/upstream.sock; return 200; }",
        );
        my @answers = $ask->(('/proxied?') x 40);
        my @left    = map {"200 r=$_"} reverse 0 .. 19;
        is(summary(@answers), join(', ', @left, ('429 r=0') x 20), 'in the order of the streams');
        stop();
        unlink "$root/upstream.sock";
    };

    subtest "$name, rejections take the bodies of requests" => sub {
        $begin->(rule => 'limit=0.5/366d');
        my $body = "$root/body";
        open my $file, '>', $body or die "cannot write $body: $!\n";
        print $file 'x' x 200_000;
        close $file or die "cannot write $body: $!\n";
        my @answers = exchange($scheme->{url}, { options => "--data=$body" }, ('/t?k=a') x 3);
        is(summary(@answers), '429 r=0, 429 r=0, 429 r=0', 'of all streams');
        stop();
    };

    subtest "$name, the status 444 ends without an answer" => sub {
        $begin->(rule => 'limit=1/366d; ratelimit_status 444');
        is(summary($ask->('/t?k=a')), '200 r=0', 'admitted');
        is(summary($ask->('/t?k=a')), '',        'no answer');
        is(summary($ask->('/t?k=b')), '200 r=0', 'another key is admitted');
        stop();
    };

    subtest "$name, another status, HEAD, all headers, a rejection in precontent" => sub {
        $begin->(rule => 'limit=1/366d; ratelimit_status 503; ratelimit_phase precontent;'
                . ' ratelimit_headers ietf draft03 legacy');
        my @answers = exchange($scheme->{url}, { options => "-H':method: HEAD'" }, ('/t?k=a') x 2);
        is(summary(@answers), '200 r=0, 503 r=0', 'statuses');
        for my $answer (@answers) {
            is($answer->{'ratelimit-limit'},                1, 'draft03, limit');
            is($answer->{'ratelimit-remaining'},            0, 'draft03, remaining');
            is($answer->{'x-ratelimit-limit-31622400'},     1, 'legacy, limit');
            is($answer->{'x-ratelimit-remaining-31622400'}, 0, 'legacy, remaining');
        }
        stop();
    };

    subtest "$name, a page for rejections, and a proxied response, have our headers" => sub {
        $begin->(
            rule   => 'limit=1/366d',
            server => qq[
                error_page 429 \@sorry;
                location \@sorry { proxy_pass http://unix:$root/upstream.sock; }
                location /proxied {
                    ratelimit_key proxied;
                    ratelimit     limit=1/366d;
                    proxy_pass    http://unix:$root/upstream.sock;
                }],
            http => qq[server {
                listen unix:$root/upstream.sock;
                add_header RateLimit upstream always;
                add_header X-Upstream yes always;
                return 203;
            }],
        );
        my @answers = $ask->(('/t?k=a') x 2, ('/proxied?') x 2);
        is(summary(@answers), '200 r=0, 429 r=0, 203 r=0, 429 r=0', 'in place of those of an upstream');
        is(join(', ', map { $_->{'x-upstream'} // 'no' } @answers), 'no, yes, yes, yes', 'as it answered');
        stop();
        unlink "$root/upstream.sock";
    };
}

done_testing();

# Requests the paths at once, as streams of one connection. Returns the headers of each response by name,
# with the case of the names unchanged, in the order of the streams.
sub exchange {
    my $scheme = shift;
    my $given  = ref $_[0] ? shift : { options => '' };
    # nghttp requests equal URLs only once.
    my $number = 0;
    my $urls   = join ' ', map { "'$scheme://127.0.0.1:$port$_&n=" . $number++ . q(') } @_;
    my $output = qx(nghttp --null-out --verbose --timeout=20 --no-dep $given->{options} $urls 2>&1);
    my %answer;
    while ($output =~ /recv \(stream_id=(\d+)\) (:?[^:\s]+): (.*)/g) {
        my ($stream, $name, $value) = ($1, $2, $3);
        my $twice = exists $answer{$stream}{$name};
        $answer{$stream}{$name} = $twice ? "twice: $value" : $value;
    }
    return map { $answer{$_} } sort { $a <=> $b } keys %answer;
}

sub summary {
    return join ', ', map {
        my ($left) = ($_->{ratelimit} // '') =~ /^"[^"]*";(r=\d+)/;
        join ' ', $_->{':status'}, $left // '';
    } @_;
}
