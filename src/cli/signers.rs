//! Environment variables for signers of workload certificates.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::environment;
use crate::server::{SignerKind, SignersConfig};
use navarch_api::names::Namespace;
use navarch_net::grpc_target::GrpcTarget;
use navarch_net::unix_channel::UnixTarget;
use navarch_security::ca::RegistrationConfig;
use navarch_security::ca::cert_manager::CertManagerConfig;
use navarch_security::ca::external::ExternalLimits;
use navarch_security::ca::spire::{SpireConfig, SpireServer};

/// Certificates of one namespace at once, as a multiple of those per second.
const BURST: u32 = 10;
/// How long a new root of a signer waits for proxies.
const ROOT_WAIT: &str = "NAVARCH_SIGNER_ROOT_WAIT";
/// The time for one request.
const TIMEOUT: &str = "NAVARCH_SIGNER_TIMEOUT";
/// Requests under way at once.
const REQUESTS: &str = "NAVARCH_SIGNER_REQUESTS";
/// Certificates of one namespace per second.
const NAMESPACE_RATE: &str = "NAVARCH_SIGNER_NAMESPACE_RATE";
/// The signers whose roots Navarch distributes; those of Kubernetes' are configured elsewhere.
const WITH_ROOTS: [SignerKind; 3] = [
    SignerKind::Socket,
    SignerKind::Spire,
    SignerKind::CertManager,
];

/// The texts of all settings, which are read whether or not their signer is used.
#[derive(Debug)]
struct Texts {
    external_ca: Option<String>,
    namespace_signers: String,
    socket: Option<String>,
    user: Option<u32>,
    spire: SpireTexts,
    issuer: Option<String>,
    issuer_namespace: Option<String>,
    roots: Option<String>,
}

/// The texts of SPIRE's settings.
#[derive(Debug)]
struct SpireTexts {
    server: Option<String>,
    server_id: Option<String>,
    federates_with: String,
    agent: Option<String>,
}

impl Texts {
    fn read(text: &impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let user =
            environment::parsed(text, "NAVARCH_SIGNER_USER", "user id", |id| id.parse().ok());
        Ok(Self {
            external_ca: text("EXTERNAL_CA"),
            namespace_signers: text("NAVARCH_NAMESPACE_SIGNERS").unwrap_or_default(),
            socket: text("NAVARCH_SIGNER_SOCKET"),
            user: user?,
            spire: SpireTexts {
                server: text("NAVARCH_SPIRE_SERVER"),
                server_id: text("NAVARCH_SPIRE_SERVER_ID"),
                federates_with: text("NAVARCH_SPIRE_FEDERATES_WITH").unwrap_or_default(),
                agent: text("SPIFFE_ENDPOINT_SOCKET"),
            },
            issuer: text("NAVARCH_CERT_MANAGER_ISSUER"),
            issuer_namespace: text("NAVARCH_CERT_MANAGER_NAMESPACE"),
            roots: text("NAVARCH_SIGNER_ROOTS"),
        })
    }

    /// Checks that no setting lacks the one that it belongs to.
    fn check(&self) -> anyhow::Result<()> {
        let spire = &self.spire;
        let has_address = spire.server.as_ref().is_some_and(|server| !is_unix(server));

        Setting::new("NAVARCH_SIGNER_USER", self.user.is_some()).needs(
            "NAVARCH_SIGNER_SOCKET or NAVARCH_SPIRE_SERVER",
            self.socket.is_some() || spire.server.is_some(),
        )?;
        Setting::new("NAVARCH_SPIRE_SERVER_ID", spire.server_id.is_some())
            .needs("NAVARCH_SPIRE_SERVER=host:port", has_address)?;
        Setting::new(
            "NAVARCH_SPIRE_FEDERATES_WITH",
            !spire.federates_with.is_empty(),
        )
        .needs("NAVARCH_SPIRE_SERVER", spire.server.is_some())?;

        let issuer_namespace = self.issuer_namespace.is_some();
        Setting::new("NAVARCH_CERT_MANAGER_NAMESPACE", issuer_namespace)
            .needs("NAVARCH_CERT_MANAGER_ISSUER", self.issuer.is_some())
    }
}

/// A variable that is set or not.
struct Setting {
    name: &'static str,
    is_set: bool,
}

