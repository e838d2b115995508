//! Creates the certificate authority and the services that depend on it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;

use super::boot::Boot;
use super::signers::{self, SignerKind, SignerParts, SignersConfig};
use super::trust::{OtherRoots, Trust};
use navarch_api::names::{Namespace, TrustDomain};
use navarch_api::object::NamespacedName;
use navarch_net::destination::AddressPolicy;
use navarch_pki::KeyType;
use navarch_push::worker::PushHandle;
use navarch_security::api_server::ApiServer;
use navarch_security::authenticate::{
    Authenticator, JwtAuthenticator, JwtRule, MeshSnapshot, SnapshotProvider, TokenReviews,
    TrustedNetworks,
};
use navarch_security::ca::external::{ExternalSigners, Replicas, StoredRoots};
use navarch_security::ca::keeper::{self, KeeperConfig, RootKeeper, RotationCommands};
use navarch_security::ca::root_store::{self, RootStore};
use navarch_security::ca::rotation::RotationRules;
use navarch_security::ca::service::{CertificateService, CertificateServiceConfig};
use navarch_security::ca::{
    Bundle, CurrentAuthority, Lifetimes, MeshRoots, Metrics, PluggedIn, Registration,
    RegistrationConfig,
};
use navarch_security::remote_servers::RemoteServers;
use navarch_security::serving::{
    self, ConfiguredFiles, ServerCertificate, ServerRequest, ServingConfig, ServingTls,
};
use navarch_security::tls_rules::TlsRules;
use navarch_source::Fetcher;
use navarch_status::ROOTS_KEY;
use navarch_xds::authentication::AuthPolicy;
use navarch_xds::connections::Connections;
use navarch_xds::trusted_roots;

/// Interval at which roots are checked if their lifetimes are very short.
const FAST_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Settings of identities and certificates from flags and environment.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a separate variable of istiod"
)]
pub struct SecurityConfig {
    /// `ROOT_CA_DIR`: the directory of a plugged-in CA. Default `./etc/cacerts`.
    pub plugged_in: PathBuf,
    /// `USE_REMOTE_CERTS`: whether the CA is read from the Secret `cacerts` of the cluster that
    /// configures the mesh, if that directory does not contain a complete CA. Default false.
    pub plugged_in_secret: bool,
    /// `ENABLE_CA_SERVER`: whether workloads get certificates here, and namespaces the roots.
    /// Default true.
    pub signs: bool,
    /// The directory of a self-signed root, if there is no API server to store it; `None` keeps it
    /// in memory.
    pub state: Option<PathBuf>,
    /// The key type of a new root.
    pub key_type: KeyType,
    /// `CITADEL_SELF_SIGNED_CA_CERT_TTL`: the lifetime of a new root. Default 10 years.
    pub root_lifetime: Duration,
    /// `NAVARCH_ROOT_OVERLAP`: how long a root is trusted at least before it signs: a mounted
    /// ConfigMap reaches pods within some minutes. Default 10 minutes.
    pub overlap: Duration,
    /// `CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL`: the interval at which the expiry of a
    /// self-signed root is checked; zero is never. Default 1 hour.
    pub root_check: Duration,
    /// `CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE`: the remaining share of a root's
    /// lifetime, in percent, at which the next one is generated. Default 20.
    pub root_grace: u32,
    /// `EXTERNAL_CA` and others: who signs for workloads.
    pub signers: SignersConfig,
    /// `NAVARCH_WORKLOAD_KEY_TYPES`: the keys that workloads' certificates are issued for; every
    /// strong one if empty.
    pub key_types: BTreeSet<KeyType>,
    /// `--tls-cert-file`, `--tls-key-file`, `--ca-cert-file`: the server's own certificate, if
    /// given.
    pub given: Option<ConfiguredFiles>,
    /// `PILOT_CERT_PROVIDER=k8s.io/<signer>`: the signer of the server's own certificate, if none
    /// is given.
    pub server_signer: Option<String>,
    /// The addresses that SPIFFE bundles may be fetched from.
    pub fetched: AddressPolicy,
    /// The lifetimes of workloads' certificates.
    pub lifetimes: Lifetimes,
    /// `CA_TRUSTED_NODE_ACCOUNTS`: node proxies that may request certificates for the workloads of
    /// their node.
    pub trusted_nodes: BTreeSet<NamespacedName>,
    /// `JWT_RULE`: tokens that are verified with public keys.
    pub jwt_rule: Option<JwtRule>,
    /// `TOKEN_AUDIENCES`: the expected audiences of service account tokens. Default `istio-ca`.
    pub audiences: Vec<String>,
    /// `TRUSTED_GATEWAY_CIDR`: gateways that are trusted to report the identities of their clients.
    pub trusted_gateways: TrustedNetworks,
    /// `ISTIOD_CUSTOM_HOST`: further host names of the control plane, comma-separated.
    pub custom_hosts: String,
    /// `REVISION`: the revision of this control plane.
    pub revision: String,
    /// `DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES`: further namespaces whose workloads may see all
    /// debug pages, in addition to the control plane's.
    pub debug_namespaces: Vec<Namespace>,
    /// `ENABLE_DEBUG_ENDPOINT_AUTH`: whether other callers only see data of their own namespace.
    /// Default true.
    pub debug_by_namespace: bool,
    /// `--tls-min-version`, `--tls-cipher-suites`.
    pub tls: TlsRules,
    /// `XDS_AUTH`, `XDS_AUTH_PLAINTEXT` and `PILOT_ENABLE_XDS_IDENTITY_CHECK`.
    pub streams: StreamRules,
    /// `PILOT_ENABLE_CA_CRL`: publishes the CRL of a plugged-in CA in every namespace. Default
    /// true.
    pub publishes_revocations: bool,
}

