# Tests the live page of ratelimit_api in a real browser, with a real store and real traffic.
#
# This is a plain Perl test. It uses the ports TEST_NGINX_PORT + 2 and + 4.

use strict;
use warnings;

use FindBin;
use JSON::PP;
use POSIX qw(strftime);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Browser;
use Node;
use Redis;

die "chromium-headless-shell is not installed\n" if !Browser::is_there();

# The page tells times of the browser's place.
$ENV{TZ} = 'UTC';
my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $redis = Redis->new(port => $port + 4);
$redis->be_empty;
my $node = Node->new(a => $port + 2);
my %conf = (
    http => <<"    END",
        ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; timeout 5s; connect_timeout 5s; }
        ratelimit_namespace api { store main; sync_rate 100ms; }
        ratelimit_namespace web { }
    END
    rules => {
        hit   => 'api limit=2/366d window=fixed',
        any   => 'web limit=1000000/366d counter=any',
        ban   => 'api limit=1/366d window=fixed counter=ban ban=5h',
        short => 'web limit=2/6s window=fixed counter=short name=short',
    },
);
# Starts or reloads the node with this content of the location of the page.
my $with = sub { return (%conf, server => "location /view/ { ratelimit off; $_[0] } location /rw/ { ratelimit off; ratelimit_api write=on; }
    location ~ ^/dry/(?<key>.*) { ratelimit web limit=1/366d window=fixed counter=dry; ratelimit_dry_run on; empty_gif; }") };
$node->start($with->('ratelimit_api;'));
$node->wait_for_first_sync;
my $url     = "http://127.0.0.1:$node->{port}";
my $hostile = '<img src=x onerror=alert(1)>';
my $browser = Browser->new;

# The page is for those that prefer HTML. Others get JSON.
my $json = answer('/view/');
like($json, qr/^HTTP\S+ 200 .*\r\nContent-Type: application\/json\r\n.*\r\n\r\n\{"version".*\}\z/s, 'JSON without a preference');
for my $accept ('*/*', 'application/json', 'application/json, text/html;q=0.9') {
    is(body_of(answer('/view/', $accept)), body_of($json), "the same bytes for $accept");
}
my $page = answer('/view/', 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8');
like($page, qr/^HTTP\S+ 200 .*\r\n\r\n<!doctype html>.*<\/script>\n\z/s, 'a page for a browser');
like($page, qr/\r\n\Q$_\E\r\n/i, $_) for 'Content-Type: text/html; charset=utf-8', 'X-Content-Type-Options: nosniff',
    'Referrer-Policy: no-referrer', 'Cache-Control: no-store', 'Vary: Accept', 'Content-Length: ' . length body_of($page);
my ($policy) = $page =~ /\r\nContent-Security-Policy: ([^\r]*)/;
like($policy, qr/(?:^|; )\Q$_\E(?:;|$)/, $_)
    for "default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'";
unlike($policy, qr/unsafe|\*|https?:/, 'nothing is external');

# Numbers.
$browser->resize(1400, 1000);
$browser->open("$url/view/");
cell_becomes('namespaces', 'api', 'Passed', sub { $_[0] eq '0' }, 'the page shows the node');
choose('interval', '1');
my $stop = $node->load(qw(a b c d));
for my $round (1 .. 3) {
    my $before = namespace('api')->{requests};
    my $shown  = sub { cell('namespaces', 'api', 'Rejected') =~ s/,//gr };
    eventually(sub { $shown->() }, sub { $_[0] =~ /^\d+\z/ && $_[0] >= $before->{rejected} }, "under load, the page follows the API, $round");
    my $value = $shown->();
    cmp_ok($value, '<=', namespace('api')->{requests}{rejected}, 'and is not ahead of it');
}
eventually(sub { tile('Rejected/s') }, sub { $_[0] =~ s/,//gr > 1 }, 'rejections per second');
like($browser->evaluate(q{document.querySelector('#traffic svg').getAttribute('aria-label')}), qr/^Requests per second in the last .* at most [\d,.]+/,
    'the graph has a text');
cmp_ok($browser->evaluate(q{document.querySelectorAll('#traffic .rejected, #traffic .passed').length}), '>=', 2, 'the graph has areas');
my $sum = $stop->(1000);
cmp_ok($sum->{429}, '>', 0, 'requests were rejected');
is($node->hit(any => "k$_"), 200, 'a request in another namespace') for 1 .. 3;
is($node->hit(dry => 'k'), 200, 'a request in a dry run') for 1 .. 3;
eventually(sub { shown_numbers() }, sub { $_[0] eq api_numbers() }, 'at rest, each number of the page equals the API\'s');
note(shown_numbers());
is(cell('namespaces', 'web', 'Dry run'), 2, 'two of them in a dry run');
eventually(sub { $browser->evaluate(q{document.querySelectorAll('#traffic .dry').length}) }, 1, 'which the graph shows, too');
is(cell('stores', 'main (redis)', 'State'), 'up', 'the store is up');
like(cell('stores', 'main (redis)', 'Latency'), qr/^[\d.]+ (?:ms|s)\z/, 'its latency');
like(cell('syncs', 'api', 'Lag'), qr/^[\d.]+ (?:ms|s)\z/, 'the lag of the sync');
is(cell('syncs', 'api', 'Result'), 'ok', 'its result');
is($browser->evaluate(q{document.querySelectorAll('#syncs button').length}), 0, 'a sync is not offered, since the API is read-only');

# A moment of the graph, by the keyboard.
tab_to('#moment');
$browser->press('Home');
eventually(sub { $browser->text('#reading') }, sub { $_[0] =~ /^[\d:]+: the first counters\z/ }, 'the slider reads the first moment');
$browser->press('ArrowRight');
eventually(sub { $browser->text('#reading') }, sub { $_[0] =~ m{^[\d:]+: [\d.,]+ passed/s, [\d.,]+ rejected/s\z} }, 'and the next');
is($browser->evaluate(q{document.querySelector('#moment').getAttribute('aria-valuetext') === document.querySelector('#reading').innerText}), 1, 'in words');
is($browser->evaluate(q{document.querySelectorAll('#traffic .cursor').length}), 1, 'with a line in the graph');
$browser->press('End');

# The rules.
my ($rule) = grep { $_->{counter} && $_->{counter} eq 'short' } @{get('namespaces/web/rules')->{rules}};
is(cell('rules', $rule->{place}, 'Limits'), 'short: 2 per 6 s, fixed', 'a rule');

# A key is limited for a while. The window may end between the requests.
my $until;
eventually(sub {
    $node->hit(short => 'quick') for 1 .. 3;
    my ($entry) = grep { $_->{key} eq 'quick' } @{get('namespaces/web/top')->{keys}};
    $until = $entry->{until} or return 'not limited';
    $node->wait_for('the row', sub { cell('limited', 'quick', 'Until') || time > $until });
    return join ' ', map { cell('limited', 'quick', $_) } 'Until', 'Rule', 'Namespace';
}, sub { $_[0] =~ /^\Q@{[strftime '%H:%M:%S', gmtime $until]}, in \E\S+ m?s short \Q$rule->{place}\E web, counter short\z/ },
    'a limited key has its rule, and the time until which it is limited');
like(tile('Limited keys'), qr/^[1-9]/, 'it is counted');
eventually(sub { cell('limited', 'quick', 'Until') }, '', 'the key goes away');
cmp_ok(time, '>=', $until, 'but not before its time');

# One key, by the keyboard alone.
is($node->hit(hit => $hostile), $_, 'a hostile key') for 200, 200, 429;
eventually(sub { cell('limited', $hostile, 'Rule') }, qr_text("api-366d ", ''), 'a hostile key is text');
tab_to('#limited button', $hostile);
$browser->press('Enter');
eventually(sub { $browser->text('#verdict') }, sub { index($_[0], "$hostile is limited by api-366d") == 0 }, 'it is shown');
like($browser->text('#windows'), qr/2 per 366 d, fixed\n.*\n2 of 2\b.*\nrefuses for/s, 'with its counts');
is($browser->evaluate(q{document.querySelectorAll('#windows svg rect').length}), 1, 'and its window is drawn');
is($browser->evaluate(q{document.querySelectorAll('img').length}), 0, 'no element was made of it');
ok(!$browser->evaluate(q{document.querySelector('#reset').checkVisibility()}), 'a reset is not offered');
tab_to('#key');
$browser->evaluate(q{document.activeElement.select()});
$browser->type('a');
$browser->press('Enter');
eventually(sub { $browser->text('#verdict') }, sub { $_[0] =~ /^a is limited/ }, 'a key that was typed');

# With write=on.
is_deeply([problems()], [], 'no violation of the policy, no error');
$browser->open("$url/rw/#in=api&ns=api&key=" . escaped($hostile));
eventually(sub { $browser->text('#verdict') }, sub { index($_[0], "$hostile is limited") == 0 }, 'the address has the key');
for my $key ('Escape', 'Enter') {
    tab_to('#reset');
    $browser->press('Enter');
    ok($browser->evaluate(q{document.querySelector('#confirm').open}), 'a reset asks first');
    check_contrast('with a dialog');
    tab_to('#do-reset');
    $browser->press($key);
    ok(!$browser->evaluate(q{document.querySelector('#confirm').open}), "$key ends the dialog");
    is($browser->text('#said'), '', 'Escape resets nothing') if $key eq 'Escape';
}
eventually(sub { $browser->text('#said') }, sub { $_[0] =~ /^\Q$hostile\E is reset: 366 d sliding was 2\.\z/ }, 'Enter resets the key');
is(get('namespaces/api/keys/' . escaped($hostile) . '?window_type=fixed')->{rate}, 0, 'its count is zero');
eventually(sub { $browser->text('#verdict') }, sub { $_[0] =~ /^This node knows no hits of/ }, 'the page shows it');

# A ban. Only the browser's own keys lift it.
my $banned = "ban $hostile";
$node->hit(ban => $banned) for 1, 2;
eventually(sub { cell('limited', $banned, 'Until') }, sub { $_[0] =~ /^\d\d:\d\d:\d\d, in .*, banned\z/ }, 'a banned key');
ok(!$browser->evaluate(q{document.querySelector('#lift').checkVisibility()}), 'no other key is banned');
tab_to('#limited button', $banned);
$browser->press('Enter');
eventually(sub { $browser->text('#verdict') }, sub { index($_[0], "$banned is banned by ") == 0 }, 'it is shown');
check_contrast('with a ban');
tab_to('#lift');
$browser->press('Enter');
eventually(sub { $browser->text('#said') }, "$banned is not banned any more.", 'its ban is lifted');
is(() = $node->body('/rw/namespaces/api/bans') =~ /"until"/g, 0, 'there is none');
eventually(sub { $browser->evaluate(q{document.querySelector('#lift').checkVisibility()}) ? 'there' : 'gone' }, 'gone', 'nor a button');
tab_to('#syncs button', 'Sync now');
$browser->press('Enter');
eventually(sub { $browser->text('#said') }, sub { $_[0] =~ /^api is synced: \d+ keys pushed, \d+ fetched\.\z/ }, 'the namespace is synced');
tab_to('#namespaces button', 'web');
$browser->press('Enter');
eventually(sub { $browser->text('#rules-of') }, 'of web', 'a namespace is chosen');
is($browser->evaluate(q{document.activeElement.innerText}), 'web', 'the focus stays');
reaches_everything();

# How it looks.
for my $scheme (qw(light dark)) {
    $browser->prefer('prefers-color-scheme' => $scheme);
    check_contrast($scheme);
    choose('theme', $scheme eq 'light' ? 'dark' : 'light');
    check_contrast("the other scheme was chosen than $scheme");
    choose('theme', '');
}
$browser->prefer('prefers-reduced-motion' => 'reduce');
is($browser->evaluate(q{getComputedStyle(document.querySelector('.meter i')).transitionDuration}), '0s', 'nothing moves, if that is preferred');
$browser->resize(360, 740, 2, 1);
$browser->open("$url/rw/#ns=api&key=a");
eventually(sub { $browser->text('#verdict') }, sub { $_[0] =~ /^a is limited/ }, 'on a phone');
is($browser->evaluate('document.documentElement.scrollWidth'), 360, 'nothing scrolls sideways');
is($browser->evaluate(q{[...document.querySelectorAll('main *')].filter(it => it.checkVisibility() && it.getBoundingClientRect().right > 360.5).map(it => it.outerHTML).join(' ')}),
    '', 'nothing is beyond the edge');
check_contrast('on a phone');
# At other widths, no part is wider than its place.
for my $width (520, 600, 720, 810, 920, 921, 1239, 1240, 2400) {
    $browser->resize($width, 1000);
    $browser->evaluate('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))');
    is($browser->evaluate(q{[...document.querySelectorAll('html, section, td, .window, header')].filter(it => it.scrollWidth > it.clientWidth).map(it => it.outerHTML.slice(0, 99)).join(' ')}),
        '', "$width pixels are enough");
    eventually(sub { $browser->evaluate(q{document.querySelector('#traffic').clientWidth - document.querySelector('#traffic svg').clientWidth}) }, 0, 'the graph has the width');
}
is_deeply([problems()], [], 'no violation of the policy, no error');

# Faults.
$browser->resize(1400, 1000);
$browser->open("$url/view/");
choose('interval', '1');
cell_becomes('stores', 'main (redis)', 'State', sub { $_[0] eq 'up' }, 'the store is up');
$redis->stop;
cell_becomes('stores', 'main (redis)', 'State', sub { $_[0] eq 'down' }, 'the store is down');
like(tile('Stores'), qr/0 of 1 up/, 'and is counted so');
check_contrast('with a store that is down');
$redis->start;
cell_becomes('stores', 'main (redis)', 'State', sub { $_[0] eq 'up' }, 'the store is up again');
for (['return 403;', qr/refuses \(status 403\): access is forbidden\./], [q(return 200 '{"version":"1","zones":[';), qr/not JSON: it is truncated/],
    [q(return 200 '{"version":1,"zones":7}';), qr/JSON, but not from this API/], [q(return 200 '[[]]';), qr/not from this API/],
    [q(return 200 'null';), qr/not from this API/], ['return 302 http://192.0.2.1/;', qr/does not answer/],
    [q(return 200 '{"version":"1","time":1,"zones":[null],"namespaces":[],"stores":[]}';), qr/not from this API/])
{
    my ($content, $message) = @$_;
    $node->reload($with->($content));
    eventually(sub { $browser->text('#problem') }, sub { $_[0] =~ $message }, "the page meets $content");
    is($browser->text('#live'), 'no data', 'and has no data');
    isnt(cell('namespaces', 'api', 'Passed'), '', 'the last numbers stay');
}
check_contrast('with a problem');
# A part that fails does not end the others.
$node->reload($with->(q(ratelimit_api; location ~ /top$ { return 200 '{"keys":[{"key":1},7]}'; } location ~ /rules$ { return 200 '{"rul'; })));
eventually(sub { $browser->text('#limited-problem') }, sub { $_[0] =~ /not from this API/ }, 'a foreign list of keys');
eventually(sub { $browser->text('#rules-problem') }, sub { $_[0] =~ /truncated/ }, 'truncated rules');
eventually(sub { $browser->text('#problem') }, '', 'the rest is shown');
$node->end;
eventually(sub { $browser->text('#problem') }, sub { $_[0] =~ /does not answer: nginx may be down.*The page asks again/ }, 'nginx is gone');
$node->start($with->('ratelimit_api;'));
eventually(sub { $browser->text('#problem') }, '', 'nginx is back');
is($node->hit(hit => 'new'), 200, 'a request after that');
eventually(sub { shown_numbers() }, sub { $_[0] eq api_numbers() }, 'the numbers are the API\'s again');
is_deeply([grep { !/^network: / } problems()], [], 'no violation of the policy, no error');
my @foreign = grep { !m{^(?:GET|POST|DELETE) \Q$url\E/(?:view|rw)/(?:\?all=1|namespaces/[^?]*(?:\?.*)?)?(?:#.*)?\z} && $_ ne 'GET about:blank' } @{$browser->{requests}};
is_deeply(\@foreign, [], 'all requests are of the API');
cmp_ok(scalar @{$browser->{requests}}, '>', 50, 'of which there were many');
$node->stop(qr/ratelimit/);
done_testing();

# Returns the response to a request with this `Accept`.
sub answer {
    my ($path, $accept) = @_;
    my $socket = $node->connection or die "no connection: $!\n";
    print $socket "GET $path HTTP/1.0\r\nHost: localhost\r\n", $accept ? "Accept: $accept\r\n" : '', "\r\n";
    local $/;
    return scalar <$socket>;
}

sub body_of { return $_[0] =~ s/.*?\r\n\r\n//sr }

# Returns an answer of the API.
sub get { return decode_json($node->body("/api/$_[0]")) }

sub namespace { return get("namespaces/$_[0]") }

sub escaped { return $_[0] =~ s/([^A-Za-z0-9])/sprintf '%%%02X', ord $1/ger }

# Returns the problems that the browser has reported since the last call.
sub problems { return $browser->take('problems') }

# Returns the text of a cell of a table, by the text in the first column and the label of the column.
sub cell {
    my ($table, $row, $column) = @_;
    my ($first, $label) = map { JSON::PP->new->allow_nonref->encode($_) } $row, $column;
    return $browser->evaluate(<<"    END");
        [...document.querySelectorAll('#$table tbody tr')].filter(row => row.firstChild.innerText === $first)
            .map(row => [...row.children].find(cell => cell.dataset.label === $label).innerText)[0] ?? ''
    END
}

sub cell_becomes {
    my ($table, $row, $column, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    eventually(sub { cell($table, $row, $column) }, $expected, $name);
}

# Returns the value of a number at a glance.
sub tile {
    my ($name) = @_;
    return $browser->evaluate("[...document.querySelectorAll('#tiles dt')].find(it => it.innerText === '$name').nextSibling.innerText");
}

# Returns the numbers of the page that do not change at rest, as text.
sub shown_numbers {
    my @numbers;
    for my $space (qw(api web)) {
        push @numbers, map {"$space $_ " . cell('namespaces', $space, $_)} 'Passed', 'Rejected', 'Dry run', 'on_error', 'Hits', 'Keys';
    }
    push @numbers, map {"zone $_ " . cell('zones', 'counters', $_)} 'Keys', 'Size', 'Evicted: ended', 'sent', 'unsent';
    push @numbers, map {"sync $_ " . cell('syncs', 'api', $_)} 'Every', 'Nodes', 'Pushed', 'Fetched', 'Pending', 'Dropped hits', 'Excess hits';
    push @numbers, 'connects ' . cell('stores', 'main (redis)', 'Connects');
    return join ', ', map {s/(?<=\d),(?=\d)//gr} @numbers;
}

# Returns the same numbers by the API.
sub api_numbers {
    my @numbers;
    for my $space (qw(api web)) {
        my $is = namespace($space);
        my $of = $is->{requests};
        push @numbers, "$space Passed $of->{passed}", "$space Rejected $of->{rejected}", "$space Dry run $of->{rejected_dry_run}",
            "$space on_error $of->{error}", "$space Hits $is->{hits}", "$space Keys $is->{keys}";
    }
    my $all  = get('?all=1');
    my $zone = $all->{zones}[0];
    my $sync = namespace('api')->{sync};
    push @numbers, "zone Keys $zone->{keys} of $zone->{capacity}", 'zone Size ' . $zone->{size} / (1 << 20) . ' MB', "zone Evicted: ended $zone->{evicted}{ended}",
        map {"zone $_ $zone->{evicted}{$_}"} qw(sent unsent);
    push @numbers, 'sync Every 100 ms', "sync Nodes $sync->{nodes}", "sync Pushed $sync->{pushed_keys}", "sync Fetched $sync->{fetched_keys}",
        "sync Pending $sync->{pending_keys}", "sync Dropped hits $sync->{dropped_hits}", "sync Excess hits $sync->{excess_hits}";
    push @numbers, "connects $all->{stores}[0]{connects}";
    return join ', ', @numbers;
}

sub qr_text { my ($start) = @_; return sub { index($_[0], $start) == 0 } }

# Presses Tab until the element that a selector matches, and that has this text, has the focus.
sub tab_to {
    my ($selector, $text) = @_;
    my $wanted = JSON::PP->new->allow_nonref->encode($text // '');
    for (1 .. 200) {
        return if $browser->evaluate("document.activeElement.matches('$selector') && document.activeElement.innerText.includes($wanted)");
        $browser->press('Tab');
    }
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    fail("Tab reaches $selector");
}

# Chooses an option of a list by the keyboard.
sub choose {
    my ($list, $value) = @_;
    tab_to("#$list");
    $browser->press('Home');
    for (1 .. 20) {
        return if $browser->evaluate("document.getElementById('$list').value") eq $value;
        $browser->press('ArrowDown');
    }
    die "no $value in $list\n";
}

# Tests that Tab reaches each control, and that the one with the focus is marked.
sub reaches_everything {
    $browser->evaluate(q{document.activeElement.blur(), window.reached = new Set()});
    my $unmarked = 0;
    for (1 .. 100) {
        $browser->press('Tab');
        $unmarked++ if !$browser->evaluate(<<'        END');
            (active => window.reached.add(active) && (active === document.body || getComputedStyle(active).outlineStyle !== 'none'))(document.activeElement)
        END
    }
    my $missed = $browser->evaluate(<<'    END');
        [...document.querySelectorAll('a, button, input, select, summary')]
            .filter(it => it.checkVisibility() && !it.disabled && !window.reached.has(it)).map(it => it.outerHTML).join('\n')
    END
    is($missed,   '', 'Tab reaches each control');
    is($unmarked, 0,  'the focus is seen');
}

# Tests that each text that is seen has a contrast of 4.5 with its ground, and each control's edge one of 3 (WCAG 2.2, 1.4.3 and
# 1.4.11), as the browser has computed the colours.
sub check_contrast {
    my ($name) = @_;
    my $bad = $browser->evaluate(<<'    END');
        (() => {
            const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
            const rgba = colour => {
                canvas.clearRect(0, 0, 1, 1);
                canvas.fillStyle = colour;
                canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data];
            };
            const luminance = colour => rgba(colour).slice(0, 3).map(part => part / 255)
                .map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
                .reduce((sum, part, at) => sum + part * [.2126, .7152, .0722][at], 0);
            const ground = element => {
                for (let it = element; it; it = it.parentElement) {
                    const colour = getComputedStyle(it).backgroundColor;
                    if (rgba(colour)[3] === 255) return colour;
                }
                return getComputedStyle(document.documentElement).colorScheme.includes('dark') ? 'black' : 'white';
            };
            const contrast = (a, b) => {
                const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
                return (high + .05) / (low + .05);
            };
            const bad = [];
            let count = 0;
            const look = (element, colour, least, what) => {
                count++;
                const ratio = contrast(colour, ground(element));
                if (!(ratio >= least)) bad.push(`${what}: ${ratio.toFixed(2)}`);
            };
            const isSeen = it => it.checkVisibility({ visibilityProperty: true, opacityProperty: true });
            for (const it of document.querySelectorAll('body *')) {
                const style = getComputedStyle(it);
                if (!isSeen(it) || style.opacity !== '1') { if (isSeen(it)) bad.push('an opacity'); continue; }
                if (it.namespaceURI.endsWith('svg')) {
                    if (it.nodeName === 'text') look(it.closest('div'), style.fill, 4.5, it.textContent);
                } else {
                    if ([...it.childNodes].some(node => node.nodeType === 3 && node.data.trim())) look(it, style.color, 4.5, it.textContent);
                    if (it.placeholder) look(it, getComputedStyle(it, '::placeholder').color, 4.5, it.placeholder);
                    if (['INPUT', 'SELECT'].includes(it.nodeName)) look(it, style.color, 4.5, it.id);
                    if (it.matches('button:not(.link, .main), select, input:not([type])')) look(it.parentElement, style.borderTopColor, 3, `edge of ${it.id}`);
                }
            }
            return [count > 50 ? '' : `${count} texts`, ...new Set(bad)].join(' ').trim();
        })()
    END
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is($bad, '', "the contrast, $name");
}
