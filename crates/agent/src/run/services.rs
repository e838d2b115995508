//! Configuration of the agent's network services, from pilot-agent's variables.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ca_provider::{self, CaProviderError, GKE};
use super::prepare::Prepared;
use crate::Clock;
use crate::ads::EnvoyStreams;
use crate::credentials::{CredentialError, TokenSource, TokenSources};
use crate::dns::{BeforeTable, DnsConfig, TableConfig};
use crate::go_path;
use crate::health::HealthConfig;
use crate::metrics::AgentMetrics;
use crate::sds::SdsConfig;
use crate::secrets::{CertificateFiles, Grace, KeyFormat, KeyKind, OutputFiles, SecretsConfig};
use crate::services::{CaConfig, NamesConfig, ServicesConfig};
use crate::upstream::{KeyFiles, Roots, Transport, UpstreamConfig};
use crate::variables::Variables;
use crate::wasm::ModulesConfig;
use navarch_api::mesh::AuthenticationPolicy;
use navarch_base::cidr::Cidr;
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};
use navarch_base::resolv_conf::ResolvConf;
use navarch_net::destination::AddressPolicy;
use navarch_net::grpc_target::Keepalive;

/// The directory of mounted workload certificates.
const MOUNTED: &str = "./var/run/secrets/workload-spiffe-credentials";
/// Its legacy location.
const LEGACY: &str = "./etc/certs";
/// The root of the control plane's CA, mounted from the `ConfigMap`.
const CONTROL_PLANE_ROOT: &str = "./var/run/secrets/istio/root-cert.pem";
/// The file of the CRL.
const REVOCATIONS: &str = "/var/run/secrets/istio/crl/ca-crl.pem";
/// The directory of the Wasm module cache.
const MODULES: &str = "/var/lib/istio/data";
/// The value that selects the system's roots.
const SYSTEM: &str = "SYSTEM";