/// The rules for clients of xDS streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRules {
    /// `XDS_AUTH`: whether xDS over TLS requires authentication. Default true.
    pub auth: bool,
    /// `XDS_AUTH_PLAINTEXT`: whether plaintext xDS requires authentication, by token. Default
    /// false.
    pub plain_auth: bool,
    /// `PILOT_ENABLE_XDS_IDENTITY_CHECK`: whether a proxy must match its authenticated identity.
    /// Default true; otherwise secrets are not sent.
    pub checks_identity: bool,
}

/// Names of a control plane and its objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) replica: &'a str,
    /// The ConfigMap with the roots in each namespace.
    pub(super) roots: &'a str,
}

/// The authority and the services that depend on it.
#[derive(Debug)]
pub(super) struct Security {
    pub(super) authority: CurrentAuthority,
    /// Commands to the keeper of the roots.
    pub(super) commands: RotationCommands,
    /// TLS of ports.
    pub(super) tls: ServingTls,
    /// Certificates for workloads.
    pub(super) certificates: CertificateService,
    /// Who signs them, where it is not the authority.
    pub(super) signers: ExternalSigners,
}

/// The current snapshot, as the source of information about the mesh.
#[derive(Clone, Debug)]
struct Snapshot(PushHandle);

impl StreamRules {
    /// What happens to clients if they authenticate.
    pub(super) fn policy(self) -> AuthPolicy {
        match (self.auth, self.checks_identity) {
            (true, true) => AuthPolicy::Known,
            (true, false) => AuthPolicy::Nameless,
            (false, true | false) => AuthPolicy::Anyone,
        }
    }
}

impl Default for StreamRules {
    fn default() -> Self {
        Self {
            auth: true,
            plain_auth: false,
            checks_identity: true,
        }
    }
}

