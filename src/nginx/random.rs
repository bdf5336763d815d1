//! Random numbers.

/// 128 unpredictable bits.
pub(super) fn random() -> Result<[u64; 2], std::io::Error> {
    let mut words = [0_u64; 2];
    // SAFETY: the buffer is as long as is said.
    let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), size_of_val(&words), 0) };
    if usize::try_from(got) == Ok(size_of_val(&words)) {
        Ok(words)
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// A random number from 0 to `most`, a day in milliseconds at the most.
#[cold]
pub(super) fn random_up_to(most: u64) -> u64 {
    // SAFETY: it takes nothing, and nginx has seeded it for this worker.
    let random = unsafe { libc::rand() }.unsigned_abs();
    // 31 random bits: what is left of them when they are divided is even enough.
    u64::from(random)
        .checked_rem(most.saturating_add(1))
        .unwrap_or(0)
}
