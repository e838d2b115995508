//! The server for one proxy: on its own port, every caller is authenticated as that proxy.

use std::future::ready;
use std::net::SocketAddr;

use navarch::api::identity::{Caller, Identity};
use navarch::net::port::Port;
use navarch::xds::Ads;
use navarch::xds::plain_connections;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::case::CaseProxy;

/// A running server.
type Server = JoinHandle<()>;

/// Serves one proxy until the task is aborted.
pub(crate) async fn serve(
    ads: &Ads,
    proxy: &CaseProxy,
    end: CancellationToken,
) -> Result<(SocketAddr, Server), String> {
    let identity = Identity::parse(&proxy.identity()).map_err(|error| error.to_string())?;
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let caller = Caller {
        identities: vec![identity],
        ..Caller::default()
    };

    let service = ads.clone();
    let server = ads
        .server("grpc")
        .add_streams(Ads::NAME, move |mut request, call| {
            request.extensions_mut().insert(caller.clone());
            ready(service.start(request, &call))
        });

    let incoming = plain_connections(listener, Port::unlimited("grpc"));
    Ok((
        address,
        tokio::spawn(async move { server.serve(incoming, end.cancelled_owned()).await }),
    ))
}
