//! Text and variables in the configuration, and what they come to for a request.

use core::fmt;
use core::ptr;

use nginx_sys::{
    NGX_OK, ngx_conf_t, ngx_http_compile_complex_value, ngx_http_compile_complex_value_t,
    ngx_http_complex_value, ngx_http_complex_value_t, ngx_int_t, ngx_str_t,
};

use super::super::request::{Request, bytes};
use super::directives::{Failure, Word};
use super::variable::Variable;
use crate::policy::hits::{Hits, ParseHitsError};

/// Text and variables, evaluated for each request.
pub(in super::super) enum Text {
    /// A single variable: what most keys are, at a fraction of the cost.
    Variable(Variable),
    /// Anything else.
    Complex(ngx_http_complex_value_t),
}

/// A text, and how it was written.
#[derive(Debug)]
pub(super) struct WrittenText {
    pub(super) text: Text,
    pub(super) written: Word,
}

/// A number of hits: a constant, or text and variables that come to one.
#[derive(Debug)]
pub(in super::super) enum Amount {
    Constant(Hits),
    Variable(Text),
}

/// What an [`Amount`] came to for a request.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Evaluated<'r> {
    Hits(Hits),
    /// The text is empty.
    Empty,
    /// The text is no number.
    Wrong(&'r [u8]),
}

/// A text could not be evaluated; nginx has logged why.
#[derive(Debug)]
pub(in super::super) struct EvaluationError;

impl Text {
    /// Compiles the text of a directive.
    pub(super) fn compile(cf: &mut ngx_conf_t, text: Word) -> Result<Text, Failure> {
        check_variables(text)?;
        let name = text.0.strip_prefix(b"$").unwrap_or_default();
        // Captures ($1) are for the compiler of complex values.
        if name.first().is_some_and(|byte| !byte.is_ascii_digit()) && name.iter().all(is_in_name) {
            let variable = Variable::named(cf, name).ok_or(Failure::Logged)?;
            return Ok(Text::Variable(variable));
        }

        let mut value = str_of(text.0);
        // SAFETY: all-zero is a valid value of these plain structures of C.
        let mut complex: ngx_http_complex_value_t = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut compile: ngx_http_compile_complex_value_t = unsafe { core::mem::zeroed() };
        compile.cf = cf;
        compile.value = &mut value;
        compile.complex_value = &mut complex;
        // SAFETY: the pointers are valid during the call; what `complex` points to afterwards is
        // in the cycle's pool, as the text itself.
        if unsafe { ngx_http_compile_complex_value(&mut compile) } != NGX_OK as ngx_int_t {
            return Err(Failure::Logged);
        }
        Ok(Text::Complex(complex))
    }

    /// The value for `request`, which lives as long as the request. A variable that does not
    /// exist is empty.
    #[inline]
    pub(in super::super) fn evaluate<'r>(
        &self,
        request: &Request<'r>,
    ) -> Result<&'r [u8], EvaluationError> {
        match self {
            Text::Variable(variable) => variable.evaluate(request).ok_or(EvaluationError),
            Text::Complex(complex) => evaluate_complex(complex, request),
        }
    }
}

impl WrittenText {
    /// Compiles the text of a directive.
    pub(super) fn compile(cf: &mut ngx_conf_t, written: Word) -> Result<WrittenText, Failure> {
        let text = Text::compile(cf, written)?;
        Ok(WrittenText { text, written })
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

impl Amount {
    /// Reads a number, or compiles a text with variables.
    pub(super) fn compile(cf: &mut ngx_conf_t, text: Word) -> Result<Amount, Failure> {
        if text.0.contains(&b'$') {
            return Ok(Amount::Variable(Text::compile(cf, text)?));
        }
        match Hits::parse(text.0) {
            Ok(Hits::ZERO) if text.0.iter().any(|byte| (b'1'..=b'9').contains(byte)) => {
                Err(format!("invalid number \"{text}\": expected 0 or at least 0.001").into())
            }
            Ok(hits) => Ok(Amount::Constant(hits)),
            Err(error) => Err(format!(
                "invalid number \"{text}\": expected a decimal, such as 1 or 0.5, or variables \
                 ({error})"
            )
            .into()),
        }
    }

    #[inline]
    pub(in super::super) fn evaluate<'r>(
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

/// Whether nginx will understand the variables in `text`: its own messages do not say what is
/// accepted.
fn check_variables(text: Word) -> Result<(), String> {
    let mut rest = text.0;
    while let Some(start) = rest.iter().position(|&byte| byte == b'$') {
        let after = rest.get(start.wrapping_add(1)..).unwrap_or_default();
        let (name, end) = match after {
            [b'1'..=b'9', rest @ ..] => (&b"1"[..], rest),
            [b'{', inner @ ..] => {
                let len = inner.iter().take_while(|byte| is_in_name(byte)).count();
                match inner.split_at_checked(len) {
                    Some((name, [b'}', rest @ ..])) => (name, rest),
                    _ => (&b""[..], inner),
                }
            }
            _ => {
                let len = after.iter().take_while(|byte| is_in_name(byte)).count();
                after.split_at_checked(len).unwrap_or_default()
            }
        };
        if name.is_empty() {
            return Err(format!(
                "invalid variable in \"{text}\": expected $name or ${{name}} after every \"$\""
            ));
        }
        rest = end;
    }
    Ok(())
}

fn is_in_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

/// `text` for nginx, which only reads it.
pub(super) fn str_of(text: &'static [u8]) -> ngx_str_t {
    ngx_str_t {
        len: text.len(),
        data: text.as_ptr().cast_mut(),
    }
}
