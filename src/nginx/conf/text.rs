//! Text with variables, and what it comes to for a request.

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

/// Text and variables, evaluated for each request.
pub(crate) enum Text {
    /// A single variable: what most keys are, at a fraction of the cost.
    Variable(Variable),
    /// Anything else.
    Complex(ngx_http_complex_value_t),
}

/// A number of hits: a constant, or text and variables that come to one.
pub(crate) type Amount = text::Amount<Text>;

/// The value of an [`Amount`] for a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Evaluated<'r> {
    Hits(Hits),
    /// The text is empty.
    Empty,
    /// The text is no number.
    Wrong(&'r [u8]),
}

/// A text could not be evaluated; nginx has logged why.
#[derive(Debug)]
pub(crate) struct EvaluationError;

impl Text {
    /// Compiles a text in which every `$` begins a variable.
    ///
    /// # Errors
    ///
    /// There is no memory; nginx has logged it.
    pub(super) fn compile(conf: &mut Conf<'_>, text: &[u8]) -> Result<Text, ConfError> {
        if let Some(name) = variable(text) {
            let variable = Variable::named(conf, name).ok_or(ConfError::Logged)?;
            return Ok(Text::Variable(variable));
        }

        let mut value = conf.keep(text).ok_or(ConfError::Logged)?;
        // SAFETY: all-zero is a valid value of these plain structures of C.
        let mut complex: ngx_http_complex_value_t = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut compile: ngx_http_compile_complex_value_t = unsafe { core::mem::zeroed() };
        compile.cf = conf.as_ptr();
        compile.value = &mut value;
        compile.complex_value = &mut complex;
        // SAFETY: the pointers are valid during the call; what `complex` points to afterwards is
        // in the cycle's pool, as the text itself.
        if unsafe { ngx_http_compile_complex_value(&mut compile) } != NGX_OK as ngx_int_t {
            return Err(ConfError::Logged);
        }
        Ok(Text::Complex(complex))
    }

    /// The value for `request`, which lives as long as the request. A variable that does not
    /// exist is empty.
    #[inline]
    pub(crate) fn evaluate<'r>(&self, request: &Request<'r>) -> Result<&'r [u8], EvaluationError> {
        match self {
            Text::Variable(variable) => variable.evaluate(request).ok_or(EvaluationError),
            Text::Complex(complex) => evaluate_complex(complex, request),
        }
    }
}

/// The value of several parts, copied into one.
// Not inlined: as `Variable::evaluate_by_nginx`.
#[inline(never)]
fn evaluate_complex<'r>(
    complex: &ngx_http_complex_value_t,
    request: &Request<'r>,
) -> Result<&'r [u8], EvaluationError> {
    let mut value = ngx_str_t::empty();
    let complex = ptr::from_ref(complex).cast_mut();
    // SAFETY: the request has not ended; nginx does not change a complex value when it evaluates it.
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
    /// The number for `request`.
    #[inline]
    pub(crate) fn evaluate<'r>(
        &self,
        request: &Request<'r>,
    ) -> Result<Evaluated<'r>, EvaluationError> {
        match self {
            Amount::Constant(hits) => Ok(Evaluated::Hits(*hits)),
            Amount::Variable(text) => Ok(match text.evaluate(request)? {
                b"" => Evaluated::Empty,
                text => match Hits::parse(text) {
                    Ok(hits) => Evaluated::Hits(hits),
                    // Sums saturate there too.
                    Err(ParseHitsError::TooLarge) => Evaluated::Hits(Hits::MAX),
                    Err(ParseHitsError::NotADecimal) => Evaluated::Wrong(text),
                },
            }),
        }
    }
}
