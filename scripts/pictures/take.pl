# Runs two nodes with a Redis under traffic that looks like a site's, and writes pictures of the live page. Called by
# scripts/pictures.sh with the first port, the seconds of traffic, and the directory of the pictures.

use strict;
use warnings;

use Time::HiRes qw(sleep time);

use Browser;
use Node;
use Redis;

my ($port, $seconds, $to) = @ARGV;
my $redis = Redis->new(port => $port + 4);
$redis->start;
my @nodes = map { Node->new("n$_" => $port + $_) } 0, 1;
for my $node (@nodes) {
    $node->start(
        zone => '1m',
        http => <<"        END",
            ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; }
            ratelimit_namespace api { store main; sync_rate 100ms; }
            ratelimit_namespace login { store main; sync_rate 0; on_error local; }
            ratelimit_namespace site { }
        END
        server => 'location /ratelimit/ { ratelimit off; ratelimit_api write=on; }',
        rules  => {
            api    => 'api limit=120/1m limit=1200/1h',
            login  => 'login limit=5/1m window=fixed counter=login',
            search => 'site limit=20/10s window=moving counter=search',
            page   => 'site rate=12/1s burst=24',
            tokens => 'api limit=400/1m counter=tokens cost=25',
        },
    );
}

# The traffic: clients that differ in how much they ask for, in waves.
srand 7;
my @clients = map { ("203.0.113.$_", "198.51.100." . 3 * $_, sprintf '2001:db8:%x::/64', 40 * $_) } 1 .. 20;
my $busy    = $clients[0];
my $count   = 0;
sub traffic {
    my $node   = $nodes[$count++ % 3 ? 0 : 1];
    my $client = $clients[@clients * rand() ** 3];
    my $wave   = .6 + .4 * sin(time / 17);
    $node->hit(page => $client) if rand() < $wave;
    $node->hit(api => $client) if rand() < $wave * .7;
    $node->hit(api => $busy) if $count % 9 == 0;
    $node->hit(search => $client) if $count % 3 == 0;
    $node->hit(tokens => $busy) if $count % 60 == 0;
    $node->hit(login => $count % 25 ? 'mallory@example.com' : "user$count") if $count % 20 == 0;
    sleep 0.008 + 0.012 * rand;
}

defined(my $pid = fork) or die "cannot fork: $!\n";
if (!$pid) { traffic() while 1 }
END { local $?; if ($pid) { kill KILL => $pid; waitpid $pid, 0 } }

my $browser = Browser->new;
my $url     = "http://127.0.0.1:$port/ratelimit/#ns=api&key=$busy";
$browser->resize(1360, 900);
$browser->prefer('prefers-color-scheme' => 'light');
$browser->open($url);
sleep $seconds;
# In the middle of a minute, both windows are seen.
my $is_limited = q{document.querySelector('#verdict').innerText.includes('is limited') && document.querySelectorAll('#limited button').length > 2};
sleep 0.1 until time % 60 >= 20 && time % 60 < 45 && $browser->evaluate($is_limited);
write_picture('light');
$browser->prefer('prefers-color-scheme' => 'dark');
sleep 3;
write_picture('dark');
$browser->resize(390, 844, 2, 1);
sleep 3;
write_picture('phone', 'as seen');
$browser->evaluate(q{document.getElementById('key-section').scrollIntoView()});
sleep 3;
write_picture('phone-key', 'as seen');
$_->end for @nodes;

sub write_picture {
    my ($name, $as_seen) = @_;
    open my $file, '>', "$to/$name.png" or die "cannot write: $!\n";
    binmode $file;
    print $file $browser->picture(!$as_seen);
    close $file or die "cannot write: $!\n";
}
