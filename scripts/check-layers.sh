#!/usr/bin/env bash
# Checks rules that rustc and clippy do not know: the layers of modules; no cycles of files or folders, by imports or
# by methods of one type; a type's name occurs once; where unsafe code, nginx and clocks are allowed; and a folder has
# at most 20 files.
# Prints each violation as file:line: rule.
#
#   scripts/check-layers.sh [DIR]     checks DIR/src; default: this repository
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
exec perl - <<'PERL'
use strict;
use warnings;
use File::Find;

# A module imports only from those above it.
my @layers = qw(policy table store conf convert broker engine library nginx fuzzing);
# Support for tests imports from these, and only tests and fuzz targets import it.
my %for_testing = map { $_ => 1 } qw(policy table store conf engine testing);
# Within policy too; those on one line may import each other.
my @policy = ([qw(budget fnv hits printable query)], [qw(calendar)], [qw(window)], [qw(algorithm)], [qw(key limit options)], [qw(namespace reserve share)], [qw(headers)]);

my %layer_rank = map { $layers[$_] => $_ } 0 .. $#layers;
my %policy_rank = map { my $rank = $_; map { $_ => $rank } @{ $policy[$rank] } } 0 .. $#policy;
my %safe = map { $_ => 1 } qw(policy store conf convert engine library);
# Modules that call the system, outside of nginx.
my %of_system = map { $_ => 1 } ('broker shared shared_queues', 'broker wake', 'table words mapping', 'table words system');
# Modules that read clocks, outside of nginx.
my %of_clock = map { $_ => 1 } ('table words system', 'engine machine');
my $clock = qr/\b(?:SystemTime|Instant)::now\b|\.elapsed\s*\(|\b(?:clock_gettime|gettimeofday)\b
              |\bngx_(?:time|timeofday|current_msec|cached_time|monotonic_time)\b/x;

my $cfg_test = qr/\#\[cfg\((?![^\]]*not\(test)[^\]]*\b(?:test|fuzzing)\b[^\]]*\]\s*(?:\#\[[^\]]*\]\s*)*/;
my $visibility = qr/(?:pub(?:\([^)]*\))?\s+)?/;

my ($file, $text, $layer, $violations, $imports) = ('', '', '', 0, 0);
my %test_module;    # paths of modules that only tests compile, and that have a file
my %file_of;        # by the path of the module
my %edges;          # for each file, but for its tests: the files that it needs, and the first line
my %method_of;      # for each type and method, but for those of tests: the file that declares it
my %calls;          # for each file, but for its tests: the types and methods that are called there, and the first line
my %declared;       # for each type, but for those of tests: where it is declared, file and line
my @tests;          # where in $text there is what only tests compile: start and end

