//! The shared memory zones, which contain the counter tables.

use core::cell::Cell;
use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

use nginx_sys::{
    NGX_ERROR, NGX_LOG_EMERG, NGX_LOG_WARN, NGX_OK, ngx_int_t, ngx_pagesize, ngx_shm_zone_t,
    ngx_shmtx_trylock, ngx_shmtx_unlock, ngx_slab_alloc, ngx_slab_pool_t,
};

use super::cycle::Cycle;
use super::event_loop::guard;
use super::log::{self, Log};
use crate::table::words::system::random;
use crate::table::{CounterTable, LayoutError};

/// A `ratelimit_zone` of one configuration. The zone's memory outlives the configuration.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) name: Box<str>,
    /// The configured size in bytes.
    pub(super) size: usize,
    /// Set when nginx has mapped the zone.
    table: OnceLock<CounterTable<'static>>,
    /// The slab pool at the start of the zone, whose mutex is the zone's lock. Set when nginx has
    /// mapped the zone.
    pool: Cell<Option<NonNull<ngx_slab_pool_t>>>,
    /// The zone's number of the configuration. Set when the configuration begins.
    configuration: Cell<u64>,
}

/// The lock for defining namespaces in a zone. One process holds it at a time; nginx releases it if
/// that process ends.
#[derive(Debug)]
pub(super) struct ZoneLock {
    pool: NonNull<ngx_slab_pool_t>,
}

impl Drop for ZoneLock {
    fn drop(&mut self) {
        // SAFETY: the zone is mapped while its cycle serves, and this process holds the lock.
        unsafe { ngx_shmtx_unlock(&raw mut (*self.pool.as_ptr()).mutex) }
    }
}

/// Longest time that a worker waits for another process that defines a namespace. Reading all
/// counters of a large zone takes a part of it.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// The reason why a zone cannot be used.
enum ZoneError {
    NoMemory,
    NoEntropy(std::io::Error),
    Layout(LayoutError),
}

impl Zone {
    pub(super) fn new(name: &str, size: usize) -> Zone {
        Zone {
            name: name.into(),
            size,
            table: OnceLock::new(),
            pool: Cell::default(),
            configuration: Cell::default(),
        }
    }

    /// Locks a mapped zone. `None` if the zone is not mapped, or if another process holds the lock
    /// for longer than `patience`, such as a stopped one.
    pub(super) fn lock(&self, patience: Duration) -> Option<ZoneLock> {
        let pool = self.pool.get()?;
        let began = Instant::now();
        // SAFETY: the zone is mapped while its cycle serves; nginx has initialized the mutex.
        while unsafe { ngx_shmtx_trylock(&raw mut (*pool.as_ptr()).mutex) } == 0 {
            if began.elapsed() >= patience {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Some(ZoneLock { pool })
    }

    /// Returns the zone's number of the configuration; 0 before the configuration begins.
    pub(super) fn configuration(&self) -> u64 {
        self.configuration.get()
    }

    /// Sets the zone's number of the configuration.
    pub(super) fn set_configuration(&self, number: u64) {
        self.configuration.set(number);
    }

    /// Returns the counters; `None` before nginx has mapped the zone, which it does after the
    /// configuration was read.
    pub(super) fn table(&self) -> Option<&CounterTable<'static>> {
        self.table.get()
    }

    /// nginx's callback when the zone is mapped. `shm_zone.data` is the `Zone`, and `old_data` is
    /// the previous configuration's if it had the same zone.
    pub(super) unsafe extern "C" fn init(
        shm_zone: *mut ngx_shm_zone_t,
        old_data: *mut c_void,
    ) -> ngx_int_t {
        guard(NGX_ERROR as ngx_int_t, || {
            // SAFETY: nginx passes a zone of this cycle, whose `data` is the `Zone` that `add_zone`
            // set and that lives as long as the cycle.
            let (shm, zone) = unsafe { (&(*shm_zone).shm, &*(*shm_zone).data.cast::<Zone>()) };
            let pool = shm.addr.cast::<ngx_slab_pool_t>();
            let is_old = !old_data.is_null() || shm.exists != 0;
            // SAFETY: nginx created `pool` at the start of the zone before this call.
            match unsafe { zone.find_or_make_table(pool, is_old) } {
                Ok(table) => {
                    // Cannot be set before: nginx initializes a zone once in a cycle.
                    let _ = zone.table.set(table);
                    zone.pool.set(NonNull::new(pool));
                    NGX_OK as ngx_int_t
                }
                Err(error) => {
                    log::error(
                        NGX_LOG_EMERG,
                        // SAFETY: as above; the log is the cycle's.
                        unsafe { Log::new((*shm_zone).shm.log) },
                        format_args!("ratelimit_zone \"{}\": {error}", zone.name),
                    );
                    NGX_ERROR as ngx_int_t
                }
            }
        })
    }

    /// # Safety
    ///
    /// `pool` is the slab pool of the zone's memory. The memory stays mapped while the cycle lives,
    /// and only this function allocates from the pool.
    unsafe fn find_or_make_table(
        &self,
        pool: *mut ngx_slab_pool_t,
        is_old: bool,
    ) -> Result<CounterTable<'static>, ZoneError> {
        // SAFETY: by the caller's contract. The pages of a pool are one run from `start` to `last`.
        let region = unsafe {
            let first_page = NonNull::new((*pool).start).ok_or(ZoneError::NoMemory)?;
            let pages = usize::try_from((*pool).last.offset_from((*pool).pages)).unwrap_or(0);
            NonNull::slice_from_raw_parts(first_page, pages.saturating_mul(ngx_pagesize))
        };
        if is_old {
            // SAFETY: the run was allocated when the zone was created, and only tables use it,
            // including those of the old cycle's workers. `'static` stands for the cycle's life,
            // since the configuration owns the table.
            match unsafe { CounterTable::open(region, self.size) } {
                Ok(table) => return Ok(table),
                Err(error) => {
                    let message = format_args!(
                        "ratelimit_zone \"{}\": counters are lost ({error})",
                        self.name
                    );
                    Cycle::with_current(|cycle| log::error(NGX_LOG_WARN, cycle.log(), message));
                    // SAFETY: `region` is within the allocated run.
                    unsafe { region.cast::<u8>().write_bytes(0, region.len()) };
                }
            }
        } else {
            // SAFETY: the pool is new, so all its pages are one free run, which starts at the first
            // page.
            let run = unsafe { ngx_slab_alloc(pool, region.len()) };
            if run != region.as_ptr().cast() {
                return Err(ZoneError::NoMemory);
            }
        }
        let secret = random().map_err(ZoneError::NoEntropy)?;
        // SAFETY: as for `open`; the memory of a new or rebuilt zone is all zero.
        unsafe { CounterTable::create(region, self.size, secret) }.map_err(ZoneError::Layout)
    }
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZoneError::NoMemory => f.write_str("no memory left in the zone"),
            ZoneError::NoEntropy(error) => write!(f, "no random numbers ({error})"),
            ZoneError::Layout(error) => error.fmt(f),
        }
    }
}
