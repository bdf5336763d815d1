# Stops processes, and knows when they have stopped.

package Stopped;

use strict;
use warnings;

use Exporter qw(import);
use List::Util qw(all);
use Time::HiRes qw(sleep time);

our @EXPORT = qw(stop_processes has_stopped);

# Sends SIGSTOP to processes, and returns when all of their threads have stopped. On a busy machine, threads go on for some
# milliseconds after `kill` returns: a server may still answer. A process that has ended counts as one that has stopped.
sub stop_processes {
    my @pids = @_;
    kill STOP => @pids;
    my $deadline = time + 30;
    until (all { has_stopped($_) } @pids) {
        die "processes do not stop: @pids\n" if time > $deadline;
        sleep 0.001;
    }
}

# Returns whether all threads of a process are stopped, or have ended.
sub has_stopped {
    my ($pid) = @_;
    my @states;
    for my $stat (glob "/proc/$pid/task/*/stat") {
        open my $file, '<', $stat or next;
        push @states, (<$file> // '') =~ /^\d+ \(.*\) (\S)/;
    }
    return all { /[TZX]/ } @states;
}

1;
