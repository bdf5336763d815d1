# Adds to nginx's Makefile how Cargo builds the library, and how it becomes the object that `config` links.
#
#   RATELIMIT_WITHOUT_CASSANDRA   if not empty: a light build, with Redis and PostgreSQL only

case $NGX_OBJS in
    /*) ngx_rate_limiting_build=$NGX_OBJS ;;
    *)  ngx_rate_limiting_build="\$\$PWD/$NGX_OBJS" ;;
esac

ngx_rate_limiting_archive=$ngx_rate_limiting_target/$ngx_rate_limiting_profile/lib$ngx_addon_name.a
ngx_rate_limiting_features=nginx,redis,postgres,tls
[ -n "${RATELIMIT_WITHOUT_CASSANDRA:-}" ] || ngx_rate_limiting_features=nginx,stores

# Only a release has the flags of scripts/flags.sh.
ngx_rate_limiting_flags=:
[ "$ngx_rate_limiting_profile" != release ] ||
    ngx_rate_limiting_flags="root=\$\$(realpath \"$ngx_addon_dir\") && CARGO_TARGET_DIR=\"$ngx_rate_limiting_target\" && . \"\$\$root/scripts/flags.sh\""

# Cargo knows best what has changed, so it always runs. nginx's configure makes the table of
# modules (feature export-modules) itself.
cat << END                                                    >> $NGX_MAKEFILE

.PHONY: $ngx_rate_limiting_lib

$ngx_rate_limiting_lib:
	$ngx_rate_limiting_flags && \\
	NGINX_SOURCE_DIR="\$\$PWD" NGINX_BUILD_DIR="$ngx_rate_limiting_build" \\
	${CARGO:-cargo} rustc --profile $ngx_rate_limiting_profile --locked --lib --crate-type staticlib \\
		--manifest-path "$ngx_addon_dir/Cargo.toml" \\
		--target-dir "$ngx_rate_limiting_target" \\
		--no-default-features --features $ngx_rate_limiting_features
	\$(CC) -r -nostdlib -o $ngx_rate_limiting_lib.new -Wl,--force-group-allocation \\
		-Wl,-u,ngx_http_rate_limiting_module,-u,ngx_http_rate_limiting_filter_module,-u,ngx_rate_limiting_api \\
		$ngx_rate_limiting_archive
	objcopy -G ngx_http_rate_limiting_module -G ngx_http_rate_limiting_filter_module -G ngx_rate_limiting_api \\
		$ngx_rate_limiting_lib.new $ngx_rate_limiting_lib
	rm $ngx_rate_limiting_lib.new

END

# A module without C sources has no object that could depend on the library.
if [ "$ngx_rate_limiting_link" = DYNAMIC ]; then
    cat << END                                                >> $NGX_MAKEFILE
$NGX_OBJS/ngx_http_rate_limiting_module.so: $ngx_rate_limiting_lib

END
fi
