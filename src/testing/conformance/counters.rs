//! Tests of counts and their lifetimes.

use super::*;
use crate::policy::calendar::{CalendarUnit, CalendarZone};

pub async fn all_counters_are_read_in_pages_while_others_write<F: Fixture>(fixture: &F) {
    let [mut reader, mut writer] = nodes(fixture).await;
    let key = |number: usize| format!("key {number}");
    for first in (0..5000).step_by(500) {
        let keys = first..first + 500;
        writer.push(keys.map(|number| hits(&key(number), 1)).collect()).await;
    }
    let (mut seen, mut pages) = (BTreeMap::new(), 0);
    let mut next = Some(Default::default());
    while let Some(step) = next {
        let windows = [(MINUTE, 6), (MINUTE, 7)];
        let page = reader.store.get_counters(&reader.shard, reader.epoch, &windows, step);
        let (counts, step) = page.await.unwrap();
        assert!(counts.len() < 2500, "{}", counts.len());
        next = step;
        pages += 1;
        for count in counts {
            assert!((1..=100).contains(&count.total.whole()));
            seen.insert(count.key, count.total);
        }
        let old = (0..100).map(|number| hits(&key(number * 50), 1));
        let new = (0..400).map(|number| hits(&format!("new {pages} {number}"), 1));
        writer.push(old.chain(new).collect()).await;
    }
    assert!(pages > 3 && pages < 90, "{pages}");
    for number in 0..5000 {
        assert!(seen.contains_key(key(number).as_bytes()), "{number}");
    }
}

pub async fn only_counters_of_the_requested_windows_are_read<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    let in_window = |key, size, window| Diff { size, window, ..hits(key, 1) };
    let diffs = vec![
        in_window("a", MINUTE, 6),
        in_window("b", MINUTE, 7),
        in_window("c", MINUTE, 8),
        in_window("d", HOUR, 7),
    ];
    node.push(diffs).await;
    let all = node.read_all(&[(MINUTE, 6), (MINUTE, 9), (HOUR, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 1), ("d", 1)]));
    assert!(node.read_all(&[]).await.is_empty());
    let find = |key: &[u8]| all.iter().find(|count| count.key == key).unwrap();
    assert_eq!((find(b"a").size, find(b"a").window), (MINUTE, 6));
    assert_eq!((find(b"d").size, find(b"d").window), (HOUR, 7));
}

pub async fn windows_of_the_calendar_are_windows_as_others<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let zones = ["UTC", "Pacific/Apia", "America/New_York"];
    let zones = zones.map(|name| CalendarZone::named(name.as_bytes()).unwrap());
    let sizes = CalendarUnit::ALL.into_iter();
    let sizes = sizes.flat_map(|unit| zones.map(|zone| WindowSize::of_calendar(unit, zone)));
    let in_window = |(index, size): (usize, WindowSize)| Diff {
        size,
        window: 677,
        ..hits(&format!("{index}"), 1 + index as i64)
    };
    let diffs: Vec<_> = sizes.enumerate().map(in_window).collect();
    one.push(diffs.clone()).await;
    two.push(diffs.clone()).await;
    let windows: Vec<_> = diffs.iter().map(|it| (it.size, it.window)).collect();
    let all = two.read_all(&windows).await;
    assert_eq!(all.len(), diffs.len());
    for diff in &diffs {
        let count = all.iter().find(|count| count.key == diff.key).unwrap();
        assert_eq!((count.size, count.window), (diff.size, diff.window));
        assert_eq!(count.total, diff.diff.plus(diff.diff));
        let total = two.store.get_window(&shard("api"), &diff.key, diff.size, diff.window).await;
        assert_eq!(total, Ok(count.total));
    }
    let one_window = [windows[5]];
    assert_eq!(two.read_all(&one_window).await.len(), 1);
}

