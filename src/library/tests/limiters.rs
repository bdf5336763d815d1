//! Limiters of each kind.

use core::time::Duration;

use super::{WINDOW, instance, local, memory};
use crate::library::{LimiterOptions, NewOptions, WindowType, calendar_window};

#[test]
fn a_window_admits_the_hits_of_its_limit() {
    let instance = local();
    for window_type in
        [WindowType::Sliding, WindowType::Fixed, WindowType::Moving, WindowType::Elastic]
    {
        let options = LimiterOptions::window(3.0, WINDOW).window_type(window_type);
        let limiter = instance.limiter(&options).unwrap();
        let key = format!("{window_type:?}");
        let ask = |commit| {
            let decision = limiter.incoming(&key, commit).unwrap();
            (decision.is_admitted, decision.remaining, decision.delay)
        };
        assert_eq!(ask(false), (true, 2.0, Duration::ZERO), "{window_type:?}");
        assert_eq!(ask(true), (true, 2.0, Duration::ZERO));
        let two = limiter.incoming_hits(&key, 2.0, true).unwrap();
        assert!(two.is_admitted && two.remaining == 0.0 && two.rate == 3.0);
        let refused = limiter.incoming(&key, true).unwrap();
        assert!(!refused.is_admitted && refused.retry_after.is_some());
        assert!(!refused.uncommit(), "nothing was counted");
        assert!(two.uncommit());
        assert_eq!(ask(true), (true, 1.0, Duration::ZERO), "{window_type:?}");
        let never = limiter.incoming_hits(&key, 4.0, true).unwrap();
        assert!(!never.is_admitted && never.retry_after.is_none());
    }
}

#[test]
fn a_limiter_and_increment_share_counters() {
    let instance = local();
    let limiter = instance.limiter(&LimiterOptions::window(2.0, WINDOW));
    let limiter = limiter.unwrap();
    assert!(limiter.incoming("k", true).unwrap().is_admitted);
    let rate = instance.increment("k", WINDOW, 1.0, None, None);
    assert_eq!(rate.unwrap(), 2.0);
    assert!(!limiter.incoming("k", true).unwrap().is_admitted);
}

#[test]
fn a_rate_returns_the_delay() {
    // So slow that no hit leaks out during the test.
    let options = LimiterOptions::rate(0.001, 2.0);
    let limiter = local().limiter(&options).unwrap();
    let delays = [(); 3].map(|()| {
        let decision = limiter.incoming("k", true).unwrap();
        assert!(decision.is_admitted);
        decision.delay.as_secs()
    });
    assert_eq!(delays[0], 0);
    assert!((900..=1000).contains(&delays[1]), "{delays:?}");
    assert!((1900..=2000).contains(&delays[2]), "{delays:?}");
    let refused = limiter.incoming("k", true).unwrap();
    assert!(!refused.is_admitted && refused.delay.is_zero());
}

#[test]
fn any_thread_may_have_them() {
    fn check<T: Send + Sync>(_: &T) {}
    let instance = local();
    let limiter = instance.limiter(&LimiterOptions::rate(1.0, 0.0)).unwrap();
    check(&instance);
    check(&memory());
    check(&limiter);
    check(&limiter.incoming("k", true));
    let future = limiter.incoming_async("k", true);
    fn check_future<T: Send>(_: &T) {}
    check_future(&future);
    check_future(&instance.increment_async("k", WINDOW, 1.0, None, None));
    check_future(&instance.sync_async(None));
}

#[test]
fn a_limiter_outlives_its_instance() {
    let limiter = {
        let instance = instance();
        instance.new(&NewOptions::new(&memory())).unwrap();
        let options = LimiterOptions::window(1.0, WINDOW);
        instance.limiter(&options).unwrap()
    };
    assert!(limiter.incoming("k", true).unwrap().is_admitted);
    assert!(!limiter.incoming("k", true).unwrap().is_admitted);
}

#[test]
fn a_window_of_the_calendar_is_fixed() {
    let instance = local();
    let [month, elsewhere] =
        ["month", "month tz=Pacific/Apia"].map(|text| calendar_window(text).unwrap());
    let limiter = instance.limiter(&LimiterOptions::window(2.0, month)).unwrap();
    for (is_admitted, remaining) in [(true, 1.0), (true, 0.0), (false, 0.0)] {
        let decision = limiter.incoming("k", true).unwrap();
        assert_eq!((decision.is_admitted, decision.remaining), (is_admitted, remaining));
        // Less than 31 days and an hour are left.
        assert!(decision.retry_after.unwrap() < Duration::from_secs(31 * 86_400 + 3600));
    }
    let rate = |window| instance.increment("k", window, 1.0, None, None).unwrap();
    assert_eq!((rate(month), rate(month), rate(elsewhere)), (3.0, 4.0, 1.0));
    assert_eq!(instance.sliding_window("k", month, None, None, Some(1.0)).unwrap(), 4.0);
    let moving = LimiterOptions::window(2.0, month).window_type(WindowType::Moving);
    let error = instance.limiter(&moving).unwrap_err().to_string();
    assert!(error.contains("expected \"fixed\""), "{error}");
    for text in ["", "1d", "1month", "day tz=", "day  tz=UTC", "day tz=UTC "] {
        assert!(calendar_window(text).is_err(), "{text}");
    }
}

#[test]
fn as_many_as_the_limit_are_under_way() {
    let instance = local();
    let limiter = instance.limiter(&LimiterOptions::concurrent(2)).unwrap();
    let ask = |commit| {
        let decision = limiter.incoming("k", commit).unwrap();
        (decision.is_admitted, decision.rate)
    };
    assert_eq!([ask(true), ask(false), ask(true)], [(true, 1.0), (true, 2.0), (true, 2.0)]);
    assert_eq!(ask(true), (false, 2.0));
    assert!(limiter.leaving("k"));
    let last = limiter.incoming("k", true).unwrap();
    assert!(last.is_admitted && last.uncommit());
    assert!(limiter.leaving("k") && !limiter.leaving("k") && !limiter.leaving("other"));
    assert_eq!(ask(true), (true, 1.0));
    let wrong = instance.limiter(&LimiterOptions::concurrent(0)).unwrap_err().to_string();
    assert!(wrong.contains("a whole number from 1 to 1048575, not 0"), "{wrong}");
}