impl Default for SecurityConfig {
    fn default() -> Self {
        Self {
            plugged_in: PathBuf::from("./etc/cacerts"),
            plugged_in_secret: false,
            signs: true,
            state: None,

            key_type: KeyType::default(),
            root_lifetime: Duration::from_secs(3650 * 24 * 3600),
            overlap: Duration::from_mins(3),
            root_check: Duration::from_hours(1),
            root_grace: 20,

            signers: SignersConfig::default(),
            key_types: BTreeSet::new(),
            given: None,
            server_signer: None,
            fetched: AddressPolicy::default(),
            lifetimes: Lifetimes::default(),
            trusted_nodes: BTreeSet::new(),

            jwt_rule: None,
            audiences: vec!["istio-ca".to_owned()],
            trusted_gateways: TrustedNetworks::default(),
            custom_hosts: String::new(),
            revision: String::new(),
            debug_namespaces: Vec::new(),
            debug_by_namespace: true,
            tls: TlsRules::default(),
            streams: StreamRules::default(),
            publishes_revocations: true,
        }
    }
}

impl SnapshotProvider for Snapshot {
    fn snapshot(&self) -> MeshSnapshot {
        let context = self.0.context();
        let config = &context.mesh.config;
        let settings = &context.mesh.settings;
        MeshSnapshot {
            objects: context.objects.clone(),
            remotes: context.remotes.clone(),
            trust_domain: TrustDomain::in_ids(&config.trust_domain),
            aliases: config
                .trust_domain_aliases
                .iter()
                .map(|alias| TrustDomain::in_ids(alias))
                .collect(),
            cluster: settings.cluster_id.clone(),
        }
    }
}

/// The wall clock time.
pub(super) fn clock() -> SystemTime {
    jiff::Timestamp::now().into()
}

/// Loads or generates the authority, and starts the services that depend on it. With a client, its
/// API server stores the roots and reviews tokens.
///
/// # Errors
/// If there is no authority: then nothing can be served securely.
pub(super) async fn start(
    config: &SecurityConfig,
    names: Names<'_>,
    client: Option<&kube::Client>,
    push: &PushHandle,
    connections: Arc<Connections>,
    metrics: Metrics,
    boot: &mut Boot,
) -> anyhow::Result<Security> {
    let (keeper, authority, commands) = roots(config, names, client, push).await?;
    let mesh: MeshRoots = {
        let push = push.clone();
        Arc::new(move || push.context().mesh.config.ca_certificates.clone())
    };
    let signers = start_signers(config, names, client, push, &mesh, &metrics, boot).await?;
    let external = signers.external;

    let certificate = server_certificate(config, names.namespace, client, &mesh)?;
    let further_roots: Vec<PathBuf> = kubernetes_roots(config).into_iter().collect();
    let further_root = further_roots.first().cloned();
    let serving = ServingConfig {
        certificate,
        further_roots,
        signer_roots: external.roots(),
        rules: config.tls.clone(),
    };
    let (tls, renewing) = serving::start(authority.clone(), serving, clock).await?;
    boot.spawn_until_stop("own certificate", renewing);

    let snapshots: Arc<dyn SnapshotProvider> = Arc::new(Snapshot(push.clone()));
    let service = CertificateServiceConfig {
        lifetimes: config.lifetimes,
        trusted_nodes: config.trusted_nodes.clone(),
        key_types: config.key_types.clone(),
        ..CertificateServiceConfig::default()
    };
    let certificates =
        CertificateService::new(authority.clone(), snapshots, service, clock, metrics)
            .signed_by(external.clone());

    count_ends(authority.clone(), certificates.metrics(), boot);
    let find_missing = trusted_roots::find_missing(connections, certificates.receipts());
    for signer in external.all() {
        let follow = external
            .clone()
            .follow(signer.clone(), find_missing.clone());
        boot.spawn_until_stop("roots of a signer", follow);
    }
    boot.spawn_until_stop("roots", keeper.run(find_missing));
    let fetcher = Fetcher::new(config.fetched.clone());

    // A root that signs nothing is not published; proxies get the other CA's roots from that CA.
    let own = if config.signs {
        authority.roots()
    } else {
        tokio::sync::watch::channel(Arc::default()).1
    };

    let others = OtherRoots {
        file: further_root,
        signers: external.roots(),
        federated: signers.federated,
    };
    let trust = Trust::start(push.clone(), own, others, fetcher).await?;
    boot.spawn_until_stop("trust bundle", trust.run());

    Ok(Security {
        authority,
        commands,
        tls,
        certificates,
        signers: external,
    })
}

