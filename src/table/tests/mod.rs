//! Tests of the table. Time is simulated.

#[cfg(all(test, not(loom)))]
mod bucket;
#[cfg(all(test, not(loom)))]
mod counting;
#[cfg(all(test, not(loom)))]
mod crash;
#[cfg(all(test, not(loom)))]
mod directory;
#[cfg(all(test, not(loom)))]
mod level;
#[cfg(all(test, not(loom)))]
mod log;
#[cfg(all(test, loom))]
pub(crate) mod loom;
#[cfg(all(test, not(loom)))]
mod memory;
#[cfg(all(test, not(loom)))]
mod near;
#[cfg(all(test, loom))]
mod near_loom;
#[cfg(all(test, not(loom)))]
mod own_share;
#[cfg(all(test, not(loom)))]
mod reserve;
#[cfg(all(test, loom))]
mod reserve_loom;
#[cfg(all(test, not(loom)))]
mod reset;
#[cfg(all(test, not(loom)))]
mod sketch;
#[cfg(all(test, not(loom)))]
mod stress;
#[cfg(all(test, not(loom)))]
mod sync;
