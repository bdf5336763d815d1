//! The module's identity in nginx, which stores the module's configurations by it. A file of its
//! own, since most files need it, and `lifecycle`, which defines it, needs those.

use nginx_sys::ngx_module_t;
use ngx::http::HttpModule;

/// The module of the directives and the phase handlers. The types of its configurations are bound
/// where they are defined, and its callbacks in [`lifecycle`](super::lifecycle).
pub(super) struct Module;

unsafe extern "C" {
    /// Defined in [`lifecycle`](super::lifecycle), with the module's callbacks.
    static ngx_http_rate_limiting_module: ngx_module_t;
}

impl HttpModule for Module {
    fn module() -> &'static ngx_module_t {
        // SAFETY: nginx changes it only while it loads modules, in the master's only thread.
        unsafe { &ngx_http_rate_limiting_module }
    }
}
