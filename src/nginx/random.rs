//! Random numbers, of which none has to be hard to tell.

/// A random number from 0 to `most`, a day in milliseconds at the most.
#[cold]
pub(super) fn random_up_to(most: u64) -> u64 {
    // SAFETY: it takes nothing, and nginx has seeded it for this worker.
    let random = unsafe { libc::rand() }.unsigned_abs();
    // 31 random bits: what is left of them when they are divided is even enough.
    u64::from(random).checked_rem(most.saturating_add(1)).unwrap_or(0)
}
