//! Reads this module's configuration blocks by nginx's parser.

use core::ffi::{c_char, c_void};
use core::ptr;

use nginx_sys::{ngx_command_t, ngx_conf_include, ngx_conf_parse, ngx_conf_t};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};

use super::reading::Conf;
use crate::conf::words::block::{Block, BlockStep};
use crate::conf::words::message::ConfError;
use crate::nginx::event_loop::guard;

/// Reads the block that follows.
///
/// # Errors
///
/// A directive in the block is wrong. The error is logged already.
pub(super) fn read(conf: &mut Conf<'_>, block: &mut Block<'_>) -> Result<(), ConfError> {
    let cf = conf.as_ptr();
    // SAFETY: nginx is reading a file. Until the call returns, it passes `block` to the handler
    // that is set here, and nothing else uses either.
    let result = unsafe {
        let (handler, handler_conf) = ((*cf).handler, (*cf).handler_conf);
        (*cf).handler = Some(in_block);
        (*cf).handler_conf = ptr::from_mut(block).cast();
        let result = ngx_conf_parse(cf, ptr::null_mut());
        ((*cf).handler, (*cf).handler_conf) = (handler, handler_conf);
        result
    };
    match result == NGX_CONF_OK {
        true => Ok(()),
        false => Err(ConfError::Logged),
    }
}

/// nginx's callback for a directive in a block.
unsafe extern "C" fn in_block(
    cf: *mut ngx_conf_t,
    command: *mut ngx_command_t,
    block: *mut c_void,
) -> *mut c_char {
    guard(NGX_CONF_ERROR, || {
        // SAFETY: nginx passes its `ngx_conf_t`, and the block that `read` set; `read` does not use
        // it meanwhile.
        let step = unsafe {
            let block = &mut *block.cast::<Block<'_>>();
            Conf::with(cf, |conf| step(conf, block))
        };
        match step {
            // SAFETY: nginx includes files within its own blocks in this way; it calls this
            // function for each directive.
            Ok(BlockStep::Include) => unsafe { ngx_conf_include(cf, command, ptr::null_mut()) },
            Ok(BlockStep::Done) => NGX_CONF_OK,
            Err(Refused) => NGX_CONF_ERROR,
        }
    })
}

/// The error of a directive that nginx has logged.
struct Refused;

/// Applies the directive of a block that nginx has just read.
fn step(conf: &mut Conf<'_>, block: &mut Block<'_>) -> Result<BlockStep, Refused> {
    let words = conf.words();
    let Some((name, words)) = words.split_first() else {
        return Ok(BlockStep::Done);
    };
    block.apply(conf.origin(), name, words).map_err(|error| {
        conf.refuse(error);
        Refused
    })
}
