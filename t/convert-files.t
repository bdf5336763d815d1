# Runs ratelimit-convert on files of the kinds that people have: each result passes nginx -t, and differs from its
# original only where the original has limit_req. Then on wrong ones: a message with file and line, an exit status that
# is not 0, nothing on the output, and no file that was not there before.
#
# This is a plain Perl test. It starts no nginx.

use strict;
use warnings;

use Cwd ();
use File::Path ();
use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Convert qw(convert directory_of read_text);

my $nginx   = $ENV{TEST_NGINX_BINARY} || 'nginx';
my @modules = split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';

# Each is a whole configuration: its title, and its files.
my @valid = (
    ['a single file' => 'nginx.conf' => whole(<<'END')],
    # The site's limits
    limit_req_zone $binary_remote_addr zone=site:10m rate=10r/s;
    limit_req_status 429;
    server {
        location / { empty_gif; }
        location /login { limit_req zone=site burst=5 nodelay; empty_gif; }
    }
END
    ['zones in conf.d, rules in sites and snippets' => (
        'nginx.conf' => whole("    include conf.d/*.conf;\n    include sites/*;\n"),
        'conf.d/limits.conf' => join("\n",
            'limit_req_zone $binary_remote_addr zone=general:10m rate=10r/s;',
            'limit_req_zone $server_name        zone=all:512k    rate=600r/m;',
            'limit_conn_zone $binary_remote_addr zone=connections:1m;',
            'limit_req_status 429;', 'limit_conn_status 429;', ''),
        'sites/one' => "server { server_name one; include snippets/limits; location / { empty_gif; } }\n",
        'sites/two' => "server {\n\tserver_name two;\n\tlimit_req zone=general burst=20 delay=8;\n"
            . "\tlimit_req_log_level warn;\n\tlimit_conn connections 20;\n}\n",
        'snippets/limits' => "limit_req  zone=general  burst=20;\nlimit_req zone=all burst=100 nodelay;\r\n",
    )],
    ['exempt networks, by geo and map' => 'nginx.conf' => whole(<<'END')],
    geo $limited { default 1; 10.0.0.0/8 0; 127.0.0.0/8 0; }
    map $limited $limit_key { 0 ""; 1 $binary_remote_addr; }
    limit_req_zone $limit_key zone=outside:10m rate=5r/s;
    server { limit_req zone=outside burst=10; }
    server { server_name b; limit_req zone=outside burst=10 nodelay; }
END
    ['crawlers, methods and keys of several variables' => 'nginx.conf' => whole(<<'END')],
    map $http_user_agent $crawler { default ""; "~*(bot|spider|\{curl\})" $http_user_agent; }
    map $request_method $writes { default ""; POST "$binary_remote_addr post"; PUT "$binary_remote_addr post"; }
    limit_req_zone $crawler zone=crawlers:1m rate=1r/m;
    limit_req_zone $writes zone=writes:1m rate=30r/m;
    limit_req_zone "$http_authorization;$uri" zone=token:2M rate=100r/s;
    server {
        limit_req zone=crawlers;
        location ~ \.php$ { limit_req zone=token burst=1 nodelay; limit_req zone=writes burst=3; empty_gif; }
    }
END
    ['a log, an error page, a dry run, and regular expressions with braces' => 'nginx.conf' => whole(<<'END')],
    log_format limits '$remote_addr "$request" $status '
                      '${limit_req_status}:$limit_conn_status';   # the variable is of limit_req
    limit_req_zone $remote_addr zone=a:1m rate=2r/s;
    server {
        access_log limits.log limits if=$limit_req_status;
        error_page 503 @slow;
        limit_req_dry_run on;
        location ~ "^/[0-9a-f]{8}$" { limit_req zone=a; limit_req_dry_run off; empty_gif; }
        location @slow { add_header X-Limit "$limit_req_status" always; return 503 "slow down; {limit_req zone=a;}\n"; }
    }
END
);

