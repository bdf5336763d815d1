//! Commands to the task that syncs a namespace, from the event loop and from the bell.

use crate::engine::LastPush;

/// A command.
pub(super) enum Command {
    /// Sync, unless this node was synced in this period.
    Sync,
    /// Sync even if this node has synced in this period, so that all hits counted so far are
    /// pushed.
    SyncNow,
    /// Push counters that are due early.
    Early,
    /// Fetch what other nodes have pushed. Only for a store without a channel.
    Look,
    /// Push all remaining hits within these limits, and end.
    Finish(LastPush),
}
