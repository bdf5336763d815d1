//! The names of counters and levels, as they follow a prefix and an epoch.

use crate::policy::window::WindowSize;
use crate::store::decide::asked::AskedPlace;

/// A counter: size and number of its window, and its key.
pub(crate) type CounterId<'a> = (WindowSize, u64, &'a [u8]);

/// Returns the prefix of a window's counters.
pub(crate) fn window(size: WindowSize, window: u64) -> String {
    format!("c/{}/{window}/", size.bits())
}

pub(crate) fn counter((size, number, key): CounterId<'_>) -> Vec<u8> {
    [window(size, number).as_bytes(), key].concat()
}

pub(crate) fn level(place: &AskedPlace<'_>) -> Vec<u8> {
    let prefix = format!("l/{}/{:x}/", place.kind.wire_id(), place.measure);
    [prefix.as_bytes(), place.key].concat()
}

/// Returns the name of change `number`, in the order of the numbers.
pub(crate) fn change(number: u64) -> String {
    format!("d/{number:016x}")
}
