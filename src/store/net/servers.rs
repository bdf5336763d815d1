//! Servers that are tried in turn.

use crate::store::contract::error::StoreError;
use crate::store::contract::server::ServerAddress;

/// Servers, at least one, and the one that is used or tried next.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    current: ServerAddress,
    /// The servers after the current one.
    others: Vec<ServerAddress>,
}

impl Servers {
    /// Starts with the first server. An empty list becomes an address without a server.
    pub(crate) fn new(servers: &[ServerAddress]) -> Servers {
        match servers.split_first() {
            Some((first, others)) => Servers { current: first.clone(), others: others.into() },
            None => Servers { current: ServerAddress::Unix("/".into()), others: Vec::new() },
        }
    }

    pub(crate) fn current(&self) -> &ServerAddress {
        &self.current
    }

    pub(crate) fn len(&self) -> usize {
        self.others.len().saturating_add(1)
    }

    /// Tries each server once, from the current one on, until an attempt succeeds. That server
    /// becomes the current one. If all attempts fail, the error contains all failures.
    pub(crate) async fn try_each<T>(
        &mut self,
        attempt: impl AsyncFn(&ServerAddress) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut error = match attempt(&self.current).await {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        let mut earlier = Vec::new();
        for _ in 1..self.len() {
            earlier.push(error);
            self.move_on();
            error = match attempt(&self.current).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
        }
        self.move_on();
        Err(error.after(earlier))
    }

    /// Moves on to the next server.
    pub(crate) fn move_on(&mut self) {
        self.others.push(self.current.clone());
        self.current = self.others.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn() {
        let all = ["/a", "/b", "/c"].map(|path| ServerAddress::Unix(path.into()));
        let mut servers = Servers::new(&all);
        assert_eq!(servers.len(), 3);
        for server in [&all[..], &all[..]].concat() {
            assert_eq!(servers.current(), &server);
            servers.move_on();
        }
        let mut one = Servers::new(&all[..1]);
        one.move_on();
        assert_eq!((one.current(), one.len()), (&all[0], 1));
    }
}
