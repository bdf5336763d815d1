//! The process that a fuzz target runs in: its memory is bounded, and it has no network but its own servers.
//!
//! The targets are in `src/fuzzing/` of the module.

pub mod memory;
pub mod network;

pub use libfuzzer_sys;
pub use ngx_http_rate_limiting_module::fuzzing;

/// Defines a target, by its path in `src/fuzzing/`.
#[macro_export]
macro_rules! target {
    ($($path:ident)::+) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            $crate::memory::bounded(|| $crate::fuzzing::$($path)::+(data))
        });
    };
}
