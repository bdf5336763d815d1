# A node whose nginx loads Debian's lua-nginx-module. The location /lua runs the Lua code in the request body, and
# /hit/KEY calls a limiter.

package LuaNode;

use strict;
use warnings;

use FindBin;

my @modules;

# Returns whether the nginx under test can load lua-nginx-module, and if so adds it to TEST_NGINX_LOAD_MODULES.
# Must be called before lib/Nginx.pm is loaded.
sub is_there {
    my ($dir) = grep { -e "$_/ngx_http_lua_module.so" } '/usr/lib/nginx/modules' or return;
    my $binary = $ENV{TEST_NGINX_BINARY} || 'nginx';
    my $lines  = "load_module $dir/ndk_http_module.so; load_module $dir/ngx_http_lua_module.so;";
    return if system("'$binary' -t -g '$lines' -c /dev/null -e /dev/null >/dev/null 2>&1; "
        . "'$binary' -V 2>&1 | grep -q -- --modules-path=/usr/lib/nginx/modules") != 0;
    @modules = ("$dir/ndk_http_module.so", "$dir/ngx_http_lua_module.so");
    $ENV{TEST_NGINX_LOAD_MODULES} = join ' ', @modules, $ENV{TEST_NGINX_LOAD_MODULES} // ();
    return 1;
}

# Returns the configuration of a node. Lua code sees the library as `rl`, and a table `t` for its own use. `init` and
# `init_worker` are Lua code for init_by_lua and init_worker_by_lua. `limiter` has the options of the limiter of /hit.
sub conf {
    my (%more) = @_;
    my %lua = (init => '', init_worker => '', limiter => 'limit = 5, window = 366 * 86400', %more);
    return (
        http => <<"        END",
        lua_package_path "$FindBin::Bin/../lua/?.lua;;";
        init_by_lua_block { rl, t = require "resty.rate_limiting", {} $lua{init} }
        init_worker_by_lua_block { $lua{init_worker} }
        END
        server => <<"        END",
        location /lua {
            client_body_buffer_size 64k;
            content_by_lua_block {
                ngx.req.read_body()
                local code = assert(loadstring(ngx.req.get_body_data()))
                local results = { pcall(code) }
                for index = 1, #results + 3 do results[index] = tostring(results[index]) end
                local last = #results
                while results[last] == "nil" do last = last - 1 end
                ngx.print(table.concat(results, " ", 1, last))
            }
        }
        location ~ "(?s)^/hit/(?<lua_key>.*)" {
            access_by_lua_block {
                t.limiter = t.limiter or rl.limiter { $lua{limiter} }
                local delay, remaining = t.limiter:incoming(ngx.var.lua_key, true)
                if not delay then
                    ngx.header.Error = remaining
                    return ngx.exit(remaining == "rejected" and 429 or 500)
                end
                ngx.header.Left = remaining
            }
            empty_gif;
        }
        END
    );
}

# Runs Lua code on a node; returns whether it succeeded, and its results, separated by spaces.
sub run { return begin(@_)->() }

# Starts Lua code on a node; returns a function that waits for its end and returns the same as `run`.
sub begin {
    my ($node, $code) = @_;
    my $socket = $node->connection or return sub {"no connection: $!"};
    print $socket "POST /lua HTTP/1.0\r\nContent-Length: " . length($code) . "\r\n\r\n$code";
    return sub {
        local $/;
        my ($body) = (<$socket> // '') =~ m{^HTTP/1\.1 200.*?\r\n\r\n(.*)}s or return 'no answer';
        return $body;
    };
}

# Calls random functions of the library with random arguments; the seed determines both. Returns the number of calls
# that succeeded, the number of calls that returned an error message, and `fine`. A call may define a namespace
# `other`, whose store is not reachable.
sub run_at_random {
    my ($node, $calls, $seed, @namespaces) = @_;
    $seed //= 20261123;
    my $names = join ', ', map {"'$_'"} 'default', 'new', 'off', @namespaces;
    return run($node, <<"    END");
        math.randomseed($seed)
        local values = { 0, 1, -1, 0.5, 60, 366 * 86400, 1e11, 1e12, 1e300, -1e300, 0/0, 1/0, -1/0, "", "random", $names,
            "\\0", ("x"):rep(300), true, false, {}, { 60 }, { limit = 5, window = 60 }, { rate = 1 }, { namespace = "new" },
            { namespace = "other", sync_rate = 0, strategy = "redis", strategy_opts = { server = "127.0.0.1:1" }, window_sizes = { 1 } },
            print, ngx, coroutine.create(function() end) }
        local function pick() return values[math.random(#values + 3)] end
        local limiters = {}
        for _, name in ipairs { $names } do
            local ok, limiter = pcall(rl.limiter, { namespace = name, limit = 5, window = 366 * 86400 })
            limiters[#limiters + 1] = ok and limiter or nil
        end
        local function any() return limiters[math.random(#limiters)] end
        local functions = { rl.increment, rl.sliding_window, rl.sync, rl.fetch, rl.new, rl.new_instance, rl.limiter,
            function(...) return any():incoming(...) end, function(...) return any():uncommit(...) end,
            function(_, ...) return any():incoming("random", ...) end, function() return any():uncommit("random") end,
            function(_, _, _, name) return rl.increment("random", 366 * 86400, 1, name) end }
        local done, wrong = 0, 0
        for _ = 1, $calls do
            local ok, result, text = pcall(functions[math.random(#functions)], pick(), pick(), pick(), pick(), pick())
            local message = not ok and result or result == nil and text
            if message then
                wrong = wrong + 1
                if message ~= "rejected" and (type(message) ~= "string" or not message:find("%a+ %a+")) then
                    return "an error without words: " .. tostring(message)
                end
                if message:find("a fault,") then return message end
            else
                done = done + 1
            end
        end
        return done, wrong, "fine"
    END
}

1;
