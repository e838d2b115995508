//! Descriptions of the agent's environment variables: all that it reads except those for flags of
//! istio-iptables, which are listed with the flags. Columns are those of the control plane's table.

use super::table::Section;

/// All variables, by topic.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "Proxy and its node",
        rows: NODE,
    },
    Section {
        title: "Envoy and its bootstrap",
        rows: ENVOY,
    },
    Section {
        title: "Certificates, and the way to the control plane",
        rows: SECRETS,
    },
    Section {
        title: "Token service",
        rows: TOKENS,
    },
    Section {
        title: "Readiness, probes and metrics",
        rows: STATUS,
    },
    Section {
        title: "DNS and Wasm modules",
        rows: NAMES,
    },
    Section {
        title: "istio-iptables",
        rows: CAPTURE,
    },
];

/// Identity of the proxy.
const NODE: &str = "
CLOUD_PLATFORM | - | The cloud platform for region and zone: `aws`, `azure`, `gcp` or `none`; detected if unset
GCP_METADATA | - | Metadata of Google Cloud, as `project|number|cluster|location`
GCP_QUOTA_PROJECT | - | Project that Google's quotas are charged to, with `GCP_METADATA`
GCP_ZONE | - | Zone, with `GCP_METADATA`
HOST_IP | - | Address of the node, which replaces `$(HOST_IP)` in addresses of tracers and in the bootstrap's override
INSTANCE_IP | - | Address of the pod, which takes precedence over those of its interfaces
ISTIO_CPU_LIMIT | `0` | Processors of the container, which is the default number of Envoy's threads
ISTIO_METAJSON_* | - | JSON objects whose fields are node metadata, which take precedence over the others
ISTIO_METAJSON_LABELS | - | A JSON object with labels of a workload that is no pod
ISTIO_META_* | - | Node metadata: the name behind the prefix is the key. Variables take precedence over `proxyMetadata` of the proxy config
KUBERNETES_SERVICE_HOST | - | Set by Kubernetes: labels of the cloud's instance are then not the workload's
PEER_METADATA_DISCOVERY | as `ISTIO_META_ENABLE_HBONE` | Envoy requests peer metadata from the control plane
POD_NAME | - | Name of the pod
POD_NAMESPACE | - | Namespace of the pod
PROXY_CONFIG | - | The proxy config as YAML or JSON; it takes precedence over the mesh config, and the annotation `proxy.istio.io/config` over it
SERVICE_ACCOUNT | `default` | Service account of the pod
";

