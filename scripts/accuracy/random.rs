//! Random numbers that are the same on every machine: integers only, since logarithms are not.

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from 0 to `end`, which is not one of them.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// An exponentially distributed number: a gap between two arrivals of a Poisson process.
    ///
    /// By von Neumann's method, which only compares: the first of a descending run of random
    /// numbers is the fraction, if the run's length is odd; each run of even length adds 1.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0;
        loop {
            let first = self.bits();
            let (mut last, mut length) = (first, 1);
            loop {
                let next = self.bits();
                if next > last {
                    break;
                }
                (last, length) = (next, length + 1);
            }
            if length % 2 == 1 {
                let fraction = (u128::from(first) * u128::from(mean)) >> 64;
                return whole * mean + fraction as u64;
            }
            whole += 1;
        }
    }
}
