//! Functions with random arguments return an error that names one of them, or the right result.

use core::fmt;
use core::time::Duration;
use std::time::SystemTime;

use super::anything::Anything;
use super::{WINDOW, instance, local, memory, wait_until};
use crate::library::{
    CallError, Datastore, Instance, LimiterOptions, Memory, NewError, NewOptions, OnError,
    RateLimiter, WindowType, new_instance,
};

const WINDOW_TYPES: [WindowType; 4] =
    [WindowType::Sliding, WindowType::Fixed, WindowType::Elastic, WindowType::Moving];

/// Returns a store that does not exist.
fn no_store() -> Datastore {
    let server = ("server", "unix:/there/is/no/such/socket");
    Datastore::new("redis", [server]).unwrap()
}

/// Creates an instance whose store should decide but does not answer.
fn undecided(on_error: OnError) -> Instance {
    let instance = instance();
    let options = NewOptions::new(&memory()).window_sizes([WINDOW, Duration::from_millis(1)]);
    let options = options.sync_rate(Duration::ZERO).strategy(no_store());
    instance.new(&options.on_error(on_error)).unwrap();
    instance
}

#[track_caller]
fn assert_names_one(error: &impl fmt::Display) {
    let message = error.to_string();
    assert!(message.starts_with("invalid argument \""), "{message}");
    assert!(message.contains("expected") && message.len() < 1000, "{message}");
}

/// Returns whether the result is a number.
#[track_caller]
fn is_rate(rate: Result<f64, CallError>) -> bool {
    match rate {
        Ok(rate) => {
            assert!(rate.is_finite() && rate >= 0.0, "{rate}");
            return true;
        }
        Err(CallError::NoAnswer) => {}
        Err(error) => assert_names_one(&error),
    }
    false
}

fn limiter(any: &mut Anything, it: &Instance) -> Option<RateLimiter> {
    let options = match any.below(2) {
        0 => {
            let size = any.maybe(Anything::time).unwrap_or(WINDOW);
            let options = LimiterOptions::window(any.number(), size);
            options.window_type(any.of(&WINDOW_TYPES))
        }
        _ => LimiterOptions::rate(any.number(), any.number()),
    };
    let options = match any.maybe(Anything::name) {
        Some(name) => options.namespace(name),
        None => options,
    };
    match it.limiter(&options) {
        Ok(limiter) => Some(limiter),
        Err(error) => {
            assert_names_one(&error);
            None
        }
    }
}

#[test]
fn functions_that_count_and_read_accept_random_arguments() {
    let mut any = Anything::new();
    let all = [OnError::Local, OnError::Allow, OnError::Deny].map(undecided);
    for it in [local()].iter().chain(&all) {
        let (mut rates, mut decisions) = (0, 0);
        for _ in 0..10_000 {
            let (key, name) = (any.key(), any.maybe(Anything::name));
            let size = any.maybe(Anything::time).unwrap_or(WINDOW);
            let (name, weight) = (name.as_deref(), any.maybe(Anything::number));
            let diff = any.maybe(Anything::number);
            let value = any.number();
            rates += u32::from(is_rate(it.increment(&key, size, value, name, weight)));
            rates += u32::from(is_rate(it.sliding_window(&key, size, diff, name, weight)));
            let Some(limiter) = limiter(&mut any, it) else {
                continue;
            };
            let (cost, commit) = (any.number(), any.bits().is_multiple_of(2));
            match limiter.incoming_hits(&key, cost, commit) {
                Ok(decision) => {
                    assert!(decision.remaining >= 0.0 && decision.rate >= 0.0);
                    decisions += 1;
                    if any.bits().is_multiple_of(2) {
                        decision.uncommit();
                    }
                }
                Err(CallError::NoAnswer) => decisions += 1,
                Err(error) => assert_names_one(&error),
            }
        }
        assert!(rates > 100 && decisions > 20, "{rates}, {decisions}");
    }
}

fn options(any: &mut Anything, memory: &Memory, store: &Datastore) -> NewOptions {
    let mut options = NewOptions::new(memory);
    if let Some(name) = any.maybe(Anything::name) {
        options = options.namespace(name);
    }
    if let Some(count) = any.maybe(|any| any.below(4)) {
        options = options.window_sizes((0..count).map(|_| any.time()));
    }
    if let Some(period) = any.maybe(Anything::time) {
        options = options.sync_rate(period).strategy(store.clone());
    }
    if any.below(8) == 0 {
        options = options.timeout(any.time());
    }
    if any.below(8) == 0 {
        options = options.sync_early(any.number());
    }
    if any.below(8) == 0 {
        options = options.on_error(OnError::Deny);
    }
    options
}

#[test]
fn functions_that_define_and_sync_accept_random_arguments() {
    let mut any = Anything::new();
    let store = no_store();
    let mut defined = 0;
    for _ in 0..30 {
        let length = any.of(&[0, 1, 256, 257, 100_000]);
        let name = "x".repeat(length);
        let it = match new_instance(&name) {
            Ok(it) => it,
            Err(error) => {
                assert_names_one(&error);
                instance()
            }
        };
        let memory = memory();
        for _ in 0..40 {
            match it.new(&options(&mut any, &memory, &store)) {
                Ok(()) => defined += 1,
                Err(NewError::NoRoom(_)) => {}
                Err(error) => assert_names_one(&error),
            }
            let (name, time) = (any.maybe(Anything::name), any.time());
            let name = name.as_deref();
            let timeout = any.maybe(Anything::time);
            let since = SystemTime::UNIX_EPOCH.checked_add(time);
            let before = SystemTime::UNIX_EPOCH.checked_sub(time);
            let time = any.of(&[since, before]).unwrap_or(SystemTime::UNIX_EPOCH);
            for result in [it.sync(name), it.fetch(name, time, timeout)] {
                match result {
                    Ok(_) | Err(CallError::Sync(_)) => {}
                    Err(error) => assert_names_one(&error),
                }
            }
        }
    }
    assert!(defined > 30, "{defined}");
}

#[test]
fn memories_and_stores_accept_random_arguments() {
    let mut any = Anything::new();
    // Less than a table needs, or more than a process can allocate.
    for bytes in [0, 1, 4096, 1 << 46, 1 << 62, isize::MAX as usize, usize::MAX] {
        for error in [Memory::heap(bytes), Memory::memfd(bytes)].map(Result::unwrap_err) {
            assert!(!error.to_string().is_empty());
        }
    }
    assert!(Memory::file("/", 1 << 20).is_err() && Memory::file("", 1 << 20).is_err());
    assert!(Memory::file("/dev/null", 1 << 20).is_err());
    for _ in 0..5000 {
        let (strategy, directive, word) = (any.name(), any.name(), any.name());
        let strategy = any.of(&["redis", "postgres", "cassandra", &strategy]);
        let directives = ["server", "timeout", "tls", "password", "cluster", "table", &directive];
        let directive = any.of(&directives);
        let word = any.of(&["on", "0", "-1", "1e9", "[::1]:0", "nan", &word]);
        match Datastore::new(strategy, [(directive, word), ("prefix", "p")]) {
            Ok(_) => {}
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn a_future_that_is_dropped_leaves_others_alone() {
    let it = undecided(OnError::Local);
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    for _ in 0..100 {
        let future = it.increment_async("k", WINDOW, 1.0, None, None);
        let _ = core::pin::pin!(future).poll(&mut context);
    }
    wait_until(|| it.increment("k", WINDOW, 1.0, None, None).is_ok());
}