/// Envoy's start.
const ENVOY: &str = "
BOOTSTRAP_XDS_AGENT | `false` | Envoy starts with the bootstrap that the control plane generates, with EnvoyFilters of `applyTo: BOOTSTRAP`
COMPLIANCE_POLICY | - | `fips-140-2`, `fips-140-3` or `pqc` restricts all TLS of the agent, and the first two that of Envoy's own connections to the control plane; see docs/security.md
DISABLE_ENVOY | `false` | No Envoy is started, for applications that speak xDS themselves
ENVOY_PROMETHEUS_PORT | `15090` | Port of Envoy's metrics
ENVOY_SECURE_MERGED_METRICS_PORT | `0` | Port of the merged metrics over mutual TLS; `0` is none
ENVOY_SECURE_METRICS_PORT | `0` | Port of Envoy's metrics over mutual TLS; `0` is none
ENVOY_SKIP_DEPRECATED_LOGS | `true` | Envoy does not log the use of deprecated fields
ENVOY_STATUS_PORT | `15021` | Port of Envoy's readiness endpoint
ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL | `false` | That port accepts the PROXY protocol
EXIT_ON_ZERO_ACTIVE_CONNECTIONS | `false` | Draining ends when no connection is left
GRPC_XDS_BOOTSTRAP | `etc/istio/proxy/grpc-bootstrap.json` | File for the bootstrap of applications that speak xDS themselves; none is written if empty
HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED | `true` | Envoy removes fragments from paths
ISTIO_BOOTSTRAP | - | Template of the bootstrap instead of the built-in one
ISTIO_BOOTSTRAP_OVERRIDE | - | File that is merged into the bootstrap; a change restarts Envoy, or starts its next epoch with `NAVARCH_PROXY_UPGRADE`
ISTIO_DELTA_XDS | `true` | Envoy speaks delta xDS
ISTIO_DUAL_STACK | `false` | Envoy uses both address families
ISTIO_ENVOY_ENABLE_CORE_DUMP | `false` | Envoy leaves a core file when it crashes
MINIMUM_DRAIN_DURATION | `5s` | How long Envoy drains before its connections are counted, with `EXIT_ON_ZERO_ACTIVE_CONNECTIONS`
NAVARCH_BOOTSTRAP_FALLBACK | `exit` | What happens without that bootstrap in time: `exit` ends the agent, `local` starts Envoy with the agent's own
NAVARCH_BOOTSTRAP_TIMEOUT | 60s | Time limit for that bootstrap
NAVARCH_PROXY_UPGRADE | `false` | Envoy is replaced in place, by hot restart: for another program that the annotation `navarch.io/proxy-binary` names, and for a changed bootstrap; an Envoy that crashes is started again instead of ending the agent
NAVARCH_PROXY_UPGRADE_FETCH_TIMEOUT | `5m` | Time limit for fetching an artefact with another Envoy
NAVARCH_PROXY_UPGRADE_JUDGING | `30s` | How long another Envoy is judged after it has become LIVE
NAVARCH_PROXY_UPGRADE_KEY | - | Public keys (ECDSA P-256, PEM) one of which must have signed an artefact, or the path of a file with them. Artefacts are refused if it is unset
NAVARCH_PROXY_UPGRADE_PATHS | the folder of `binaryPath` | Folders with commas between them whose programs the annotation may name by path
NAVARCH_PROXY_UPGRADE_PULL_SECRET | - | File with credentials of registries for artefacts, in the form of Docker's `config.json`, such as a mounted pull secret; read for each artefact
NAVARCH_PROXY_UPGRADE_START_TIMEOUT | `60s` | Time limit for another Envoy to become LIVE
NAVARCH_PROXY_UPGRADE_STORE | `/var/lib/istio/data/envoy` | Folder in which artefacts are unpacked
NAVARCH_ZONE_FROM_CONTROL_PLANE | `false` | A proxy whose zone neither a label, the cloud platform nor `availabilityZone` of the proxy config tells asks the control plane for it. Envoy is reloaded when the zone comes
NAVARCH_ZONE_RETRY_DELAY | 30s | Time between two of the ten attempts to get that zone
";