for (@valid) {
    my ($title, %files) = @$_;
    subtest $title => sub {
        my $directory = directory_of(%files);
        passes($directory, 'the original');
        my $new = "$directory/new";
        my ($code, $output, $errors) = convert('-d', $new, "$directory/nginx.conf");
        is($code, 0, 'converted') or diag($errors);
        passes($new, 'the result');
        my $rules = 0;
        for my $name (sort keys %files) {
            my @lines = map { unlimited($_) } split /(?<=\n)/, $files{$name};
            my $text = read_text("$new/$name");
            my @got  = map { unlimited($_) } split /(?<=\n)/, $text;
            is_deeply([grep {/\S/} @got], [grep {/\S/} @lines], "$name: all else is the same");
            unlike($text =~ s/"slow down.*?"|#.*//gr, qr/\blimit_req/, "$name: nothing of limit_req is left");
            $rules += () = $text =~ /\bratelimit rate=/g;
        }
        cmp_ok($rules, '>=', 1, "$rules rules");
    };
}

# Returns a line without the directives of both modules, and without what a conversion writes.
sub unlimited {
    my ($line) = @_;
    return '' if $line =~ /^\s*# ratelimit-convert: /;
    $line =~ s/\s*\b(?:rate)?limit(?:_req)?(?:_zone|_status|_dry_run|_log_level|_headers)?\s[^;]*?("[^"]*"[^;]*)?;\s*/ /g
        unless $line =~ /slow down/;
    $line =~ s/\$\{?\K(?:limit_req|ratelimit)_status/limit_status/g;
    return $line =~ s/\s+/ /gr;
}

sub whole {
    my ($http) = @_;
    my $load = join '', map {"load_module $_;\n"} @modules;
    return "${load}worker_processes 1;\nevents {}\nhttp {\n    access_log off;\n$http}\n";
}

sub passes {
    my ($directory, $what) = @_;
    mkdir "$directory/logs";
    my $said = `$nginx -t -p $directory -c $directory/nginx.conf -e stderr 2>&1`;
    like($said, qr/test is successful/, "nginx -t accepts $what");
    unlike($said, qr/\[warn\].*ratelimit/, 'without a warning');
}

my $valid = 'http { limit_req_zone $k zone=a:1m rate=1r/s; server { limit_req zone=a; } }';

# The message is of the file that is wrong; the arguments are for a file nginx.conf.
for (
    ['truncated',             qr/nginx\.conf:1: unexpected end of file/, {'nginx.conf' => substr $valid, 0, -1}],
    ['with a brace too much', qr/nginx\.conf:2: unexpected "\}"/,        {'nginx.conf' => "$valid\n}"}],
    ['not of nginx',          qr/nginx\.conf:\d+: unexpected/,           {'nginx.conf' => read_text($nginx)}],
    ['of another program',    qr/nginx\.conf: nothing to convert/,       {'nginx.conf' => "events {}\n"}],
    ['empty',                 qr/nginx\.conf: nothing to convert/,       {'nginx.conf' => ''}],
    ['that is missing',       qr/nginx\.conf: cannot be read \(No such/, {'other' => ''}],
    ['that is a directory',   qr/nginx\.conf: cannot be read \(not a regular file/, {'nginx.conf/a' => ''}],
    ['with a missing include', qr/nginx\.conf:1: include: ".*no" cannot be read/, {'nginx.conf' => "include no; $valid"}],
    ['that includes itself',  qr/a:1: include: ".*nginx.conf" includes itself/,
        {'nginx.conf' => "include a; $valid", 'a' => 'include nginx.con[f];'}],
    ['without the zone',      qr/nginx\.conf:1: limit_req: zone "a" has no limit_req_zone/, {'nginx.conf' => 'limit_req zone=a;'}],
    ['with a huge number',    qr/nginx\.conf:1: limit_req_zone: invalid rate/,
        {'nginx.conf' => $valid =~ s/rate=1/rate=99999999999999999999/r}],
    ['that is deep',          qr/nginx\.conf:1: blocks are nested deeper than 100/, {'nginx.conf' => 'a {' x 100_000}],
) {
    my ($title, $message, $files) = @$_;
    subtest "a file $title" => sub {
        my $directory = directory_of(%$files);
        my @before    = glob "$directory/{.*,*}";
        for my $option ([], ['-o', "$directory/result"], ['-d', "$directory/result"]) {
            my ($code, $output, $errors) = convert(@$option, "$directory/nginx.conf");
            is($code, 1, "exit status 1 @$option");
            is($output, '', 'nothing is written');
            like($errors, qr/^ratelimit-convert: $directory\/?$message/ , 'says why');
        }
        is_deeply([glob "$directory/{.*,*}"], \@before, 'no file is left');
    };
}

subtest 'absolute names of included files' => sub {
    my $directory = directory_of('conf.d/limits.conf' => "limit_req_zone \$binary_remote_addr zone=a:1m rate=1r/s;\n",
        'sites/one' => "server { limit_req zone=a; }\n", 'nginx.conf' => '');
    open my $file, '>', "$directory/nginx.conf" or die "no file: $!\n";
    print $file whole("    include $directory/conf.d/*.conf;\n    include $directory/sites/*;\n");
    close $file;
    is((convert('-d', "$directory/new", "$directory/nginx.conf"))[0], 0, 'converted');
    passes("$directory/new", 'the result');
    my $read = `$nginx -T -p $directory/new -c $directory/new/nginx.conf -e stderr 2>/dev/null`;
    unlike($read =~ s/^#.*$//mgr, qr/limit_req/, 'which consists of the new files');
    like($read, qr/ratelimit rate=1\/1s/, 'with rules');
    my ($code, undef, $errors) = convert('-p', "$directory/conf.d", '-d', "$directory/other", "$directory/nginx.conf");
    is($code, 3, 'of another directory, they ask for work');
    like($errors, qr/sites\/\*" is still the file of before/, 'by name');
};

subtest 'a relative name' => sub {
    my $directory = directory_of(
        'nginx.conf' => whole("    include sites/../sites/a;\n    include ../other;\n"),
        'sites/a'    => "limit_req_zone \$request_uri zone=a:1m rate=1r/s;\nserver { limit_req_dry_run ON; limit_req zone=a; }\n",
    );
    my $name = $directory =~ s{.*/}{}r;
    open my $file, '>', "$directory/../other" or die "cannot write: $!\n";
    print $file "limit_req_status 429;\n";
    close $file;
    my $above = "$directory/..";
    for ([$above, "$name/new", "$name/nginx.conf"], [$directory, '../new', 'nginx.conf'],
        [$directory, "../$name/new", "../$name/nginx.conf"]) {
        my ($from, $new, $main) = @$_;
        my $here = Cwd::getcwd();
        chdir $from or die "cannot change the directory: $!\n";
        my ($code, undef, $errors) = convert('-d', $new, $main);
        $new = Cwd::abs_path($new);
        chdir $here or die "cannot change the directory: $!\n";
        is($code, 3, "$main in $from");
        like($errors, qr{include: "\.\./other" is still the file of before}, 'names the file that is outside');
        my $text = read_text("$new/nginx.conf");
        $text =~ s{\.\./other}{$directory/../other} or die "no include in $text\n";
        open my $file, '>', "$new/nginx.conf" or die "cannot write: $!\n";
        print $file $text;
        close $file;
        passes($new, 'the result');
        my $read = `$nginx -T -p $new -c $new/nginx.conf -e stderr 2>/dev/null`;
        like($read, qr/ratelimit rate=1\/1s/, 'which consists of the new files');
        File::Path::remove_tree($new);
    }
    unlink "$directory/../other";
};

subtest 'output' => sub {
    my $directory = directory_of('nginx.conf' => $valid, 'main.conf' => 'http { include part; }', 'part' => "limit_req_zone \$k zone=a:1m rate=1r/s; limit_req zone=a;\n");
    my ($code, $output, $errors) = convert("$directory/nginx.conf");
    is($code, 0, 'to the output');
    like($output, qr/^load_module [^\n]*\nhttp \{/, 'the file');
    like($errors, qr{^\Q$directory\E/nginx\.conf:1: limit_req answers 503}m, 'remarks have their place');

    is((convert('-o', "$directory/result", "$directory/nginx.conf"))[0], 0, 'to a file');
    is(read_text("$directory/result"), $output, 'the same');
    is((convert('-o', "$directory/result", "$directory/nginx.conf"))[0], 0, 'to a file that exists');
    is((convert('-o', "$directory/no/result", "$directory/nginx.conf"))[0], 1, 'to a directory that does not exist');
    ($code, undef, $errors) = convert('-o', '/dev/full', "$directory/nginx.conf");
    is($code, 1, 'to a device that is full');
    like($errors, qr{/dev/full: cannot be written}, 'says so');
    ok(-c '/dev/full', 'and the device is still one');

    symlink 'result', "$directory/link" or die "cannot link: $!\n";
    chmod 0600, "$directory/result" or die "cannot change the mode: $!\n";
    open my $file, '>', "$directory/result" or die "cannot write: $!\n";
    close $file;
    is((convert('-o', "$directory/link", "$directory/nginx.conf"))[0], 0, 'by a link');
    is(readlink "$directory/link", 'result', 'which stays');
    is(read_text("$directory/result"), $output, 'to its file');
    is((stat "$directory/result")[2] & 07777, 0600, 'which keeps its mode');

    ($code, undef, $errors) = convert('-o', "$directory/result2", "$directory/main.conf");
    is($code, 1, 'several files do not become one');
    like($errors, qr/part change too: -d writes/, 'says what does');
    ($code, $output) = convert("$directory/main.conf");
    is($code, 0, 'several files');
    like($output, qr{^# configuration file \Q$directory\E/main\.conf:\n.*^# configuration file \Q$directory\E/part:\n}ms,
        'are printed as nginx -T does');
    is((convert('-d', "$directory/new", "$directory/main.conf"))[0], 0, 'to a new directory');
    ($code, undef, $errors) = convert('-d', "$directory/new", "$directory/main.conf");
    is($code, 1, 'not to one that exists');
    is_deeply([map {s{.*/}{}r} glob "$directory/new/{.*,*}"], [qw(. .. main.conf part)], 'all files');
    is_deeply([grep {/\d+$/ && !/result/} glob "$directory/.*"], [], 'no temporary file is left');

    for my $arguments ([], ['-x', 'a'], ['a', 'b'], ['-o'], ['-o', 'a', '-d', 'b', 'c']) {
        ($code, $output, $errors) = convert(@$arguments);
        is($code, 2, "wrong usage: @$arguments");
        is($output, '', 'nothing is written');
        like($errors, qr/^Usage: /m, 'says how');
    }
    ($code, $output) = convert('--help');
    is($code, 0, 'help');
    like($output, qr/^Usage: ratelimit-convert/, 'is the output');
    open my $full, '>', '/dev/full' or die "cannot write: $!\n";
    my $pid = fork // die "cannot fork: $!\n";
    if (!$pid) {
        open STDOUT, '>&', $full;
        open STDERR, '>', '/dev/null';
        exec $Convert::program, "$directory/nginx.conf" or die "cannot run: $!\n";
    }
    waitpid $pid, 0;
    is($? >> 8, 1, 'an output that is full is an error');
};

subtest 'work by hand' => sub {
    my $directory = directory_of('nginx.conf' => 'include no; ' . $valid =~ s/server/limit_req_zone \$k zone=unused:1m rate=1r\/s; server/r);
    my ($code, $output, $errors) = convert('-m', "$directory/nginx.conf");
    is($code, 3, 'exit status 3');
    like($output, qr/limit_req_zone "unused" stays/, 'the output says it');
    like($errors, qr/nginx\.conf:1: work by hand: include: ".*no" is missing/, 'so does the error output');
};

done_testing();
