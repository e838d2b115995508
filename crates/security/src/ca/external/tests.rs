//! Signers that err, and what their registration authority makes of it.

mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use navarch_api::identity::Identity;
use navarch_pki::{KeyType, SigningRequest};
use prometheus_client::registry::Registry;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;

use super::super::rotation::Missing;
use super::super::signer::tests::DAY;
use super::super::signer::{self, SignedChain};
use super::super::{Authority, Bundle, Subject};
use super::*;
use crate::trust_bundle;

const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
const BANK: &str = "spiffe://cluster.local/ns/bank/sa/web";

fn clock() -> SystemTime {
    jiff::Timestamp::now().into()
}

/// How a signer errs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    OtherKey,
    OtherName,
    TwoNames,
    Ca,
    TooLong,
    Expired,
    OtherRoot,
    Nothing,
    Silent,
    Away,
    /// For the namespace `shop` alone.
    Unavailable,
    Denied,
    /// Not reached by those of `shop`; requests of `bank` are rejected before it is asked.
    NotAsked,
}

/// A signer with a CA of its own.
struct FakeSigner {
    ca: Mutex<Bundle>,
    fault: Mutex<Fault>,
    roots: watch::Sender<Arc<str>>,
    calls: Mutex<usize>,
}

impl FakeSigner {
    fn new() -> Arc<Self> {
        Self::of(new_ca())
    }

    /// A signer with this CA.
    fn of(ca: Bundle) -> Arc<Self> {
        let roots = watch::channel(Arc::from(ca.roots.as_str())).0;
        Arc::new(Self {
            ca: Mutex::new(ca),
            fault: Mutex::new(Fault::None),
            roots,
            calls: Mutex::new(0),
        })
    }

    /// Signs a certificate with a fault.
    fn issue(&self, request: &CheckedRequest, fault: Fault) -> Vec<CertificateDer<'static>> {
        let ca = if fault == Fault::OtherRoot {
            new_ca()
        } else {
            self.ca.lock().clone()
        };
        let uri = |text: &str| SanType::URI(text.try_into().unwrap());
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![uri(&request.identity().to_string())];
        params.not_after = (clock() + request.lifetime()).into();
        params.not_before = (clock() - DAY).into();

        let admin = || uri("spiffe://cluster.local/ns/shop/sa/admin");
        if fault == Fault::OtherName {
            params.subject_alt_names = vec![admin()];
        }
        if fault == Fault::TwoNames {
            params.subject_alt_names.push(admin());
        }
        if fault == Fault::Ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        if fault == Fault::TooLong {
            params.not_after = (clock() + 100 * DAY).into();
        }
        if fault == Fault::Expired {
            params.not_after = (clock() - DAY / 2).into();
        }

        let key = KeyPair::from_pem(std::str::from_utf8(ca.key.expose()).unwrap()).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&ca.certificate, key).unwrap();
        let leaf = if fault == Fault::OtherKey {
            let other = KeyPair::generate().unwrap();
            params.signed_by(&other, &issuer).unwrap()
        } else {
            let csr = SigningRequest::parse(request.pem()).unwrap();
            params.signed_by(csr.public_key(), &issuer).unwrap()
        };
        vec![leaf.der().clone()]
    }
}

#[tonic::async_trait]
impl Signer for FakeSigner {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn sign(&self, request: &CheckedRequest) -> Result<SignedChain, SignerError> {
        let fault = *self.fault.lock();
        if fault == Fault::NotAsked && request.identity().namespace.as_str() == "bank" {
            return Err(SignerError::Request("no such signer".to_owned()));
        }
        *self.calls.lock() += 1;
        if matches!(fault, Fault::Away | Fault::NotAsked) {
            return Err(SignerError::Unreachable("connection refused".into()));
        }
        if fault == Fault::Unavailable && request.identity().namespace.as_str() == "shop" {
            return Err(SignerError::Unavailable("its key is locked".into()));
        }
        if fault == Fault::Denied {
            return Err(SignerError::denied("not on\nMondays"));
        }
        if fault == Fault::Silent {
            std::future::pending::<()>().await;
        }

        let certificates = if fault == Fault::Nothing {
            Vec::new()
        } else {
            self.issue(request, fault)
        };
        Ok(SignedChain {
            certificates,
            roots: self.roots.borrow().clone(),
            tainted: Arc::default(),
        })
    }

    fn roots(&self) -> Option<watch::Receiver<Arc<str>>> {
        Some(self.roots.subscribe())
    }
}

