//! Passes what nginx-sys learnt about the nginx source tree on to the compiler, and compiles a file of C with it.

use std::env;

fn main() {
    // Cargo cannot see a dependency's cfg values (rust-lang/cargo#3544): nginx-sys publishes
    // them as DEP_NGINX_* and every user sets them again. Unset without the `nginx` feature.
    for name in ["DEP_NGINX_FEATURES", "DEP_NGINX_FEATURES_CHECK"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let known = env::var("DEP_NGINX_FEATURES_CHECK").unwrap_or_else(|_| "any()".into());
    println!("cargo::rustc-check-cfg=cfg(ngx_feature, values({known}))");
    for feature in env::var("DEP_NGINX_FEATURES").unwrap_or_default().split(',') {
        if !feature.is_empty() {
            println!("cargo::rustc-cfg=ngx_feature=\"{feature}\"");
        }
    }

    #[cfg(feature = "nginx")]
    compile_c();

    // Threads of ours may outlive a dlclose (a resolver call that hangs), so the library's code
    // must stay mapped.
    if env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}

/// Compiles the accessors of bit fields with nginx's headers.
#[cfg(feature = "nginx")]
fn compile_c() {
    const FILE: &str = "src/nginx/http/request_bits.c";
    for name in ["DEP_NGINX_INCLUDE", "DEP_NGINX_CFLAGS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed={FILE}");
    let includes = env::var_os("DEP_NGINX_INCLUDE").unwrap_or_default();
    let defines = env::var("DEP_NGINX_CFLAGS").unwrap_or_default();
    cc::Build::new()
        .file(FILE)
        .includes(env::split_paths(&includes))
        .flags(defines.split_whitespace())
        .flag("-fvisibility=hidden")
        // Paths of this machine would be in the module.
        .debug(false)
        .compile("request_bits");
}
