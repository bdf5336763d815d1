//! Keys, costs and times, as clients and configurations may write them.
//!
//! An input is a key. It has one counted name of bounded length, which no other kind of name is.

use crate::policy::calendar::CalendarZone;
use crate::policy::hits::Hits;
use crate::policy::key::{
    BanNames, MAX_COUNTER_LEN, MAX_NAME_LEN, Shown, banned_by, counted_name, digest_in, digest_of,
    is_plain, key_and_counter, name_of_digest, told_name,
};
use crate::policy::limit::Quota;
use crate::policy::query::argument;
use crate::policy::window::{WindowSize, parse_time};

/// Names a key, and parses it as everything else that clients send.
pub fn run(key: &[u8]) {
    names(key);
    if let Ok(hits) = Hits::parse(key) {
        assert!(hits >= Hits::ZERO && hits <= Hits::MAX, "{hits:?}");
        assert_eq!(Hits::parse(hits.to_string().as_bytes()), Ok(hits));
    }
    let _ = (Quota::parse(key), Quota::meant_by(key), parse_time(key));
    if let Ok(size) = WindowSize::parse_with_zone(key) {
        assert_eq!(WindowSize::parse_with_zone(size.to_string().as_bytes()), Ok(size));
        let size = size.in_zone(CalendarZone::utc());
        assert_eq!(WindowSize::from_bits(size.bits()), Some(size));
    }
    if let Some(value) = argument(key, b"key") {
        assert!(value.len() < key.len() && !value.contains(&b'&'));
    }
}

/// Checks all names of a key.
fn names(key: &[u8]) {
    let shown = Shown(key).to_string();
    assert!(shown.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'"'), "{shown}");
    let own = counted_name(key, None);
    let digest = name_of_digest(&digest_of(key));
    assert_eq!(*own, *if is_plain(key) { key } else { &digest });
    assert_eq!((key_and_counter(&own), banned_by(&own)), ((&*own, None), None));
    assert_eq!(digest_in(&own).is_some(), !is_plain(key));
    for counter in [None, Some("c"), Some(&*"c".repeat(MAX_COUNTER_LEN))] {
        let name = counted_name(key, counter);
        let banned = BanNames::of(7).name(&name);
        assert_eq!(key_and_counter(&name), (&*own, counter.map(str::as_bytes)));
        assert_eq!(banned_by(&banned), Some((7, &*name)));
        assert!(banned.len() <= MAX_NAME_LEN && !is_plain(&banned));
        assert!(counter.is_none() || !is_plain(&name));
        let told = told_name(&name);
        assert_eq!(key_and_counter(&told).0, &*own);
        assert!(told != *name && !is_plain(&told));
    }
}