impl Setting {
    fn new(name: &'static str, is_set: bool) -> Self {
        Self { name, is_set }
    }

    /// Fails if it is set without another one that it belongs to.
    fn needs(self, wanted: &str, has_wanted: bool) -> anyhow::Result<()> {
        let Self { name, is_set } = self;
        ensure!(
            !is_set || has_wanted,
            "{name} has no effect without {wanted}"
        );
        Ok(())
    }
}

/// Reads the signers. `text` returns the value of a variable that is set and not empty.
///
/// # Errors
/// If a value is invalid, a signer lacks a setting, or a setting has no signer.
pub(super) fn config(text: &impl Fn(&str) -> Option<String>) -> anyhow::Result<SignersConfig> {
    let texts = Texts::read(text)?;
    texts.check()?;
    let default = match &texts.external_ca {
        None => SignerKind::Own,
        Some(name) => kind(name).context("EXTERNAL_CA")?,
    };
    let by_namespace = namespaces(&texts.namespace_signers).context("NAVARCH_NAMESPACE_SIGNERS")?;

    let root_wait = environment::duration(text, ROOT_WAIT)?;
    let config = SignersConfig {
        default,
        by_namespace,
        kubernetes: RegistrationConfig {
            signer: text("K8S_SIGNER").unwrap_or_default(),
            signer_domain: text("CERT_SIGNER_DOMAIN").unwrap_or_default(),
            roots: None,
        },
        socket: socket(&texts)?,
        spire: spire(&texts)?,
        cert_manager: cert_manager(&texts)?,
        roots: texts.roots.as_ref().map(PathBuf::from),
        root_wait: root_wait.unwrap_or(SignersConfig::default().root_wait),
        limits: limits(text)?,
    };
    check(&config)?;
    check_limits(&config)?;
    Ok(config)
}

/// The signer of a name.
fn kind(name: &str) -> anyhow::Result<SignerKind> {
    Ok(match name {
        "ISTIOD" => SignerKind::Own,
        "ISTIOD_RA_KUBERNETES_API" => SignerKind::Kubernetes,
        "NAVARCH_RA_SOCKET" => SignerKind::Socket,
        "NAVARCH_RA_SPIRE" => SignerKind::Spire,
        "NAVARCH_RA_CERT_MANAGER" => SignerKind::CertManager,
        _ => anyhow::bail!(
            "{name:?} is not supported; use ISTIOD_RA_KUBERNETES_API, NAVARCH_RA_SOCKET, \
             NAVARCH_RA_SPIRE or NAVARCH_RA_CERT_MANAGER"
        ),
    })
}

/// Comma-separated `namespace=signer` pairs.
fn namespaces(text: &str) -> anyhow::Result<BTreeMap<Namespace, SignerKind>> {
    let mut all = BTreeMap::new();
    let parts = text.split(',').map(str::trim);
    for part in parts.filter(|part| !part.is_empty()) {
        let pair = part.split_once('=');
        let (namespace, name) =
            pair.with_context(|| format!("{part:?} is not namespace=signer"))?;
        let signer = kind(name.trim())?;
        let before = all.insert(Namespace::new(namespace.trim()), signer);
        ensure!(before.is_none(), "namespace {namespace} has two signers");
    }
    Ok(all)
}

/// A Unix socket with the user who serves it, besides root and the own one.
fn socket(texts: &Texts) -> anyhow::Result<Option<UnixTarget>> {
    let Some(path) = &texts.socket else {
        return Ok(None);
    };
    Ok(Some(UnixTarget {
        path: unix_path(path).context("NAVARCH_SIGNER_SOCKET")?,
        user: texts.user,
        warns_if_public: true,
    }))
}

/// Whether an address is that of a Unix socket.
fn is_unix(address: &str) -> bool {
    address.starts_with("unix:")
}

/// An absolute path, perhaps as `unix:` address.
fn unix_path(text: &str) -> anyhow::Result<PathBuf> {
    let path = text.strip_prefix("unix:").unwrap_or(text);
    let path = path.strip_prefix("//").unwrap_or(path);
    ensure!(path.starts_with('/'), "{text:?} is not an absolute path");
    Ok(PathBuf::from(path))
}

