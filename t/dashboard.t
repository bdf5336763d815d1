# Tests the panels of contrib/grafana/dashboard.json: each query has a result in a real Prometheus that scrapes a node.
#
# This is a plain Perl test. It uses the ports TEST_NGINX_PORT + 2, + 4 and + 6.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use IO::Socket::INET;
use JSON::PP;
use Test::More;
use Time::HiRes qw(sleep);

use lib "$FindBin::Bin/lib";
use Node;
use Redis;

die "redis-server is not installed\n" if !Redis::is_there();

my $root       = "$FindBin::Bin/..";
my $prometheus = "$root/target/prometheus/usr/bin/prometheus";
-x $prometheus or die "prometheus is missing: see unpacked in scripts/lib.sh\n";
my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $redis = Redis->new(port => $port + 4);
$redis->be_empty;
my $node = Node->new(a => $port + 2);
$node->start(
    http => <<"    END",
        ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; timeout 5s; connect_timeout 5s; }
        ratelimit_namespace api { store main; sync_rate 100ms; }
        ratelimit_namespace now { store main; sync_rate 0; on_error local; }
    END
    rules => {hit => 'api limit=2/366d window=fixed', now => 'now limit=1000000/366d window=fixed'},
);
$node->wait_for_first_sync;

my $dir = tempdir('dashboard-XXXXXX', TMPDIR => 1, CLEANUP => 1);
write_file("$dir/prometheus.yml", <<"END");
global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [$root/contrib/prometheus/alerts.yml]
scrape_configs:
  - job_name: nginx
    static_configs: [{targets: ['127.0.0.1:$node->{port}']}]
END
my $address = '127.0.0.1:' . ($port + 6);
defined(my $pid = fork) or die "cannot fork: $!\n";
if (!$pid) {
    open STDOUT, '>', "$dir/log" or die;
    open STDERR, '>&', \*STDOUT or die;
    exec $prometheus, "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/data",
        "--web.listen-address=$address" or die "cannot run $prometheus: $!\n";
}
END { local $?; if ($pid) { kill KILL => $pid; waitpid $pid, 0 } }

# Counters grow between the scrapes.
my $count = 0;
my $load = sub { $node->hit($_ => 'k' . $count++ % 3) for qw(hit hit now) };
$node->wait_for('samples', sub { $load->(); @{query('count_over_time(ratelimit_build_info[1m]) > 6') // []} });

my $dashboard = decode_json(read_file("$root/contrib/grafana/dashboard.json"));
my %ids;
for my $panel (@{$dashboard->{panels}}) {
    ok(!$ids{$panel->{id}}++ && $panel->{title}, "$panel->{title}: its number is its own");
    for my $target (@{$panel->{targets}}) {
        # Replaces the variables as Grafana does.
        my $query = $target->{expr} =~ s/\$__rate_interval/1m/gr =~ s/\$(?:instance|namespace)\b/.*/gr;
        my $result;
        $node->wait_for($panel->{title}, sub { $load->(); $result = query($query); !$result || @$result });
        ok($result, "$panel->{title}: a query");
        my @labels = $target->{legendFormat} =~ /\{\{(\w+)\}\}/g;
        my ($first) = @{$result // []};
        is(join(' ', grep { !defined $first->{metric}{$_} } @labels), '', 'its legend has only labels of the result');
    }
}
for my $variable (grep { $_->{type} eq 'query' } @{$dashboard->{templating}{list}}) {
    my ($metric, $label) = $variable->{query}{query} =~ /^label_values\((\w+), (\w+)\)\z/;
    my ($first) = @{query($metric) // []};
    ok(defined $first->{metric}{$label}, "the variable $variable->{name}");
}
is(scalar @{get('/api/v1/rules')->{data}{groups}[0]{rules}}, 8, 'the server has read the alerts');
$node->stop(qr/ratelimit/);
done_testing();

# Returns the results of an instant query; undef if it is wrong.
sub query {
    my ($query) = @_;
    my $answer = get('/api/v1/query?query=' . $query =~ s/([^A-Za-z0-9_])/sprintf '%%%02X', ord $1/ger);
    return $answer && $answer->{status} eq 'success' ? $answer->{data}{result} : undef;
}

# Returns the body of a response, parsed; undef if the server is not there yet.
sub get {
    my ($path) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => $address) or return;
    print $socket "GET $path HTTP/1.0\r\n\r\n";
    local $/;
    my ($body) = (<$socket> // '') =~ /\r\n\r\n(.*)/s;
    return eval { decode_json($body) };
}

sub read_file {
    my ($name) = @_;
    open my $file, '<', $name or die "cannot read $name: $!\n";
    local $/;
    return <$file>;
}

sub write_file {
    my ($name, $text) = @_;
    open my $file, '>', $name or die "cannot write $name: $!\n";
    print $file $text;
    close $file;
}
