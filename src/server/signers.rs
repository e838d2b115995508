//! Starts the signers of workload certificates that are not Navarch's own CA.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

use super::boot::Boot;
use navarch_api::names::Namespace;
use navarch_net::unix_channel::UnixTarget;
use navarch_security::Clock;
use navarch_security::ca::cert_manager::{CertManager, CertManagerConfig};
use navarch_security::ca::external::{
    DistributionRules, ExternalAuthority, ExternalLimits, ExternalSigners, Replicas, StoredRoots,
};
use navarch_security::ca::signer::{RootsSource, Signer, pinned};
use navarch_security::ca::spire::{Spire, SpireConfig};
use navarch_security::ca::{MeshRoots, Metrics, Plugin, Registration, RegistrationConfig};
use navarch_security::trust_bundle::Fetched;

/// The name of the signers in readiness reasons.
const PART: &str = "signers";
/// Interval of logging that a signer's roots are missing at the start.
const LOG_INTERVAL: Duration = Duration::from_secs(15);

/// Who signs certificates of workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignerKind {
    /// Navarch's own CA.
    #[default]
    Own,
    /// `ISTIOD_RA_KUBERNETES_API`
    Kubernetes,
    /// `NAVARCH_RA_SOCKET`
    Socket,
    /// `NAVARCH_RA_SPIRE`
    Spire,
    /// `NAVARCH_RA_CERT_MANAGER`
    CertManager,
}

/// Who signs for which namespace, and the settings of each signer.
#[derive(Clone, Debug)]
pub struct SignersConfig {
    /// `EXTERNAL_CA`
    pub default: SignerKind,
    /// `NAVARCH_NAMESPACE_SIGNERS`
    pub by_namespace: BTreeMap<Namespace, SignerKind>,
    /// `K8S_SIGNER`, `CERT_SIGNER_DOMAIN`
    pub kubernetes: RegistrationConfig,
    /// `NAVARCH_SIGNER_SOCKET`, `NAVARCH_SIGNER_USER`
    pub socket: Option<UnixTarget>,
    /// `NAVARCH_SPIRE_…`
    pub spire: Option<SpireConfig>,
    /// `NAVARCH_CERT_MANAGER_…`
    pub cert_manager: Option<CertManagerConfig>,
    /// `NAVARCH_SIGNER_ROOTS`: a file with the only roots of all signers but Kubernetes.
    pub roots: Option<PathBuf>,
    /// `NAVARCH_SIGNER_ROOT_WAIT`: how long proxies that lack a new root delay its use. Default 1
    /// hour.
    pub root_wait: Duration,
    /// `NAVARCH_SIGNER_REQUESTS`, `NAVARCH_SIGNER_NAMESPACE_RATE`, `NAVARCH_SIGNER_TIMEOUT`
    pub limits: ExternalLimits,
}

/// What signers need of the rest.
pub(super) struct SignerParts<'a> {
    /// The client of the API server, if there is one.
    pub(super) client: Option<&'a kube::Client>,
    /// The control plane's namespace.
    pub(super) namespace: &'a Namespace,
    pub(super) trust_domain: &'a str,
    /// Where the roots of signers are kept, pinned ones as well.
    pub(super) stored: StoredRoots,
    /// The other replicas, if roots are kept in the cluster.
    pub(super) replicas: Option<Replicas>,
    /// The roots of Kubernetes' signers.
    pub(super) mesh: &'a MeshRoots,
    /// `NAVARCH_ROOT_OVERLAP`
    pub(super) overlap: Duration,
    /// `MAX_WORKLOAD_CERT_TTL`
    pub(super) max_lifetime: Duration,
    pub(super) metrics: &'a Metrics,
    pub(super) clock: Clock,
}

/// The running signers.
pub(super) struct Signers {
    pub(super) external: ExternalSigners,
    /// The bundles of federated trust domains.
    pub(super) federated: watch::Receiver<Fetched>,
}

impl Default for SignersConfig {
    /// Navarch's own CA signs for all.
    fn default() -> Self {
        Self {
            default: SignerKind::Own,
            by_namespace: BTreeMap::new(),
            kubernetes: RegistrationConfig::default(),
            socket: None,
            spire: None,
            cert_manager: None,
            roots: None,
            root_wait: Duration::from_hours(1),
            limits: ExternalLimits::default(),
        }
    }
}

impl SignersConfig {
    /// Whether some namespace has certificates of this signer.
    #[must_use]
    pub fn uses(&self, kind: SignerKind) -> bool {
        self.default == kind || self.by_namespace.values().any(|used| *used == kind)
    }

    /// The signers that are used and are not Navarch's own CA, each once.
    fn kinds(&self) -> impl Iterator<Item = SignerKind> {
        let all = [
            SignerKind::Kubernetes,
            SignerKind::Socket,
            SignerKind::Spire,
            SignerKind::CertManager,
        ];
        all.into_iter().filter(|kind| self.uses(*kind))
    }
}

