//! The layout of a namespace, on which all nodes must agree, and which the hash of each shard
//! contains.
//!
//! Every layout has a first shard. So before a node uses another shard, it checks the first one:
//! nodes with different layouts would not count together.

use core::fmt;
use std::collections::BTreeSet;

use crate::store::contract::error::Failure;
use crate::store::contract::strategy::Shard;

/// A layout. Its `Display` is the field `layout` of a shard's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The number of shards.
    pub(super) shards: u16,
    /// Whether the shards are spread over a cluster.
    pub(super) is_cluster: bool,
}

/// The namespaces whose first shard has this node's layout.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownLayouts {
    namespaces: BTreeSet<Box<str>>,
    uses: u8,
}

impl KnownLayouts {
    /// Returns whether a shard may be used without checking the first one. The first shard may have
    /// been lost since, so it is checked again from time to time.
    pub(super) fn have(&mut self, shard: &Shard) -> bool {
        self.uses = self.uses.wrapping_add(1);
        if self.uses == 0 {
            self.namespaces.clear();
        }
        shard.number == 0 || self.namespaces.contains(&*shard.namespace)
    }

    /// Records that the first shard of this shard's namespace has this node's layout.
    pub(super) fn note(&mut self, shard: &Shard) {
        self.namespaces.insert((&*shard.namespace).into());
    }

    /// Makes the first shard of each namespace be checked again.
    pub(super) fn forget(&mut self) {
        self.namespaces.clear();
    }
}

/// Parses a script's error about a namespace with another layout, which contains both layouts.
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
