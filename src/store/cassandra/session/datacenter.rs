//! The datacenter of a server whose address is none of the ring's: it is behind a NAT, or a proxy.

use core::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use scylla::client::session::{Session, SessionConfig};
use scylla::cluster::NodeAddr;
use scylla::cluster::metadata::Peer;
use scylla::errors::{NewSessionError, TranslationError};
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};
use scylla::policies::host_filter::HostFilter;

/// Asks the server at `address`, with a session of its own that `config` is for. `None`: it does not say.
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

/// Leads to one server, whichever node is meant.
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

/// Accepts one node of the ring, by its id, so that there is one connection for questions.
#[derive(Default)]
struct First(OnceLock<u128>);

impl HostFilter for First {
    fn accept(&self, peer: &Peer) -> bool {
        let id = peer.host_id.as_u128();
        match peer.address {
            NodeAddr::Translatable(_) => *self.0.get_or_init(|| id) == id,
            // The server, before it has told of the ring.
            _ => true,
        }
    }
}
