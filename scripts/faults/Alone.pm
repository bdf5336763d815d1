# Clients of one node, whose requests are counted without a store: by all algorithms that other clients use only with one.
# See faults.pl.

package Alone;

use strict;
use warnings;

use POSIX ();
use Time::HiRes qw(sleep);

my $test = $$;
my %running;

END {
    local $?;
    if ($$ == $test) { kill KILL => keys %running }
}

my %algorithms = (
    moving  => 'alone limit=100000/366d window=moving',
    elastic => 'alone limit=1000000/366d window=elastic',
    bucket  => 'alone rate=1/366d burst=999999',
);
# In `refused`, what the first three limits have admitted is refunded.
my $all       = join '; ratelimit ', map { $algorithms{$_} } sort keys %algorithms;
my %locations = (alone => $all, refused => "$all; ratelimit alone limit=20/366d window=fixed");

# Returns the rules by location, as in lib/Node.pm, of a namespace `alone`.
sub rules { return (%locations, map { ("ask-$_" => "$algorithms{$_} cost=0") } keys %algorithms) }

# Starts a process that makes requests for a key, one after another. file => the file of its results.
sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    defined($self->{pid} = fork) or die "cannot fork: $!\n";
    $self->run if $self->{pid} == 0;
    $running{$self->{pid}} = 1;
    return $self;
}

sub run {
    my ($self) = @_;
    my ($number, %count) = (0);
    until (-e "$self->{file}-end" || getppid != $test) {
        my $location = (sort keys %locations)[$number++ % 2];
        my ($status) = $self->{node}->get($location => $self->{key});
        $count{$status}++;
        sleep 0.005;
    }
    open my $file, '>', $self->{file} or POSIX::_exit(1);
    print $file map {"$count{$_} $_\n"} keys %count;
    POSIX::_exit(close $file ? 0 : 1);
}

# Ends the process. Returns the number of admitted requests, and of those without an answer.
sub stop {
    my ($self) = @_;
    open my $end, '>', "$self->{file}-end" or die "cannot write: $!\n";
    local $?;
    waitpid $self->{pid}, 0;
    delete $running{$self->{pid}};
    die "a client without a store failed\n" if $? != 0;
    open my $file, '<', $self->{file} or die "no results: $!\n";
    my ($admitted, $open) = (0, 0);
    while (<$file>) {
        my ($count, $outcome) = /^(\d+) (.*)/;
        if    ($outcome eq '200') { $admitted += $count }
        elsif ($outcome ne '429') { $open += $count }
    }
    return ($admitted, $open);
}

# Returns which counts of a node differ from the answers, in words.
sub wrong {
    my ($node, $key, $admitted, $open) = @_;
    my @wrong;
    for my $algorithm (sort keys %algorithms) {
        my $count = $node->rate("ask-$algorithm" => $key);
        push @wrong, "$algorithm: $admitted, and $open without an answer; counted: $count"
            if $count !~ /^\d+\z/ || $count < $admitted || $count > $admitted + $open;
    }
    return @wrong;
}

1;
