//! The number and the lifetime of the keys in the server.

use super::*;

#[test]
fn the_stream_of_changes_is_bounded() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let mut late = join(server.tcp()).await;
        let mut last = join(server.tcp()).await;
        // 40 MB: many small batches, and then large ones.
        for round in 0..2000 {
            node.push(vec![hits(&format!("{round}"), 1)]).await;
        }
        let large = |round: usize| {
            let keys = (0..8).map(|key| format!("{:04000}", round % 10 * 8 + key));
            keys.map(|key| hits(&key, 1)).collect()
        };
        for round in 0..1250 {
            if round == 1240 {
                last.position = node.position;
            }
            node.push(large(round)).await;
        }
        let stream = format!("{SHARD}:{}:s", node.epoch);
        let used: i64 = server.ask(&["MEMORY", "USAGE", &stream, "SAMPLES", "0"]).unwrap();
        assert!((10_000_000..25_000_000).contains(&used), "{used}");
        // The small ones were first, and are dropped.
        let length: i64 = server.ask(&["XLEN", &stream]).unwrap();
        assert!(length < 1000, "{length}");
        behind(&late.send(0, vec![]).await);
        late.position = None;
        let mut seen = 0;
        loop {
            let (counts, position, has_more) = since(last.send(0, vec![]).await);
            seen += counts.len();
            last.position = Some(position);
            if !has_more {
                break;
            }
        }
        assert_eq!(seen, 80);
    });
}

#[test]
fn the_shard_outlives_its_counts() {
    let server = Server::start(&[]);
    let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let counts = format!("{SHARD}:{}:60000:7", node.epoch);
        let stream = format!("{SHARD}:{}:s", node.epoch);
        let left = |key: &str| server.ask::<i64>(&["PTTL", key]).unwrap();
        assert!(left(SHARD) > 3_500_000 && left(&stream) > 3_500_000);
        // Expiry times are extended, and never shortened.
        for (expires_in, expected) in [(1, 1), (10, 10), (2, 10)] {
            let diff = Diff { expires_in: days(expires_in), ..hits("a", 1) };
            node.push(vec![diff]).await;
            let expected = i64::try_from(days(expected).as_millis()).unwrap();
            assert!((expected - 30_000..=expected).contains(&left(&counts)));
            assert!(left(SHARD) > expected && left(&stream) > expected);
        }
        // A shard lives as long as nodes ask.
        for key in [SHARD, &stream] {
            let _: i64 = server.ask(&["PEXPIRE", key, "60000"]).unwrap();
        }
        node.fetch().await;
        assert!(left(SHARD) > 3_500_000 && left(&stream) > 3_500_000);

        let keys: Vec<String> = server.ask(&["KEYS", "*"]).unwrap();
        assert!(keys.iter().all(|key| key.starts_with(SHARD)), "{keys:?}");
    });
}