/// The workload's certificate, and the servers that the agent connects to.
const SECRETS: &str = "
AZURE_CLIENT_ID | - | Client id of the user-assigned identity whose token Azure's metadata server returns; unset is the machine's own
AZURE_POD_IDENTITY_AUTHORITY_HOST | `http://169.254.169.254` | Address of Azure's metadata server
CA_ADDR | the proxy config's `discoveryAddress` | Address of the CA
CA_HEADER_* | - | Headers of requests to the CA: the name behind the prefix is the header's
CA_PROVIDER | - | `Citadel`, or nothing: the CA at `CA_ADDR`; `GkeWorkloadCertificate`: key and certificates are files that GKE puts there. The agent does not start with any other, which includes `GoogleCA` and `GoogleCAS`
CA_ROOT_CA | `./var/run/secrets/istio/root-cert.pem` | File with the roots that verify the CA; `SYSTEM` is those of the system
CREDENTIAL_FETCHER_TYPE | `JWT` | Where the token comes from: `JWT`, the file of `JWT_POLICY`; `GoogleComputeEngine` or `AzureVirtualMachine`, the cloud's metadata server. The agent does not start with any other
ECC_CURVE | `P256` | Curve of the key: `P256` or `P384`
ECC_SIGNATURE_ALGORITHM | - | `ECDSA` has the key of a curve though `WORKLOAD_RSA_KEY_SIZE` is set
FILE_DEBOUNCE_DURATION | `100ms` | How long a file must be unchanged before it is read again
FILE_MOUNTED_CERTS | `false` | Key and certificates are files that proxy metadata names
GCE_METADATA_HOST | `169.254.169.254` | Address of Google's metadata server
GRPC_KEEPALIVE_INTERVAL | `30s` | Time without data after which the control plane and its CA are pinged; at least `10s`
GRPC_KEEPALIVE_TIMEOUT | `10s` | Timeout for the acknowledgement of a ping, after which the connection is closed
ISTIOD_SAN | the host of the address | Name that the certificates of the control plane and its CA must have
ISTIO_META_CERT_SIGNER | - | The Kubernetes signer of the certificate
ISTIO_META_CLUSTER_ID | - | Name of the cluster in which the token is verified
JWT_POLICY | `third-party-jwt` | Which file has the token: `third-party-jwt`, `./var/run/secrets/tokens/istio-token`; `first-party-jwt`, `./var/run/secrets/kubernetes.io/serviceaccount/token`, whose audience must be one of the control plane's `TOKEN_AUDIENCES`; `none`, no token is sent. The agent does not start with any other
NAVARCH_CERTIFICATE_FILES | - | Files with commas between them with which Envoy is started. When their content changes, the next epoch of Envoy takes over by hot restart
NAVARCH_CERTIFICATE_RELOAD_DELAY | `10s` | How long after a change of these files they are read; further changes in this time are the same one
NAVARCH_CREDENTIAL_AUDIENCE | as `TRUST_DOMAIN` | Audience of tokens of a metadata server; the resource, for Azure
OUTPUT_CERTS | - | Directory into which key and certificates are written
PILOT_CERT_PROVIDER | - | `custom`: the roots of the CA are `./etc/certs/root-cert.pem`, unless `CA_ROOT_CA` is set
PKCS8_KEY | `true` | Keys are written as PKCS#8; `false`: as PKCS#1 (RSA) or SEC 1 (curves), for applications that read no other. pilot-agent's default is false
PROV_CERT | - | Directory with key and certificates that authenticate the workload instead of a token
PROXY_CONFIG_XDS_AGENT | `true` | Roots are taken from the control plane as they change. pilot-agent's default is false
SECRET_GRACE_PERIOD_RATIO | `0.5` | Remaining share of its lifetime at which a certificate is renewed
SECRET_GRACE_PERIOD_RATIO_JITTER | `0.01` | Random jitter of that ratio
SECRET_TTL | `24h` | Requested lifetime of certificates
TRUST_DOMAIN | `cluster.local` | Trust domain of the workload
WORKLOAD_IDENTITY_SOCKET_FILE | `socket` | Name of the socket on which another process may serve the workload's certificate
WORKLOAD_RSA_KEY_SIZE | none, the key is of `ECC_CURVE` | Bits of an RSA key: 2048, 3072 or 4096
XDS_AUTH_PROVIDER | - | Where the token for the control plane comes from, if not from where the CA's does: a value of `CREDENTIAL_FETCHER_TYPE`, or `gcp` for `GoogleComputeEngine`
XDS_HEADER_* | - | Headers of requests to the control plane: the name behind the prefix is the header's
XDS_ROOT_CA | `./var/run/secrets/istio/root-cert.pem` | File with the roots that verify the control plane; `SYSTEM` is those of the system
";

