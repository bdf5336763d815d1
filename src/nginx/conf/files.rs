//! Reads files that the configuration names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::conf::words::nginx::Files;
use crate::store::contract::options::TlsOptions;
use crate::store::net::tls::{TlsClient, TlsError};

/// Reads files, with paths relative to a directory.
#[derive(Debug)]
pub(crate) struct ConfFiles {
    pub(crate) prefix: PathBuf,
}

impl Files for ConfFiles {
    fn path(&self, written: &Path) -> PathBuf {
        self.prefix.join(written)
    }

    /// The length is limited, since a device may have no end.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        const MOST: u64 = 1 << 20;
        let mut content = Vec::new();
        let len = File::open(path)?.take(MOST).read_to_end(&mut content)?;
        if len as u64 == MOST {
            return Err(io::Error::other("larger than 1 MiB"));
        }
        Ok(content)
    }

    fn check_tls(&self, tls: &TlsOptions) -> Result<(), TlsError> {
        TlsClient::new(tls).map(|_| ())
    }
}