#[test]
fn nodes_that_are_gone_are_forgotten_as_others_come() {
    let server = Server::start(&[]);
    let nodes_known = || {
        let fields: Vec<String> = server.ask(&["HKEYS", SHARD]).unwrap();
        fields.iter().filter(|field| field.starts_with("b:")).count()
    };
    block_on(async {
        let mut node = join(server.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        // A row of an older version, without an expiry time.
        let _: i64 = server.ask(&["HSET", SHARD, "b:old", "17"]).unwrap();
        let field = format!("b:{}", node.id);
        let known: String = server.ask(&["HGET", SHARD, &field]).unwrap();
        let until: i64 = known.split_once(' ').unwrap().1.parse().unwrap();
        let time: Vec<String> = server.ask(&["TIME"]).unwrap();
        let now = time[0].parse::<i64>().unwrap() * 1000;
        let expected = now + 86_400_000 + 120_000;
        assert!((expected - 30_000..expected + 30_000).contains(&until), "{until}");
        // A shorter life does not shorten a longer one.
        let short = Diff { expires_in: Duration::from_secs(1), ..hits("a", 1) };
        node.push(vec![short]).await;
        let known: String = server.ask(&["HGET", SHARD, &field]).unwrap();
        assert!(known.ends_with(&format!(" {until}")), "{known}");

        for n in 0..1000 {
            let _: i64 = server
                .ask(&["HSET", SHARD, &format!("b:{n:032x}"), "16777217 1700000000000"])
                .unwrap();
        }
        assert_eq!(nodes_known(), 1002);
        for _ in 0..200 {
            let mut new = join(server.tcp()).await;
            new.push(vec![hits("a", 1)]).await;
            if nodes_known() < 250 {
                break;
            }
        }
        assert!(nodes_known() < 250, "{}", nodes_known());
        let old: String = server.ask(&["HGET", SHARD, "b:old"]).unwrap();
        assert_eq!(old, "17");
        assert_eq!(node.fetch().await.len(), 1);

        // An expired node is unknown, even before it is removed.
        let gone = format!("{} 1700000000000", BatchId::new(2, 0xab_cdef).0);
        let _: i64 = server.ask(&["HSET", SHARD, &field, &gone]).unwrap();
        assert_eq!(node.send(2, vec![]).await, Pushed::Forgotten);
        node.number = 0;
        node.push(vec![hits("b", 1)]).await;
        node.push(vec![hits("b", 1)]).await;
    });
}

#[test]
fn many_living_nodes_are_counted_seldom() {
    let server = Server::start(&[]);
    let living = format!("{SHARD}:l");
    let tell = |till: &str| {
        for n in 0..500 {
            let _: i64 = server.ask(&["HSET", &living, &format!("{n:032x}"), till]).unwrap();
        }
    };
    let counts = || -> usize {
        let statistics: String = server.ask(&["INFO", "commandstats"]).unwrap();
        let (_, calls) = statistics.split_once("cmdstat_hscan:calls=").expect("counted");
        calls.split_once(',').unwrap().0.parse().unwrap()
    };
    block_on(async {
        let time: Vec<String> = server.ask(&["TIME"]).unwrap();
        tell(&format!("{}000", time[0].parse::<u64>().unwrap() + 600));
        let mut nodes = Vec::new();
        // They are new, so nobody expects the number of an earlier count.
        for number in 501..=520 {
            let mut node = join(server.tcp()).await;
            assert_eq!(say(&mut node, 600).await, Some(number));
            nodes.push(node);
        }
        for node in &mut nodes {
            for _ in 0..20 {
                assert_eq!(say(node, 600).await, Some(520));
            }
        }
        let times = counts();
        assert!(times < 100, "{times}");
        for number in (501..520).rev() {
            assert_eq!(say(&mut nodes.pop().unwrap(), 0).await, Some(number));
        }
        // All others die.
        tell("1");
        let mut last = nodes.pop().unwrap();
        let alone = async { while say(&mut last, 600).await != Some(1) {} };
        tokio::time::timeout(Duration::from_secs(30), alone).await.expect("counted again");
    });
}

#[test]
fn a_life_that_no_node_has_counts_for_none() {
    let server = Server::start(&[]);
    for (n, till) in ["9999999999999999", "1e300", "inf", "nan"].iter().enumerate() {
        let _: i64 =
            server.ask(&["HSET", &format!("{SHARD}:l"), &format!("{n:032x}"), till]).unwrap();
    }
    block_on(async {
        let mut node = join(server.tcp()).await;
        assert_eq!(say(&mut node, 600).await, Some(1));
    });
}

/// Tells for how many seconds a node lives. Returns the number of living nodes.
async fn say(node: &mut Node<Redis>, seconds: u64) -> Option<u64> {
    let lives_for = Some(Duration::from_secs(seconds));
    let batch = Batch { lives_for, ..node.batch(0, vec![]) };
    since(node.send_batch(&batch).await);
    node.store.living().map(|it| it.count)
}

#[test]
fn few_counts_are_in_a_table_too() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let counts = format!("{SHARD}:{}:60000:7", node.epoch);
        for _ in 0..2 {
            node.push(vec![hits("a", 1)]).await;
            let encoding: String = server.ask(&["OBJECT", "ENCODING", &counts]).unwrap();
            assert_eq!(encoding, "hashtable");
            let keys: Vec<String> = server.ask(&["HKEYS", &counts]).unwrap();
            assert_eq!(keys, ["a"]);
        }
    });
}

#[test]
fn pages_begin_again_after_a_new_connection() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        for first in (0..3000).step_by(500) {
            let keys = first..first + 500;
            node.push(keys.map(|key| hits(&key.to_string(), 1)).collect()).await;
        }
        let windows = [(MINUTE, 7)];
        let mut keys = std::collections::BTreeSet::new();
        let mut next = Some(PageStep::default());
        let mut pages = 0;
        while let Some(step) = next {
            pages += 1;
            if pages == 4 {
                let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                keys.clear();
            }
            let page = node.store.get_counters(&node.shard, node.epoch, &windows, step);
            let (counts, step) = page.await.unwrap();
            keys.extend(counts.into_iter().map(|count| count.key));
            next = step;
        }
        assert_eq!(keys.len(), 3000);
    });
}

#[test]
fn a_batch_of_the_largest_size_is_taken() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let mut other = join(server.tcp()).await;
        // More than Lua can pass to one call.
        let key = |key: usize| format!("{key:064}");
        let diffs: Vec<_> =
            (0..20 * Batch::MAX_DIFFS).map(|number| hits(&key(number), 1)).collect();
        node.push(diffs).await;
        assert_eq!(other.fetch().await.len(), 20 * Batch::MAX_DIFFS);
    });
}
