//! Wrong arguments: the error names the argument, and nothing else happens.

use core::fmt;
use core::time::Duration;
use std::time::SystemTime;

use super::{WINDOW, instance, local, memory};
use crate::library::{Datastore, LimiterOptions, NewOptions, OnError, WindowType, new_instance};

#[track_caller]
pub(super) fn assert_names<T: fmt::Debug>(result: Result<T, impl fmt::Display>, argument: &str) {
    let message = result.unwrap_err().to_string();
    let start = format!("invalid argument \"{argument}\": expected ");
    assert!(message.starts_with(&start), "{message}");
}

#[test]
fn an_error_names_the_argument() {
    let it = local();
    let increment = |key: &str, size, value, name, weight| {
        it.increment(key, Duration::from_millis(size), value, name, weight)
    };
    assert_names(increment("", 1000, 1.0, None, None), "key");
    assert_names(increment("", 1000, 1.0, None, None), "key");
    assert_names(increment("k", 0, 1.0, None, None), "window_size");
    assert_names(increment("k", u64::MAX, 1.0, None, None), "window_size");
    for value in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        assert_names(increment("k", 1000, value, None, None), "value");
        assert_names(increment("k", 1000, 1.0, None, Some(value)), "weight");
    }
    for name in ["", "off", "a b", "unknown", "ä", "a\0", &"x".repeat(65)] {
        assert_names(increment("k", 1000, 1.0, Some(name), None), "namespace");
        assert_names(it.sync(Some(name)), "namespace");
        assert_names(it.fetch(Some(name), SystemTime::UNIX_EPOCH, None), "namespace");
    }
    let diff = |diff| it.sliding_window("k", WINDOW, Some(diff), None, None);
    assert_names(diff(f64::NAN), "cur_diff");
    assert_names(diff(f64::NEG_INFINITY), "cur_diff");
    let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    assert_names(it.fetch(None, early, None), "time");
    let fetch = it.fetch(None, SystemTime::UNIX_EPOCH, Some(Duration::MAX));
    assert_names(fetch, "timeout");
    assert_names(new_instance(""), "instance_name");
    assert_names(new_instance(&"x".repeat(257)), "instance_name");
    // The namespace is not synced, so there is nothing to do.
    assert!(it.sync(None).is_ok());
}

#[test]
fn an_option_is_named() {
    let it = instance();
    let (memory, second) = (memory(), Duration::from_secs(1));
    let store = || Datastore::new("redis", []).unwrap();
    let options = || NewOptions::new(&memory);
    assert_names(it.new(&options().namespace("off")), "namespace");
    let sizes = options().window_sizes([second, Duration::ZERO]);
    assert_names(it.new(&sizes), "window_sizes");
    assert_names(it.new(&options().sync_rate(second)), "strategy");
    assert_names(it.new(&options().strategy(store())), "sync_rate");
    let synced = options().strategy(store()).sync_rate(second);
    assert_names(it.new(&synced), "window_sizes");
    let synced = || options().strategy(store()).window_sizes([second]);
    for period in [Duration::from_nanos(1), Duration::MAX] {
        assert_names(it.new(&synced().sync_rate(period)), "sync_rate");
    }
    let periodic = || synced().sync_rate(second);
    assert_names(it.new(&periodic().timeout(second)), "timeout");
    assert_names(it.new(&periodic().on_error(OnError::Deny)), "on_error");
    assert_names(it.new(&options().timeout(second)), "timeout");
    for share in [-0.02, 0.0009, 0.51, f64::NAN] {
        assert_names(it.new(&periodic().sync_early(share)), "sync_early");
    }
    assert_names(it.new(&options().sync_early(0.02)), "sync_early");
    let synchronous = || synced().sync_rate(Duration::ZERO);
    assert_names(it.new(&synchronous().sync_early(0.0)), "sync_early");
    for timeout in [Duration::ZERO, Duration::from_micros(999), 61 * second] {
        assert_names(it.new(&synchronous().timeout(timeout)), "timeout");
    }
    it.new(&options()).unwrap();
    for limit in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_names(it.limiter(&LimiterOptions::window(limit, second)), "limit");
        assert_names(it.limiter(&LimiterOptions::rate(limit, 0.0)), "rate");
    }
    let moving = |limit| LimiterOptions::window(limit, second).window_type(WindowType::Moving);
    assert!(it.limiter(&moving(100_000.0)).is_ok());
    assert_names(it.limiter(&moving(100_000.001)), "limit");
    assert_names(it.limiter(&LimiterOptions::rate(1.0, -1.0)), "burst");
    let window = LimiterOptions::window(1.0, Duration::ZERO);
    assert_names(it.limiter(&window), "window");
    let elsewhere = LimiterOptions::rate(1.0, 0.0).namespace("elsewhere");
    assert_names(it.limiter(&elsewhere), "namespace");
    let error = Datastore::new("redis", [("server", "a b")]).unwrap_err();
    assert!(error.to_string().starts_with("invalid server"), "{error}");
    let missing = [("tls", "on"), ("tls_trusted_certificate", "/no/such/file")];
    let error = Datastore::new("redis", missing).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}
