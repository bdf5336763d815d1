//! Fail points of nginx's workers, which a driver in another process arms: `scripts/faults.sh`. Only in a module that was
//! built with `--cfg fail_points`.
//!
//! The environment variable `RATELIMIT_FAIL_POINTS` names a file, which all processes of a node map. The driver writes:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 3 | number of passes up to the one that is hit; 0 if none is armed. Written last |
//! | 4 to 7 | written by the process that is hit: its number |
//! | 8 to 11 | milliseconds for which the thread sleeps; 0: the process is killed; 2^32 - 1: it is stopped (`SIGSTOP`) |
//! | 64 to 127 | the point's name, and zeros |
//!
//! Each process appends the name of each point that it reaches to the file of this name with `.seen`.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::time::Duration;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, OnceLock, PoisonError};

const SIZE: usize = 128;
const STOP: u32 = u32::MAX;

/// The mapped file.
#[repr(C)]
struct Orders {
    left: AtomicU32,
    process: AtomicU32,
    millis: AtomicU32,
    unused: [u32; 13],
    /// The name, four bytes in each word.
    name: [AtomicU32; 16],
}

struct Driver {
    orders: &'static Orders,
    seen: Mutex<(BTreeSet<&'static str>, File)>,
}

/// Does what the driver has ordered for this point.
pub(crate) fn reach(point: &'static str) {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let Some(driver) = DRIVER.get_or_init(Driver::of_environment) else {
        return;
    };
    driver.record(point);
    if driver.is_hit(point) {
        driver.hit();
    }
}

impl Driver {
    fn of_environment() -> Option<Driver> {
        let path = std::env::var_os("RATELIMIT_FAIL_POINTS")?;
        let file = File::options().read(true).write(true).open(&path).ok()?;
        (file.metadata().ok()?.len() >= SIZE as u64).then_some(())?;
        // SAFETY: a new mapping of a file of at least this size, whose result is checked.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let fd = file.as_raw_fd();
            libc::mmap(core::ptr::null_mut(), SIZE, access, libc::MAP_SHARED, fd, 0)
        };
        (start != libc::MAP_FAILED).then_some(())?;
        let mut seen = path;
        seen.push(".seen");
        let seen = File::options().append(true).create(true).open(seen).ok()?;
        // SAFETY: the mapping has the size of the type, consists of atomics, and is never unmapped.
        let orders = unsafe { &*start.cast::<Orders>() };
        Some(Driver { orders, seen: Mutex::new((BTreeSet::new(), seen)) })
    }

    fn record(&self, point: &'static str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0.insert(point) {
            // A driver that misses a name reports the point as not reached.
            let _ = seen.1.write_all(format!("{point}\n").as_bytes());
        }
    }

    /// Returns whether this is the pass that the driver ordered, of all processes.
    fn is_hit(&self, point: &str) -> bool {
        let orders = self.orders;
        if orders.left.load(Acquire) == 0 {
            return false;
        }
        let name: Vec<u8> =
            orders.name.iter().flat_map(|it| it.load(Relaxed).to_ne_bytes()).collect();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let pass = |left: u32| left.checked_sub(1);
        name == point.as_bytes() && orders.left.fetch_update(AcqRel, Acquire, pass) == Ok(1)
    }

    fn hit(&self) {
        let millis = self.orders.millis.load(Relaxed);
        self.orders.process.store(std::process::id(), Release);
        match millis {
            // SAFETY: ends or stops this process, and has no other effect.
            0 => drop(unsafe { libc::kill(libc::getpid(), libc::SIGKILL) }),
            // SAFETY: as above.
            STOP => drop(unsafe { libc::raise(libc::SIGSTOP) }),
            _ => std::thread::sleep(Duration::from_millis(millis.into())),
        }
    }
}