pub async fn decimals_and_large_totals_are_exact<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let large = 100_000_000_000_000;
    let diffs = vec![thousandths(b"small", 1), thousandths(b"large", large)];
    one.push(diffs.clone()).await;
    let seen = two.push(diffs).await;
    let total = |key: &[u8], counts: &[Count]| {
        let count = counts.iter().find(|count| count.key == key);
        count.unwrap().total.thousandths()
    };
    assert_eq!(total(b"small", &seen), 2);
    // Two times 10^11 is more than the largest total.
    assert_eq!(total(b"large", &seen), Hits::MAX.thousandths());
    one.push(vec![thousandths(b"large", 1 - large)]).await;
    let seen = two.fetch().await;
    assert_eq!(total(b"large", &seen), large + 1);
    let all = two.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(total(b"large", &all), large + 1);
    assert_eq!(two.total(b"large").await.thousandths(), large + 1);
    assert_eq!(two.total(b"small").await.thousandths(), 2);
}

pub async fn diffs_may_be_negative<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![thousandths(b"a", 2_500)]).await;
    one.push(vec![thousandths(b"a", -1_250), thousandths(b"b", -1)]).await;
    let seen = two.fetch().await;
    let mut thousandths: Vec<_> = seen.iter().map(|c| c.total.thousandths()).collect();
    thousandths.sort();
    assert_eq!(thousandths, [-1, 1_250]);
}

pub async fn any_bytes_are_a_key<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let mut keys: Vec<Vec<u8>> = vec![
        b"\0".to_vec(),
        b"a\0b".to_vec(),
        b"line\r\nline\n".to_vec(),
        b"{}:7:{x}".to_vec(),
        b"12".to_vec(),
        b" ".to_vec(),
        (0..=255).collect(),
        vec![b'x'; 65535],
    ];
    keys.sort();
    let diffs: Vec<_> = keys.iter().map(|key| thousandths(key, 1000)).collect();
    one.push(diffs).await;
    let sorted = |counts: Vec<Count>| {
        let mut keys: Vec<_> = counts.into_iter().map(|count| count.key).collect();
        keys.sort();
        keys
    };
    assert!(sorted(two.fetch().await) == keys);
    assert!(sorted(two.read_all(&[(MINUTE, 7)]).await) == keys);
    for key in keys {
        assert_eq!(two.total(&key).await, Hits::ONE);
    }
}

pub async fn ended_windows_go_away_and_the_epoch_stays<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    // So long that it is read before it ends, even on a busy machine.
    let short = Diff { window: 6, expires_in: Duration::from_secs(2), ..hits("short", 1) };
    node.push(vec![short, hits("long", 1)]).await;
    let windows = [(MINUTE, 6), (MINUTE, 7)];
    assert_eq!(node.read_all(&windows).await.len(), 2);
    let gone = async {
        while node.read_all(&windows).await.len() == 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = crate::policy::window::UnixMillis(u64::MAX / 2);
            let _ = node.store.purge(&node.shard, now).await.unwrap();
        }
    };
    let deadline = Duration::from_secs(20);
    tokio::time::timeout(deadline, gone).await.expect("purged");
    let all = node.read_all(&windows).await;
    assert_eq!(totals(&all), pairs(&[("long", 1)]));
    // A push for a window that is gone does no harm.
    node.push(vec![hits("long", 1)]).await;
}

pub async fn namespaces_shards_sizes_and_windows_do_not_mix<F: Fixture>(fixture: &F) {
    let mut nodes = Vec::new();
    for namespace in ["api", "api.1", "API", "a-p_i"] {
        nodes.push(Node::join(fixture.connect(), shard(namespace)).await);
    }
    let other_shard = Shard { number: 1, ..shard("api") };
    nodes.push(Node::join(fixture.connect(), other_shard).await);
    for (index, node) in nodes.iter_mut().enumerate() {
        let index = index as i64;
        let hour = Diff { size: HOUR, ..hits("a", 100 + index) };
        let next = Diff { window: 8, ..hits("a", 200 + index) };
        node.push(vec![hits("a", index), hour, next]).await;
    }
    for (index, node) in nodes.iter_mut().enumerate() {
        let index = index as i64;
        for (size, window, expected) in
            [(MINUTE, 7, index), (HOUR, 7, 100 + index), (MINUTE, 8, 200 + index), (HOUR, 8, 0)]
        {
            let total = node.store.get_window(&node.shard, b"a", size, window);
            assert_eq!(total.await.unwrap().whole(), expected);
        }
        assert!(told(node.send(node.number, vec![]).await).is_empty());
    }
}
