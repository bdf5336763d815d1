//! Configurations follow each other: entries of unused namespaces are reassigned, and no namespace
//! finds hits of its entry's former one.

use crate::policy::hits::Hits;
use crate::policy::window::{Clock, WindowSize};
use crate::table::zone::lease::HELD;
use crate::table::*;
use crate::testing::table::{SharedTable, TestClock, die_everywhere};

const T: u64 = 1_700_000_000_000;
const LIFETIME: u64 = 3000;
/// Room for 8 namespaces, and as many entries.
const SMALL: usize = 32 << 10;

struct Fixture {
    pub(super) shared: SharedTable,
    pub(super) clock: TestClock,
}

/// A namespace, as a worker of one configuration sees it.
struct Namespace<'m> {
    index: NamespaceIndex,
    counter: Counter,
    syncs: Vec<SyncState<'m>>,
}

impl Fixture {
    fn new(len: usize) -> Fixture {
        Fixture { shared: SharedTable::new(len), clock: TestClock::at(T) }
    }

    /// Reloads: begins a configuration with these namespaces and this number of shards.
    fn configure(&self, names: &[String], shards: u16) -> Option<Vec<Namespace<'_>>> {
        let table = &self.shared.table;
        table.begin_configuration(names.iter().map(|name| (name.as_bytes(), shards)));
        let namespaces = names.iter().map(|name| {
            let index = table.namespace(name.as_bytes())?;
            let counter = table.counter(index, name.as_bytes(), size());
            let syncs = match shards {
                0 => Vec::new(),
                shards => table.sync_states(index, shards)?,
            };
            Some(Namespace { index, counter: counter.synced(shards > 0), syncs })
        });
        namespaces.collect()
    }

    fn hit(&self, namespace: &Namespace<'_>, key: &[u8]) -> i64 {
        let (table, counter) = (&self.shared.table, &namespace.counter);
        let admission = Admission::Unconditional;
        let counted = table.add(counter, table.key(key), &self.clock, Hits::ONE, admission);
        table.count_outcome(counter, Outcome::Passed);
        counted.reading.windows().current.whole()
    }

    /// Returns the keys whose changes a sync of the namespace finds.
    fn changes(&self, namespace: &Namespace<'_>) -> Vec<Vec<u8>> {
        let table = &self.shared.table;
        let mut keys = Vec::new();
        for group in 0..table.change_groups() {
            let now = self.clock.now();
            table.take_changes(group, namespace.index, now, |change| keys.push(change.key));
        }
        keys.sort();
        keys
    }
}

fn size() -> WindowSize {
    WindowSize::from_millis(60_000).unwrap()
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}")).collect()
}

#[test]
fn a_zone_of_1m_has_room_for_64_namespaces_with_clusters_whatever_they_were_called() {
    let fixture = Fixture::new(1 << 20);
    let ZoneRoom { namespaces, .. } = ZoneRoom::of(1 << 20);
    assert_eq!(namespaces, 64);
    for n in 0..10 {
        let mut now = names(&format!("of {n}, "), namespaces - 1);
        now.push("stays".into());
        let configured = fixture.configure(&now, 16).unwrap();
        assert_eq!(fixture.hit(&configured[namespaces - 1], b"key"), n + 1);
        assert_eq!(fixture.hit(&configured[0], b"key"), 1);
        let mut places: Vec<_> = configured.iter().map(|it| it.index.0).collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), namespaces);
        for namespace in &configured {
            assert_eq!(namespace.syncs.len(), 16);
            let mut leases = namespace.syncs.iter().map(|sync| {
                let lease = sync.take_lease(MonotonicMillis(1000), LIFETIME)?;
                lease.release();
                Some(())
            });
            assert!(leases.all(|lease| lease.is_some()));
        }
    }
}

#[test]
fn a_configuration_without_room_is_rejected() {
    let fixture = Fixture::new(SMALL);
    assert!(fixture.configure(&names("local", 8), 0).is_some());
    assert!(fixture.configure(&names("more", 9), 0).is_none());
    let two_clusters = names("cluster", 2);
    assert!(fixture.configure(&two_clusters, 16).is_some());
    assert!(fixture.configure(&two_clusters, 17).is_none());
    // A shard that one namespace loses is available to another, in any order of the configuration.
    let table = &fixture.shared.table;
    fixture.configure(&two_clusters, 16).unwrap();
    let shards = [(two_clusters[0].as_bytes(), 31), (two_clusters[1].as_bytes(), 1)];
    table.begin_configuration(shards.into_iter());
    for (name, shards) in shards {
        let index = table.namespace(name).unwrap();
        assert!(table.sync_states(index, shards).is_some());
    }
}

