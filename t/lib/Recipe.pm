# An nginx with a file of nginx-conf/, unchanged but for the ports and the log, and the commands of that file's first
# comment, by which it is tried.

package Recipe;

use strict;
use warnings;

use parent 'Nginx';

use File::Basename qw(basename);
use FindBin;
use Test::More;

my $root = "$FindBin::Bin/..";

sub defaults { return (workers => 1) }

# file => the name of the file; port => the port in place of 8080; changes => a hash of words of the file and others in
# their place, such as the ports of stores.
sub new {
    my ($class, %self) = @_;
    my $self = $class->SUPER::new(name => $self{file}, %self);
    my $dir  = $self->{root};
    mkdir "$dir/$_" or die "cannot make $dir/$_: $!\n" for qw(html logs modules);
    $self->write('html/index.html', "It works, a few times.\n");
    # Workers of a root master run as another user.
    chmod 0755, $dir;
    for my $module (split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '') {
        symlink $module, "$dir/modules/" . basename($module) =~ s/^lib//r or die "cannot link $module: $!\n";
    }
    symlink "$root/lua", "$dir/lua" or die "cannot link lua: $!\n";
    return $self;
}

# Writes a file in the prefix.
sub write {
    my ($self, $name, $text) = @_;
    open my $file, '>', "$self->{root}/$name" or die "cannot write $name: $!\n";
    print $file $text;
    close $file or die "cannot write $name: $!\n";
}

# Returns the text of the file.
sub text {
    my ($self) = @_;
    open my $file, '<', "$root/nginx-conf/$self->{file}" or die "cannot read $self->{file}: $!\n";
    local $/;
    return <$file>;
}

# Returns a text with the ports of this test and the prefix in place of those of the file.
sub changed {
    my ($self, $text) = @_;
    my %changes = (%{$self->{changes} // {}}, PREFIX => $self->{root});
    my $words   = join '|', map {quotemeta} reverse sort keys %changes;
    $text =~ s/(?<!\w)($words)(?!\w)/$changes{$1}/g;
    return $text;
}

sub configure {
    my ($self, %changes) = @_;
    $self->{conf} = {%{$self->{conf}}, %changes};
    my $text = $self->changed($self->text);
    $text =~ s{^error_log stderr( notice)?;}{error_log $self->{log} notice;}m or die "$self->{file} logs elsewhere\n";
    $self->write('nginx.conf', $text);
}

# Returns the commands of the comment: each line of curl, without the remark that follows two blanks.
sub commands {
    my ($self) = @_;
    my ($comment) = $self->text =~ /\A((?:#.*\n)+)/;
    $comment =~ s/\\\n# +//g;
    return map { $self->changed($_) } $comment =~ /^# {3}(curl (?:\S| (?! ))+)/mg;
}

# Runs a command of curl with its URL so many times on one connection. Returns the responses, as text.
sub run {
    my ($self, $command, $times) = @_;
    my ($options, $url) = $command =~ /^curl (.*?)('?http:\S+)\s*$/ or die "no URL: $command\n";
    my $output = qx(curl -sS -w '\n' $options @{[($url) x $times]} 2>&1);
    my @responses = grep {length} split m{^(?=HTTP/[\d.]+ \d)}m, $output;
    @responses == $times or $self->give_up("$command: $output");
    return @responses;
}

sub status_of { return $_[0] =~ m{^HTTP/[\d.]+ (\d+)} ? $1 : 'none' }

# Tests a command: its responses are these, such as `200 x 5, 429`; or, for windows that may end meanwhile, `429 after
# 200`, both of them and no others, or `429 in the end`, in which case it is repeated until one is 429. The last response
# matches $pattern, if it is given.
sub tried {
    my ($self, $command, $expected, $pattern) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my @responses;
    if ($expected =~ /^(\d+) (?:after (\d+)|in the end)\z/) {
        my ($last, $first) = ($1, $2);
        my %is_seen;
        for (1 .. 50) {
            @responses = $self->run($command, 30);
            $is_seen{status_of($_)}++ for @responses;
            last if $is_seen{$last};
        }
        ok($is_seen{$last}, "$command: $expected");
        is(join(' ', sort keys %is_seen), join(' ', sort $first, $last), 'and nothing else') if $first;
    }
    else {
        my @statuses = map { /^(\d+)(?: x (\d+))?\z/ or die "what is $_?\n"; ($1) x ($2 // 1) } split /, /, $expected;
        @responses = $self->run($command, scalar @statuses);
        is(join(' ', map { status_of($_) } @responses), "@statuses", "$command: $expected");
    }
    like($responses[-1], $pattern, "$command: the last response") if $pattern;
}

1;