/// grpc-go's minimum of `GRPC_KEEPALIVE_INTERVAL`.
const MIN_PING_INTERVAL: Duration = Duration::from_secs(10);
/// grpc-go's value for a `GRPC_KEEPALIVE_TIMEOUT` of zero.
const DEFAULT_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Errors of the settings.
#[derive(Debug, thiserror::Error)]
pub enum ServicesPlanError {
    /// Two sources of certificates are configured.
    #[error("PROV_CERT cannot be combined with FILE_MOUNTED_CERTS or CA_PROVIDER={GKE}")]
    TwoKinds,
    /// Certificates cannot be requested.
    #[error(transparent)]
    Provider(#[from] CaProviderError),
    /// Tokens cannot be obtained.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// The certificates of GKE are missing.
    #[error("CA_PROVIDER={GKE} requires {0}")]
    NotMounted(PathBuf),
    /// A range is invalid.
    #[error("BLOCKED_CIDRS_IN_WASM_FETCH: {0:?} is not a CIDR")]
    Blocked(String),
    /// An address is invalid.
    #[error("DNS_PROXY_ADDR={0:?} is not a valid listen address")]
    Dns(String),
    /// Queries for names outside the mesh could not be forwarded.
    #[error("failed to read the resolvers in {path}")]
    Resolvers {
        /// The `resolv.conf` with their addresses.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
}

/// The configuration of all services.
pub(super) fn plan(
    prepared: &Prepared,
    variables: &Variables,
    clock: Clock,
    metrics: AgentMetrics,
) -> Result<ServicesConfig, ServicesPlanError> {
    let tokens = TokenSources::from_variables(variables, clock)?;
    let provisioned = variables.text("PROV_CERT");
    let provider = variables.text("CA_PROVIDER");
    let by_gke = provider == GKE;
    let is_mounted = by_gke || variables.flag("FILE_MOUNTED_CERTS", false);
    if is_mounted && !provisioned.is_empty() {
        return Err(ServicesPlanError::TwoKinds);
    }

    let mounted = mounted_files(by_gke, MOUNTED)?;
    let files_alone = mounted.is_some() || is_mounted || prepared.serves_only_files;
    // As by pilot-agent, a provider is not looked at if no certificate is requested.
    if !files_alone {
        ca_provider::check(provider)?;
    }
    let existing = mounted.unwrap_or_else(legacy_files);
    Ok(ServicesConfig {
        secrets: secrets(prepared, variables, existing),
        ca: (!files_alone).then(|| CaConfig {
            upstream: ca(prepared, variables, tokens.ca),
            signer: variables.text("ISTIO_META_CERT_SIGNER").to_owned(),
        }),
        sds_socket: sds_socket(prepared),
        sds: SdsConfig {
            revocations: Some(PathBuf::from(REVOCATIONS)),
            hardware: prepared.config.private_key_provider,
        },
        ads_socket: go_path::join(&prepared.config.config_path, "XDS").into(),
        control_plane: control_plane(prepared, variables, is_mounted, tokens.control_plane),
        names: names(prepared, variables)?,
        takes_trust_bundle: variables.flag("PROXY_CONFIG_XDS_AGENT", true),
        health: health(prepared),
        mesh_metrics: prepared.mesh_metrics.clone(),
        modules: modules(variables)?,
        without_envoy: prepared.settings.disable_envoy,
        envoys: EnvoyStreams::default(),
        metrics,
    })
}

/// The mounted files of a directory, if all exist; those of GKE, which have other names, must
/// exist.
fn mounted_files(
    by_gke: bool,
    folder: &str,
) -> Result<Option<CertificateFiles>, ServicesPlanError> {
    let [chain, key, roots] = if by_gke {
        ["certificates.pem", "private_key.pem", "ca_certificates.pem"]
    } else {
        ["cert-chain.pem", "key.pem", "root-cert.pem"]
    };
    let files = [chain, key, roots].map(|name| Path::new(folder).join(name));
    match files.iter().find(|file| !file.exists()) {
        Some(missing) if by_gke => Err(ServicesPlanError::NotMounted(missing.clone())),
        Some(_) => Ok(None),
        None => {
            let [chain, key, roots] = files;
            Ok(Some(CertificateFiles { chain, key, roots }))
        }
    }
}

/// The files of the legacy directory.
fn legacy_files() -> CertificateFiles {
    CertificateFiles {
        chain: format!("{LEGACY}/cert-chain.pem").into(),
        key: format!("{LEGACY}/key.pem").into(),
        roots: format!("{LEGACY}/root-cert.pem").into(),
    }
}

/// The SDS server's socket: a different one if another server provides the workload's certificate.
fn sds_socket(prepared: &Prepared) -> PathBuf {
    if prepared.serves_only_files {
        "./var/run/secrets/credential-uds/files-socket".into()
    } else {
        "./var/run/secrets/workload-spiffe-uds/socket".into()
    }
}

/// The configuration of the workload's secrets.
fn secrets(
    prepared: &Prepared,
    variables: &Variables,
    existing: CertificateFiles,
) -> SecretsConfig {
    let text = |name: &str, default: &str| variables.text_or(name, default);
    let rsa = variables
        .get("WORKLOAD_RSA_KEY_SIZE")
        .map(|_| variables.number("WORKLOAD_RSA_KEY_SIZE", 2048));
    let output = variables.text("OUTPUT_CERTS");
    let in_pod = !variables.text("KUBERNETES_SERVICE_HOST").is_empty();

    SecretsConfig {
        identity: format!(
            "spiffe://{}/ns/{}/sa/{}",
            text("TRUST_DOMAIN", "cluster.local"),
            prepared.identity.namespace,
            text("SERVICE_ACCOUNT", "default")
        ),
        key: KeyKind::from_settings(
            &text("ECC_SIGNATURE_ALGORITHM", ""),
            &text("ECC_CURVE", "P256"),
            rsa,
        ),
        // pilot-agent's default is false.
        key_format: if variables.flag("PKCS8_KEY", true) {
            KeyFormat::Pkcs8
        } else {
            KeyFormat::Traditional
        },
        lifetime: variables.duration("SECRET_TTL", Duration::from_secs(24 * 3600)),
        grace: Grace {
            ratio: variables.number("SECRET_GRACE_PERIOD_RATIO", 0.5),
            jitter: variables.number("SECRET_GRACE_PERIOD_RATIO_JITTER", 0.01),
        },
        existing,
        system_roots: system_roots(),
        output: (!output.is_empty()).then(|| OutputFiles::new(output.into(), in_pod)),
        debounce: variables.duration("FILE_DEBOUNCE_DURATION", Duration::from_millis(100)),
    }
}

/// The file with the system's roots, searched in the usual locations.
fn system_roots() -> Option<PathBuf> {
    const PLACES: [&str; 3] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/cert.pem",
    ];
    PLACES
        .iter()
        .map(Path::new)
        .find(|path| path.exists())
        .map(Path::to_owned)
}

/// Address and credentials of the CA.
fn ca(prepared: &Prepared, variables: &Variables, token: TokenSource) -> UpstreamConfig {
    let own = variables.text("CA_ADDR");
    let provisioned = variables.text("PROV_CERT");
    let address = if own.is_empty() {
        &prepared.config.discovery_address
    } else {
        own
    };

    let roots = match (
        variables.text("CA_ROOT_CA"),
        variables.text("PILOT_CERT_PROVIDER"),
    ) {
        (SYSTEM, _) => Roots::System,
        ("", "custom") => Roots::File(format!("{LEGACY}/root-cert.pem").into()),
        ("", _) if !provisioned.is_empty() => {
            Roots::File(format!("{provisioned}/root-cert.pem").into())
        }
        ("", _) => Roots::File(CONTROL_PLANE_ROOT.into()),
        (path, _) => Roots::File(path.into()),
    };

    // The server name applies to the control plane's address only.
    let server_name =
        Some(variables.text("ISTIOD_SAN")).filter(|name| own.is_empty() && !name.is_empty());
    let transport = if address.ends_with(":15010") {
        Transport::Plain
    } else {
        Transport::Tls {
            roots,
            certificate: (!provisioned.is_empty()).then(|| in_folder(provisioned)),
            server_name: server_name.map(str::to_owned),
        }
    };

    upstream(address, transport, token, variables, "CA_HEADER_")
}

/// Address and credentials of the control plane.
fn control_plane(
    prepared: &Prepared,
    variables: &Variables,
    mounted: bool,
    token: TokenSource,
) -> UpstreamConfig {
    let provisioned = variables.text("PROV_CERT");
    let metadata = |key: &str| {
        prepared
            .config
            .proxy_metadata
            .get(key)
            .map_or("", String::as_str)
    };

    let legacy = format!("{LEGACY}/root-cert.pem");
    let roots = match variables.text("XDS_ROOT_CA") {
        SYSTEM => Roots::System,
        "" if Path::new(&legacy).exists() => Roots::File(legacy.into()),
        "" if !provisioned.is_empty() => Roots::File(format!("{provisioned}/root-cert.pem").into()),
        "" if mounted => Roots::File(metadata("ISTIO_META_TLS_CLIENT_ROOT_CERT").into()),
        "" => Roots::File(CONTROL_PLANE_ROOT.into()),
        path => Roots::File(path.into()),
    };

    let certificate = if provisioned.is_empty() {
        let chain = metadata("ISTIO_META_TLS_CLIENT_CERT_CHAIN");
        let key = metadata("ISTIO_META_TLS_CLIENT_KEY");
        mounted.then(|| KeyFiles {
            chain: chain.into(),
            key: key.into(),
        })
    } else {
        Some(in_folder(provisioned))
    };

    let server_name = Some(variables.text("ISTIOD_SAN").to_owned()).filter(|name| !name.is_empty());
    let transport = match prepared.config.control_plane_auth_policy {
        AuthenticationPolicy::None => Transport::Plain,
        AuthenticationPolicy::MutualTls | AuthenticationPolicy::Inherit => Transport::Tls {
            roots,
            certificate,
            server_name,
        },
    };

    upstream(
        &prepared.config.discovery_address,
        transport,
        token,
        variables,
        "XDS_HEADER_",
    )
}

/// Certificate chain and key in a directory.
fn in_folder(folder: &str) -> KeyFiles {
    KeyFiles {
        chain: go_path::join(folder, "cert-chain.pem").into(),
        key: go_path::join(folder, "key.pem").into(),
    }
}

/// A server with the workload's tokens and the headers of variables that begin with `prefix`.
fn upstream(
    address: &str,
    transport: Transport,
    token: TokenSource,
    variables: &Variables,
    prefix: &str,
) -> UpstreamConfig {
    let headers = variables.iter().filter_map(|(name, value)| {
        Some((
            name.strip_prefix(prefix)?.to_ascii_lowercase(),
            value.to_owned(),
        ))
    });
    UpstreamConfig {
        address: address.to_owned(),
        transport,
        token: Some(token),
        cluster: variables.text("ISTIO_META_CLUSTER_ID").to_owned(),
        headers: headers.collect::<BTreeMap<_, _>>(),
        keepalive: keepalive(variables),
    }
}

/// When servers are pinged, within grpc-go's limits.
fn keepalive(variables: &Variables) -> Keepalive {
    let interval = variables.duration("GRPC_KEEPALIVE_INTERVAL", Duration::from_secs(30));
    let timeout = variables.duration("GRPC_KEEPALIVE_TIMEOUT", Duration::from_secs(10));
    Keepalive {
        interval: interval.max(MIN_PING_INTERVAL),
        timeout: if timeout.is_zero() {
            DEFAULT_PING_TIMEOUT
        } else {
            timeout
        },
    }
}

/// The resolvers in a file, which must be readable, as for pilot-agent.
fn resolv_conf(path: &Path) -> Result<ResolvConf, ServicesPlanError> {
    let bytes = regular_file::read(path, MAX_SETTINGS_BYTES).map_err(|source| {
        ServicesPlanError::Resolvers {
            path: path.to_owned(),
            source,
        }
    })?;
    // Only comments are not ASCII.
    Ok(ResolvConf::parse(&String::from_utf8_lossy(&bytes)))
}

/// DNS, if enabled: for sidecars by DNS capture, for gateways by a variable of their own.
fn names(
    prepared: &Prepared,
    variables: &Variables,
) -> Result<Option<NamesConfig>, ServicesPlanError> {
    let wanted = match prepared.identity.kind.as_str() {
        "sidecar" => variables.flag("ISTIO_META_DNS_CAPTURE", false),
        "router" => variables.flag("ISTIO_META_ENABLE_DNS_SERVER", false),
        _ => false,
    };
    if !wanted {
        return Ok(None);
    }

    let address = variables.text_or("DNS_PROXY_ADDR", "localhost:15053");
    let ResolvConf { resolvers, search } = resolv_conf(&DnsConfig::resolver_file(&address))?;
    let listen = DnsConfig::addresses(&address, &resolvers)
        .map_err(|_| ServicesPlanError::Dns(address.clone()))?;
    let before_table = if address.ends_with(":53") {
        BeforeTable::Forward
    } else {
        BeforeTable::Fail
    };

    Ok(Some(NamesConfig {
        server: DnsConfig {
            listen,
            resolvers,
            parallel: variables.flag("DNS_FORWARD_PARALLEL", false),
            timeout: variables.duration("DNS_FORWARD_TIMEOUT", Duration::from_secs(5)),
            before_table,
        },
        table: TableConfig {
            namespace: prepared.identity.namespace.clone(),
            domain: prepared.identity.full_domain(),
            search,
        },
    }))
}

/// The health checks of the application, if the config has a probe.
fn health(prepared: &Prepared) -> Option<HealthConfig> {
    let probe = prepared.config.readiness_probe.clone()?;
    let host = prepared
        .identity
        .addresses
        .0
        .first()
        .map_or_else(|| "localhost".to_owned(), ToString::to_string);
    let proxy = u16::try_from(prepared.config.status_port)
        .ok()
        .filter(|port| *port != 0);
    let proxy =
        proxy.and_then(|port| Some(SocketAddr::new(prepared.localhost().parse().ok()?, port)));
    Some(HealthConfig { probe, host, proxy })
}

/// Wasm modules, unless Envoy fetches them itself.
fn modules(variables: &Variables) -> Result<Option<ModulesConfig>, ServicesPlanError> {
    if !variables.flag("ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION", true) {
        return Ok(None);
    }

    let default = ModulesConfig::new(MODULES.into());
    let insecure = variables
        .text("WASM_INSECURE_REGISTRIES")
        .split(',')
        .filter(|host| !host.is_empty());
    let blocked = Cidr::parse_list(variables.text("BLOCKED_CIDRS_IN_WASM_FETCH"));

    Ok(Some(ModulesConfig {
        expiry: variables.duration("WASM_MODULE_EXPIRY", default.expiry),
        purge_interval: variables.duration("WASM_PURGE_INTERVAL", default.purge_interval),
        insecure: insecure.map(str::to_owned).collect::<BTreeSet<_>>(),
        request_timeout: variables.duration("WASM_HTTP_REQUEST_TIMEOUT", default.request_timeout),
        attempts: variables.number("WASM_HTTP_REQUEST_MAX_RETRIES", default.attempts),
        max_bytes: variables.number("ISTIO_WASM_MAX_BINARY_SIZE_BYTES", default.max_bytes),
        addresses: AddressPolicy {
            blocked: blocked.map_err(|part| ServicesPlanError::Blocked(part.to_string()))?,
            ..default.addresses
        },
        ..default
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_that_cannot_be_read_are_an_error_and_not_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let ServicesPlanError::Resolvers { path: file, source } = resolv_conf(&path).unwrap_err()
        else {
            panic!("another error");
        };
        assert_eq!((&file, source.kind()), (&path, io::ErrorKind::NotFound));

        std::fs::write(&path, b"# caf\xe9\nnameserver 10.0.0.1\n").unwrap();
        let read = resolv_conf(&path).unwrap();
        assert_eq!(read.resolvers, [SocketAddr::from(([10, 0, 0, 1], 53))]);
    }

    #[test]
    fn servers_are_pinged_as_variables_say_within_the_limits_of_grpc_go() {
        let read = |pairs: &[(&str, &str)]| keepalive(&pairs.iter().copied().collect());
        let of_seconds = |interval, timeout| Keepalive {
            interval: Duration::from_secs(interval),
            timeout: Duration::from_secs(timeout),
        };

        assert_eq!(read(&[]), Keepalive::default());
        let set = [
            ("GRPC_KEEPALIVE_INTERVAL", "1m"),
            ("GRPC_KEEPALIVE_TIMEOUT", "3s"),
        ];
        assert_eq!(read(&set), of_seconds(60, 3));
        let zero = set.map(|(name, _)| (name, "0s"));
        assert_eq!(read(&zero), of_seconds(10, 20));
    }

    #[test]
    fn mounted_gke_certificates_have_separate_paths_and_are_required() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_string_lossy().into_owned();
        assert_eq!(mounted_files(false, &path).unwrap(), None);
        let names = ["certificates.pem", "private_key.pem", "ca_certificates.pem"];
        for name in names {
            let missing = folder.path().join(name);
            let error = mounted_files(true, &path).unwrap_err();
            assert!(
                matches!(&error, ServicesPlanError::NotMounted(file) if *file == missing),
                "{error}"
            );
            std::fs::write(missing, "x").unwrap();
        }

        let [chain, key, roots] = names.map(|name| folder.path().join(name));
        assert_eq!(
            mounted_files(true, &path).unwrap(),
            Some(CertificateFiles { chain, key, roots })
        );
        assert_eq!(
            mounted_files(false, &path).unwrap(),
            None,
            "the others' are not there"
        );
    }
}