/// Starts the signers that are not the authority.
async fn start_signers(
    config: &SecurityConfig,
    names: Names<'_>,
    client: Option<&kube::Client>,
    push: &PushHandle,
    mesh: &MeshRoots,
    metrics: &Metrics,
    boot: &mut Boot,
) -> anyhow::Result<signers::Signers> {
    let trust_domain = push.context().mesh.config.trust_domain.clone();
    let maps = client.map(|client| Api::namespaced(client.clone(), names.namespace.as_str()));
    let replicas = maps
        .clone()
        .map(|maps| Replicas::new(maps, names.replica, clock));
    let stored = match (maps, &config.state) {
        (Some(maps), _) => StoredRoots::ConfigMap(Box::new(maps)),
        (None, Some(folder)) => StoredRoots::Folder(folder.join("signers")),
        (None, None) => StoredRoots::Nowhere,
    };
    let parts = SignerParts {
        client,
        stored,
        replicas,
        namespace: names.namespace,
        trust_domain: &trust_domain,
        mesh,
        overlap: config.overlap,
        max_lifetime: config.lifetimes.max.max(config.lifetimes.default),
        metrics,
        clock,
    };
    signers::start(&config.signers, &parts, boot).await
}

/// The file with the roots of Kubernetes' signers, if they sign.
fn kubernetes_roots(config: &SecurityConfig) -> Option<PathBuf> {
    let signs = config.signers.uses(SignerKind::Kubernetes);
    let kubernetes = config.signers.kubernetes.clone();
    signs.then(|| kubernetes.with_roots_file().roots).flatten()
}

/// The source of the server's own certificate.
fn server_certificate(
    config: &SecurityConfig,
    namespace: &Namespace,
    client: Option<&kube::Client>,
    mesh: &MeshRoots,
) -> anyhow::Result<ServerCertificate> {
    let names = serving::host_names(namespace.as_str(), &config.revision, &config.custom_hosts);
    Ok(match (&config.given, &config.server_signer) {
        (Some(given), _) => ServerCertificate::Given(given.clone()),
        (None, None) if !config.signs => anyhow::bail!(
            "ENABLE_CA_SERVER=false: no CA to sign the server certificate; mount one at \
             ./var/run/secrets/istiod/tls, name one by --tlsCertFile and --tlsKeyFile, or a signer by PILOT_CERT_PROVIDER=k8s.io/SIGNER"
        ),
        (None, None) => ServerCertificate::Issued(names),
        (None, Some(signer)) => {
            let client =
                client.context("PILOT_CERT_PROVIDER: no API server to use the CSR API of")?;
            let registration = Registration::new(
                client.clone(),
                RegistrationConfig::default(),
                mesh.clone(),
                config.signers.limits.objects(),
            );
            ServerCertificate::Requested(Box::new(ServerRequest {
                names,
                signer: signer.clone(),
                registration,
            }))
        }
    })
}

/// The roots that pods were last given, from the ConfigMap in the control plane's own namespace;
/// `None` if unknown, as when the roots there are another CA's.
async fn distributed(
    config: &SecurityConfig,
    names: Names<'_>,
    client: Option<&kube::Client>,
) -> Option<String> {
    let is_own = config.signs && config.given.is_none() && config.server_signer.is_none();
    let client = client.filter(|_| is_own)?;
    let found = Api::<ConfigMap>::namespaced(client.clone(), names.namespace.as_str())
        .get_opt(names.roots)
        .await;
    let found = found.inspect_err(
        |error| tracing::warn!(%error, "failed to read the root certificates distributed to pods"),
    );
    found
        .ok()??
        .data?
        .remove(ROOTS_KEY)
        .filter(|roots| !roots.is_empty())
}

