//! A SPIRE server in the same process.

use std::path::Path;
use std::time::SystemTime;

use navarch_api::identity::Identity;
use navarch_pki::{KeyType, SigningRequest, pem};
use navarch_proto::spire::api::server::bundle::v1::bundle_server::{self, BundleServer};
use navarch_proto::spire::api::server::bundle::v1::{
    GetBundleRequest, ListFederatedBundlesRequest, ListFederatedBundlesResponse,
};
use navarch_proto::spire::api::server::svid::v1::MintX509svidResponse;
use navarch_proto::spire::api::server::svid::v1::svid_server::{self, SvidServer};
use navarch_proto::spire::api::types::{Bundle as SpireBundle, X509Certificate, X509svid};
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::super::signer::{self, tests::DAY};
use super::super::{Authority, Bundle, Subject};
use super::bundles::SpireBundleError;
use super::*;

const WEB: &str = "spiffe://td/ns/shop/sa/web";

fn clock() -> SystemTime {
    jiff::Timestamp::now().into()
}

fn authority() -> Authority {
    let bundle = Bundle::self_signed("spire", KeyType::P256, 10 * DAY, clock()).unwrap();
    Authority::new(&bundle, clock()).unwrap()
}

/// A root of an authority for a bundle.
fn root(authority: &Authority, tainted: bool) -> X509Certificate {
    X509Certificate {
        asn1: Bytes::copy_from_slice(&authority.root_certificates()[0]),
        tainted,
    }
}

/// The server of the trust domain `td`, with one tainted root, and pages of federated bundles.
#[derive(Clone)]
struct Served {
    signing: Arc<Authority>,
    tainted: Arc<Authority>,
    pages: Arc<Mutex<Vec<Vec<SpireBundle>>>>,
}

impl Served {
    fn new(pages: Vec<Vec<SpireBundle>>) -> Self {
        Self {
            signing: Arc::new(authority()),
            tainted: Arc::new(authority()),
            pages: Arc::new(Mutex::new(pages)),
        }
    }

    /// Serves a socket in a folder. Returns the socket.
    fn serve(&self, folder: &Path, tasks: &mut JoinSet<()>) -> UnixTarget {
        let path = folder.join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(SvidServer::new(self.clone()))
            .add_service(BundleServer::new(self.clone()))
            .serve_with_incoming(UnixListenerStream::new(listener));
        tasks.spawn(async move { server.await.unwrap() });
        UnixTarget {
            path,
            user: None,
            warns_if_public: true,
        }
    }
}

/// A federated bundle.
fn partner(trust_domain: &str, roots: Vec<X509Certificate>) -> SpireBundle {
    SpireBundle {
        trust_domain: trust_domain.to_owned(),
        x509_authorities: roots,
        ..SpireBundle::default()
    }
}

/// Who follows bundles, for calls of `ask`.
fn bundles(trust_domain: &str, federates_with: &[&str]) -> Bundles {
    Bundles {
        channel: watch::channel(None).1,
        trust_domain: trust_domain.to_owned(),
        federates_with: federates_with
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        roots: None,
        tainted: watch::channel(Arc::default()).0,
        federated: watch::channel(Fetched::new()).0,
        problems: FederationProblems::default(),
    }
}

#[tonic::async_trait]
impl svid_server::Svid for Served {
    async fn mint_x509svid(
        &self,
        request: Request<MintX509svidRequest>,
    ) -> Result<Response<MintX509svidResponse>, Status> {
        let request = request.into_inner();
        assert_eq!(request.ttl, 24 * 3600);
        let csr = pem::encode_block("CERTIFICATE REQUEST", &request.csr);
        let csr = SigningRequest::parse(&csr).unwrap();
        let subject = Subject::Workload(Identity::parse(WEB).unwrap());
        let chain = self.signing.sign(&csr, &subject, DAY, clock()).unwrap();
        let svid = X509svid {
            cert_chain: chain
                .iter()
                .map(|der| Bytes::copy_from_slice(der))
                .collect(),
            ..X509svid::default()
        };
        Ok(Response::new(MintX509svidResponse { svid: Some(svid) }))
    }
}

#[tonic::async_trait]
impl bundle_server::Bundle for Served {
    async fn get_bundle(
        &self,
        _: Request<GetBundleRequest>,
    ) -> Result<Response<SpireBundle>, Status> {
        Ok(Response::new(SpireBundle {
            trust_domain: "td".to_owned(),
            x509_authorities: vec![root(&self.signing, false), root(&self.tainted, true)],
            ..SpireBundle::default()
        }))
    }

