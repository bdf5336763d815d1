//! Whether zones have room for the namespaces that are to be in them: a matter of their sizes alone,
//! so that it is known before any zone is mapped.

use std::rc::Rc;

use super::super::zone::Zone;
use super::directives::Failure;
use super::{MainConf, NamespaceConf, ZoneConf};
use crate::table::ZoneRoom;

impl MainConf {
    /// Checks that each zone has room for its namespaces.
    pub(super) fn check_room(&self) -> Result<(), Failure> {
        for ZoneConf { zone, .. } in &self.zones {
            let room = ZoneRoom::of(zone.size);
            let mut left = room;
            for namespace in self.namespaces_in(zone) {
                let (namespaces, shards) = (
                    left.namespaces.checked_sub(1),
                    left.shards
                        .checked_sub(namespace.shards(&self.stores).into()),
                );
                let reason = match (namespaces, shards) {
                    (Some(namespaces), Some(shards)) => {
                        left = ZoneRoom { namespaces, shards };
                        continue;
                    }
                    (None, _) => format!("{} namespaces: expected fewer", room.namespaces),
                    (_, None) => format!(
                        "{} shards of namespaces that are synced: expected fewer (16 for each \
                         with a Redis Cluster, 1 for each other)",
                        room.shards
                    ),
                };
                let (name, zone) = (&namespace.name, &zone.name);
                let message = format!(
                    "ratelimit_namespace \"{name}\": zone \"{zone}\" has room for {reason}, or a \
                     larger zone"
                );
                return Err(Failure::At(namespace.origin(), message));
            }
        }
        Ok(())
    }

    /// Tells the zones that are mapped what they are to have room for.
    pub(super) fn begin_configuration(&self) {
        for ZoneConf { zone, .. } in &self.zones {
            if let Some(table) = zone.table() {
                let namespaces = self.namespaces_in(zone);
                let namespaces = namespaces.map(|it| (it.name.as_bytes(), it.shards(&self.stores)));
                table.begin_configuration(namespaces);
            }
        }
    }

    fn namespaces_in(&self, zone: &Rc<Zone>) -> impl Iterator<Item = &NamespaceConf> {
        let namespaces = self.namespaces.iter().map(|it| &**it);
        let is_in = move |its: &Rc<Zone>| Rc::ptr_eq(its, zone);
        namespaces.filter(move |namespace| namespace.zone.get().is_some_and(is_in))
    }
}
