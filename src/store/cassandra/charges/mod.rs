//! Charges of decisions. Others read them before it is known whether they stay.
//!
//! - [`charger`]: writes them; [`certainty`]: tells refusals that rest on charges that stay; [`answers`]: the decisions

pub(super) mod answers;
pub(super) mod certainty;
pub(super) mod charger;
