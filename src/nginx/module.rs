//! skeleton
use core::ffi::c_char;
use core::ptr;
use nginx_sys::{NGX_HTTP_MODULE, ngx_command_t, ngx_http_module_t, ngx_module_t, ngx_uint_t};

static CTX: ngx_http_module_t = ngx_http_module_t {
    preconfiguration: None,
    postconfiguration: None,
    create_main_conf: None,
    init_main_conf: None,
    create_srv_conf: None,
    merge_srv_conf: None,
    create_loc_conf: None,
    merge_loc_conf: None,
};
static mut COMMANDS: [ngx_command_t; 1] = [ngx_command_t::empty()];

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut ngx_http_rate_limiting_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const CTX).cast_mut().cast(),
    commands: (&raw mut COMMANDS).cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    ..ngx_module_t::default()
};

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut ngx_http_rate_limiting_filter_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const CTX).cast_mut().cast(),
    commands: (&raw mut COMMANDS).cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    ..ngx_module_t::default()
};

#[cfg(feature = "export-modules")]
mod exports {
    use super::*;
    #[repr(transparent)]
    pub struct Names<const N: usize>([*const c_char; N]);
    unsafe impl<const N: usize> Sync for Names<N> {}

    #[unsafe(no_mangle)]
    pub static mut ngx_modules: [*mut ngx_module_t; 3] = [
        &raw mut ngx_http_rate_limiting_module,
        &raw mut ngx_http_rate_limiting_filter_module,
        ptr::null_mut(),
    ];
    #[unsafe(no_mangle)]
    pub static ngx_module_names: Names<3> = Names([
        c"ngx_http_rate_limiting_module".as_ptr(),
        c"ngx_http_rate_limiting_filter_module".as_ptr(),
        ptr::null(),
    ]);
    #[unsafe(no_mangle)]
    pub static ngx_module_order: Names<5> = Names([
        c"ngx_http_rate_limiting_module".as_ptr(),
        c"ngx_http_realip_module".as_ptr(),
        c"ngx_http_rate_limiting_filter_module".as_ptr(),
        c"ngx_http_copy_filter_module".as_ptr(),
        ptr::null(),
    ]);
}