fn new_ca() -> Bundle {
    Bundle::self_signed("company", KeyType::P256, 3650 * DAY, clock()).unwrap()
}

/// A request for an identity.
fn request(identity: &str) -> CheckedRequest {
    signer::tests::request(identity, "")
}

const RULES: DistributionRules = DistributionRules {
    overlap: Duration::from_secs(180),
    wait: Duration::from_secs(3600),
};

/// The first start with a signer.
fn authority(signer: &Arc<FakeSigner>, limits: ExternalLimits) -> Arc<ExternalAuthority> {
    authority_after(signer, limits, "")
}

/// A start after these roots were stored.
fn authority_after(
    signer: &Arc<FakeSigner>,
    limits: ExternalLimits,
    last: &str,
) -> Arc<ExternalAuthority> {
    let metrics = Metrics::register(&mut Registry::default(), clock);
    let signer: Arc<dyn Signer> = signer.clone();
    let last = Arc::from(last);
    Arc::new(ExternalAuthority::new(
        signer, limits, RULES, &last, metrics, clock,
    ))
}

#[tokio::test]
async fn a_certificate_that_differs_from_the_request_is_not_handed_out() {
    let signer = FakeSigner::new();
    let external = authority(&signer, ExternalLimits::default());
    let issued = external.sign(&request(WEB)).await.unwrap();
    assert_eq!(issued.chain.len(), 1);
    assert_eq!(&*issued.roots, signer.ca.lock().roots);

    for (fault, part) in [
        (Fault::OtherKey, "for another key"),
        (Fault::OtherName, "for another identity"),
        (Fault::TwoNames, "for another identity"),
        (Fault::Ca, "a CA's"),
        (Fault::TooLong, "longer than MAX_WORKLOAD_CERT_TTL"),
        (Fault::Expired, "not valid now"),
        (Fault::OtherRoot, "unusable certificate"),
        (Fault::Nothing, "missing"),
        (Fault::Denied, r"not on\nMondays"),
    ] {
        *signer.fault.lock() = fault;
        let error = external.sign(&request(WEB)).await.unwrap_err().to_string();
        assert!(error.contains(part), "{fault:?}: {error}");
    }

    let report = external.report();
    assert!(report.last_success.is_some() && report.away.is_none());
    assert!(report.last_error.unwrap().contains("Mondays"));
    assert!(report.roots.len() == 1 && report.roots[0].is_distributed);
}

