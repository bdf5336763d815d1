//! Blocks of directives, which nginx reads for us.

use core::ffi::{c_char, c_void};
use core::ptr;

use nginx_sys::{ngx_command_t, ngx_conf_include, ngx_conf_parse, ngx_conf_t};
use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};

use super::reading::Conf;
use crate::conf::words::block::{Block, BlockStep};
use crate::conf::words::message::ConfError;
use crate::nginx::guard::guard;

/// Reads the block that follows.
///
/// # Errors
///
/// Something in it is wrong, and was logged.
pub(super) fn read(conf: &mut Conf<'_>, block: &mut Block<'_>) -> Result<(), ConfError> {
    let cf = conf.as_ptr();
    // SAFETY: nginx reads a file, and the block until the call returns, with this handler, to which it
    // passes the block. Nothing else uses either meanwhile.
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
        // SAFETY: nginx passes itself, and what `read` told it to, which waits meanwhile.
        let step = unsafe {
            let block = &mut *block.cast::<Block<'_>>();
            Conf::with(cf, |conf| step(conf, block))
        };
        match step {
            // SAFETY: as nginx itself does with its own blocks; it calls this function in turn.
            Ok(BlockStep::Include) => unsafe { ngx_conf_include(cf, command, ptr::null_mut()) },
            Ok(BlockStep::Done) => NGX_CONF_OK,
            Err(Refused) => NGX_CONF_ERROR,
        }
    })
}

/// A directive is wrong, and nginx has logged it.
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
