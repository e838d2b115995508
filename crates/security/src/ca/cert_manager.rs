//! cert-manager signs (`EXTERNAL_CA=NAVARCH_RA_CERT_MANAGER`): a CertificateRequest for each
//! certificate, in one namespace, for one issuer.
//!
//! Approval is cert-manager's: its own approver, or approver-policy. The roots are those of
//! `NAVARCH_SIGNER_ROOTS`: who may write a CertificateRequest's status could name any `ca` there.

mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

use super::bundle::certificates;
use super::signer::{CheckedRequest, SignedChain, Signer, SignerError, api_error};
use crate::Clock;
use navarch_api::names::Namespace;
use navarch_kubernetes::InWords;
use navarch_net::cryptography;
use status::Verdict;

/// The label of the objects.
const LABEL: &str = "app.kubernetes.io/managed-by";
/// Its value.
const LABEL_VALUE: &str = "navarch";
/// The beginning of the objects' names.
const PREFIX: &str = "navarch-";
/// Random bytes of a name: nobody can prepare an object under it.
const NAME_BYTES: usize = 16;
/// The annotation with the identity, for approvers and audits.
const IDENTITY: &str = "navarch.io/spiffe-id";
/// Key usages of workload certificates.
const USAGES: [&str; 4] = [
    "digital signature",
    "key encipherment",
    "server auth",
    "client auth",
];
/// The age at which an object that no one here waits for is deleted: its replica may have ended.
const MAX_AGE: SignedDuration = SignedDuration::from_mins(10);
/// Interval of looking for such objects.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Objects that wait to be deleted; others are found by their age.
const DELETIONS: usize = 1024;
/// Maximum number of remembered objects without a waiter.
const MAX_OTHERS: usize = 10_000;
/// The API server's code for an object that does not exist.
const NOT_FOUND: u16 = 404;

/// Where requests are created, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertManagerConfig {
    /// `NAVARCH_CERT_MANAGER_NAMESPACE`: the control plane's own if unset.
    pub namespace: Option<Namespace>,
    /// `NAVARCH_CERT_MANAGER_ISSUER`.
    pub issuer: IssuerReference,
}

/// The issuer that signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerReference {
    /// Such as `Issuer` or `ClusterIssuer`.
    pub kind: String,
    /// Such as `cert-manager.io`.
    pub group: String,
    /// The name of the object.
    pub name: String,
}

/// Why a text is not an issuer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not KIND/NAME or KIND.GROUP/NAME, such as ClusterIssuer/mesh")]
pub struct IssuerReferenceError(String);

/// The client of cert-manager.
#[derive(Clone)]
pub struct CertManager {
    api: Api<DynamicObject>,
    resource: ApiResource,
    issuer: IssuerReference,
    waiters: Waiters,
    deletions: mpsc::Sender<String>,
    /// The roots in PEM.
    roots: watch::Receiver<Arc<str>>,
}

/// Those who wait for an object, by its name. Clones share them.
#[derive(Clone, Debug, Default)]
struct Waiters(Arc<Mutex<HashMap<String, oneshot::Sender<Verdict>>>>);

/// Someone who waits. Dropped, the object is deleted.
struct Waiting<'a> {
    manager: &'a CertManager,
    name: String,
}

impl std::str::FromStr for IssuerReference {
    type Err = IssuerReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || IssuerReferenceError(text.chars().take(200).collect());
        let (kind, name) = text.split_once('/').ok_or_else(error)?;
        let (kind, group) = kind.split_once('.').unwrap_or((kind, "cert-manager.io"));
        let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_kind
            || navarch_kubernetes::object_name(group).is_err()
            || navarch_kubernetes::object_name(name).is_err()
        {
            return Err(error());
        }
        Ok(Self {
            kind: kind.to_owned(),
            group: group.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl std::fmt::Debug for CertManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertManager")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl CertManager {
    /// The issuer of a configuration, with requests in `namespace` unless it names another, and the
    /// task that follows and deletes them.
    pub fn start(
        client: kube::Client,
        config: CertManagerConfig,
        namespace: &Namespace,
        roots: watch::Receiver<Arc<str>>,
        clock: Clock,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
            "cert-manager.io",
            "v1",
            "CertificateRequest",
        ));
        let namespace = config.namespace.as_ref().unwrap_or(namespace);
        let api = Api::namespaced_with(client, namespace.as_str(), &resource);
        let (deletions, to_delete) = mpsc::channel(DELETIONS);
        let waiters = Waiters::default();

        let follow = {
            let watched = follow(api.clone(), waiters.clone(), deletions.clone(), clock);
            let deleted = delete(api.clone(), to_delete);
            async move {
                tokio::join!(watched, deleted);
            }
        };
        let manager = Self {
            api,
            resource,
            issuer: config.issuer,
            waiters,
            deletions,
            roots,
        };
        (manager, follow)
    }