/// Authenticates callers: by certificates, by the keys of `JWT_RULE`, by the API server if there is
/// a client, by gateways.
///
/// # Errors
/// If `JWT_RULE` is invalid.
pub(super) fn authenticator(
    config: &SecurityConfig,
    client: Option<&kube::Client>,
    remotes: RemoteServers,
    push: &PushHandle,
) -> anyhow::Result<Arc<Authenticator>> {
    let snapshots: Arc<dyn SnapshotProvider> = Arc::new(Snapshot(push.clone()));
    let jwt = config
        .jwt_rule
        .clone()
        .map(JwtAuthenticator::new)
        .transpose()?;
    let reviews = client.map(|client| {
        let server = ApiServer::new(client.clone());
        TokenReviews::new(Arc::new(server), config.audiences.clone())
    });
    let authenticator =
        Authenticator::new(snapshots, jwt, reviews, config.trusted_gateways.clone());
    Ok(Arc::new(authenticator.with_remotes(remotes)))
}

/// Updates the metrics of certificate expiry.
fn count_ends(mut authority: CurrentAuthority, metrics: Metrics, boot: &mut Boot) {
    let stop = boot.stop.clone();
    boot.spawn("metrics of the CA", async move {
        loop {
            metrics.signs(&authority.get());
            if super::until(&stop, authority.changed()).await != Some(true) {
                stop.cancelled().await;
                return;
            }
        }
    });
}

/// Loads or generates the roots. Returns the handle of their keeper.
async fn roots(
    config: &SecurityConfig,
    names: Names<'_>,
    client: Option<&kube::Client>,
    push: &PushHandle,
) -> anyhow::Result<(RootKeeper, CurrentAuthority, RotationCommands)> {
    let (self_signed, rotation) = match (client, &config.state) {
        // A root that signs nothing is not stored.
        _ if !config.signs => (RootStore::Memory, RootStore::Memory),
        (Some(client), _) => {
            let secrets = Api::<Secret>::namespaced(client.clone(), names.namespace.as_str());
            let own = RootStore::Secret(Box::new(secrets.clone()), root_store::SELF_SIGNED);
            (
                own,
                RootStore::Secret(Box::new(secrets), root_store::PLUGGED_IN),
            )
        }
        (None, Some(folder)) => (
            RootStore::Folder(folder.clone()),
            RootStore::Folder(folder.join("plugged-in")),
        ),
        (None, None) => {
            tracing::warn!(
                "root CA is in memory only; proxies must restart after a Navarch restart (set --state-dir)"
            );
            (RootStore::Memory, RootStore::Memory)
        }
    };

    let secrets = client.filter(|_| config.plugged_in_secret && config.signs);
    let secrets = secrets.map(|client| Api::namespaced(client.clone(), names.namespace.as_str()));
    let trust_domain = push.context().mesh.config.trust_domain.clone();
    let key_type = config.key_type;
    let lifetime = config.root_lifetime;
    let keeper = KeeperConfig {
        rules: RotationRules {
            overlap: config.overlap,
            longest: config.lifetimes.max.max(config.lifetimes.default),
            renewed_at: (!config.root_check.is_zero()).then_some(config.root_grace),
        },
        plugged_in: PluggedIn {
            folder: config.plugged_in.clone(),
            secrets,
        },
        self_signed,
        rotation,
        distributed: distributed(config, names, client).await,
        make: Arc::new(move |now| Bundle::self_signed(&trust_domain, key_type, lifetime, now)),
        check: config.root_check,
        look: keeper::CHECK_INTERVAL
            .min(config.overlap)
            .max(FAST_POLL_INTERVAL),
        replica: names.replica.to_owned(),
        clock,
    };

    keeper::start(keeper)
        .await
        .context("failed to start the CA")
}
