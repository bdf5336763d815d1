//! Tests that nodes continue whatever another program writes into their store.

use core::time::Duration;

use super::*;
use crate::policy::algorithm::{Algorithm, LevelKind, StoredKind};
use crate::store::contract::decision::{Decider, Question};

/// Number of attempts of nodes: a failure for each obstacle, and then a new epoch.
const ROUNDS: usize = 6;

/// Nodes that push, fetch and notify, and one that asks for decisions of each kind that the store has.
pub(crate) struct Others<S> {
    pushing: [Node<S>; 2],
    asking: Asking<S>,
}

impl<S: Decider<Changes = Changes>> Others<S> {
    /// Creates nodes that have done each of their operations once.
    pub(crate) async fn start(connect: impl Fn() -> S) -> Others<S> {
        let mut others = Others {
            pushing: [
                Node::join(connect(), shard("api")).await,
                Node::join(connect(), shard("api")).await,
            ],
            asking: Asking::new(connect()),
        };
        for _ in 0..3 {
            others.round().await.unwrap();
        }
        others
    }

    /// Repeats the operations of all nodes until each has succeeded.
    pub(crate) async fn go_on(&mut self, after: &str) {
        let mut failures = Vec::new();
        while let Err(failure) = self.round().await {
            failures.push(failure);
            assert!(failures.len() < ROUNDS, "{after}: {failures:#?}");
        }
    }

    /// Returns the store's number of living nodes.
    pub(crate) fn living(&self) -> Option<u64> {
        let told = self.pushing.iter().map(|node| node.store.living().map(|it| it.count));
        told.max().flatten()
    }

    async fn round(&mut self) -> Result<(), String> {
        let decided = self.asking.try_to_ask(&questions::<S>()).await;
        decided.map_err(|error| error.to_string())?;
        for node in &mut self.pushing {
            sync(node).await?;
        }
        Ok(())
    }
}

/// Returns one hit of a key for each kind of counter that the store has.
fn questions<S: Decider>() -> Vec<Question> {
    let kinds = [
        StoredKind::Windows,
        StoredKind::Level(LevelKind::Elastic),
        StoredKind::Level(LevelKind::Bucket(Hits::ONE)),
        StoredKind::Log,
    ];
    let algorithms = [Algorithm::Sliding, Algorithm::Elastic, Algorithm::Bucket, Algorithm::Moving];
    let has_it = |kind: &StoredKind| S::KINDS.iter().any(|it| it.wire_id() == kind.wire_id());
    let questions = algorithms.into_iter().zip(kinds).filter(|(_, kind)| has_it(kind));
    questions
        .map(|(algorithm, kind)| {
            let mut question = question("a", algorithm, 50_000);
            question.counters[0].kind = kind;
            question.counters[0].size = MINUTE;
            question
        })
        .collect()
}

/// Runs the operations of a sync for a node, up to the first failure.
async fn sync<S: Strategy<Changes = Changes>>(node: &mut Node<S>) -> Result<(), String> {
    let batch = Batch {
        is_news: true,
        lives_for: Some(Duration::from_secs(5)),
        ..node.batch(node.number + 1, vec![hits("a", 1), hits("b", 1)])
    };
    let pushed = node.store.push_diffs(&node.shard, &batch, 500).await;
    let pushed = pushed.map_err(|error| error.to_string())?;
    let changes = match pushed {
        Pushed::Applied { changes, .. } => changes,
        other => {
            let instead_of = match other {
                Pushed::Lost | Pushed::Forgotten | Pushed::Twin => Some(node.epoch),
                _ => None,
            };
            let opened = node.store.open_epoch(&node.shard, instead_of, new_epoch());
            node.epoch = opened.await.map_err(|error| error.to_string())?;
            (node.number, node.position) = (0, None);
            return Err(format!("{other:?}"));
        }
    };
    node.number += 1;
    node.position = Some(match changes {
        Changes::Since { position, .. } => position,
        Changes::Behind { position } => {
            node.read_all(&[(MINUTE, 7)]).await;
            position
        }
    });
    Ok(())
}
