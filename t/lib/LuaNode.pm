# A node whose nginx has lua-nginx-module, where Debian has it for that nginx: /lua runs what it is sent, and
# /hit/KEY asks a limiter.

package LuaNode;

use strict;
use warnings;

use FindBin;

my @modules;

# Whether the nginx under test can load it; then it is in TEST_NGINX_LOAD_MODULES. To be asked before
# lib/Nginx.pm is loaded.
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

# What is in `http`, where Lua has the library as `rl`, and a table `t`; `init` and `init_worker` are Lua, run where processes begin, `limiter` the options of
# that of /hit, and `limited` more locations.
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

# What a piece of Lua returns on a node: whether it did, and what.
sub run {
    my ($node, $code) = @_;
    my $socket = $node->connection or return "no connection: $!";
    print $socket "POST /lua HTTP/1.0\r\nContent-Length: " . length($code) . "\r\n\r\n$code";
    local $/;
    my ($body) = (<$socket> // '') =~ m{^HTTP/1\.1 200.*?\r\n\r\n(.*)}s or return 'no answer';
    return $body;
}

1;