/// The exchange of tokens.
const TOKENS: &str = "
CREDENTIAL_IDENTITY_PROVIDER | - | Identity provider of Google's token exchange; if unset it is `GoogleComputeEngine` with this `CREDENTIAL_FETCHER_TYPE`, otherwise `GKE_CLUSTER_URL`
GKE_CLUSTER_URL | - | URL of the GKE cluster, as the identity provider of Google's token exchange; the one that the metadata server names if unset
NAVARCH_STS_CA_FILE | - | File with the roots that verify the token server; those of the system if unset
NAVARCH_STS_CLIENT_CERTIFICATE | - | File with the agent's certificate for the token server, with `NAVARCH_STS_CLIENT_KEY`
NAVARCH_STS_CLIENT_ID | - | Client id for basic authentication at the token server, with `NAVARCH_STS_CLIENT_SECRET_FILE`
NAVARCH_STS_CLIENT_KEY | - | File with the key of that certificate
NAVARCH_STS_CLIENT_SECRET_FILE | - | File with the secret of that client id
NAVARCH_STS_URL | - | URL of the server that exchanges tokens by RFC 8693, for `--stsPort`; `https`, or `http` on loopback
";

/// The status port.
const STATUS: &str = "
ENABLE_PROBE_KEEPALIVE_CONNECTIONS | `false` | Connections for HTTP probes are kept for the next one
ISTIO_ENABLE_HTTP2_PROBING | `true` | Probes may be answered over HTTP/2
ISTIO_KUBE_APP_PROBERS | - | Probes of the application as JSON; the injector sets it
ISTIO_PROMETHEUS_ANNOTATIONS | - | Where the application's metrics are, as JSON; the injector sets it
METRICS_LOCALHOST_ACCESS_ONLY | `false` | Merged metrics are only accessible from the pod itself
NAVARCH_MAX_STATUS_CONNECTIONS | `128` | Most connections on the status port, of which a quarter is reserved for loopback
PILOT_AGENT_MERGE_ENVOY_STATS | `true` | Merged metrics include those of Envoy
PROXY_XDS_DEBUG_VIA_AGENT | `false` | Whether the agent forwards requests to the control plane's debug API on its debug port, on loopback alone. Istio's default until 1.24 was true
PROXY_XDS_DEBUG_VIA_AGENT_PORT | `15004` | That port; `0` is none
REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION | `false` | Probes are sent to the application on `localhost`, not on the pod's address
";

/// DNS, and Wasm modules.
const NAMES: &str = "
BLOCKED_CIDRS_IN_WASM_FETCH | - | Ranges of addresses from which modules are never fetched, comma-separated
DNS_FORWARD_PARALLEL | `false` | All resolvers are queried at once
DNS_FORWARD_TIMEOUT | `5s` | Timeout of a resolver
DNS_PROXY_ADDR | `localhost:15053` | Listen address of DNS
IPTABLES_TRACE_LOGGING | `false` | The agent logs packets of rules with `--iptables-trace-logging`
ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION | `true` | The agent fetches modules; `false` leaves that to Envoy
ISTIO_META_DNS_CAPTURE | `false` | Sidecars are served DNS
ISTIO_META_ENABLE_DNS_SERVER | `false` | Gateways are served DNS
ISTIO_WASM_MAX_BINARY_SIZE_BYTES | 268435456 | Most bytes of a module
WASM_HTTP_REQUEST_MAX_RETRIES | 5 | Maximum number of attempts to fetch a module
WASM_HTTP_REQUEST_TIMEOUT | 15s | Timeout of one attempt
WASM_INSECURE_REGISTRIES | - | Registries that may be used in plain text or with any certificate, comma-separated
WASM_MODULE_EXPIRY | 24h | How long an unused module is kept
WASM_PURGE_INTERVAL | 1h | How often unused modules are looked for
";

/// Variables of istio-iptables without a flag.
const CAPTURE: &str = "
DRY_RUN_FILE_PATH | - | File into which `--dry-run` also writes
ENVOY_USER | `istio-proxy` | User that Envoy runs as, where `--proxy-uid` is not given
ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR | `127.0.0.1/32` | IPv4 addresses that are the application's own loopback
ISTIO_OUTBOUND_OWNER_GROUPS | `*` | Groups whose outbound traffic is captured, comma-separated
ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE | - | Groups whose outbound traffic is not captured, comma-separated
";