    async fn list_federated_bundles(
        &self,
        request: Request<ListFederatedBundlesRequest>,
    ) -> Result<Response<ListFederatedBundlesResponse>, Status> {
        let pages = self.pages.lock();
        let page = request.into_inner().page_token.parse().unwrap_or(0);
        let next = page + 1;
        Ok(Response::new(ListFederatedBundlesResponse {
            bundles: pages.get(page).cloned().unwrap_or_default(),
            next_page_token: match next < pages.len() {
                true => next.to_string(),
                false => String::new(),
            },
        }))
    }
}

fn request() -> CheckedRequest {
    signer::tests::request(WEB, "")
}

#[tokio::test]
async fn svids_are_minted_and_bundles_are_those_of_the_mesh_and_of_named_partners() {
    let own = authority();
    let served = Served::new(vec![
        vec![partner("stranger", vec![root(&own, false)])],
        vec![partner("partner", vec![root(&own, false)])],
    ]);
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = JoinSet::new();
    let socket = served.serve(folder.path(), &mut tasks);

    let config = SpireConfig {
        server: SpireServer::Socket(socket),
        federates_with: BTreeSet::from(["partner".to_owned()]),
    };
    let (spire, mut federated, follow) = Spire::connect(config, "td", RootsSource::Signer, clock);
    tasks.spawn(follow);
    let mut roots = spire.roots().unwrap();
    roots.wait_for(|roots| !roots.is_empty()).await.unwrap();
    let both = [&served.signing, &served.tainted].map(|one| one.roots().pem().to_owned());
    assert_eq!(&**roots.borrow(), both.concat(), "with the tainted one");
    federated.wait_for(|found| !found.is_empty()).await.unwrap();
    let names: Vec<String> = federated.borrow().keys().cloned().collect();
    assert_eq!(names, ["spire:partner"]);

    let request = request();
    let signed = spire.sign(&request).await.unwrap();
    request.accept(signed.clone(), DAY, clock()).unwrap();

    let named = spire.sign(&signer::tests::request(WEB, "blue")).await;
    let error = named.unwrap_err();
    assert!(matches!(error, SignerError::Request(_)), "{error}");

    // A tainted root stays trusted, but signs nothing new.
    let csr = SigningRequest::parse(request.pem()).unwrap();
    let subject = Subject::Workload(Identity::parse(WEB).unwrap());
    let tainted = SignedChain {
        certificates: served.tainted.sign(&csr, &subject, DAY, clock()).unwrap(),
        ..signed
    };
    let error = request.accept(tainted, DAY, clock()).unwrap_err();
    assert!(error.to_string().contains("tainted"), "{error}");

    // The server of another mesh has no roots for this one.
    let mut other = bundles("other", &[]);
    let channel = spire.channel.borrow().clone().unwrap();
    let error = other.ask(channel).await.unwrap_err();
    assert!(
        matches!(&error, SpireBundleError::TrustDomain(name) if name == "td"),
        "{error}"
    );
}

#[tokio::test]
async fn a_partner_with_an_unusable_bundle_affects_only_itself() {
    let roots = || vec![root(&authority(), false)];
    let nonsense = X509Certificate {
        asn1: Bytes::from_static(b"nonsense"),
        tainted: false,
    };
    let served = Served::new(vec![vec![partner("a", roots()), partner("b", roots())]]);
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = JoinSet::new();
    let channel = served.serve(folder.path(), &mut tasks).channel();

    let mut bundles = bundles("td", &["a", "b", "unknown"]);
    let found = bundles.federated.subscribe();
    bundles.ask(channel.clone()).await.unwrap();
    let first = found.borrow().clone();
    assert!(first.keys().eq(["spire:a", "spire:b"]), "{first:?}");
    assert!(bundles.problems.missing.iter().eq(["unknown"]));

    // The last bundle of one stays, the other one has a new one.
    *served.pages.lock() = vec![vec![partner("a", vec![nonsense]), partner("b", roots())]];
    bundles.ask(channel.clone()).await.unwrap();
    let second = found.borrow().clone();
    assert_eq!(second["spire:a"], first["spire:a"]);
    assert_ne!(second["spire:b"], first["spire:b"]);
    assert!(bundles.problems.unusable.keys().eq(["a"]));

    // What may be on a page that is not read stays; what the server has no longer does not.
    *served.pages.lock() = vec![Vec::new(); 21];
    bundles.ask(channel.clone()).await.unwrap();
    assert_eq!(*found.borrow(), second);
    assert!(bundles.problems.is_cut);
    *served.pages.lock() = vec![Vec::new(); 20];
    bundles.ask(channel).await.unwrap();
    assert!(found.borrow().is_empty() && !bundles.problems.is_cut);
}