#[test]
fn namespaces_of_the_previous_configuration_keep_their_places_while_there_are_others() {
    let fixture = Fixture::new(1 << 20);
    let before = fixture.configure(&names("before ", 60), 4).unwrap();
    fixture.hit(&before[0], b"key");
    let after = fixture.configure(&names("after ", 60), 4).unwrap();
    assert!(before.iter().all(|it| after.iter().all(|new| new.index != it.index)));
    // Its workers still push while they drain.
    assert!(!before[0].syncs[0].is_superseded());
    assert_eq!(fixture.changes(&before[0]), [b"key"]);
    // The former namespaces are back, with all of their counters.
    let again = fixture.configure(&names("before ", 60), 4).unwrap();
    assert_eq!(fixture.hit(&again[0], b"key"), 2);
    assert!(before[0].syncs[0].is_superseded());
}

#[test]
fn a_place_is_used_again_without_its_former_content() {
    let fixture = Fixture::new(SMALL);
    let table = &fixture.shared.table;
    let before = fixture.configure(&names("before ", 8), 1).unwrap();
    for namespace in &before {
        for n in 0..10_u8 {
            fixture.hit(namespace, &[b'a' + n]);
        }
        let lease = namespace.syncs[0].take_lease(MonotonicMillis(1000), LIFETIME);
        let lease = lease.unwrap();
        lease.enter_epoch(7).unwrap();
        lease.set_position(Some([3, 4])).unwrap();
        namespace.syncs[0].count_connects(5);
    }
    let draining = before[0].syncs[0].take_lease(MonotonicMillis(9000), LIFETIME);
    let draining = draining.unwrap();
    assert_eq!(table.keys_of(0..usize::MAX), Some(80));
    let parts = (0..).step_by(3).map_while(|place| table.keys_of(place..place + 3));
    assert_eq!(parts.sum::<u64>(), 80);

    let after = fixture.configure(&names("after ", 8), 1).unwrap();
    let heir = after.iter().find(|it| it.index == before[0].index).unwrap();
    assert_eq!(table.namespace_stats(heir.index), NamespaceStats::default());
    assert_eq!(heir.syncs[0].stats(), SyncStats::default());
    assert_eq!(table.keys_of(0..usize::MAX), Some(0));
    assert_eq!(fixture.changes(heir), Vec::<Vec<u8>>::new());

    // The sync of the former configuration has ended.
    let ended = &before[0].syncs[0];
    assert_eq!(draining.set_position(Some([5, 6])), Err(LeaseLost));
    assert!(ended.is_superseded());
    assert!(ended.take_lease(MonotonicMillis(99_000), LIFETIME).is_none());
    for namespace in &after {
        let lease = namespace.syncs[0].take_lease(MonotonicMillis(9000), LIFETIME);
        let lease = lease.unwrap();
        assert_eq!((lease.epoch(), lease.position()), (0, None));
        assert_eq!(lease.acknowledged().number, 0);
        assert_eq!(lease.sealed(table), None);
        // Workers of the former configuration may have cleared bits of its counters.
        assert_eq!(lease.repair(), Repair::FindChanges);
    }

    // A worker that drains counts separately, not for the new namespace.
    assert_eq!(fixture.hit(heir, b"a"), 1);
    assert_eq!(fixture.hit(&before[0], b"a"), 1);
    assert_eq!(fixture.hit(&before[0], b"b"), 1);
    assert_eq!(fixture.changes(heir), [b"a"]);
    table.find_changes(0..usize::MAX, heir.index, fixture.clock.now(), HELD).unwrap();
    assert_eq!(fixture.changes(heir), [b"a"]);
    assert_eq!(fixture.hit(heir, b"a"), 2);
    assert_eq!(fixture.hit(heir, b"b"), 1);
}

#[test]
fn a_process_that_dies_between_two_configurations_leaves_room_for_the_next() {
    let prepare = || {
        let fixture = Fixture::new(SMALL);
        let before = names("before ", 8);
        for namespace in fixture.configure(&before, 2).unwrap() {
            fixture.hit(&namespace, b"key");
        }
        fixture
    };
    let mut after = names("after ", 7);
    after.push("before 3".into());
    let scenario = |fixture: &Fixture| drop(fixture.configure(&after, 3).unwrap());
    let points = [
        "namespace.retired",
        "namespace.dropped",
        "namespace.cleared",
        "namespace.forgotten",
        "namespace.named",
        "sync.superseded",
        "sync.ended",
        "sync.forgotten",
        "sync.disowned",
        "sync.owned",
    ];
    die_everywhere(prepare, scenario, &points, |fixture, _| {
        let configured = fixture.configure(&after, 3).unwrap();
        for namespace in &configured[..7] {
            assert_eq!(fixture.hit(namespace, b"key"), 1);
            assert_eq!(fixture.changes(namespace), [b"key"]);
        }
        assert_eq!(fixture.hit(&configured[7], b"key"), 2);
        assert_eq!(fixture.shared.table.keys_of(0..usize::MAX), Some(8));
    });
}