sub line_of { 1 + (substr($text, 0, $_[0]) =~ tr/\n//) }

sub violation {
    my ($line, $rule) = @_;
    print "$file:$line: $rule\n";
    $violations++;
}

# Replaces comments, strings and characters by spaces, so that only code is left.
sub blank { my ($s) = @_; $s =~ s/[^\n]/ /g; $s }
sub code {
    my ($s) = @_;
    $s =~ s{(//[^\n]* | /\*.*?\*/ | \b[bc]?r(\#*)".*?"\g2 | "(?:\\.|[^"\\])*" | '(?:\\.[^']*|[^\\'])')}
           {blank($1)}gsex;
    return $s;
}

# Records the file of an imported path: that of the innermost module in it.
sub note_edge {
    my ($here, $path, $line) = @_;
    return if is_test(@$here) || is_in_test(pos($text) // 0);
    my @module = @$path;
    pop @module while @module && !$file_of{"@module"};
    return if !@module;
    my $to = $file_of{"@module"};
    $edges{$file}{$to} //= $line if $to ne $file;
}

# Whether only tests compile a module, or one around it.
sub is_test {
    my @module = @_;
    while (@module) {
        return 1 if $test_module{"@module"};
        pop @module;
    }
    return 0;
}

# Returns the ranges of $text with items that only tests compile, up to their semicolon or closing brace.
sub find_tests {
    my @found;
    while ($text =~ /$cfg_test/g) {
        my ($start, $end, $depth) = ($-[0], pos $text, 0);
        while ($text =~ /\G[^{};]*([{};])/gc) {
            $end = pos $text;
            $depth += $1 eq '{' ? 1 : $1 eq '}' ? -1 : 0;
            last if $depth <= 0;
        }
        push @found, [$start, $end];
        pos($text) = $end;
    }
    return @found;
}

# One path that the module @$here names, from the crate's root.
sub import {
    my ($here, $path, $line) = @_;
    $imports++;
    note_edge($here, $path, $line);
    my ($top, $inner) = @$path;
    return if !@$here || !defined $top;    # lib.rs
    if ($here->[0] eq 'testing') {
        violation($line, "testing must not import from $top") if !$for_testing{$top};
    } elsif ($top eq 'testing') {
        my $in_test = is_test(@$here) || is_in_test(pos($text) // 0);
        # The library shows the tests that every datastore passes.
        violation($line, 'only tests import from testing') if !$in_test && "@$here" ne 'library store';
    } elsif (!exists $layer_rank{$top}) {
        violation($line, "crate::$top belongs to no layer");
    } elsif ($layer_rank{$top} > $layer_rank{ $here->[0] }) {
        violation($line, "$here->[0] must not import from $top");
    } elsif ($top eq 'policy' && $here->[0] eq 'policy' && @$here > 1) {
        my ($from, $to) = ($policy_rank{ $here->[1] }, $policy_rank{ $inner // '' });
        if (!defined $to) {
            violation($line, 'inside policy, name the module that the item comes from');
        } elsif (defined $from && $to > $from) {
            violation($line, "policy::$here->[1] must not import from policy::$inner");
        }
    }
}

# The rest of a path or use tree, at pos($text).
sub tree {
    my ($here, $path) = @_;
    my $line = line_of(pos $text);
    if ($text =~ /\G\s*\{/gc) {
        until ($text =~ /\G[\s,]*\}/gc) {
            $text =~ /\G[\s,]*/gc;
            my $before = pos $text;
            tree($here, [@$path]);
            last if pos $text == $before;
        }
    } elsif ($text =~ /\G\s*\*/gc) {
        import($here, [@$path, '*'], $line);
    } elsif ($text =~ /\G\s*(?:r#)?(\w+)/gc) {
        if ($1 eq 'super') { pop @$path }
        elsif ($1 ne 'self') { push @$path, $1 }
        return if @$path == 1 && $text =~ /\G!/;    # an exported macro
        if ($text =~ /\G\s*::(?=\s*[\w{*])/gc) { tree($here, $path) }
        else { import($here, $path, $line) }
        $text =~ /\G\s+as\s+\w+/gc;
    }
}

sub check_imports {
    my @here = @_;       # the file's module
    my @open = ();       # for every open brace: the inline module's name, or ''
    my $test_depth = 0;
    pos($text) = 0;
    while (1) {
        if ($text =~ /\G($cfg_test)?$visibility\bmod\s+(\w+)\s*\{/gc) {
            push @open, $2;
            $test_depth ||= @open if $1;
        } elsif ($text =~ /\G\{/gc) {
            push @open, '';
        } elsif ($text =~ /\G\}/gc) {
            $test_depth = 0 if $test_depth == @open;
            pop @open;
        } elsif ($text =~ /\G(?:(crate)|(super|self))\s*::/gc) {
            my @module = (@here, grep { $_ ne '' } @open);
            my @path = $1 ? () : $2 eq 'super' ? @module[0 .. $#module - 1] : @module;
            tree(\@module, \@path);
        } elsif ($text =~ /\G(?<!::)(?<!\w)(\w+)(?=\s*::)/gc) {
            # A file may name its own modules without more.
            my @module = (@here, $1);
            note_edge(\@here, \@module, line_of(pos $text)) if $file_of{"@module"};
        } elsif ($text =~ /\G(?:(?:use|extern\s+crate)\s+)?(ngx|nginx_sys|libc)\b(?=\s*(?:::|;|\sas\b))/gc) {
            my $is_table_test = "@here" =~ /^testing table/ || $layer eq 'table' && (is_test(@here) || $test_depth);
            my $exempt = $1 eq 'libc' && ($is_table_test || $of_system{"@here"});
            violation(line_of(pos $text), "only nginx uses $1") if $layer ne 'nginx' && !$exempt;
        } elsif ($text !~ /\G(?:\w+|\s+|.)/gcs) {
            last;
        }
    }
}

sub read_file {
    open my $in, '<', $_[0] or die "$_[0]: $!\n";
    local $/;
    return <$in> // '';
}

# The path of the module that a file is; none for lib.rs.
sub module_of {
    my ($name) = $_[0] =~ m{^src/(.*?)(?:/mod)?\.rs$};
    return $name eq 'lib' ? () : split m{/}, $name;
}

sub find_test_modules {
    my @here = module_of($_[0]);
    my $code = code(read_file($_[0]));
    $test_module{"@{[@here, $1]}"} = 1 while $code =~ /$cfg_test${visibility}mod\s+(\w+)\s*;/g;
}

sub check {
    ($file) = @_;
    my $source = read_file($file);
    violation(1, 'the first line says what the file is (//!)') if $source !~ m{\A//!};
    $text = code($source);
    @tests = find_tests();

    my @here = module_of($file);
    $layer = $here[0] // '';
    if (@here && !exists $layer_rank{$layer} && $layer ne 'testing') {
        return violation(1, "src/$layer is in no layer: see scripts/check-layers.sh");
    }
    if ($layer eq 'policy' && @here > 1 && !exists $policy_rank{ $here[1] }) {
        violation(1, "policy::$here[1] has no place in the order: see scripts/check-layers.sh");
    }
    if (@here == 1 && $safe{$layer} && $text !~ /#!\[forbid\([^)]*\bunsafe_code\b/) {
        violation(1, "$layer must #![forbid(unsafe_code)]");
    }
    if ($layer ne 'table' && $layer ne 'nginx' && !$of_system{"@here"} && "@here" !~ /^testing table/) {
        my $rule = 'unsafe only in table, nginx, and what calls the system in broker';
        violation(line_of($-[0]), $rule) while $text =~ /\bunsafe\b/g;
    }
    # The table's tests make memory and processes of their own, and run for a time, and the broker's
    # threads; tests of costs measure it.
    my $may_read = is_test(@here)
        && ($layer eq 'table' || $layer eq 'broker' || $here[-1] eq 'cost' || "@here" =~ /^testing table/);
    if ($layer ne 'nginx' && !$may_read && !$of_clock{"@here"}) {
        violation(line_of($-[0]), 'only nginx and the files system.rs read a clock') while $text =~ /$clock/g;
    }
    if ($layer eq 'policy' || $layer eq 'conf') {
        # conf gets the content of a file, or the error, as an argument: an io::Result.
        my $io = $layer eq 'policy' ? qr/env|fs|io|net|os|process|thread/ : qr/env|fs|net|os|process|thread/;
        violation(line_of($-[0]), "$layer does no I/O") while $text =~ /\bstd::(?:$io)\b/g;
    }
    if (!@here) {
        violation(line_of($-[0]), 'lib.rs has no logic') while $text =~ /\b(?:fn|impl)\b/g;
    }
    # A file no_NAME.rs stands for NAME.rs in a build without a feature, and has its names.
    note_types(@here) if $file !~ m{/no_\w+\.rs$};
    note_methods(@here);
    check_imports(@here);
}

# The circles of a graph, by Tarjan's algorithm: each node that can be reached from itself.
sub circles {
    my %edges = @_;
    my ($next, @stack, %number, %lowest, %is_on_stack, @circles) = 0;
    my $visit;
    $visit = sub {
        my ($node) = @_;
        $number{$node} = $lowest{$node} = $next++;
        push @stack, $node;
        $is_on_stack{$node} = 1;
        for my $to (sort keys %{ $edges{$node} // {} }) {
            if (!defined $number{$to}) {
                $visit->($to);
                $lowest{$node} = $lowest{$to} if $lowest{$to} < $lowest{$node};
            } elsif ($is_on_stack{$to} && $number{$to} < $lowest{$node}) {
                $lowest{$node} = $number{$to};
            }
        }
        return if $lowest{$node} != $number{$node};
        my @circle;
        do {
            push @circle, pop @stack;
            delete $is_on_stack{ $circle[-1] };
        } until $circle[-1] eq $node;
        push @circles, [sort @circle] if @circle > 1;
    };
    defined $number{$_} or $visit->($_) for sort keys %edges;
    return @circles;
}

# Notes the types that the module @_ declares. An associated type has the name that its trait requires, and
# an alias of a type by the same name means the same.
sub note_types {
    return if is_test(@_);
    my $alias = qr/^${visibility}type\s+(\w+)\b(?![^=;]*=\s*(?:\w+::)*\g{-1}\b)/m;
    while ($text =~ /^\s*${visibility}(?:unsafe\s+)?(?:struct|enum|union|trait)\s+(\w+)|$alias/mg) {
        my ($name, $at) = ($1 // $2, $-[1] // $-[2]);
        next if is_in_test($at);
        push @{ $declared{$name} }, [$file, line_of($at)];
    }
}

sub is_in_test { my ($at) = @_; return grep { $_->[0] <= $at && $at < $_->[1] } @tests }

# Returns the end of an item whose first opening brace is the next one after $at.
sub end_of_item {
    my ($at) = @_;
    my $depth = 0;
    pos($text) = $at;
    while ($text =~ /\G[^{}]*([{}])/gc) {
        $depth += $1 eq '{' ? 1 : -1;
        last if $depth == 0;
    }
    return pos($text) // length $text;
}

# Notes the methods that the module @_ declares, and those that methods of the same type call of it.
sub note_methods {
    return if is_test(@_);
    my @blocks;
    push @blocks, [$1, $-[0]] while $text =~ /^impl(?:<[^>]*>)?\s+(\w+)(?:<[^>]*>)?\s*\{/mg;
    for my $block (grep { !is_in_test($_->[1]) } @blocks) {
        my ($type, $start) = @$block;
        my $end = end_of_item($start);
        my $impl = substr $text, $start, $end - $start;
        $method_of{"$type $1"} = $file while $impl =~ /\bfn\s+(\w+)/g;
        $calls{$file}{"$type $1"} //= line_of($start + $-[0]) while $impl =~ /\bself\s*\.\s*(\w+)(?:::<[^>]*>)?\(/g;
    }
}

# A file needs the one that declares a method which it calls of its own type.
sub note_calls {
    for my $from (keys %calls) {
        for my $name (keys %{ $calls{$from} }) {
            my $to = $method_of{$name} // $from;
            $edges{$from}{$to} //= $calls{$from}{$name} if $to ne $from;
        }
    }
}

# Prints the declarations of types that share a name.
sub check_names {
    for my $name (sort keys %declared) {
        my ($first, @others) = @{ $declared{$name} };
        for my $other (@others) {
            $file = $other->[0];
            violation($other->[1], "$name is a type of $first->[0]:$first->[1] too");
        }
    }
}

# Prints the imports and calls that close a circle of a graph, whose edges say where they come from: file and line.
sub check_circles {
    my ($what, %graph) = @_;
    for my $circle (circles(%graph)) {
        my %in = map { $_ => 1 } @$circle;
        for my $from (@$circle) {
            for my $to (sort grep { $in{$_} } keys %{ $graph{$from} }) {
                ($file, my $line) = @{ $graph{$from}{$to} };
                violation($line, "in a circle of @{[scalar @$circle]} $what: needs $to");
            }
        }
    }
}

# The edges between the members of one folder: its files, and its folders as a whole.
sub floors {
    my %floors;
    for my $from (keys %edges) {
        for my $to (keys %{ $edges{$from} }) {
            my @from = split m{/}, $from;
            my @to = split m{/}, $to;
            my @folder;
            push @folder, shift @from and shift @to while @from > 1 && @to > 1 && $from[0] eq $to[0];
            my ($below, $above) = map { join '/', @folder, $_ } $from[0], $to[0];
            $floors{"@folder"}{$below}{$above} //= [$from, $edges{$from}{$to}];
        }
    }
    delete $floors{src};    # the layers, which are checked as such
    return %floors;
}

# Prints folders with too many files.
sub check_sizes {
    my %count;
    m{^(.*)/} and $count{$1}++ for @_;
    for my $folder (sort grep { $count{$_} > 20 } keys %count) {
        $file = $folder;
        violation(1, "$count{$folder} files side by side: at most 20");
    }
}

my @files;
find({ no_chdir => 1, wanted => sub { push @files, $_ if /\.rs$/ } }, 'src');
die "no Rust files in src\n" if !@files;
for my $name (@files) {
    find_test_modules($name);
    my @module = module_of($name);
    $file_of{"@module"} = $name if @module;
}
check($_) for sort @files;
note_calls();
my %files = map { my $from = $_; $from => { map { $_ => [$from, $edges{$from}{$_}] } keys %{ $edges{$from} } } } keys %edges;
check_circles('files', %files);
my %floors = floors();
check_circles('files and folders', %{ $floors{$_} }) for sort keys %floors;
check_names();
check_sizes(@files);
exit 1 if $violations;
printf "%d files, %d paths into the crate: layers kept\n", scalar @files, $imports;
PERL
