# Starts servers, which end with the process that starts them, and stops and ends processes.

package Processes;

use strict;
use warnings;

use Exporter qw(import);
use File::Spec;
# Here, so that it removes directories after the servers in them have ended.
use File::Temp qw(tempdir);
use IO::Socket::INET;
use List::Util qw(all);
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep time);

my @servers;

# In another process, none of these is a child.
END {
    end_process($_) for grep { !has_ended($_) } @servers;
}

our @EXPORT = qw(start_server stop_processes has_stopped end_process memory_dir);

# Starts a server, and returns its process when it is ready. It ends with this one. name => its name in errors; command =>
# the program and its arguments; port => its port, on which no other process may listen; is_ready => a function that tells
# whether the server answers; log => the file to which its output is appended; input => a handle from which it reads, and
# with whose end it ends.
sub start_server {
    my (%server) = @_;
    my $name = $server{name};
    die "$name cannot start: another process listens on port $server{port}\n"
        if IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server{port});
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if ($pid == 0) {
        open STDIN, '<&', $server{input} or POSIX::_exit(1) if $server{input};
        open STDOUT, '>>', $server{log} or POSIX::_exit(1);
        open STDERR, '>&', \*STDOUT or POSIX::_exit(1);
        exec @{$server{command}} or POSIX::_exit(1);
    }
    push @servers, $pid if !$server{input};
    my $deadline = time + 60;
    until (eval { $server{is_ready}->() }) {
        my $has_ended = has_ended($pid);
        if ($has_ended || time > $deadline) {
            end_process($pid) if !$has_ended && !$server{input};
            open my $log, '<', $server{log} or die "cannot read $server{log}: $!\n";
            die "$name does not start:\n", <$log>;
        }
        sleep 0.01;
    }
    return $pid;
}

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

# Returns whether a child has ended.
sub has_ended {
    my ($pid) = @_;
    local $?;
    return waitpid($pid, WNOHANG) != 0;
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

# Returns a new directory, in memory if possible, for a server that writes each change: a busy disk would keep it waiting
# for seconds.
sub memory_dir {
    my ($name) = @_;
    return tempdir("$name-XXXXXX", DIR => (grep { -w } '/dev/shm', File::Spec->tmpdir)[0], CLEANUP => 1);
}

# Ends a child, also a stopped one, by a signal, and waits for its end.
sub end_process {
    my ($pid, $signal) = @_;
    local $?;
    kill $signal // 'KILL', $pid;
    kill CONT => $pid;
    waitpid $pid, 0;
}

1;
