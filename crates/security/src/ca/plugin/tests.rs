//! A plugin in the same process.

use std::pin::Pin;
use std::time::SystemTime;

use futures_util::{Stream, StreamExt as _, stream};
use navarch_api::identity::Identity;
use navarch_pki::{KeyType, SigningRequest, pem};
use navarch_proto::navarch::signer::v1::signer_server::{self, SignerServer};
use navarch_proto::navarch::signer::v1::{Roots, SignResponse};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response};

use super::super::signer::{self, tests::DAY};
use super::super::{Authority, Bundle, Subject};
use super::*;

const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";

fn clock() -> SystemTime {
    jiff::Timestamp::now().into()
}

/// A plugin that signs, or answers with a status.
#[derive(Clone)]
struct Served {
    authority: Arc<Authority>,
    status: Arc<parking_lot::Mutex<Option<Status>>>,
    requests: Arc<parking_lot::Mutex<Vec<SignRequest>>>,
}

#[tonic::async_trait]
impl signer_server::Signer for Served {
    async fn sign(&self, request: Request<SignRequest>) -> Result<Response<SignResponse>, Status> {
        if let Some(status) = self.status.lock().clone() {
            return Err(status);
        }
        let request = request.into_inner();
        let csr = pem::encode_block("CERTIFICATE REQUEST", &request.csr_der);
        let csr = SigningRequest::parse(&csr).unwrap();
        let subject = Subject::Workload(Identity::parse(&request.spiffe_id).unwrap());
        let chain = self.authority.sign(&csr, &subject, DAY, clock()).unwrap();
        self.requests.lock().push(request);
        Ok(Response::new(SignResponse {
            chain_pem: pem::encode(&chain[0]),
        }))
    }

    type WatchRootsStream = Pin<Box<dyn Stream<Item = Result<Roots, Status>> + Send>>;

    async fn watch_roots(
        &self,
        _: Request<WatchRootsRequest>,
    ) -> Result<Response<Self::WatchRootsStream>, Status> {
        let pem = self.authority.roots().pem().to_owned();
        let once = stream::once(async move { Ok(Roots { pem }) });
        Ok(Response::new(Box::pin(once.chain(stream::pending()))))
    }
}

fn request() -> CheckedRequest {
    signer::tests::request(WEB, "blue")
}

#[tokio::test]
async fn a_plugin_signs_and_its_statuses_say_whether_it_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("signer.sock");
    let target = UnixTarget {
        path: path.clone(),
        user: None,
        warns_if_public: true,
    };
    let (plugin, follow) = Plugin::connect(target, RootsSource::Signer);
    let mut tasks = JoinSet::new();
    tasks.spawn(follow);
    let away = plugin.sign(&request()).await.unwrap_err();
    assert!(matches!(away, SignerError::Unreachable(_)), "{away}");

    let bundle = Bundle::self_signed("company", KeyType::P256, 10 * DAY, clock()).unwrap();
    let served = Served {
        authority: Arc::new(Authority::new(&bundle, clock()).unwrap()),
        status: Arc::default(),
        requests: Arc::default(),
    };
    let listener = UnixListener::bind(&path).unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(SignerServer::new(served.clone()))
        .serve_with_incoming(UnixListenerStream::new(listener));
    tasks.spawn(async move { server.await.unwrap() });

    let mut roots = plugin.roots().unwrap();
    roots.wait_for(|roots| !roots.is_empty()).await.unwrap();
    let request = request();
    let signed = plugin.sign(&request).await.unwrap();
    request.accept(signed, DAY, clock()).unwrap();
    let asked = served.requests.lock().pop().unwrap();
    assert_eq!(
        (
            &*asked.spiffe_id,
            &*asked.namespace,
            &*asked.service_account
        ),
        (WEB, "shop", "web")
    );
    assert_eq!((asked.seconds, &*asked.signer), (24 * 3600, "blue"));

    let answer = async |status: Status| {
        *served.status.lock() = Some(status);
        plugin.sign(&request).await.unwrap_err()
    };
    let away = answer(Status::unavailable("restarting")).await;
    assert!(matches!(away, SignerError::Unavailable(_)), "{away}");
    let denied = answer(Status::permission_denied("not\nthis one")).await;
    assert_eq!(
        denied.to_string(),
        r"the signer denied the request: not\nthis one"
    );
    let busy = answer(Status::resource_exhausted("later")).await;
    assert!(matches!(busy, SignerError::Busy(_)), "{busy}");
    let failed = answer(Status::internal("no key")).await;
    assert!(matches!(failed, SignerError::Failed(_)), "{failed}");
}
