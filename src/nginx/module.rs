//! The module as nginx knows it: under the number of this, nginx keeps our configurations.

use nginx_sys::ngx_module_t;
use ngx::http::HttpModule;

/// The module of the directives and the phase handlers. Its configurations are named where their types
/// are, its callbacks in [`lifecycle`](super::lifecycle).
pub(super) struct Module;

unsafe extern "C" {
    /// Defined in [`lifecycle`](super::lifecycle), with all that nginx calls.
    static ngx_http_rate_limiting_module: ngx_module_t;
}

impl HttpModule for Module {
    fn module() -> &'static ngx_module_t {
        // SAFETY: nginx changes it only while it loads modules, in the master's only thread.
        unsafe { &ngx_http_rate_limiting_module }
    }
}
