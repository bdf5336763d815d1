//! Errors of the library's functions in nginx, and their codes in C.

use core::fmt;

use crate::conf::defined::DefineError;
use crate::engine::RateLimitingError;
use crate::engine::functions::arguments::ArgumentError;
use crate::table::LateError;

/// The reason why a function failed.
#[derive(Debug)]
pub(crate) enum LibraryError {
    Argument(ArgumentError),
    /// The text names an unknown thing.
    Unknown(String),
    Define(DefineError),
    /// The instance has defined this namespace before.
    Defined(Box<str>),
    /// The namespace was used before it was defined with a store.
    InUse(Box<str>),
    /// The namespace cannot be defined in a worker.
    Late(Box<str>, LateError),
    /// Another process is defining a namespace and takes too long.
    Locked,
    /// There is no configuration yet.
    TooEarly,
    /// The function cannot be called in this phase, which the text explains.
    Phase(&'static str),
    NotHere(String),
    Full(RateLimitingError),
    TooMany,
    Unavailable(Box<str>),
    Stale,
    Fault,
}

impl LibraryError {
    /// Returns the error's code in C.
    pub(crate) fn code(&self) -> core::ffi::c_int {
        match self {
            LibraryError::Argument(_) => -1,
            LibraryError::Unknown(_) => -2,
            LibraryError::Define(DefineError::Wrong(_)) => -1,
            LibraryError::Define(DefineError::Unknown(_)) => -2,
            LibraryError::Defined(_)
            | LibraryError::InUse(_)
            | LibraryError::Late(_, LateError::Differs) => -3,
            LibraryError::Late(_, LateError::Superseded) => -4,
            LibraryError::Late(_, LateError::NoRoom | LateError::NoRoomForSync) => -6,
            LibraryError::Locked => -7,
            LibraryError::Define(DefineError::NoRoom(_)) => -6,
            LibraryError::TooEarly | LibraryError::Phase(_) => -4,
            LibraryError::NotHere(_) => -5,
            LibraryError::Full(_) | LibraryError::TooMany => -6,
            LibraryError::Unavailable(_) => -7,
            LibraryError::Stale => -8,
            LibraryError::Fault => -9,
        }
    }
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibraryError::Argument(error) => error.fmt(f),
            LibraryError::Unknown(text) | LibraryError::NotHere(text) => f.write_str(text),
            LibraryError::Define(error) => error.fmt(f),
            LibraryError::Defined(name) => {
                write!(f, "namespace \"{name}\" is defined already")
            }
            LibraryError::InUse(name) => write!(
                f,
                "namespace \"{name}\" is local, as it was used before it was defined: expected a definition \
                 with a store before its first use"
            ),
            LibraryError::Late(name, error) => write!(f, "namespace \"{name}\": {error}"),
            LibraryError::Locked => f.write_str(
                "another process defines a namespace in the zone, and has not ended: expected another try",
            ),
            LibraryError::TooEarly => f.write_str(
                "there is no configuration with ngx_http_rate_limiting_module and \"http\" yet",
            ),
            LibraryError::Phase(text) => f.write_str(text),
            LibraryError::Full(error) => error.fmt(f),
            LibraryError::TooMany => f.write_str("too many of them: there is room for 65536"),
            LibraryError::Unavailable(namespace) => {
                write!(f, "the store of namespace \"{namespace}\" does not answer")
            }
            LibraryError::Stale => f.write_str(
                "the handle is of another configuration, or none: expected one that was found since",
            ),
            LibraryError::Fault => f.write_str("a fault, which the error log tells of"),
        }
    }
}

impl From<ArgumentError> for LibraryError {
    fn from(error: ArgumentError) -> Self {
        LibraryError::Argument(error)
    }
}

impl From<DefineError> for LibraryError {
    fn from(error: DefineError) -> Self {
        LibraryError::Define(error)
    }
}
