//! Charges of decisions. Other nodes read them before it is known whether they stay.
//!
//! - [`charger`]: writes charges; [`certainty`]: finds refusals that rest on charges that stay;
//!   [`answers`]: the decisions

pub(super) mod answers;
pub(super) mod certainty;
pub(super) mod charger;