/// Starts the signers, and waits until their roots are known: without them, proxies would be sent a
/// trust bundle that breaks their connections. Readiness waits, too.
///
/// # Errors
/// If a signer lacks a setting or the API server, or a part of the control plane has ended.
pub(super) async fn start(
    config: &SignersConfig,
    parts: &SignerParts<'_>,
    boot: &mut Boot,
) -> anyhow::Result<Signers> {
    let mut federated = watch::channel(Fetched::new()).1;
    let mut started = BTreeMap::new();
    for kind in config.kinds() {
        let signer = start_signer(kind, config, parts, &mut federated, boot)?;
        let last = match signer.roots() {
            Some(_) => parts.stored.load_at_start(signer.name()).await?,
            None => Arc::default(),
        };

        let authority = Arc::new(authority(signer, &last, config, parts));
        if let Some(roots) = authority.distributed_roots() {
            let kept = parts.stored.clone().follow(authority.name(), roots);
            boot.spawn_until_stop("kept roots of a signer", kept);
        }
        started.insert(kind, authority);
    }

    let of = |kind: &SignerKind| started.get(kind).cloned();
    let by_namespace = config
        .by_namespace
        .iter()
        .map(|(namespace, kind)| (namespace.clone(), of(kind)))
        .collect();
    let external = ExternalSigners::new(of(&config.default), by_namespace);

    wait_for_roots(&external, boot).await?;
    Ok(Signers {
        external,
        federated,
    })
}

/// A signer within its limits. `last` are the roots that proxies trusted at the last stop.
fn authority(
    signer: Arc<dyn Signer>,
    last: &Arc<str>,
    config: &SignersConfig,
    parts: &SignerParts<'_>,
) -> ExternalAuthority {
    let limits = ExternalLimits {
        max_lifetime: parts.max_lifetime,
        ..config.limits
    };
    let rules = DistributionRules {
        overlap: parts.overlap,
        wait: config.root_wait,
    };
    let metrics = parts.metrics.clone();
    ExternalAuthority::new(signer, limits, rules, last, metrics, parts.clock)
        .among(parts.replicas.clone())
}

/// Starts one signer.
fn start_signer(
    kind: SignerKind,
    config: &SignersConfig,
    parts: &SignerParts<'_>,
    federated: &mut watch::Receiver<Fetched>,
    boot: &mut Boot,
) -> anyhow::Result<Arc<dyn Signer>> {
    let client = || {
        let client = parts.client.cloned();
        client.context("EXTERNAL_CA: no API server to create certificate requests in")
    };

    Ok(match kind {
        SignerKind::Own => anyhow::bail!("Navarch's own CA is not an external signer"),

        SignerKind::Kubernetes => {
            let registration = config.kubernetes.clone().with_roots_file();
            Arc::new(Registration::new(
                client()?,
                registration,
                parts.mesh.clone(),
                config.limits.objects(),
            ))
        }

        SignerKind::Socket => {
            let socket = config.socket.clone();
            let socket = socket.context("NAVARCH_SIGNER_SOCKET is not set")?;
            let source = roots_source(config, boot)?;
            let (plugin, follow) = Plugin::connect(socket, source);
            boot.spawn_until_stop("roots of the plugin", follow);
            Arc::new(plugin)
        }

        SignerKind::Spire => {
            let spire = config.spire.clone();
            let spire = spire.context("NAVARCH_SPIRE_SERVER is not set")?;
            let source = roots_source(config, boot)?;
            let (spire, bundles, follow) =
                Spire::connect(spire, parts.trust_domain, source, parts.clock);
            boot.spawn_until_stop("bundles of SPIRE", follow);
            *federated = bundles;
            Arc::new(spire)
        }

        SignerKind::CertManager => {
            let cert_manager = config.cert_manager.clone();
            let cert_manager = cert_manager.context("NAVARCH_CERT_MANAGER_ISSUER is not set")?;
            let roots = pinned_roots(config, boot)?;
            let roots = roots.context(
                "NAVARCH_SIGNER_ROOTS is not set: cert-manager names no roots that can be trusted",
            )?;
            let (manager, follow) = CertManager::start(
                client()?,
                cert_manager,
                parts.namespace,
                roots,
                config.limits.objects(),
                parts.clock,
            );
            boot.spawn_until_stop("requests to cert-manager", follow);
            Arc::new(manager)
        }
    })
}

/// The roots in the configured file, or else those that the signer names.
fn roots_source(config: &SignersConfig, boot: &mut Boot) -> anyhow::Result<RootsSource> {
    let pinned = pinned_roots(config, boot)?;
    Ok(pinned.map_or(RootsSource::Signer, RootsSource::Pinned))
}

/// The roots in the configured file, if there is one.
fn pinned_roots(
    config: &SignersConfig,
    boot: &mut Boot,
) -> anyhow::Result<Option<watch::Receiver<Arc<str>>>> {
    let Some(path) = &config.roots else {
        return Ok(None);
    };
    let (roots, follow) = pinned(path).context("NAVARCH_SIGNER_ROOTS")?;
    boot.spawn_until_stop("file of the signer's roots", follow);
    Ok(Some(roots))
}

/// Waits until the roots of all signers are known.
async fn wait_for_roots(signers: &ExternalSigners, boot: &mut Boot) -> anyhow::Result<()> {
    let readiness = boot.readiness.clone();
    readiness.hold(
        PART,
        "the signer of workload certificates has not named its roots",
    );
    let known = signers.known();
    tokio::pin!(known);

    loop {
        tokio::select! {
            biased;
            () = &mut known => {
                readiness.release(PART);
                return Ok(());
            }
            error = boot.unexpected_end() => return Err(error),
            () = tokio::time::sleep(LOG_INTERVAL) => {
                tracing::warn!("waiting for the roots of the signer of workload certificates");
            }
        }
    }
}
