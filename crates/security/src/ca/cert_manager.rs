//! cert-manager signs (`EXTERNAL_CA=NAVARCH_RA_CERT_MANAGER`): a CertificateRequest for each
//! certificate, in one namespace, for one issuer.
//!
//! Approval is cert-manager's: its own approver, or approver-policy. The roots are those of
//! `NAVARCH_SIGNER_ROOTS`: who may write a CertificateRequest's status could name any `ca` there.

mod memory;
mod status;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer;

use super::bundle::certificates;
use super::registration::objects::{CREATE_TIMEOUT, Deletion, Objects, random_name};
use super::signer::{CheckedRequest, SignedChain, Signer, SignerError, api_error};
use crate::Clock;
use memory::Memory;
use navarch_api::names::Namespace;
use status::Verdict;

/// By this label the watch finds the objects of all replicas.
const LABEL: &str = "app.kubernetes.io/managed-by";
const LABEL_VALUE: &str = "navarch";
/// The beginning of the objects' names.
const PREFIX: &str = "navarch-";
/// The annotation with the identity, for approvers and audits.
const IDENTITY: &str = "navarch.io/spiffe-id";
/// Key usages of workload certificates.
const USAGES: [&str; 4] = [
    "digital signature",
    "key encipherment",
    "server auth",
    "client auth",
];
/// The reason if the creation of an object is not answered.
const UNANSWERED: &str = "the API server did not create the CertificateRequest in time";

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
    objects: Objects<DynamicObject>,
    memory: Memory,
    /// In PEM, from the file of pinned roots.
    roots: watch::Receiver<Arc<str>>,
    clock: Clock,
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
    /// The issuer of a configuration, with at most `max_objects` requests at once in `namespace`
    /// unless it names another, and the task that follows and deletes them.
    pub fn start(
        client: kube::Client,
        config: CertManagerConfig,
        namespace: &Namespace,
        roots: watch::Receiver<Arc<str>>,
        max_objects: usize,
        clock: Clock,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
            "cert-manager.io",
            "v1",
            "CertificateRequest",
        ));
        let namespace = config.namespace.as_ref().unwrap_or(namespace);
        let api = Api::namespaced_with(client, namespace.as_str(), &resource);
        let objects = Objects::new(api.clone(), max_objects);
        let memory = Memory::default();

        let follow = sweep::run(api.clone(), objects.clone(), memory.clone(), clock);
        let manager = Self {
            api,
            resource,
            issuer: config.issuer,
            objects,
            memory,
            roots,
            clock,
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

    /// Checks what cert-manager cannot do, before it is asked.
    fn check(&self, request: &CheckedRequest) -> Result<(), SignerError> {
        let IssuerReference { kind, group, name } = &self.issuer;
        request.names_no_signer(format_args!("{kind}.{group}/{name}"))?;

        // cert-manager copies the names of the CSR, and adds none.
        if !has_names(request) {
            let why = "the CSR has no subject alternative name; cert-manager requires the identity";
            return Err(SignerError::Request(why.to_owned()));
        }

        Ok(())
    }

    /// Creates an object, hands the chain to the caller, and deletes the object, also if the caller
    /// gives up.
    async fn carry_out(
        self,
        name: String,
        object: DynamicObject,
        mut caller: oneshot::Sender<Result<String, SignerError>>,
    ) {
        let verdict = self.memory.wait_for(&name);
        let made = match timeout(CREATE_TIMEOUT, self.create(object)).await {
            Ok(made) => made,
            Err(_) => Err(SignerError::Unavailable(UNANSWERED.into())),
        };

        // An API server that has not answered may have created it.
        let is_made = made.is_ok();
        let may_exist = is_made
            || matches!(
                made,
                Err(SignerError::Unavailable(_) | SignerError::Unreachable(_))
            );
        let outcome = match made {
            Ok(()) => tokio::select! {
                verdict = verdict => chain_of(verdict.ok()),
                () = caller.closed() => chain_of(None),
            },
            Err(error) => Err(error),
        };

        let _ = caller.send(outcome);
        self.memory.give_up(&name);
        if may_exist {
            self.remove(&name, is_made).await;
        }
    }

    /// Creates an object.
    async fn create(&self, object: DynamicObject) -> Result<(), SignerError> {
        let made = self.api.create(&PostParams::default(), &object).await;
        made.map_err(|error| api_error(&error))?;
        Ok(())
    }

    /// Deletes an object, or leaves it to the sweep. Unless it `is_made` for certain, it may appear
    /// later.
    async fn remove(&self, name: &str, is_made: bool) {
        let deleted = self.objects.delete(name).await;
        if let Err(error) = &deleted {
            tracing::warn!(
                name,
                %error,
                "failed to delete a CertificateRequest; the sweep tries again"
            );
        }

        let is_missing = matches!(deleted, Ok(Deletion::Missing));
        if deleted.is_err() || is_missing && !is_made {
            let now = Timestamp::try_from((self.clock)()).unwrap_or(Timestamp::MAX);
            self.memory.leave(name, now);
        }
    }
}

#[tonic::async_trait]
impl Signer for CertManager {
    fn name(&self) -> &'static str {
        "cert-manager"
    }

    async fn sign(&self, request: &CheckedRequest) -> Result<SignedChain, SignerError> {
        self.check(request)?;
        let namespace = request.identity().namespace.clone();
        let permit = self.objects.permit(Some(namespace)).await;
        let permit = permit.map_err(|_| SignerError::QueueFull)?;
        if self.memory.is_full() {
            let why = "too many CertificateRequests exist that are not deleted yet";
            return Err(SignerError::busy(why));
        }

        let name = random_name(PREFIX);
        let name = name.ok_or_else(|| SignerError::failed("no randomness for a name"))?;
        let object = self.object(&name, request);
        let (caller, outcome) = oneshot::channel();
        let work = self.clone().carry_out(name, object, caller);
        self.objects.complete(permit, work);

        let chain = outcome.await.unwrap_or_else(|_| chain_of(None))?;
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

/// The chain in a verdict; `None` if there will be none.
fn chain_of(verdict: Option<Verdict>) -> Result<String, SignerError> {
    match verdict {
        None => Err(SignerError::failed("the request was given up")),
        Some(Verdict::Pending) => Err(SignerError::failed("no verdict")),
        Some(Verdict::Denied(reason)) => Err(SignerError::denied(&reason)),
        Some(Verdict::Failed(reason)) => Err(SignerError::failed(&reason)),
        Some(Verdict::Signed(chain)) => Ok(chain),
    }
}

/// Whether a CSR has names. They are the identity, as it is checked.
fn has_names(request: &CheckedRequest) -> bool {
    let parsed = X509CertificationRequest::from_der(request.der());
    parsed.is_ok_and(|(_, request)| {
        let mut extensions = request.requested_extensions().into_iter().flatten();
        extensions.any(|one| matches!(one, ParsedExtension::SubjectAlternativeName(_)))
    })
}
