//! The shared memory zones that hold counter tables.

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
use super::guard::guard;
use super::log::{self, Log};
use crate::table::words::system::random;
use crate::table::{CounterTable, LayoutError};

/// A `ratelimit_zone` of one configuration. What is in the zone outlives it.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) name: Box<str>,
    /// In bytes, as configured.
    pub(super) size: usize,
    /// Set when nginx has mapped the zone.
    table: OnceLock<CounterTable<'static>>,
    /// The slab pool at the start of the zone, likewise: its mutex is the zone's lock.
    pool: Cell<Option<NonNull<ngx_slab_pool_t>>>,
    /// The number of the configuration in the zone. Set when that begins.
    configuration: Cell<u64>,
}

/// The right to define namespaces in a zone, which one process has at a time. nginx takes it back from one that
/// ends.
#[derive(Debug)]
pub(super) struct ZoneLock {
    pool: NonNull<ngx_slab_pool_t>,
}

impl Drop for ZoneLock {
    fn drop(&mut self) {
        // SAFETY: the zone is mapped as long as its cycle serves, and this process has locked it.
        unsafe { ngx_shmtx_unlock(&raw mut (*self.pool.as_ptr()).mutex) }
    }
}

/// Time for which a worker waits for another process that defines a namespace: a look at all
/// counters of a large zone takes some of it.
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

    /// Locks the zone, once it is mapped; `None`: another process has it locked, and goes on to for as long as this
    /// one is ready to wait: it may have been stopped.
    pub(super) fn lock(&self, patience: Duration) -> Option<ZoneLock> {
        let pool = self.pool.get()?;
        let began = Instant::now();
        // SAFETY: the zone is mapped as long as its cycle serves; nginx has made the mutex.
        while unsafe { ngx_shmtx_trylock(&raw mut (*pool.as_ptr()).mutex) } == 0 {
            if began.elapsed() >= patience {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Some(ZoneLock { pool })
    }

    /// Returns the number of the configuration in the zone, once that has begun.
    pub(super) fn configuration(&self) -> u64 {
        self.configuration.get()
    }

    /// Notes the number of the configuration.
    pub(super) fn set_configuration(&self, number: u64) {
        self.configuration.set(number);
    }

    /// The counters, once nginx has mapped the zone: never before the configuration is read.
    pub(super) fn table(&self) -> Option<&CounterTable<'static>> {
        self.table.get()
    }

    /// nginx's callback when the zone is mapped: `shm_zone.data` is the `Zone`, `old_data` that of
    /// the configuration before, if it had the same zone.
    pub(super) unsafe extern "C" fn init(
        shm_zone: *mut ngx_shm_zone_t,
        old_data: *mut c_void,
    ) -> ngx_int_t {
        guard(NGX_ERROR as ngx_int_t, || {
            // SAFETY: nginx passes a zone of this cycle, whose `data` is the `Zone` that was
            // added with it and lives as long as the cycle.
            let (shm, zone) = unsafe { (&(*shm_zone).shm, &*(*shm_zone).data.cast::<Zone>()) };
            let pool = shm.addr.cast::<ngx_slab_pool_t>();
            let is_old = !old_data.is_null() || shm.exists != 0;
            // SAFETY: nginx made `pool` at the start of the zone before the call.
            match unsafe { zone.find_or_make_table(pool, is_old) } {
                Ok(table) => {
                    // A zone is initialized once in a cycle.
                    let _ = zone.table.set(table);
                    zone.pool.set(NonNull::new(pool));
                    NGX_OK as ngx_int_t
                }
                Err(error) => {
                    log::error(
                        NGX_LOG_EMERG,
                        // SAFETY: as above, with the log of the cycle.
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
    /// `pool` is the slab pool of the zone's memory, which stays mapped while the cycle lives, and
    /// of which only this function takes a part.
    unsafe fn find_or_make_table(
        &self,
        pool: *mut ngx_slab_pool_t,
        is_old: bool,
    ) -> Result<CounterTable<'static>, ZoneError> {
        // SAFETY: the caller's promise. The pages of a pool are one run, `start` to `last`.
        let region = unsafe {
            let first_page = NonNull::new((*pool).start).ok_or(ZoneError::NoMemory)?;
            let pages = usize::try_from((*pool).last.offset_from((*pool).pages)).unwrap_or(0);
            NonNull::slice_from_raw_parts(first_page, pages.saturating_mul(ngx_pagesize))
        };
        if is_old {
            // SAFETY: the run was taken when the zone was made, and is used by tables only, those
            // of workers of the old cycle among them. The `'static` is the cycle's life: the table
            // is owned by its configuration.
            match unsafe { CounterTable::open(region, self.size) } {
                Ok(table) => return Ok(table),
                Err(error) => {
                    let message = format_args!(
                        "ratelimit_zone \"{}\": counters are lost ({error})",
                        self.name
                    );
                    Cycle::with_current(|cycle| log::error(NGX_LOG_WARN, cycle.log(), message));
                    // SAFETY: within the run that is ours.
                    unsafe { region.cast::<u8>().write_bytes(0, region.len()) };
                }
            }
        } else {
            // SAFETY: the pool is fresh, so that all its pages are one free run, and the run starts
            // at the first page.
            let run = unsafe { ngx_slab_alloc(pool, region.len()) };
            if run != region.as_ptr().cast() {
                return Err(ZoneError::NoMemory);
            }
        }
        let secret = random().map_err(ZoneError::NoEntropy)?;
        // SAFETY: as for `open`; the memory of a new zone is all zero, as that of a rebuilt one is.
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
