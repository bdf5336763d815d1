//! What the event loop, and the bell, have the thread do for a namespace.

use crate::engine::LastPush;

/// What is asked for.
pub(super) enum Command {
    /// Sync, unless this node was synced in this period.
    Sync,
    /// Sync whatever others do: what was counted until now is pushed.
    SyncNow,
    /// Something is due before its time.
    Early,
    /// Ask the store what others have pushed: it has no channel that tells.
    Look,
    /// Push what is left, for as long as that may take, and end.
    Finish(LastPush),
}
