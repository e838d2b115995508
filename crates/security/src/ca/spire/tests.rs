//! A SPIRE server in the same process.

use std::time::SystemTime;

use navarch_api::identity::Identity;
use navarch_pki::{KeyType, SigningRequest};
use navarch_proto::spire::api::server::bundle::v1::ListFederatedBundlesResponse;
use navarch_proto::spire::api::server::bundle::v1::bundle_server::{self, BundleServer};
use navarch_proto::spire::api::server::svid::v1::MintX509svidResponse;
use navarch_proto::spire::api::server::svid::v1::svid_server::{self, SvidServer};
use navarch_proto::spire::api::types::{X509Certificate, X509svid};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response};

use super::super::{Authority, Bundle, Subject};
use super::*;

const WEB: &str = "spiffe://td/ns/shop/sa/web";
const DAY: Duration = Duration::from_secs(24 * 3600);

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

/// The server of the trust domain `td`, with one tainted root, and partners on two pages.
#[derive(Clone)]
struct Served {
    signing: Arc<Authority>,
    tainted: Arc<Authority>,
    partner: Arc<Authority>,
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
        let is_first = request.into_inner().page_token.is_empty();
        let trust_domain = if is_first { "stranger" } else { "partner" };
        let bundle = SpireBundle {
            trust_domain: trust_domain.to_owned(),
            x509_authorities: vec![root(&self.partner, false)],
            ..SpireBundle::default()
        };
        Ok(Response::new(ListFederatedBundlesResponse {
            bundles: vec![bundle],
            next_page_token: if is_first { "2" } else { "" }.to_owned(),
        }))
    }
}

fn request() -> CheckedRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(WEB.try_into().unwrap())];
    let csr = params.serialize_request(&KeyPair::generate().unwrap());
    let csr = csr.unwrap().pem().unwrap();
    CheckedRequest::new(&csr, Identity::parse(WEB).unwrap(), DAY, "").unwrap()
}

#[tokio::test]
async fn svids_are_minted_and_bundles_are_those_of_the_mesh_and_of_named_partners() {
    let served = Served {
        signing: Arc::new(authority()),
        tainted: Arc::new(authority()),
        partner: Arc::new(authority()),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(SvidServer::new(served.clone()))
        .add_service(BundleServer::new(served.clone()))
        .serve_with_incoming(UnixListenerStream::new(listener));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { server.await.unwrap() });

    let config = SpireConfig {
        server: SpireServer::Socket(UnixTarget {
            path,
            user: None,
            is_private: true,
        }),
        federates_with: BTreeSet::from(["partner".to_owned()]),
    };
    let (spire, mut federated, follow) = Spire::connect(config, "td", RootsSource::Signer, clock);
    tasks.spawn(follow);
    let mut roots = spire.roots().unwrap();
    roots.wait_for(|roots| !roots.is_empty()).await.unwrap();
    assert_eq!(
        &**roots.borrow(),
        served.signing.roots().pem(),
        "without the tainted one"
    );
    federated.wait_for(|found| !found.is_empty()).await.unwrap();
    let names: Vec<String> = federated.borrow().keys().cloned().collect();
    assert_eq!(names, ["spire:partner"]);

    let request = request();
    let signed = spire.sign(&request).await.unwrap();
    request.accept(signed, DAY, clock()).unwrap();

    // The server of another mesh has no roots for this one.
    let other = Bundles {
        channel: spire.channel.clone(),
        trust_domain: "other".to_owned(),
        federates_with: BTreeSet::new(),
        roots: watch::channel(Arc::default()).0,
        federated: watch::channel(Fetched::new()).0,
    };
    let channel = spire.channel.borrow().clone().unwrap();
    let error = other.ask(channel).await.unwrap_err();
    assert!(
        matches!(&error, SpireBundleError::TrustDomain(name) if name == "td"),
        "{error}"
    );
}
