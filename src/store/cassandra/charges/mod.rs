//! Charges of decisions. Other nodes read them before it is known whether they stay.
//!
//! - [`charger`]: writes charges; [`certainty`]: the decisions, and refusals that rest on charges
//!   that stay

pub(super) mod certainty;
pub(super) mod charger;
