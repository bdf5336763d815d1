//! Commands of the event loop, and of the bell, to the thread that serves a namespace.

use crate::engine::LastPush;

/// A command.
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
