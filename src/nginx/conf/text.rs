//! Text with variables, and its value for a request.

use core::fmt;
use core::ptr;

use nginx_sys::{
    NGX_OK, ngx_http_compile_complex_value, ngx_http_compile_complex_value_t,
    ngx_http_complex_value, ngx_http_complex_value_t, ngx_int_t, ngx_str_t,
};

use super::reading::Conf;
use super::variable::Variable;
use crate::conf::words::message::ConfError;
use crate::conf::words::text::{self, variable};
use crate::nginx::request::{Request, bytes};
use crate::policy::hits::{Hits, ParseHitsError};

/// Text with variables, evaluated for each request.
pub(crate) enum Text {
    /// A single variable, as in most keys. Much cheaper than complex text.
    Variable(Variable),
    /// Any other text.
    Complex(ngx_http_complex_value_t),
}

/// A number of hits: a constant, or text that evaluates to a number.
pub(crate) type Amount = text::Amount<Text>;

/// The value of an [`Amount`] for a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evaluated<'r> {
    Hits(Hits),
    /// The text is empty.
    Empty,
    /// The text is not a number.
    Wrong(&'r [u8]),
}

/// The error of a text that could not be evaluated. nginx has logged the reason.
#[derive(Debug)]
pub(crate) struct EvaluationError;

impl Text {
    /// Compiles a text in which every `$` begins a variable.
    ///
    /// # Errors
    ///
    /// No memory, which nginx has logged.
    pub(super) fn compile(conf: &mut Conf<'_>, text: &[u8]) -> Result<Text, ConfError> {
        if let Some(name) = variable(text) {
            let variable = Variable::named(conf, name).ok_or(ConfError::Logged)?;
            return Ok(Text::Variable(variable));
        }

        let mut value = conf.keep(text).ok_or(ConfError::Logged)?;
        // SAFETY: all-zero is a valid value of these plain C structures.
        let mut complex: ngx_http_complex_value_t = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut compile: ngx_http_compile_complex_value_t = unsafe { core::mem::zeroed() };
        compile.cf = conf.as_ptr();
        compile.value = &mut value;
        compile.complex_value = &mut complex;
        // SAFETY: the pointers are valid during the call. The data that `complex` points to
        // afterwards is in the cycle's pool, as is the text.
        if unsafe { ngx_http_compile_complex_value(&mut compile) } != NGX_OK as ngx_int_t {
            return Err(ConfError::Logged);
        }
        Ok(Text::Complex(complex))
    }

    /// Returns the value for `request`, which lives as long as the request. A missing variable is
    /// empty.
    #[inline]
    pub(crate) fn evaluate<'r>(&self, request: &Request<'r>) -> Result<&'r [u8], EvaluationError> {
        match self {
            Text::Variable(variable) => variable.evaluate(request).ok_or(EvaluationError),
            Text::Complex(complex) => evaluate_complex(complex, request),
        }
    }
}

/// Returns the value of a complex text, copied into the request's pool.
// Not inlined: as `Variable::evaluate_by_nginx`.
#[inline(never)]
fn evaluate_complex<'r>(
    complex: &ngx_http_complex_value_t,
    request: &Request<'r>,
) -> Result<&'r [u8], EvaluationError> {
    let mut value = ngx_str_t::empty();
    let complex = ptr::from_ref(complex).cast_mut();
    // SAFETY: the request is live; nginx does not change a complex value when it evaluates it.
    let status = unsafe { ngx_http_complex_value(request.as_ptr(), complex, &mut value) };
    if status == NGX_OK as ngx_int_t {
        // SAFETY: the value is in the request's pool.
        Ok(unsafe { bytes(&value) })
    } else {
        Err(EvaluationError)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Text::Variable(_) => "Variable",
            Text::Complex(_) => "Complex",
        })
    }
}

impl text::Amount<Text> {
    /// Returns the number for `request`.
    #[inline]
    pub(crate) fn evaluate<'r>(
        &self,
        request: &Request<'r>,
    ) -> Result<Evaluated<'r>, EvaluationError> {
        match self {
            Amount::Constant(hits) => Ok(Evaluated::Hits(*hits)),
            // The limit's window says which hits of the list; costs are none.
            Amount::Listed(_) => Ok(Evaluated::Empty),
            Amount::Variable(text) => Ok(match text.evaluate(request)? {
                b"" => Evaluated::Empty,
                text => match Hits::parse(text) {
                    Ok(hits) => Evaluated::Hits(hits),
                    // Sums of hits saturate, too.
                    Err(ParseHitsError::TooLarge) => Evaluated::Hits(Hits::MAX),
                    Err(ParseHitsError::NotADecimal) => Evaluated::Wrong(text),
                },
            }),
        }
    }
}
