//! Early pushes: which counters are pushed before the period of their sync is over.
//!
//! - [`near`]: counters near their limits; [`near_look`]: how fast they grow
//! - [`due`]: wakes the worker that pushes

pub(super) mod due;
pub(super) mod near;
pub(super) mod near_look;
