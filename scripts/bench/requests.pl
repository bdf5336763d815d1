#!/usr/bin/env perl
# Sends a number of requests over one keep-alive connection, one after the other, and dies unless
# each response has the expected status. It is used to count instructions, because it sends the same bytes every time,
# which no load generator guarantees.
#
#   requests.pl PORT COUNT same|new PAUSE STATUS   the key (argument k): always the same, or always new; seconds between
#                                                 two requests; the status of all but the first response, which is 200
use strict;
use warnings;
use IO::Socket::INET;
use Time::HiRes qw(sleep);

my ($port, $count, $keys, $pause, $status) = @ARGV;
my $nginx = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port)
    or die "port $port: $@\n";
for my $i (1 .. $count) {
    my $key = $keys eq 'new' ? sprintf('key%08d', $i) : 'abc';
    print {$nginx} "GET /?k=$key HTTP/1.1\r\nHost: localhost\r\n\r\n";
    $nginx->flush;
    my $answer = '';
    my $missing = 1;
    while ($missing > 0) {
        sysread($nginx, $answer, 65536, length $answer) or die "request $i: connection closed\n";
        my $end = index $answer, "\r\n\r\n";
        next if $end < 0;
        my ($length) = $answer =~ /^Content-Length: (\d+)\r$/mi or die "no length: $answer\n";
        $missing = $end + 4 + $length - length $answer;
    }
    my $expected = $i == 1 ? 200 : $status;
    $answer =~ m{\AHTTP/1\.1 $expected } or die "request $i: $answer\n";
    sleep $pause if $pause;
}
