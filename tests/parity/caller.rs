//! The server as one proxy meets it: on a port of its own, on which every caller counts as that proxy.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use navarch::api::identity::{Caller, Identity};
use navarch::net::port::Port;
use navarch::xds::Ads;
use navarch::xds::plain_connections;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;

use super::case::CaseProxy;

/// The service with a caller whose identity is known.
#[derive(Clone)]
struct As {
    caller: Caller,
    ads: Ads,
}

impl NamedService for As {
    const NAME: &'static str = Ads::NAME;
}

impl Service<Request<Body>> for As {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Ads as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ads.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.extensions_mut().insert(self.caller.clone());
        self.ads.call(request)
    }
}

/// A running server.
type Server = JoinHandle<()>;

/// Serves for one proxy until told to end.
pub(crate) async fn serve(
    ads: &Ads,
    proxy: &CaseProxy,
    end: CancellationToken,
) -> Result<(SocketAddr, Server), String> {
    let identity = Identity::parse(&proxy.identity()).map_err(|error| error.to_string())?;
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let service = As { caller: Caller { identities: vec![identity], ..Caller::default() }, ads: ads.clone() };
    let server = ads.server("grpc").add_service(service);
    let incoming = plain_connections(listener, Port::unlimited("grpc"));
    Ok((address, tokio::spawn(async move { server.serve(incoming, end.cancelled_owned()).await })))
}
