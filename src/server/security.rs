//! Puts the certificate authority together and opens what rests on it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio_util::sync::CancellationToken;

use super::Tasks;
use crate::api::names::{Namespace, TrustDomain};
use crate::api::object::NamespacedName;
use crate::push::worker::PushHandle;
use crate::security::authenticate::{
    Gatekeeper, Glance, JwtAuthenticator, JwtRule, Surroundings, TokenReviews, TrustedNetworks, token_review,
};
use crate::security::ca::root_store::{RootStore, RootStoreError};
use crate::security::ca::service::{CertificateService, CertificateServiceConfig};
use crate::security::ca::{self, Authority, Bundle, BundleError, CurrentAuthority, KeyType, Lifetimes, PluggedIn};
use crate::security::serving::{self, ServingTls};

/// How often the files of a plugged-in CA are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// What flags and environment say of identities and certificates.
#[derive(Clone, Debug)]
pub struct SecurityConfig {
    /// `ROOT_CA_DIR`: the folder of a plugged-in CA. Default `./etc/cacerts`.
    pub plugged_in: PathBuf,
    /// Where a self-signed root is kept, where there is no API server to keep it; `None` keeps it in memory.
    pub state: Option<PathBuf>,
    /// The kind of a new root's key.
    pub key_type: KeyType,
    /// `CITADEL_SELF_SIGNED_CA_CERT_TTL`: how long a new root lasts. Default 10 years.
    pub root_lifetime: Duration,
    /// How long workloads' certificates last.
    pub lifetimes: Lifetimes,
    /// `CA_TRUSTED_NODE_ACCOUNTS`: node proxies that may ask for certificates of what runs on their node.
    pub trusted_nodes: BTreeSet<NamespacedName>,
    /// `JWT_RULE`: tokens that are checked by keys.
    pub jwt_rule: Option<JwtRule>,
    /// `TOKEN_AUDIENCES`: whom tokens of service accounts must be for. Default `istio-ca`.
    pub audiences: Vec<String>,
    /// `TRUSTED_GATEWAY_CIDR`: whose word on the clients behind them counts.
    pub trusted_gateways: TrustedNetworks,
    /// `ISTIOD_CUSTOM_HOST`: further names under which Navarch is reached, comma-separated.
    pub custom_hosts: String,
    /// `REVISION`: the revision of this control plane.
    pub revision: String,
    /// `DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES`: namespaces beside the control plane's whose workloads may see all debug pages.
    pub debug_namespaces: Vec<Namespace>,
    /// `XDS_AUTH`: xDS over TLS is for known callers only. Default true.
    pub xds_auth: bool,
}

/// What rests on the authority.
#[derive(Debug)]
pub(super) struct Security {
    /// The authority in force.
    pub(super) authority: CurrentAuthority,
    /// TLS of ports.
    pub(super) tls: ServingTls,
    /// Certificates for workloads.
    pub(super) certificates: CertificateService,
}

/// The snapshot in force as what is known of the mesh.
#[derive(Clone, Debug)]
struct Snapshot(PushHandle);

impl Default for SecurityConfig {
    fn default() -> Self {
        Self {
            plugged_in: PathBuf::from("./etc/cacerts"),
            state: None,
            key_type: KeyType::default(),
            root_lifetime: Duration::from_secs(3650 * 24 * 3600),
            lifetimes: Lifetimes::default(),
            trusted_nodes: BTreeSet::new(),
            jwt_rule: None,
            audiences: vec!["istio-ca".to_owned()],
            trusted_gateways: TrustedNetworks::default(),
            custom_hosts: String::new(),
            revision: String::new(),
            debug_namespaces: Vec::new(),
            xds_auth: true,
        }
    }
}

impl Surroundings for Snapshot {
    fn glance(&self) -> Glance {
        let context = self.0.context();
        let (config, settings) = (&context.mesh.config, &context.mesh.settings);
        Glance {
            objects: context.objects.clone(),
            trust_domain: trust_domain(&config.trust_domain),
            aliases: config.trust_domain_aliases.iter().map(|alias| trust_domain(alias)).collect(),
            cluster: settings.cluster_id.clone(),
        }
    }
}

/// The time of day.
fn clock() -> SystemTime {
    jiff::Timestamp::now().into()
}