#[tokio::test(start_paused = true)]
async fn a_signer_that_is_away_is_left_alone_and_a_silent_one_costs_its_own_time() {
    let signer = FakeSigner::new();
    let external = authority(&signer, ExternalLimits::default());
    *signer.fault.lock() = Fault::Away;
    for _ in 0..100 {
        let error = external.sign(&request(WEB)).await.unwrap_err();
        assert!(matches!(error, SignerError::Unreachable(_)), "{error}");
    }
    assert_eq!(*signer.calls.lock(), 3, "the circuit is open");
    assert_eq!(external.report().away.unwrap(), "connection refused");

    *signer.fault.lock() = Fault::None;
    tokio::time::advance(Duration::from_secs(120)).await;
    external.sign(&request(WEB)).await.unwrap();

    *signer.fault.lock() = Fault::Silent;
    let begun = Instant::now();
    let error = external.sign(&request(WEB)).await.unwrap_err();
    assert!(matches!(error, SignerError::TimedOut(_)), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 30);
    *signer.fault.lock() = Fault::None;
    external.sign(&request(WEB)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_no_signer_is_asked_for_does_not_close_the_circuit() {
    let signer = FakeSigner::new();
    let external = authority(&signer, ExternalLimits::default());
    *signer.fault.lock() = Fault::NotAsked;
    for _ in 0..10 {
        external.sign(&request(WEB)).await.unwrap_err();
    }
    assert_eq!(*signer.calls.lock(), 3, "the circuit is open");

    tokio::time::advance(Duration::from_secs(120)).await;
    let error = external.sign(&request(BANK)).await.unwrap_err();
    assert!(matches!(error, SignerError::Request(_)), "{error}");
    assert!(external.report().away.is_some(), "the signer was not asked");

    for _ in 0..10 {
        external.sign(&request(WEB)).await.unwrap_err();
    }
    assert_eq!(*signer.calls.lock(), 4, "one more probe");
}

#[tokio::test(start_paused = true)]
async fn a_signer_that_is_unavailable_for_a_namespace_signs_for_others() {
    let signer = FakeSigner::new();
    let external = authority(&signer, ExternalLimits::default());
    *signer.fault.lock() = Fault::Unavailable;
    for _ in 0..20 {
        let error = external.sign(&request(WEB)).await.unwrap_err();
        assert!(matches!(error, SignerError::Unavailable(_)), "{error}");
    }
    assert_eq!(*signer.calls.lock(), 3, "the namespace's circuit is open");

    for _ in 0..5 {
        external.sign(&request(BANK)).await.unwrap();
    }
    let report = external.report();
    assert_eq!(report.away, None);
    let expected = UnavailableNamespace {
        namespace: "shop".to_owned(),
        why: "its key is locked".to_owned(),
    };
    assert_eq!(report.unavailable, [expected]);

    *signer.fault.lock() = Fault::None;
    tokio::time::advance(Duration::from_secs(120)).await;
    external.sign(&request(WEB)).await.unwrap();
    assert!(external.report().unavailable.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_namespace_leaves_others_their_share() {
    let signer = FakeSigner::new();
    let limits = ExternalLimits {
        at_once: 8,
        per_second: 10,
        burst: 20,
        ..ExternalLimits::default()
    };
    let external = authority(&signer, limits);
    *signer.fault.lock() = Fault::Silent;

    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let external = external.clone();
        flood.spawn(async move { external.sign(&request(WEB)).await });
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(*signer.calls.lock(), 4, "half of the turns");

    *signer.fault.lock() = Fault::None;
    external.sign(&request(BANK)).await.unwrap();

    let mut limited = 0;
    while let Some(Ok(outcome)) = flood.join_next().await {
        limited += usize::from(matches!(outcome, Err(SignerError::Rate(_))));
    }
    assert!(limited >= 79, "{limited} of 100");
}

#[tokio::test(start_paused = true)]
async fn a_new_root_signs_only_once_proxies_trust_it() {
    let signer = FakeSigner::new();
    let external = authority(&signer, ExternalLimits::default());
    let signers = ExternalSigners::new(Some(external.clone()), BTreeMap::new());
    let lacking = Arc::new(Mutex::new(true));
    let find_missing: FindMissing = {
        let lacking = lacking.clone();
        Arc::new(move |_| {
            let missing = Missing {
                who: "web".to_owned(),
                why: "late".to_owned(),
            };
            lacking.lock().then_some(missing).into_iter().collect()
        })
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(signers.clone().follow(external.clone(), find_missing));

    // Both roots are published before the new one signs.
    let next = new_ca();
    let both = format!("{}{}", signer.ca.lock().roots, next.roots);
    signer.roots.send_replace(both.into());
    *signer.ca.lock() = next.clone();
    let mut published = signers.roots();
    published
        .wait_for(|roots| trust_bundle::split(roots, "").unwrap().len() == 2)
        .await
        .unwrap();
    let error = external.sign(&request(WEB)).await.unwrap_err();
    assert!(matches!(error, SignerError::Undistributed(_)), "{error}");
    let kept = external.distributed_roots().unwrap();
    let kept = || trust_bundle::split(&kept.borrow(), "").unwrap().len();
    assert_eq!(kept(), 1, "a restart waits as well");

    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(
        external.sign(&request(WEB)).await.is_err(),
        "a proxy lacks it"
    );
    assert_eq!(external.report().missing.len(), 1);
    *lacking.lock() = false;
    tokio::time::sleep(Duration::from_secs(10)).await;
    external.sign(&request(WEB)).await.unwrap();
    assert_eq!(kept(), 2);

    // Unreadable roots change nothing, nor do roots with a certificate that is no CA's.
    let leaf = external.sign(&request(WEB)).await.unwrap().chain[0].clone();
    let leaf = navarch_pki::pem::encode(&leaf);
    for unusable in ["nonsense".to_owned(), format!("{}{leaf}", next.roots)] {
        signer.roots.send_replace(unusable.into());
        tokio::time::sleep(Duration::from_secs(10)).await;
        external.sign(&request(WEB)).await.unwrap();
    }
    let roots = signers.roots().borrow().clone();
    assert_eq!(trust_bundle::split(&roots, "").unwrap().len(), 2);

    // A proxy that never trusts a root delays it for a limited time.
    *lacking.lock() = true;
    let third = new_ca();
    signer
        .roots
        .send_replace(format!("{}{}", next.roots, third.roots).into());
    *signer.ca.lock() = third;
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert!(external.sign(&request(WEB)).await.is_err());
    tokio::time::sleep(Duration::from_secs(200)).await;
    external.sign(&request(WEB)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_root_that_is_new_after_a_restart_is_distributed_first() {
    let limits = ExternalLimits::default();
    let trusts_all: FindMissing = Arc::new(|_| Vec::new());

    // As a file of pinned roots with another root than at the last stop, or a stored text that is
    // damaged.
    for last in [new_ca().roots, "damaged".to_owned()] {
        let signer = FakeSigner::new();
        let external = authority_after(&signer, limits, &last);
        assert_eq!(
            &*external.roots(),
            signer.ca.lock().roots,
            "proxies get it at once"
        );
        let error = external.sign(&request(WEB)).await.unwrap_err();
        assert!(matches!(error, SignerError::Undistributed(_)), "{error}");
        let kept = external.distributed_roots().unwrap();
        assert!(kept.borrow().is_empty(), "the stored ones stay");

        let mut tasks = tokio::task::JoinSet::new();
        let follow = {
            let external = external.clone();
            let trusts_all = trusts_all.clone();
            async move { external.follow(trusts_all, || {}).await }
        };
        tasks.spawn(follow);
        tokio::time::sleep(RULES.overlap + Duration::from_secs(10)).await;
        external.sign(&request(WEB)).await.unwrap();
        let kept = kept.borrow().clone();
        assert_eq!(trust_bundle::split(&kept, "").unwrap().len(), 1);
    }

    // The one of the last stop is used at once.
    let signer = FakeSigner::new();
    let last = signer.ca.lock().roots.clone();
    let external = authority_after(&signer, limits, &last);
    external.sign(&request(WEB)).await.unwrap();
}

#[test]
fn the_bound_of_objects_follows_the_requests_at_once() {
    let objects = |at_once| {
        let limits = ExternalLimits {
            at_once,
            ..ExternalLimits::default()
        };
        limits.objects()
    };
    assert_eq!(ExternalLimits::default().objects(), 256);
    assert_eq!((objects(1), objects(200)), (4, 800));
}

#[test]
fn every_failure_has_a_label_by_the_words_of_its_text() {
    let label = |error: SignerError| {
        assert!(!error.to_string().is_empty());
        error.result()
    };
    let why = || Arc::from("why");
    assert_eq!(label(SignerError::Unreachable(why())), "unreachable");
    assert_eq!(label(SignerError::Unavailable(why())), "unavailable");
    assert_eq!(label(SignerError::TimedOut(DAY)), "timed_out");
    assert_eq!(label(SignerError::Mismatch("a CA's")), "unusable");
}

#[test]
fn namespaces_have_signers_of_their_own() {
    let one = authority(&FakeSigner::new(), ExternalLimits::default());
    let other = authority(&FakeSigner::new(), ExternalLimits::default());
    let namespaces = BTreeMap::from([
        (Namespace::new("bank"), Some(other.clone())),
        (Namespace::new("legacy"), None),
    ]);
    let signers = ExternalSigners::new(Some(one.clone()), namespaces);

    let of = |name: &str| signers.of(&Namespace::new(name));
    assert!(of("shop").is_some_and(|signer| Arc::ptr_eq(signer, &one)));
    assert!(of("bank").is_some_and(|signer| Arc::ptr_eq(signer, &other)));
    assert!(of("legacy").is_none());
    assert_eq!(signers.reports()[1].namespaces, ["bank"]);

    let roots = signers.roots().borrow().clone();
    let roots: BTreeSet<_> = trust_bundle::split(&roots, "")
        .unwrap()
        .into_iter()
        .collect();
    assert_eq!(roots.len(), 2, "everyone trusts both");
}

#[test]
fn navarchs_own_certificates_pass_the_checks() {
    let authority = Authority::new(&new_ca(), clock()).unwrap();
    let request = request(WEB);
    let subject = Subject::Workload(Identity::parse(WEB).unwrap());
    let csr = SigningRequest::parse(request.pem()).unwrap();
    let certificates = authority.sign(&csr, &subject, DAY, clock()).unwrap();
    let signed = SignedChain {
        certificates,
        roots: authority.roots().pem().into(),
        tainted: Arc::default(),
    };
    request.accept(signed, DAY, clock()).unwrap();
}
