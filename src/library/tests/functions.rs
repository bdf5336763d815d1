//! Results of the functions, and state that instances and namespaces share.

use core::time::Duration;

use super::{WINDOW, instance, local, memory};
use crate::library::{Memory, NewError, NewOptions, new_instance};
use crate::table::words::system::uptime;

#[test]
fn hits_are_counted_and_read() {
    let instance = local();
    let increment = |value| instance.increment("k", WINDOW, value, None, Some(0.0));
    assert_eq!(increment(1.0).unwrap(), 1.0);
    assert_eq!(increment(2.5).unwrap(), 3.5);
    assert_eq!(increment(0.0).unwrap(), 3.5);
    let read = |key: &[u8], diff| instance.sliding_window(key, WINDOW, diff, None, Some(0.0));
    assert_eq!(read(b"k", None).unwrap(), 3.5);
    // None of these hits were pushed, so `cur_diff` replaces all of them.
    assert_eq!(read(b"k", Some(10.0)).unwrap(), 10.0);
    assert_eq!(read(b"k", Some(-1.0)).unwrap(), 0.0);
    assert_eq!(read(b"unseen", None).unwrap(), 0.0);
    // The previous window has no hits, whatever its weight.
    let sliding = instance.sliding_window("k", WINDOW, None, None, None);
    assert_eq!(sliding.unwrap(), 3.5);
}

#[test]
fn a_weight_is_the_share_of_the_previous_window() {
    const SHORT: Duration = Duration::from_millis(100);
    let instance = local();
    let read = |weight| {
        let rate = instance.sliding_window("k", SHORT, None, None, weight);
        rate.unwrap()
    };
    let began = uptime();
    loop {
        match [0.0, 0.25, 0.5, 1.0].map(|weight| read(Some(weight))) {
            // The hits are in the previous window now.
            [0.0, 2.5, 5.0, 10.0] => break,
            [0.0, 0.0, 0.0, 0.0] => {
                let rate = instance.increment("k", SHORT, 10.0, None, Some(1.0));
                assert_eq!(rate.unwrap(), 10.0);
            }
            _ => assert!(uptime() < began + Duration::from_secs(20)),
        }
    }
}

#[test]
fn an_instance_is_found_by_its_name_while_it_is_in_use() {
    let one = new_instance("found by its name").unwrap();
    one.new(&NewOptions::new(&memory())).unwrap();
    let same = new_instance("found by its name").unwrap();
    one.increment("k", WINDOW, 1.0, None, None).unwrap();
    assert_eq!(same.increment("k", WINDOW, 1.0, None, None).unwrap(), 2.0);
    let other = new_instance("found by another").unwrap();
    let error = other.increment("k", WINDOW, 1.0, None, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid argument \"namespace\": expected one that was defined with \"new\", not \"default\""
    );
    drop((one, same));
    let anew = new_instance("found by its name").unwrap();
    assert!(anew.increment("k", WINDOW, 1.0, None, None).is_err());
}

#[test]
fn namespaces_of_one_name_in_one_memory_share_counters() {
    let memory = memory();
    let [one, other] = [instance(), instance()];
    for instance in [&one, &other] {
        for name in ["a", "b"] {
            let options = NewOptions::new(&memory).namespace(name);
            instance.new(&options).unwrap();
            let error = instance.new(&options).unwrap_err();
            assert!(error.to_string().starts_with("invalid argument \"namespace\""));
        }
    }
    let increment = |instance: &super::Instance, name| {
        instance.increment("k", WINDOW, 1.0, Some(name), None).unwrap()
    };
    assert_eq!([increment(&one, "a"), increment(&other, "a")], [1.0, 2.0]);
    assert_eq!(increment(&one, "b"), 1.0);
}

#[test]
fn windows_are_those_of_the_namespace() {
    let instance = instance();
    let options = NewOptions::new(&memory()).window_sizes([WINDOW]);
    instance.new(&options).unwrap();
    assert!(instance.increment("k", WINDOW, 1.0, None, None).is_ok());
    let error = instance.increment("k", WINDOW / 2, 1.0, None, None);
    assert_eq!(
        error.unwrap_err().to_string(),
        "invalid argument \"window_size\": expected one of the window_sizes of namespace \"default\" \
         (366d), not 183d"
    );
}

#[test]
fn the_number_of_namespaces_in_a_memory_is_limited() {
    let instance = instance();
    let memory = Memory::heap(64 << 10).unwrap();
    let new = |n: u32| instance.new(&NewOptions::new(&memory).namespace(n.to_string()));
    let error = (0..10_000).find_map(|n| new(n).err()).unwrap();
    assert!(matches!(error, NewError::NoRoom(_)), "{error}");
    // Existing counters still count.
    let rate = instance.increment("k", WINDOW, 1.0, Some("0"), None);
    assert_eq!(rate.unwrap(), 1.0);
}

#[test]
fn threads_count_every_hit() {
    const THREADS: u32 = 4;
    const HITS: u32 = 1000;
    let instance = local();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..HITS {
                    instance.increment("k", WINDOW, 1.0, None, None).unwrap();
                }
            });
        }
    });
    let rate = instance.sliding_window("k", WINDOW, None, None, Some(0.0));
    assert_eq!(rate.unwrap(), f64::from(THREADS * HITS));
}