/// `NAVARCH_SPIRE_…`
fn spire(texts: &Texts) -> anyhow::Result<Option<SpireConfig>> {
    let Some(server) = &texts.spire.server else {
        return Ok(None);
    };
    let server = if is_unix(server) {
        SpireServer::Socket(UnixTarget {
            path: unix_path(server).context("NAVARCH_SPIRE_SERVER")?,
            user: texts.user,
            warns_if_public: true,
        })
    } else {
        let target = GrpcTarget::parse(server).with_context(|| {
            format!("NAVARCH_SPIRE_SERVER: {server:?} is not host:port or unix:/path")
        })?;
        let agent = texts.spire.agent.as_ref();
        let agent = agent.context(
            "NAVARCH_SPIRE_SERVER: SPIFFE_ENDPOINT_SOCKET is not set, from which the control \
             plane gets its SVID",
        )?;
        SpireServer::Address {
            server: Box::new(target),
            agent: UnixTarget {
                path: unix_path(agent).context("SPIFFE_ENDPOINT_SOCKET")?,
                user: texts.user,
                // The agent attests who connects.
                warns_if_public: false,
            },
            server_id: texts.spire.server_id.clone(),
        }
    };

    let federates_with = texts.spire.federates_with.split(',').map(str::trim);
    Ok(Some(SpireConfig {
        server,
        federates_with: federates_with
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    }))
}

/// `NAVARCH_CERT_MANAGER_…`
fn cert_manager(texts: &Texts) -> anyhow::Result<Option<CertManagerConfig>> {
    let Some(issuer) = &texts.issuer else {
        return Ok(None);
    };
    Ok(Some(CertManagerConfig {
        namespace: texts.issuer_namespace.as_ref().map(Namespace::new),
        issuer: issuer.parse().context("NAVARCH_CERT_MANAGER_ISSUER")?,
    }))
}

/// The limits of each signer.
fn limits(text: &impl Fn(&str) -> Option<String>) -> anyhow::Result<ExternalLimits> {
    let mut limits = ExternalLimits::default();
    let at_once = environment::parsed(text, REQUESTS, "number", |number| {
        number.parse().ok().filter(|number| *number > 0)
    })?;
    limits.at_once = at_once.unwrap_or(limits.at_once);

    let rate = environment::parsed(text, NAMESPACE_RATE, "number", |number| {
        number.parse().ok().filter(|number: &u32| *number > 0)
    })?;
    limits.per_second = rate.unwrap_or(limits.per_second);
    limits.burst = limits.per_second.saturating_mul(BURST);

    let timeout = environment::duration(text, TIMEOUT)?;
    limits.timeout = timeout.unwrap_or(limits.timeout);
    ensure!(!limits.timeout.is_zero(), "{TIMEOUT} must be above 0");
    Ok(limits)
}

/// Checks that each signer has its settings, and each setting its signer.
fn check(config: &SignersConfig) -> anyhow::Result<()> {
    let settings = [
        (
            SignerKind::Socket,
            "NAVARCH_RA_SOCKET",
            "NAVARCH_SIGNER_SOCKET",
            config.socket.is_some(),
        ),
        (
            SignerKind::Spire,
            "NAVARCH_RA_SPIRE",
            "NAVARCH_SPIRE_SERVER",
            config.spire.is_some(),
        ),
        (
            SignerKind::CertManager,
            "NAVARCH_RA_CERT_MANAGER",
            "NAVARCH_CERT_MANAGER_ISSUER",
            config.cert_manager.is_some(),
        ),
    ];
    for (kind, name, variable, is_set) in settings {
        ensure!(
            is_set || !config.uses(kind),
            "{variable} is not set, which {name} needs"
        );
        ensure!(
            !is_set || config.uses(kind),
            "{variable} has no effect: neither EXTERNAL_CA nor NAVARCH_NAMESPACE_SIGNERS has {name}"
        );
    }

    ensure!(
        config.roots.is_some() || !config.uses(SignerKind::CertManager),
        "NAVARCH_SIGNER_ROOTS is not set, which NAVARCH_RA_CERT_MANAGER needs"
    );
    ensure!(
        config.roots.is_none() || WITH_ROOTS.iter().any(|kind| config.uses(*kind)),
        "NAVARCH_SIGNER_ROOTS has no effect without NAVARCH_RA_SOCKET, NAVARCH_RA_SPIRE or NAVARCH_RA_CERT_MANAGER"
    );
    Ok(())
}

