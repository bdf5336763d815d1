//! The layout of a namespace, which all nodes must share: it is recorded in the hash of each shard.
//!
//! The first shard there is in every layout. So whoever is about to use another one looks there first: nodes that
//! divide a namespace differently would each count for themselves.

use core::fmt;
use std::collections::BTreeSet;

use crate::store::contract::error::Failure;
use crate::store::contract::strategy::Shard;

/// A layout. Displayed, it is the field `layout` of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The number of shards.
    pub(super) shards: u16,
    /// Whether they are spread over a cluster.
    pub(super) is_cluster: bool,
}

/// The namespaces whose first shard was found to have this node's layout.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownLayouts {
    namespaces: BTreeSet<Box<str>>,
    uses: u8,
}

impl KnownLayouts {
    /// Whether a shard may be used without a look at the first one: others may have lost that since, so it is looked
    /// at again now and then.
    pub(super) fn have(&mut self, shard: &Shard) -> bool {
        self.uses = self.uses.wrapping_add(1);
        if self.uses == 0 {
            self.namespaces.clear();
        }
        shard.number == 0 || self.namespaces.contains(&*shard.namespace)
    }

    /// Notes that the first shard of this one's namespace has this node's layout.
    pub(super) fn note(&mut self, shard: &Shard) {
        self.namespaces.insert((&*shard.namespace).into());
    }

    /// Has the first shard of each namespace be looked at before the next use of another one.
    pub(super) fn forget(&mut self) {
        self.namespaces.clear();
    }
}

/// Parses a script's words about a namespace with another layout: that one, and this node's.
pub(super) fn mismatch(words: &str) -> Option<Failure> {
    let words: Vec<&str> = words.split(' ').collect();
    let [shards, cluster, own_shards, own_cluster] = &*words else {
        return None;
    };
    let what = format!(
        "other nodes divide the namespace into {}, this one into {}: all must have the same \"cluster\"",
        described(shards, cluster),
        described(own_shards, own_cluster)
    );
    Some(Failure::Unusable(what.into()))
}

fn described(shards: &str, cluster: &str) -> String {
    let plural = if shards == "1" { "" } else { "s" };
    format!("{shards} shard{plural} (cluster {cluster})")
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = if self.is_cluster { "on" } else { "off" };
        write!(f, "{} {cluster}", self.shards)
    }
}
