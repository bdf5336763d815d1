# A headless Chromium that a test drives by the DevTools protocol, over a pair of pipes.

package Browser;

use strict;
use warnings;

use File::Temp qw(tempdir);
use IO::Select;
use JSON::PP;
use MIME::Base64 qw(decode_base64);
use POSIX ();
use Time::HiRes qw(time);

use Nginx qw(wait_until);

my $program = '/usr/bin/chromium-headless-shell';
my $json    = JSON::PP->new->utf8->canonical->allow_nonref;
my @all;

END {
    local $?;
    $_->stop for @all;
}

# Returns whether the browser is installed.
sub is_there { return -x $program }

# Starts a browser with one page. It records what the page does:
#
#   requests   the URLs that it asked for, each with its method
#   problems   what the browser reports as a warning or an error, such as a violation of a Content-Security-Policy, and
#              exceptions of scripts
sub new {
    my ($class, @options) = @_;
    my $dir = tempdir('browser-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    pipe my $commands, my $to   or die "cannot make a pipe: $!\n";
    pipe my $from, my $answers or die "cannot make a pipe: $!\n";
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if (!$pid) {
        # The browser reads commands from the descriptor 3, and answers to 4, which the pipes may have now.
        my ($in, $out) = (POSIX::dup(fileno $commands), POSIX::dup(fileno $answers));
        POSIX::dup2($in, 3);
        POSIX::dup2($out, 4);
        POSIX::close($_) for $in, $out;
        open STDOUT, '>', "$dir/log" or POSIX::_exit(1);
        open STDERR, '>&', \*STDOUT or POSIX::_exit(1);
        exec $program, qw(--remote-debugging-pipe --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --lang=en-US),
            "--user-data-dir=$dir/profile", @options or POSIX::_exit(1);
    }
    close $commands;
    close $answers;
    my $self = bless {
        pid => $pid, dir => $dir, to => $to, from => $from, id => 0, text => '', answers => {},
        requests => [], problems => [],
    }, $class;
    push @all, $self;
    my $target = $self->call('Target.createTarget', {url => 'about:blank'})->{targetId};
    $self->{session} = $self->call('Target.attachToTarget', {targetId => $target, flatten => JSON::PP::true})->{sessionId};
    $self->call("$_.enable") for qw(Page Runtime Network Log);
    return $self;
}

sub stop {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    kill KILL => $pid;
    waitpid $pid, 0;
}

# Calls a method of the protocol. Returns its result.
sub call {
    my ($self, $method, $parameters) = @_;
    my $id = ++$self->{id};
    my $call = {id => $id, method => $method, params => $parameters // {}};
    $call->{sessionId} = $self->{session} if $self->{session};
    local $SIG{PIPE} = 'IGNORE';
    syswrite $self->{to}, $json->encode($call) . "\0";
    my $deadline = time + 30;
    until ($self->{answers}{$id}) {
        $self->receive($deadline - time) or die "no answer to $method\n";
    }
    my $answer = delete $self->{answers}{$id};
    die "$method: $answer->{error}{message}\n" if $answer->{error};
    return $answer->{result};
}

# Reads what the browser has sent, for as long as this at most. Returns whether there was something.
sub receive {
    my ($self, $seconds) = @_;
    IO::Select->new($self->{from})->can_read($seconds > 0 ? $seconds : 0) or return 0;
    sysread $self->{from}, $self->{text}, 1 << 20, length $self->{text} or die "the browser has ended\n";
    while ($self->{text} =~ s/\A([^\0]*)\0//) {
        my $message = $json->decode($1);
        if ($message->{id}) { $self->{answers}{$message->{id}} = $message }
        else                { $self->note($message->{method}, $message->{params}) }
    }
    return 1;
}

sub note {
    my ($self, $event, $told) = @_;
    if ($event eq 'Network.requestWillBeSent') {
        push @{$self->{requests}}, "$told->{request}{method} $told->{request}{url}";
    }
    elsif ($event eq 'Log.entryAdded') {
        push @{$self->{problems}}, "$told->{entry}{source}: $told->{entry}{text}";
    }
    elsif ($event eq 'Runtime.exceptionThrown') {
        push @{$self->{problems}}, 'exception: ' . ($told->{exceptionDetails}{exception}{description} // $told->{exceptionDetails}{text});
    }
    elsif ($event eq 'Runtime.consoleAPICalled') {
        push @{$self->{problems}}, "console: " . join ' ', map { $_->{description} // $_->{value} // '' } @{$told->{args}};
    }
}

# Returns what was noted since the last call, and forgets it.
sub take {
    my ($self, $kind) = @_;
    $self->evaluate('1');
    my $noted = $self->{$kind};
    $self->{$kind} = [];
    return @$noted;
}

# Opens an address, and waits until it is loaded.
sub open {
    my ($self, $url) = @_;
    $self->call('Page.navigate', {url => 'about:blank'});
    my $failure = $self->call('Page.navigate', {url => $url})->{errorText};
    die "$url: $failure\n" if $failure;
    wait_until(30, sub { $self->evaluate('document.readyState === "complete" && location.href !== "about:blank"') });
}

# Returns the value of an expression in the page: what JSON can hold.
sub evaluate {
    my ($self, $expression) = @_;
    my $got = $self->call('Runtime.evaluate', {
        expression => $expression, returnByValue => JSON::PP::true, awaitPromise => JSON::PP::true,
    });
    die "$expression: $got->{exceptionDetails}{exception}{description}\n" if $got->{exceptionDetails};
    return $got->{result}{value};
}

# Returns the text of the first element that a selector matches.
sub text {
    my ($self, $selector) = @_;
    return $self->evaluate('document.querySelector(' . $json->encode($selector) . ')?.innerText ?? ""');
}

# Presses a key, such as `Tab`, with modifiers (8: shift).
sub press {
    my ($self, $key, $modifiers) = @_;
    my %codes = (Tab => 9, Enter => 13, Escape => 27, ' ' => 32, ArrowLeft => 37, ArrowUp => 38, ArrowRight => 39, ArrowDown => 40,
        Home => 36, End => 35);
    my %text = (Enter => "\r", ' ' => ' ');
    my $code = $codes{$key} // ord uc $key;
    my %of = (key => $key, code => $key eq ' ' ? 'Space' : $key, windowsVirtualKeyCode => $code, modifiers => $modifiers // 0);
    my $text = $text{$key} // (length $key == 1 ? $key : undef);
    $self->call('Input.dispatchKeyEvent', {%of, type => defined $text ? 'keyDown' : 'rawKeyDown', defined $text ? (text => $text) : ()});
    $self->call('Input.dispatchKeyEvent', {%of, type => 'keyUp'});
}

# Types a text into the element that has the focus.
sub type {
    my ($self, $text) = @_;
    $self->call('Input.insertText', {text => $text});
}

# Sets the size of the window in CSS pixels, and how many pixels of a picture each has.
sub resize {
    my ($self, $width, $height, $scale, $is_mobile) = @_;
    $self->call('Emulation.setDeviceMetricsOverride', {
        width => $width, height => $height, deviceScaleFactor => $scale // 1, mobile => $is_mobile ? JSON::PP::true : JSON::PP::false,
    });
}

# Sets what the user prefers, such as `prefers-color-scheme => 'dark'`.
sub prefer {
    my ($self, %features) = @_;
    $self->call('Emulation.setEmulatedMedia', {
        features => [map { {name => $_, value => $features{$_}} } sort keys %features],
    });
}

# Returns a picture of the page as PNG: as it is seen, or all of it.
sub picture {
    my ($self, $is_whole) = @_;
    my %part;
    if ($is_whole) {
        my $size = $self->call('Page.getLayoutMetrics')->{cssContentSize};
        $part{clip} = {x => 0, y => 0, width => $size->{width}, height => $size->{height}, scale => 1};
        $part{captureBeyondViewport} = JSON::PP::true;
    }
    return decode_base64($self->call('Page.captureScreenshot', {format => 'png', %part})->{data});
}

1;
