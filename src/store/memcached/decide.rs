//! Decisions: the counts are read, this side decides, and writes the charges if nobody has changed the shard since.

use super::Memcached;
use super::shard::ShardSession;
use super::wire::{MetaConnection, Requests};
use crate::policy::algorithm::StoredKind;
use crate::store::contract::decision::{Decided, Decider, Question};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::strategy::{Epoch, NodeId};
use crate::store::keyed::decide::{KINDS, KeyedDecision};

impl Decider for Memcached {
    const KINDS: &'static [StoredKind] = KINDS;

    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let decision = KeyedDecision::of(questions);
        let (prefix, done) = (&self.prefix, &mut self.done);
        let exchange = async |connection: &mut MetaConnection| {
            let shard = match decision.asked.shards.as_slice() {
                [shard] => shard,
                [] => {
                    // Only finds out whether the server answers.
                    let mut requests = Requests::default();
                    requests.nothing();
                    connection.exchange(&requests).await?;
                    return Ok(Decided { now: decision.now, answers: decision.answers(&mut []) });
                }
                _ => return Err(Failure::Unsupported("questions about several shards at once")),
            };
            let mut session = ShardSession::new(connection, done, prefix, shard);
            decide(&mut session, node, proposed, &decision).await
        };
        self.link.exchange(exchange).await
    }
}

async fn decide(
    session: &mut ShardSession<'_>,
    node: NodeId,
    proposed: Epoch,
    decision: &KeyedDecision<'_>,
) -> Result<Decided, Failure> {
    let names: Vec<_> = decision.names().into_iter().map(|(_, name)| name).collect();
    loop {
        let found = session.head().await?;
        let Some(head) = &found.head else {
            session.open(&found, proposed).await?;
            continue;
        };
        let items = session.read(head, &names).await?;
        let Ok(before) = decision.counts(items.iter().map(|it| it.value.as_deref())) else {
            session.end(&found).await?;
            continue;
        };
        let mut counts = before.clone();
        let answers = decision.answers(&mut counts);
        let changed = decision.changed(0, &before, &counts);
        if changed.is_empty()
            || session.change(&found, head.next(decision.now), (node, false), changed).await?
        {
            return Ok(Decided { now: decision.now, answers });
        }
    }
}
