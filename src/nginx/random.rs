//! Random numbers that need not be unpredictable.

/// Returns a random number from 0 to `most`, which is at most a day in milliseconds.
#[cold]
pub(super) fn random_up_to(most: u64) -> u64 {
    // SAFETY: `rand` has no arguments, and nginx has seeded it for this worker.
    let random = unsafe { libc::rand() }.unsigned_abs();
    // Of 31 random bits, the remainder is uniform enough.
    u64::from(random).checked_rem(most.saturating_add(1)).unwrap_or(0)
}