/// Checks that limits other than the defaults have a signer that they apply to.
fn check_limits(config: &SignersConfig) -> anyhow::Result<()> {
    let usual = SignersConfig::default();
    let has_roots = WITH_ROOTS.iter().any(|kind| config.uses(*kind));
    ensure!(
        config.limits == usual.limits || has_roots || config.uses(SignerKind::Kubernetes),
        "{TIMEOUT}, {REQUESTS} and {NAMESPACE_RATE} have no effect: Navarch's own CA signs for all namespaces"
    );
    ensure!(
        config.root_wait == usual.root_wait || has_roots,
        "{ROOT_WAIT} has no effect without NAVARCH_RA_SOCKET, NAVARCH_RA_SPIRE or NAVARCH_RA_CERT_MANAGER"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<SignersConfig, String> {
        let text = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        config(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn signers_have_their_settings_and_settings_their_signers() {
        assert_eq!(read(&[]).unwrap().default, SignerKind::Own);
        let socket = [
            ("EXTERNAL_CA", "NAVARCH_RA_SOCKET"),
            ("NAVARCH_SIGNER_SOCKET", "unix:///run/signer.sock"),
            ("NAVARCH_SIGNER_USER", "1001"),
            (
                "NAVARCH_NAMESPACE_SIGNERS",
                "legacy=ISTIOD, shop = ISTIOD_RA_KUBERNETES_API",
            ),
        ];
        let config = read(&socket).unwrap();
        let limited = [&socket[..], &[(TIMEOUT, "5s"), (ROOT_WAIT, "0s")]].concat();
        let limited = read(&limited).unwrap();
        assert_eq!(limited.limits.timeout.as_secs(), 5);
        assert!(limited.root_wait.is_zero());
        let target = config.socket.clone().unwrap();
        assert_eq!(
            (target.path.to_str(), target.user),
            (Some("/run/signer.sock"), Some(1001))
        );
        assert_eq!(
            config.by_namespace.get(&Namespace::new("shop")),
            Some(&SignerKind::Kubernetes)
        );
        assert!(config.uses(SignerKind::Own) && !config.uses(SignerKind::Spire));

        for (set, part) in [
            (&[("EXTERNAL_CA", "VAULT")][..], "NAVARCH_RA_SPIRE"),
            (
                &[("EXTERNAL_CA", "NAVARCH_RA_SOCKET")],
                "NAVARCH_SIGNER_SOCKET is not set",
            ),
            (&[("NAVARCH_SIGNER_SOCKET", "/a")], "has no effect"),
            (&[("NAVARCH_SIGNER_ROOTS", "/a")], "has no effect"),
            (&[("NAVARCH_SIGNER_USER", "1")], "has no effect"),
            (&[("NAVARCH_SIGNER_TIMEOUT", "5s")], "have no effect"),
            (&[("NAVARCH_SIGNER_REQUESTS", "5")], "have no effect"),
            (&[("NAVARCH_SIGNER_NAMESPACE_RATE", "5")], "have no effect"),
            (
                &[
                    ("EXTERNAL_CA", "ISTIOD_RA_KUBERNETES_API"),
                    ("NAVARCH_SIGNER_ROOT_WAIT", "5m"),
                ],
                "NAVARCH_SIGNER_ROOT_WAIT has no effect",
            ),
            (
                &[
                    ("EXTERNAL_CA", "ISTIOD_RA_KUBERNETES_API"),
                    ("NAVARCH_SIGNER_TIMEOUT", "0s"),
                ],
                "NAVARCH_SIGNER_TIMEOUT must be above 0",
            ),
            (
                &[
                    ("EXTERNAL_CA", "NAVARCH_RA_SPIRE"),
                    ("NAVARCH_SPIRE_SERVER", "spire:8081"),
                ],
                "SPIFFE_ENDPOINT_SOCKET",
            ),
            (
                &[
                    ("EXTERNAL_CA", "NAVARCH_RA_CERT_MANAGER"),
                    ("NAVARCH_CERT_MANAGER_ISSUER", "ClusterIssuer/mesh"),
                ],
                "NAVARCH_SIGNER_ROOTS is not set",
            ),
            (&[("NAVARCH_NAMESPACE_SIGNERS", "shop")], "namespace=signer"),
        ] {
            let error = read(set).unwrap_err();
            assert!(error.contains(part), "{set:?}: {error}");
        }
    }
}