/// A trust domain as it stands in identities: `@` is no sign of a SPIFFE id.
fn trust_domain(text: &str) -> TrustDomain {
    TrustDomain::new(text.replace('@', "."))
}

/// Finds or makes the authority, and starts what rests on it. With a client, roots are kept and tokens reviewed by its API
/// server.
///
/// # Errors
/// When there is no authority to be had: nothing secure can be served then.
pub(super) async fn start(
    config: &SecurityConfig,
    namespace: &Namespace,
    client: Option<&kube::Client>,
    push: &PushHandle,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> anyhow::Result<Security> {
    let plugged_in = PluggedIn { folder: config.plugged_in.clone() };
    let now = clock();
    let found = plugged_in.authority(now).context("the plugged-in CA cannot be used")?;
    let is_plugged_in = found.is_some();
    let authority = match found {
        Some(authority) => authority,
        None => self_signed(config, namespace, client, push, now).await.context("no CA")?,
    };
    let (switch, authority) = ca::in_force(authority);
    if is_plugged_in {
        let (stopped, watching) = (stop.clone(), ca::watch_folder(plugged_in, switch, LOOK, clock));
        super::spawn("ca files", tasks, async move {
            super::until(&stopped, watching).await;
            Ok(())
        });
    }
    let names = serving::host_names(namespace.as_str(), &config.revision, &config.custom_hosts);
    let (tls, renewing) = serving::start(authority.clone(), names, clock)?;
    let stopped = stop.clone();
    super::spawn("own certificate", tasks, async move {
        super::until(&stopped, renewing).await;
        Ok(())
    });
    let surroundings: Arc<dyn Surroundings> = Arc::new(Snapshot(push.clone()));
    let service = CertificateServiceConfig {
        lifetimes: config.lifetimes,
        trusted_nodes: config.trusted_nodes.clone(),
        ..CertificateServiceConfig::default()
    };
    let certificates = CertificateService::new(authority.clone(), surroundings, service, clock);
    Ok(Security { authority, tls, certificates })
}

/// Says who callers are: by certificates, by the keys of `JWT_RULE`, by the API server if there is a client, by gateways.
///
/// # Errors
/// When `JWT_RULE` cannot be used.
pub(super) fn gatekeeper(
    config: &SecurityConfig,
    client: Option<&kube::Client>,
    push: &PushHandle,
) -> anyhow::Result<Arc<Gatekeeper>> {
    let surroundings: Arc<dyn Surroundings> = Arc::new(Snapshot(push.clone()));
    let jwt = config.jwt_rule.clone().map(JwtAuthenticator::new).transpose().map_err(anyhow::Error::msg)?;
    let reviews = client.map(|client| {
        let server = token_review::ApiServer::new(client.clone());
        TokenReviews::new(Arc::new(server), config.audiences.clone())
    });
    Ok(Arc::new(Gatekeeper::new(surroundings, jwt, reviews, config.trusted_gateways.clone())))
}

/// Why there is no self-signed root.
#[derive(Debug, thiserror::Error)]
enum RootError {
    /// It cannot be kept or read.
    #[error(transparent)]
    Store(#[from] RootStoreError),
    /// It cannot be made or used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// The self-signed authority.
async fn self_signed(
    config: &SecurityConfig,
    namespace: &Namespace,
    client: Option<&kube::Client>,
    push: &PushHandle,
    now: SystemTime,
) -> Result<Authority, RootError> {
    let store = match (client, &config.state) {
        (Some(client), _) => RootStore::Secret(Box::new(Api::<Secret>::namespaced(client.clone(), namespace.as_str()))),
        (None, Some(folder)) => RootStore::Folder(folder.clone()),
        (None, None) => {
            tracing::warn!(
                "the root is kept in memory: proxies must be started anew after Navarch is (--state-dir keeps it)"
            );
            RootStore::Memory
        }
    };
    let trust_domain = push.context().mesh.config.trust_domain.clone();
    let make =
        || Bundle::self_signed(&trust_domain, config.key_type, config.root_lifetime, now).map_err(RootError::from);
    let bundle = store.load_or_create(make).await?;
    Ok(Authority::new(&bundle, now)?)
}