    /// The object of a request.
    fn object(&self, name: &str, request: &CheckedRequest) -> DynamicObject {
        let mut object = DynamicObject::new(name, &self.resource).data(json!({"spec": {
            "request": STANDARD.encode(request.pem()),
            "duration": format!("{}s", request.lifetime().as_secs()),
            "isCA": false,
            "usages": USAGES,
            "issuerRef": {
                "name": self.issuer.name,
                "kind": self.issuer.kind,
                "group": self.issuer.group,
            },
        }}));

        let identity = request.identity().to_string();
        object.metadata.labels = Some(BTreeMap::from([(LABEL.to_owned(), LABEL_VALUE.to_owned())]));
        object.metadata.annotations = Some(BTreeMap::from([(IDENTITY.to_owned(), identity)]));
        object
    }
}

#[tonic::async_trait]
impl Signer for CertManager {
    fn name(&self) -> &'static str {
        "cert-manager"
    }

    async fn sign(&self, request: &CheckedRequest) -> Result<SignedChain, SignerError> {
        let name = new_name().ok_or_else(|| SignerError::failed("no randomness for a name"))?;
        let (sender, verdict) = oneshot::channel();
        self.waiters.0.lock().insert(name.clone(), sender);
        let waiting = Waiting {
            manager: self,
            name,
        };

        let object = self.object(&waiting.name, request);
        let made = self.api.create(&PostParams::default(), &object).await;
        made.map_err(|error| api_error(&error))?;

        let verdict = verdict.await;
        let verdict = verdict.map_err(|_| SignerError::failed("the watch has ended"))?;
        let chain = match verdict {
            Verdict::Pending => return Err(SignerError::failed("no verdict")),
            Verdict::Denied(reason) => return Err(SignerError::denied(&reason)),
            Verdict::Failed(reason) => return Err(SignerError::failed(&reason)),
            Verdict::Signed(chain) => chain,
        };
        Ok(SignedChain {
            certificates: certificates(&chain, "the CertificateRequest's chain")?,
            roots: self.roots.borrow().clone(),
            tainted: Arc::default(),
        })
    }

    fn roots(&self) -> Option<watch::Receiver<Arc<str>>> {
        Some(self.roots.clone())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.manager.waiters.0.lock().remove(&self.name);
        // A full queue leaves it to the sweep.
        let _ = self
            .manager
            .deletions
            .try_send(std::mem::take(&mut self.name));
    }
}

impl Waiters {
    /// Hands a verdict to the one who waits for it. Returns whether there is someone.
    fn hand(&self, name: &str, verdict: Verdict) -> bool {
        let mut waiters = self.0.lock();
        if matches!(verdict, Verdict::Pending) {
            return waiters.contains_key(name);
        }
        // It may have given up in between.
        match waiters.remove(name) {
            Some(waiter) => waiter.send(verdict).is_ok(),
            None => false,
        }
    }
}

/// A name that cannot be guessed.
fn new_name() -> Option<String> {
    let mut bytes = [0_u8; NAME_BYTES];
    let random = cryptography::provider().secure_random;
    random.fill(&mut bytes).ok()?;
    let mut name = PREFIX.to_owned();
    for byte in bytes {
        write!(name, "{byte:02x}").ok()?;
    }
    Some(name)
}

/// Watches all requests of the control plane's replicas, and hands their verdicts to those who
/// wait; does not return.
async fn follow(
    api: Api<DynamicObject>,
    waiters: Waiters,
    deletions: mpsc::Sender<String>,
    clock: Clock,
) {
    let config = watcher::Config::default().labels(&format!("{LABEL}={LABEL_VALUE}"));
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    // Requests without a waiter here, with their creation.
    let mut others: BTreeMap<String, Timestamp> = BTreeMap::new();

    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(Event::Apply(object) | Event::InitApply(object))) => {
                    let name = object.metadata.name.clone().unwrap_or_default();
                    let is_ours = waiters.hand(&name, Verdict::of(&object));
                    let created = object.metadata.creation_timestamp;
                    if let Some(created) = created.filter(|_| !is_ours && others.len() < MAX_OTHERS) {
                        others.insert(name, created.0);
                    }
                }
                Some(Ok(Event::Delete(object))) => {
                    let name = object.metadata.name.clone().unwrap_or_default();
                    others.remove(&name);
                    let deleted = "the CertificateRequest was deleted".to_owned();
                    waiters.hand(&name, Verdict::Failed(deleted));
                }
                Some(Ok(Event::Init)) => others.clear(),
                Some(Ok(Event::InitDone)) => {}
                Some(Err(error)) => tracing::warn!(
                    error = %InWords(&error),
                    "failed to watch CertificateRequests"
                ),
                None => return std::future::pending().await,
            },

            _ = sweep.tick() => {
                let now = Timestamp::try_from(clock()).unwrap_or(Timestamp::MAX);
                let is_old = |created: &Timestamp| now.duration_since(*created) > MAX_AGE;
                let old = others.iter().filter(|(name, created)| {
                    name.starts_with(PREFIX) && is_old(created)
                });
                for (name, _) in old {
                    // What does not fit is found again.
                    let _ = deletions.try_send(name.clone());
                }
            }
        }
    }
}

/// Deletes requests, one after the other; does not return.
async fn delete(api: Api<DynamicObject>, mut names: mpsc::Receiver<String>) {
    while let Some(name) = names.recv().await {
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => {}
            Err(error) => tracing::warn!(
                name,
                error = %InWords(&error),
                "failed to delete a CertificateRequest; it is tried again when it is old"
            ),
        }
    }
    std::future::pending().await
}
