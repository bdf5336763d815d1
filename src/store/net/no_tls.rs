//! Replaces `tls` in a build without the feature `tls`, so it is a file of its own.

use core::fmt;
use std::io;

use crate::store::contract::options::TlsOptions;

/// A client that is never created.
#[derive(Clone, Debug)]
pub enum TlsClient {}

/// The error that this build has no TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(());

/// Stands for a TLS stream, which is never created.
pub(crate) type TlsStream<S> = S;

impl TlsClient {
    /// Creates no client.
    ///
    /// # Errors
    ///
    /// Always [`TlsError`].
    pub fn new(_: &TlsOptions) -> Result<TlsClient, TlsError> {
        Err(TlsError(()))
    }

    /// Is never called.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn wrap<S>(&self, _: &str, _: S) -> io::Result<TlsStream<S>> {
        match *self {}
    }
}

impl TlsError {
    /// Returns the directive that the error belongs to.
    pub fn directive(&self) -> &'static str {
        "tls"
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"tls on\" is not in this build: it has no TLS")
    }
}

impl core::error::Error for TlsError {}
