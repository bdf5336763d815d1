//! The file of a shard: locked while it is changed, and replaced in one step.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// All that is kept of a shard.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Contents {
    /// The epoch, if there is one.
    pub(crate) epoch: Option<u64>,
    /// The last batch of each node.
    #[serde(with = "pairs")]
    pub(crate) nodes: BTreeMap<[u64; 2], Known>,
    /// Count of each counter, node and occupancy.
    #[serde(with = "pairs")]
    pub(crate) rows: BTreeMap<(Counter, [u64; 2], u64), Row>,
}

/// A known node.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Known {
    /// Its last batch.
    pub(crate) batch: u64,
    /// Until when it is known, in Unix milliseconds.
    pub(crate) until: u64,
}

/// The key, and the size (in milliseconds) and number of the window. The windows of a size are side by
/// side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Counter {
    pub(crate) size: u64,
    pub(crate) window: u64,
    pub(crate) key: Vec<u8>,
}

/// The count of a node of one counter during one occupancy.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    /// In thousandths of a hit.
    pub(crate) count: i64,
    /// The batch that said so.
    pub(crate) batch: u64,
    /// Until when it matters, in Unix milliseconds.
    pub(crate) until: u64,
}

impl Contents {
    /// Reads the contents of `path`: nothing, if there is no such file.
    ///
    /// # Errors
    ///
    /// Those of reading; [`io::ErrorKind::InvalidData`] if it is another kind of file.
    pub(crate) fn read(path: &Path) -> io::Result<Contents> {
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Contents::default()),
            Err(error) => Err(error),
        }
    }

    /// Forgets what does not matter any more at `now`, in Unix milliseconds.
    pub(crate) fn purge(&mut self, now: u64) {
        self.nodes.retain(|_, node| node.until > now);
        self.rows.retain(|_, row| row.until > now);
    }
}

/// A shard's file, of which this process has the lock until the value is dropped.
pub(crate) struct Locked {
    path: PathBuf,
    /// The kernel gives the lock back when it is closed, also if the process is killed.
    _lock: File,
}

impl Locked {
    /// Waits until nobody else has the lock. It is of a file beside `path`, since `path` is replaced.
    ///
    /// # Errors
    ///
    /// Those of opening and locking it.
    pub(crate) async fn open(path: PathBuf) -> io::Result<Locked> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let lock = File::create(path.with_extension("lock"))?;
        while !try_lock(&lock)? {
            // Others of this thread go on meanwhile.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(Locked { path, _lock: lock })
    }

    /// Reads the contents of the file.
    ///
    /// # Errors
    ///
    /// As [`Contents::read`].
    pub(crate) fn read(&self) -> io::Result<Contents> {
        Contents::read(&self.path)
    }

    /// Has the file hold this: whoever reads it, or is killed here, finds all of it or all that was before.
    ///
    /// # Errors
    ///
    /// Those of writing; nothing is changed then.
    pub(crate) fn write(&self, contents: &Contents) -> io::Result<()> {
        let new = self.path.with_extension("new");
        fs::write(&new, serde_json::to_vec(contents)?)?;
        fs::rename(new, &self.path)
    }
}

/// Takes the lock of a file. Returns whether nobody else has it.
fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: `file` keeps the descriptor open, and the call touches no memory of ours.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

/// Maps whose keys are not texts, as JSON has them.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'d, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'d> + Ord,
        V: Deserialize<'d>,
        D: Deserializer<'d>,
    {
        let pairs = Vec::<(K, V)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().collect())
    }
}
