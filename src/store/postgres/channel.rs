//! The channel of Postgres: a push sends a notification, after which listening nodes read the
//! changes.
//!
//! Each notification wakes every listening node. So after one, pushes are silent for a time that grows with
//! the number of nodes, and listeners read once more when it has ended. The server's tables have its end:
//! nodes may differ about its length.
//!
//! Notifications are visible to every role of the database, and any role can send them: see
//! [`Notified`](super::told::Notified). So the changes themselves come from the tables, which only
//! some roles can read.

use core::pin::pin;
use core::time::Duration;

use futures_util::future::{Either, select};
use tokio::time::sleep;
use tokio_postgres::types::ToSql;

use super::Postgres;
use super::connection::{Connection, Fault, Prepared};
use super::push::count;
use super::row::signed;
use super::told::Reason;
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{Batch, NodeId, Position, PushNews, Subscription};

/// Names the session for `pg_stat_activity`, and subscribes it.
const LISTEN: &str = "SET application_name = 'ngx_http_rate_limiting_module channel';
LISTEN ngx_rate_limiting";

/// Longest wait for news.
const WAIT: Duration = Duration::from_secs(1);
/// Shortest time between two reads of changes. News in between are read together.
const APART: Duration = Duration::from_millis(5);
/// Time for which a push that was silent may take to become visible after the silence.
const COMMIT: Duration = APART;

impl Postgres {
    /// Returns a client with a connection of its own and a longer timeout of an exchange.
    pub(super) fn listener(&self) -> Postgres {
        Postgres {
            link: self.link.with_longer_timeout(WAIT),
            living: None,
            overdrawn: Vec::new(),
            exchanges: self.exchanges,
            purged: self.purged,
            now: self.now,
        }
    }

    /// Waits for news of these shards.
    pub(super) async fn listen(
        &mut self,
        subscriptions: &[Subscription],
    ) -> Result<Vec<PushNews>, StoreError> {
        let exchange = async |connection: &Connection| {
            let told = &connection.told;
            told.watch(subscriptions);
            if !connection.listens.get() {
                connection.client.batch_execute(LISTEN).await?;
                connection.listens.set(true);
            }
            let mut waited = pin!(sleep(WAIT));
            loop {
                if let Some(apart) = connection.apart.take() {
                    apart.await;
                }
                let changed = pin!(told.changed());
                let is_open = match select(changed, waited.as_mut()).await {
                    Either::Left((is_open, _)) => is_open,
                    Either::Right(_) => {
                        // Checks that the server is up: a connection that was cut also brings no
                        // notifications.
                        connection.client.simple_query("").await?;
                        return Ok(Vec::new());
                    }
                };
                if !is_open {
                    return Err(Fault::Ended);
                }
                connection.apart.replace(Some(Box::pin(sleep(APART))));
                let (mut news, mut is_notified) = (Vec::new(), false);
                for subscription in subscriptions {
                    let Some(reason) = told.take(subscription) else {
                        continue;
                    };
                    is_notified |= reason == Reason::Notified;
                    news.extend(catch_up(connection, subscription).await?);
                }
                if is_notified || !news.is_empty() {
                    return Ok(news);
                }
            }
        };
        self.link.exchange(exchange).await
    }
}

/// Reads other nodes' changes after the position of a subscription, without the node that made
/// them; `None` without changes. Records how long pushes are silent.
async fn catch_up(
    connection: &Connection,
    subscription: &Subscription,
) -> Result<Option<PushNews>, Fault> {
    let catch_up = connection.statement(Prepared::CatchUp)?;
    let (epoch, Position([after, _])) = (subscription.epoch.0.get(), subscription.after);
    let (of_epoch, after, node) =
        (epoch.cast_signed(), after.cast_signed(), subscription.node.to_string());
    let limit = signed(Batch::MAX_DIFFS);
    let parameters: [&(dyn ToSql + Sync); 4] = [&of_epoch, &after, &limit, &node];
    let rows = connection.client.query(catch_up, &parameters).await?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let position = Position([first.try_get::<_, i64>("changes")?.cast_unsigned(), epoch]);
    if let Some(rest) = first.try_get::<_, Option<i64>>("silence")? {
        let rest = Duration::from_millis(rest.unsigned_abs());
        connection.told.expect_silence(subscription, rest.saturating_add(COMMIT));
    }
    let mut counts = Vec::new();
    for row in &rows {
        counts.extend(count(row)?);
    }
    Ok(position.is_after(subscription.after).then(|| PushNews {
        shard: subscription.shard.clone(),
        epoch: subscription.epoch,
        node: NodeId([0; 2]),
        position,
        counts,
    }))
}
