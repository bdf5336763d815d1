//! Passes what nginx-sys learnt about the nginx source tree on to the compiler.

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

    // Threads of ours may outlive a dlclose (a resolver call that hangs), so the library's code
    // must stay mapped.
    if env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
