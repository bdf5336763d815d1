//! The process that a fuzz target runs in: its memory is bounded, and it has no network but its own servers.
//!
//! The targets are in `src/fuzzing/` of the module.

pub mod memory;
pub mod network;

pub use libfuzzer_sys;
pub use ngx_http_rate_limiting_module::fuzzing;

/// Defines a target, by its path in `src/fuzzing/`, and perhaps the function of [`memory`] that bounds it.
#[macro_export]
macro_rules! target {
    ($($path:ident)::+) => {
        $crate::target!($($path)::+, $crate::memory::bounded);
    };
    ($($path:ident)::+, $bounded:expr) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            $bounded(|| $crate::fuzzing::$($path)::+(data))
        });
    };
}
