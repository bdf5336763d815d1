//! Random arguments.

use core::time::Duration;

use super::WINDOW;

/// A generator of random arguments. `SEED=... cargo test` repeats a failed test.
pub(super) struct Anything(u64);

impl Anything {
    pub(super) fn new() -> Anything {
        let seed = std::env::var("SEED").ok().and_then(|it| it.parse().ok());
        let seed = seed.unwrap_or_else(|| std::process::id().into());
        println!("SEED={seed}");
        Anything(seed)
    }

    pub(super) fn bits(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        self.bits() as usize % count
    }

    pub(super) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// Returns a value in some cases.
    pub(super) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.bits().is_multiple_of(2).then(|| make(self))
    }

    pub(super) fn number(&mut self) -> f64 {
        let usual = (self.bits() % 100) as f64 / 4.0;
        let any = f64::from_bits(self.bits());
        let edges = [usual, usual, any, f64::NAN, f64::INFINITY, -0.0, 1e18, -3.0];
        self.of(&edges)
    }

    pub(super) fn time(&mut self) -> Duration {
        let any = Duration::new(self.bits(), (self.bits() % 1_000_000_000) as u32);
        let usual = Duration::from_millis(self.bits() % 100_000);
        self.of(&[usual, usual, any, Duration::ZERO, Duration::MAX, WINDOW])
    }

    pub(super) fn key(&mut self) -> Vec<u8> {
        let len = self.bits() % 300;
        let any = (0..len).map(|_| self.bits() as u8).collect();
        self.of(&[any, b"k".to_vec(), Vec::new(), vec![b'k'; 70_000]])
    }

    /// Returns the name of a namespace, or an invalid one.
    pub(super) fn name(&mut self) -> String {
        let len = self.below(80);
        let any: Vec<u8> = (0..len).map(|_| self.bits() as u8).collect();
        let any = String::from_utf8_lossy(&any).into_owned();
        match self.below(4) {
            0 => any,
            1 => ["", "off", "a b", "\u{0}", "ä"][self.below(5)].into(),
            _ => ["default", "other", "third"][self.below(3)].into(),
        }
    }
}
