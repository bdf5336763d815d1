//! Finds the datacenter of a server behind a NAT or a proxy, whose address is not one of the
//! ring's. A file of its own, since it has a session of its own.

use core::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use scylla::client::session::{Session, SessionConfig};
use scylla::cluster::NodeAddr;
use scylla::cluster::metadata::Peer;
use scylla::errors::{NewSessionError, TranslationError};
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};
use scylla::policies::host_filter::HostFilter;

/// Asks the server at `address` in a session of its own, with `config`. `None` if the server does
/// not answer that.
pub(super) async fn datacenter_of(
    address: SocketAddr,
    mut config: SessionConfig,
) -> Result<Option<String>, NewSessionError> {
    config.address_translator = Some(Arc::new(Always(address)));
    config.host_filter = Some(Arc::new(First::default()));
    let session = Session::connect(config).await?;
    let answer = session.query_unpaged("SELECT data_center FROM system.local", ()).await;
    let rows = answer.ok().and_then(|it| it.into_rows_result().ok());
    let row = rows.and_then(|rows| rows.first_row::<(String,)>().ok());
    Ok(row.map(|(name,)| name))
}

/// Translates every node's address to one server's.
struct Always(SocketAddr);

#[async_trait]
impl AddressTranslator for Always {
    async fn translate_address(
        &self,
        _: &UntranslatedPeer,
    ) -> Result<SocketAddr, TranslationError> {
        Ok(self.0)
    }
}

/// Accepts one node of the ring, by its id, so that the session has one connection.
#[derive(Default)]
struct First(OnceLock<u128>);

impl HostFilter for First {
    fn accept(&self, peer: &Peer) -> bool {
        let id = peer.host_id.as_u128();
        match peer.address {
            NodeAddr::Translatable(_) => *self.0.get_or_init(|| id) == id,
            // The first server, before it has described the ring.
            _ => true,
        }
    }
}
