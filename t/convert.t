# Compares limit_req with what ratelimit-convert makes of it. For random configurations, an nginx with limit_req and one
# with the converted files get the same requests at the same times: each request must have the same status, the same
# $limit_req_status or $ratelimit_status, and wait equally long.
#
# This is a plain Perl test; it uses the ports TEST_NGINX_PORT + 1 and + 2. lib/set_clock.c sets the clocks of both.
# SEED= repeats a run.

use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use Test::More;

use lib "$FindBin::Bin/lib";
use Convert qw(convert read_text);
use Nginx qw(wait_until);
use Preload;

use constant {CONFIGURATIONS => 12, REQUESTS => 150};

my $seed = $ENV{SEED} // time;
srand $seed;
diag("SEED=$seed");

my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $clock = Preload->new('set_clock');
my $now   = 0;
my @sides = map { Side->new(port => $port + $_, name => $_ == 1 ? 'limit_req' : 'converted') } 1, 2;
my %seen;

for my $number (1 .. CONFIGURATIONS) {
    my %files = configuration();
    start_both(%files);
    my @waiting;
    for my $id (1 .. REQUESTS) {
        $now += pick(0, 0, 1, 7, 50, 200, 400, 1000, 5000);
        $clock->order($now);
        my $location = pick('/', '/a', '/b', '/b/c', '/again', '/all', '/live', '/dry', '/empty');
        # If the keys of /again are empty, limit_req decides in the location that it leads to. This module does not.
        my $target = "$location?k=" . ($location eq '/again' ? 1 + int rand 2 : int rand 3);
        for my $side (@sides) {
            push @waiting, ask($side, $target, $id);
            barrier($side);
        }
    }
    # No delay is as long.
    $now += 10_000_000;
    $clock->order($now);
    barrier($_) for @sides;
    my ($expected, $got) = map { outcomes($_) } @sides;
    is_deeply($got, $expected, "configuration $number, with @{[scalar keys %$expected]} requests")
        or diag(join "\n", map {"--- $_\n$files{$_}"} sort keys %files);
    is(scalar keys %$expected, REQUESTS, 'each request was answered');
    $seen{(split)[1]}++ for values %$expected;
    $_->end for @sides;
}
cmp_ok($seen{$_} // 0, '>=', 1, sprintf '%d requests are %s', $seen{$_} // 0, $_)
    for qw(- PASSED DELAYED REJECTED DELAYED_DRY_RUN REJECTED_DRY_RUN);
done_testing();

sub pick { return $_[rand @_] }

# Returns a random configuration, as the contents of files: those of `http`, and those that these include. A few
# locations are in each, so that each status occurs.
sub configuration {
    my @zones = map {"zone$_"} 1 .. 1 + rand 4;
    my $zones = join '', map { zone($_) } @zones;
    my %files = ('zones.conf' => "# $zones[0]\r\n$zones");
    my $include = int rand 2;
    my $levels = join "\n", map {
        my ($location, $inner) = @$_;
        my $level = level(@zones);
        if ($include && rand() < 0.5) {
            $files{"level$location.conf" =~ s{/}{-}gr} = $level;
            $level = "include level@{[$location =~ s{/}{-}gr]}.conf;";
        }
        "location $location { $level empty_gif; $inner }";
    } ['/a', ''], ['/b', 'location /b/c { ' . level(@zones) . ' empty_gif; }'], ['/again', 'error_page 405 = /a;'];
    return (%files, http => <<"END");
    map \$arg_k \$key { default "k\$arg_k"; 0 ""; }
    include zones.conf;
    limit_req_zone \$server_protocol zone=slow:64k rate=7r/m;
    limit_req_zone \$arg_none zone=empty:64k rate=1r/s;
    log_format outcome '\$http_x_id \$status \$limit_req_status \$request_time "\${limit_req_status}"';
    @{[rand() < 0.3 ? level(@zones) : '']}
    server {
        include listen.conf;
        access_log outcomes outcome;
        @{[level(@zones)]}
        location = /barrier { access_log off; return 204; }
        location / { empty_gif; }
        location /live { limit_req zone=slow burst=3; limit_req_dry_run off; empty_gif; }
        location /dry { limit_req zone=slow burst=3 delay=1; limit_req_dry_run on; empty_gif; }
        location /empty { limit_req zone=empty; empty_gif; }
        location /all { @{[map {"limit_req zone=$_;"} @zones]} empty_gif; }
        $levels
    }
END
}

sub zone {
    my ($name) = @_;
    my $key  = pick('$binary_remote_addr', '$arg_k', '"$uri $arg_k"', '$key', "'\${key}x'", '"$request_method;\\"{"');
    my $rate = pick(map {"rate=$_"} qw(1r/s 5r/s 33r/s 1000r/s 30r/m 7r/m 100));
    return "limit_req_zone $key zone=$name:@{[pick('64k', '1m', '40000')]} $rate; # the $name\n";
}

# Returns directives of a level, which has none of some.
sub level {
    my @zones = @_;
    my @lines;
    for my $zone (@zones) {
        next if rand() < 0.6;
        my @words = ("zone=$zone", pick('', '', map {"burst=$_"} 1, 2, 5, 10), pick('', 'nodelay', 'delay=1', 'delay=4'));
        push @lines, join(pick(' ', "\n# of $zone;\n"), 'limit_req', sort { rand() <=> 0.5 } grep {$_} @words) . ';';
    }
    push @lines, "limit_req_status @{[pick(429, 503, 444, 400)]};"            if rand() < 0.3;
    push @lines, "limit_req_log_level @{[pick(qw(info notice warn error))]};" if rand() < 0.3;
    push @lines, "limit_req_dry_run @{[pick(qw(on off))]};"                   if rand() < 0.2;
    return join pick(' ', "\n"), @lines;
}

sub start_both {
    my (%files) = @_;
    my ($original, $converted) = @sides;
    $original->start(files => \%files, environment => {$clock->environment});
    $converted->start(from => $original, environment => {$clock->environment});
}

# Sends a request, whose answer may come later.
sub ask {
    my ($side, $target, $id) = @_;
    my $socket = $side->connection or die "no connection: $!\n";
    # An error page for the method leads from /again to another location.
    my $method = $target =~ m{^/again} ? 'POST' : 'GET';
    print $socket "$method $target HTTP/1.0\r\nX-Id: $id\r\nContent-Length: 0\r\n\r\n";
    return $socket;
}

# Waits until nginx, which has one process, has decided about all requests before, and looked at its timers.
sub barrier {
    my ($side) = @_;
    for (1, 2) {
        my $socket = ask($side, '/barrier', '');
        my $answer = do { local $/; <$socket> };
        $answer =~ m{^HTTP/1\.1 204} or die "no barrier\n";
    }
}

# Returns what was logged of each request, by its id.
sub outcomes {
    my ($side) = @_;
    my %outcomes;
    wait_until(20, sub {
        %outcomes = map {/^(\d+) (.*)$/} split /\n/, read_text("$side->{root}/outcomes");
        return keys %outcomes == REQUESTS;
    });
    return \%outcomes;
}

# An nginx with a random configuration, or with the conversion of another one's.
package Side;

use File::Temp qw(tempdir);
use Test::More;

use parent -norequire, 'Nginx';

sub defaults { return (workers => 1) }

sub http {
    my ($self) = @_;
    return $self->{conf}{files}{http};
}

sub configure {
    my ($self, %changes) = @_;
    my $from = $changes{from};
    my $root = $self->{root};
    unlink "$root/outcomes";
    if ($from) {
        $self->{conf} = {%{$self->{conf}}, %changes};
        my $new = tempdir('converted-XXXXXX', TMPDIR => 1, CLEANUP => 1) . '/new';
        my ($code, $output, $errors) = Convert::convert('-d', $new, "$from->{root}/nginx.conf");
        is($code, 0, 'converted') or diag($errors);
        is($output, '', 'to files only');
        for my $name (map {s{.*/}{}r} glob "$new/*") {
            my $text = Convert::read_text("$new/$name");
            unlike($text, qr/^\s*limit_req/m, "$name has no limit_req");
            write_text("$root/$name", $text =~ s/\Q$from->{root}\E/$root/gr);
        }
    } else {
        unlink glob "$root/*.conf";
        my $files = $changes{files};
        write_text("$root/$_", $files->{$_}) for grep {/\.conf$/} keys %$files;
        $self->SUPER::configure(%changes);
    }
    write_text("$root/listen.conf", "listen 127.0.0.1:$self->{port};\n");
}

sub write_text {
    my ($name, $text) = @_;
    open my $file, '>', $name or die "$name: $!\n";
    print $file $text;
    close $file or die "$name: $!\n";
}