#[test]
fn workers_define_a_namespace_alike_until_the_next_configuration() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    let define = |configuration, fingerprint, shards| {
        let definition = LateDefinition { configuration, fingerprint };
        let defined = table.define(b"late", definition, shards);
        defined.map(|(index, syncs)| (index, syncs.into_iter().next()))
    };
    let first = table.begin_configuration(core::iter::empty());
    let (index, one) = define(first, 5, 2).unwrap();
    let (same, other) = define(first, 5, 2).unwrap();
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(index == same && !one.is_superseded() && !other.is_superseded());
    assert_eq!(define(first, 6, 2).unwrap_err(), LateError::Differs);
    assert_eq!(define(first, 6, 0).unwrap_err(), LateError::Differs);
    assert!(!one.is_superseded());

    // A worker that drains can also define namespaces, until a newer one has.
    let second = table.begin_configuration(core::iter::empty());
    assert!(define(first, 5, 2).is_ok() && !one.is_superseded());
    assert_eq!(define(first, 7, 2).unwrap_err(), LateError::Differs);
    let (same, new) = define(second, 8, 3).unwrap();
    assert!(same == index && one.is_superseded() && other.is_superseded());
    assert_eq!(define(first, 5, 2).unwrap_err(), LateError::Differs);
    let (_, drains) = define(first, 8, 3).unwrap();
    assert!(!drains.unwrap().is_superseded() && !new.unwrap().is_superseded());

    // The other workers do not know the options in nginx.conf.
    let third = table.begin_configuration([(&b"late"[..], 3)].into_iter());
    assert_eq!(define(second, 8, 3).unwrap_err(), LateError::Superseded);
    assert_eq!(table.begin_configuration(core::iter::empty()), third + 1);
    assert!(define(third + 1, 9, 0).is_ok());
}

#[test]
fn a_definition_takes_no_place_of_the_present_configuration() {
    let fixture = Fixture::new(SMALL);
    let before = fixture.configure(&names("before ", 8), 4).unwrap();
    let table = &fixture.shared.table;
    let definition = LateDefinition { configuration: 1, fingerprint: 1 };
    let full = table.define(b"late", definition, 1).unwrap_err();
    assert_eq!(full, LateError::NoRoom);
    assert!(before.iter().all(|it| !it.syncs[0].is_superseded()));
    let configuration = table.begin_configuration([(&b"before 0"[..], 4)].into_iter());
    let definition = LateDefinition { configuration, ..definition };
    assert!(table.define(b"late", definition, 4).is_ok());
    let after = fixture.configure(&names("after ", 8), 4);
    assert!(after.is_some(), "the next one needs no place of it");
}

#[test]
fn a_process_that_dies_while_it_defines_leaves_it_to_the_next() {
    let prepare = || {
        let fixture = Fixture::new(SMALL);
        for namespace in fixture.configure(&names("before ", 8), 4).unwrap() {
            fixture.hit(&namespace, b"key");
        }
        let table = &fixture.shared.table;
        let kept = names("before ", 7);
        table.begin_configuration(kept.iter().map(|name| (name.as_bytes(), 4)));
        fixture
    };
    let define = |fixture: &Fixture, fingerprint| {
        let definition = LateDefinition { configuration: 2, fingerprint };
        let table = &fixture.shared.table;
        let defined = table.define(b"late", definition, 4);
        defined.map(|(index, syncs)| {
            let counter = table.counter(index, b"late", size()).synced(true);
            (syncs.len(), counter)
        })
    };
    let points = [
        "namespace.retired",
        "namespace.dropped",
        "namespace.named",
        "definition.begun",
        "sync.superseded",
        "sync.disowned",
        "sync.owned",
        "definition.made",
    ];
    let scenario = |fixture: &Fixture| assert!(define(fixture, 1).is_ok());
    die_everywhere(prepare, scenario, &points, |fixture, point| {
        // The dead process had not defined it, except at its last step.
        let other = define(fixture, 2);
        let expected = (point == "definition.made").then_some(LateError::Differs);
        assert_eq!(other.as_ref().err().copied(), expected, "{point}");
        let fingerprint = if other.is_ok() { 2 } else { 1 };
        let (syncs, _) = define(fixture, fingerprint).unwrap();
        assert_eq!(syncs, 4, "{point}");
    });
}
