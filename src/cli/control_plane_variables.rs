//! Descriptions of the control plane's environment variables: all that it reads, and all that
//! istiod reads. `docs/configuration.md` is made of them, and `navarch preflight` quotes them.
//!
//! Each row has name, default and effect. A default in backticks is the value that changes nothing,
//! which a test verifies; `-` is unset. If the variable is not read and no value matches the
//! behaviour here, a fourth column describes it.

/// The rows of all topics.
const ALL: &[&str] = &[
    CLUSTER, SECURITY, STREAMS, SERVICES, TRACES, ENVOY, GATEWAYS, AMBIENT, WRITING,
];

/// What a variable does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VariableEffect {
    /// In istiod, and here if it is read.
    pub(super) effect: &'static str,
    /// The behaviour here if it is not read and no value matches that.
    pub(super) instead: Option<&'static str>,
}

/// What a variable of this name does; `None` if it is not described.
pub(super) fn effect_of(name: &str) -> Option<VariableEffect> {
    let mut rows = ALL.iter().flat_map(|rows| rows.lines());
    rows.find_map(|row| {
        let mut columns = row.split(" | ").map(str::trim);
        if columns.next()? != name {
            return None;
        }

        // The default is between them.
        let effect = columns.nth(1)?;
        Some(VariableEffect {
            effect,
            instead: columns.next(),
        })
    })
}

/// Identity of the control plane, and its sources.
pub(super) const CLUSTER: &str = "
CLUSTER_ID | `Kubernetes` | Name of the cluster that the control plane runs in; the flag `--cluster-id` takes precedence
COMPLIANCE_POLICY | - | Compliance policy of TLS: `fips-140-2`, `fips-140-3`, `pqc`, or nothing; binds proxies and all ports and clients of Navarch (docs/security.md), and the injector sets it for agents
ENABLE_LEADER_ELECTION | `true` | One replica at a time writes to the cluster; with `false` each replica writes, for installations with one replica
EXTERNAL_ISTIOD | `false` | The control plane also serves clusters that have none
ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS | `false` | Metrics about the queues of controllers
ISTIO_KUBE_CLIENT_CONTENT_TYPE | `protobuf` | Encoding of requests to the Kubernetes API: `protobuf` or `json`
ISTIO_WATCH_NAMESPACE | - | The one namespace that is read and written to; all if unset
KUBECONFIG | - | Kubeconfigs, separated by colons, of which the first that exists is used; the flag `--kubeconfig` takes precedence
KUBERNETES_SERVICE_HOST | - | Set by Kubernetes in every container: where it is set there is a cluster to read, also with `--config-dir`
LOCAL_CLUSTER_SECRET_WATCHER | `false` | With `EXTERNAL_ISTIOD`, kubeconfigs of other clusters are read from the cluster that the control plane runs in, not from that which configures the mesh
MUTEX_PROFILE_FRACTION | `1000` | Sampling of Go's profile of locks | there are no Go profiles
NAVARCH_STRICT_ENVIRONMENT | - | The control plane does not start if it cannot read a number, duration or switch: if this is set to anything but `false`. If unset, such a variable has its default, with a warning, as in istiod
PILOT_IGNORE_RESOURCES | - | Kinds that are not read: `plural.group`, or `*.group` for all of a group, comma-separated
PILOT_INCLUDE_RESOURCES | - | Kinds that are read though `PILOT_IGNORE_RESOURCES` names them, in the same form
PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS | - | Ways to log in that kubeconfigs of other clusters may use though they run or read what is on this machine | other clusters are not read
PILOT_MULTICLUSTER_KUBECONFIG_PATH | - | Directory with the kubeconfigs of other clusters | other clusters are not read
PILOT_REMOTE_CLUSTER_TIMEOUT | `30s` | How long readiness waits for other clusters | other clusters are not read
PLATFORM | - | `openshift` has the injector take user and group ids from the namespace, as OpenShift sets them
POD_NAME | - | Name of the pod, under which it holds locks and reports to other replicas; that of the host and random digits if unset
POD_NAMESPACE | `istio-system` | Namespace of the control plane, where its ConfigMaps, Secrets and locks are; the flag `--namespace` takes precedence
REVISION | - | Revision of this control plane; the flag `--revision` takes precedence
SHARED_MESH_CONFIG | - | A further ConfigMap with mesh config, into which the usual one is merged
UNSAFE_ENABLE_ADMIN_ENDPOINTS | `false` | Debug pages that change what is served
UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS | `false` | Checks of istiod on itself, which end it when they fail
";

/// The CA, identities, tokens, and access.
pub(super) const SECURITY: &str = "
AUDIENCE | - | Audience that tokens of `TOKEN_ISSUER` must have | `JWT_RULE` names issuers and audiences
BLOCKED_CIDRS_IN_JWKS_URIS | - | Ranges of addresses from which keys of token issuers are never fetched, comma-separated
CA_TRUSTED_NODE_ACCOUNTS | - | Service accounts, as `namespace/name`, comma-separated, that may ask for the certificates of the pods on their node (ztunnel)
CERT_SIGNER_DOMAIN | - | Domain of the Kubernetes signers that workloads may name, with `EXTERNAL_CA`
CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR | `true` | The first check of the root comes at a random time | whichever replica comes first makes the root, and the others take it
CITADEL_SELF_SIGNED_CA_CERT_TTL | `87600h` | Lifetime of a root that the control plane makes
CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE | `2048` | Bits of the root's RSA key | `NAVARCH_CA_KEY_TYPE` names the kind of key
CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL | `1h` | How often the age of the root is checked; with `0` it is never replaced
CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE | `20` | A root is replaced when this part of its lifetime, in percent, is left
DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES | - | Namespaces, besides the control plane's own, whose service accounts may see debug pages, comma-separated
DEFAULT_WORKLOAD_CERT_TTL | `24h` | Lifetime of workload certificates if the request has none
ENABLE_CA_SERVER | `true` | The control plane signs certificates of workloads and distributes the roots
ENABLE_CLUSTER_TRUST_BUNDLE_API | `false` | The roots are published as a ClusterTrustBundle, not as a ConfigMap in each namespace
ENABLE_DEBUG_ENDPOINT_AUTH | `true` | Debug pages are for operators
ENABLE_DEBUG_ON_HTTP | `true` | There are debug pages
ENABLE_XDS_API_GENERATOR_AUTH | `true` | Istio's objects over xDS (`GENERATOR: api`) are for identities of the root namespace
EXTERNAL_CA | - | Who signs certificates of workloads, if not the control plane: `ISTIOD_RA_KUBERNETES_API` (CertificateSigningRequests of the Kubernetes API), `NAVARCH_RA_SOCKET` (a plugin behind a Unix socket), `NAVARCH_RA_SPIRE` or `NAVARCH_RA_CERT_MANAGER` (docs/certificates.md)
ISTIOD_CUSTOM_HOST | - | Further names in the control plane's own certificate, comma-separated
ISTIO_MULTIROOT_MESH | `false` | Proxies trust several roots | proxies are sent all roots that are trusted
JWKS_RESOLVER_INSECURE_SKIP_VERIFY | `false` | Certificates of the servers of token issuers' keys are not checked
JWT_RULE | - | A JSON object with `issuer`, `jwksUri` and `audiences`: tokens of that issuer identify clients, too
K8S_SIGNER | - | The Kubernetes signer for workloads that specify none, with `EXTERNAL_CA`
MAX_WORKLOAD_CERT_TTL | `2160h` | Maximum lifetime of a workload certificate; requests for a longer one are rejected
NAVARCH_CA_KEY_TYPE | `ecdsa` | Kind of the key of a root that the control plane makes: `ecdsa` (P-256), `p384`, `rsa` (2048 bits), `rsa3072` or `rsa4096`
NAVARCH_CERT_MANAGER_ISSUER | - | Issuer for `NAVARCH_RA_CERT_MANAGER`: `KIND/NAME` or `KIND.GROUP/NAME`, such as `ClusterIssuer/mesh`
NAVARCH_CERT_MANAGER_NAMESPACE | - | Namespace of the CertificateRequests; the control plane's own if unset
NAVARCH_JWKS_ALLOW_LOOPBACK | `false` | Keys of token issuers may be fetched from the control plane's own machine
NAVARCH_NAMESPACE_SIGNERS | - | Signers of single namespaces, as `namespace=SIGNER`, comma-separated, with the values of `EXTERNAL_CA`, or `ISTIOD` for the control plane itself
NAVARCH_ROOT_OVERLAP | `3m` | Minimum time for which a new root is distributed before it signs
NAVARCH_SIGNER_NAMESPACE_RATE | `50` | Certificates per second of one namespace that a signer outside of the control plane is asked for; ten times as many at once
NAVARCH_SIGNER_REQUESTS | `64` | Requests to a signer outside of the control plane at once, half of them at most for one namespace
NAVARCH_SIGNER_ROOTS | - | File with the only roots, in PEM, in which chains of a plugin, SPIRE or cert-manager may end; cert-manager needs it
NAVARCH_SIGNER_ROOT_WAIT | `1h` | How long at most connected proxies that lack a new root of a signer delay its use
NAVARCH_SIGNER_SOCKET | - | Unix socket of the plugin for `NAVARCH_RA_SOCKET`
NAVARCH_SIGNER_TIMEOUT | `30s` | Time that a signer outside of the control plane has for one certificate
NAVARCH_SIGNER_USER | - | User id of the process that may serve the socket of a plugin, a SPIRE server or agent, besides root and the control plane's own
NAVARCH_SPIRE_FEDERATES_WITH | - | Trust domains, comma-separated, whose federated bundles at the SPIRE server proxies trust as well
NAVARCH_SPIRE_SERVER | - | SPIRE server for `NAVARCH_RA_SPIRE`: `host:port`, by the control plane's SVID, or `unix:/path` of its own socket
NAVARCH_SPIRE_SERVER_ID | - | SPIFFE ID of the SPIRE server; `spiffe://TRUST-DOMAIN/spire/server` if unset
NAVARCH_WORKLOAD_KEY_TYPES | - | Types of keys that certificates are issued for, comma-separated: `p256`, `p384`, `rsa2048`, `rsa3072`, `rsa4096`; every strong key if unset
PILOT_CERT_PROVIDER | `istiod` | Signer of the control plane's own certificate: `istiod` is the control plane itself, `k8s.io/NAME` a Kubernetes signer
PILOT_ENABLE_CA_CRL | `true` | Revocation lists of a plugged-in CA (`ca-crl.pem`) are distributed to all namespaces
PILOT_ENABLE_XDS_IDENTITY_CHECK | `true` | A client may only claim the namespace and service account of its credential
ROOT_CA_DIR | `./etc/cacerts` | Directory of a plugged-in CA
SPIFFE_ENDPOINT_SOCKET | - | Workload API that hands out the control plane's SVID, as `unix:///path`, with `NAVARCH_SPIRE_SERVER=host:port`
TOKEN_AUDIENCES | `istio-ca` | Audiences that Kubernetes tokens of clients may have, comma-separated
TOKEN_ISSUER | - | Issuer of tokens of workloads outside Kubernetes | `JWT_RULE` names issuers and audiences
TRUSTED_GATEWAY_CIDR | - | CIDRs whose clients may authenticate others with the header XFCC, comma-separated
USE_CACERTS_FOR_SELF_SIGNED_CA | `false` | A root that the control plane makes is kept in the Secret `cacerts`
USE_REMOTE_CERTS | `false` | Where `ROOT_CA_DIR` holds no whole CA, it is read from the Secret `cacerts` of the cluster that configures the mesh
XDS_AUTH | `true` | Clients of xDS over TLS must authenticate
XDS_AUTH_PLAINTEXT | `false` | Clients of xDS in plain text must authenticate, too
";

/// Connections and streams, their limits, and when changes are pushed.
pub(super) const STREAMS: &str = "
ENABLE_LAZY_SIDECAR_EVALUATION | `true` | Scopes of Sidecars are computed when they are needed | always so: only what a connected proxy needs is computed
ENABLE_VTPROTOBUF | `true` | Another encoder of protobuf | the encoder is Rust's own
GRPC_KEEPALIVE_INTERVAL | `30s` | Idle time of a connection after which the client is pinged; the flag `--keepalive-interval` takes precedence
GRPC_KEEPALIVE_TIMEOUT | `10s` | Timeout for the acknowledgement of a ping; the flag `--keepalive-timeout` takes precedence
ISTIO_DELTA_XDS | `true` | Delta streams receive only what changed
ISTIO_GPRC_MAXRECVMSGSIZE | 4194304, in ambient mode 16777216 | Most bytes of a request of xDS
ISTIO_GPRC_MAXSTREAMS | `100000` | Most streams of one connection; `0` is without limit
NAVARCH_CLIENT_MEMORY | a quarter of the memory limit, 256Mi at least | Bytes that all clients of xDS together may make the process hold, such as `1Gi`
NAVARCH_MAX_HTTP_CONNECTIONS | 512, or 1 of 48 files | Most connections on each of 8080 and 15014
NAVARCH_MAX_TLS_HANDSHAKES | 1024, or a fifth of the port's connections | Most connections on each of 15012 and 15017 whose TLS handshake is not done
NAVARCH_MAX_UNAUTHENTICATED_NAMES | `50000` | Most names of resources that a stream without a credential may watch
NAVARCH_MAX_WEBHOOK_CONNECTIONS | 1024, or 1 of 24 files | Most connections on 15017
NAVARCH_MAX_XDS_CONNECTIONS | 32768, or 3 of 8 files | Most connections on each of 15010 and 15012
NAVARCH_PROMETHEUS_URL | empty | Prometheus for the queries of `navarch.io/rollout-query`, such as `http://prometheus.istio-system:9090`
NAVARCH_PUSH_HISTORY | `20` | Responses of each stream that are remembered for `navarch why push` and the page, of about 100 bytes each; at most 1000, `0` for none
NAVARCH_QUARANTINE | `true` | An object whose configuration proxies reject is quarantined until it is edited
NAVARCH_ROLLOUT | empty | Stages in which changes of objects without the annotation `navarch.io/rollout` reach proxies, such as `5%,25%,100%`; empty: all at once
NAVARCH_ROLLOUT_PAUSE | `30s` | Minimum duration of a stage, unless `navarch.io/rollout-pause` says otherwise
NAVARCH_ROLLOUT_QUERY_NAMESPACES | empty | Namespaces whose objects may contain `navarch.io/rollout-query`, comma-separated, or `*`: a query reads all that Prometheus has
NAVARCH_XDS_COMPRESSION | `gzip,zstd` | Encodings that responses may be compressed with, of those that a client reads, or `none`
PILOT_CONVERT_SIDECAR_SCOPE_CONCURRENCY | `1` | Threads that compute the scopes of Sidecars | one thread computes all
PILOT_DEBOUNCE_AFTER | `0s` | How long there must be no further change before changes are pushed. istiod waits 100ms; here changes go at once, but for removals, which wait for 500ms, except those of workloads, their endpoints and ReferenceGrants
PILOT_DEBOUNCE_MAX | `10s` | Longest that changes wait for others, with `PILOT_DEBOUNCE_AFTER`
PILOT_ENABLE_CDS_CACHE | `true` | Clusters are cached | results are kept as long as what they were computed from
PILOT_ENABLE_EDS_DEBOUNCE | `true` | Endpoints wait as other changes do | with `PILOT_DEBOUNCE_AFTER` they wait, else nothing does
PILOT_ENABLE_RDS_CACHE | `true` | Routes are cached | results are kept as long as what they were computed from
PILOT_ENABLE_XDS_CACHE | `true` | Resources are cached | results are kept as long as what they were computed from
PILOT_MAX_REQUESTS_PER_SECOND | `0` | Streams that may begin per second; `0` is without limit
PILOT_PUSH_THROTTLE | `0` | No effect, and the log says so: a push to all proxies is one computation
PILOT_XDS_CACHE_INDEX_CLEAR_INTERVAL | `5s` | How often the cache is tidied | results are kept as long as what they were computed from
PILOT_XDS_CACHE_SIZE | `60000` | Most entries of the cache | results are kept as long as what they were computed from
PILOT_XDS_CACHE_STATS | `false` | Metrics about the cache
";

pub(super) const SERVICES: &str = "
ENABLE_MCS_AUTO_EXPORT | `false` | The leader makes a ServiceExport for every Service that does not stay in its cluster
ENABLE_MCS_CLUSTER_LOCAL | `false` | `cluster.local` names endpoints of the own cluster alone
ENABLE_MCS_HOST | `false` | Routes may name ServiceImports, whose hosts are under `clusterset.local`
ENABLE_MCS_SERVICE_DISCOVERY | `false` | Endpoints are known to other clusters only where a ServiceExport says so
ENABLE_MULTICLUSTER_HEADLESS | `true` | The name of a headless service holds its endpoints in all clusters of the network
ENABLE_PROXY_FIND_POD_BY_IP | `false` | A proxy whose pod is not found by name is found by its address
ISTIO_DUAL_STACK | `false` | Both address families of services and workloads are used
LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES | `false` | Endpoints outside the mesh are named after their ServiceEntry in metrics
MCS_API_GROUP | `multicluster.x-k8s.io` | API group of ServiceExports and ServiceImports
MCS_API_VERSION | `v1alpha1` | API version of ServiceExports and ServiceImports
PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS | `true` | Unhealthy endpoints are sent as such, unless outlier detection of the service sets `minHealthPercent`
PILOT_DRAINING_LABEL | `istio.io/draining` | Endpoints with this label are sent as draining
PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY | `true` | WorkloadEntries of other clusters are read
PILOT_ENABLE_IP_AUTOALLOCATE | `true` | ServiceEntries without an address get one, which is written into their status
PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES | `true` | Kubernetes Services select WorkloadEntries
PILOT_ENABLE_SERVICEENTRY_SELECT_PODS | `true` | ServiceEntries select pods
PILOT_IP_AUTOALLOCATE_IPV4_PREFIX | `240.240.0.0/16` | Range of the addresses that ServiceEntries get
PILOT_IP_AUTOALLOCATE_IPV6_PREFIX | `2001:2::/48` | The same of IPv6
PILOT_PERSISTENT_SESSION_HEADER_LABEL | `istio.io/persistent-session-header` | Services with this label keep sessions at an endpoint by a header
PILOT_PERSISTENT_SESSION_LABEL | `istio.io/persistent-session` | Services with this label keep sessions at an endpoint by a cookie
PILOT_SEND_UNHEALTHY_ENDPOINTS | `false` | Unhealthy endpoints are sent as such, and Envoy never balances over all when many are
RESOLVE_HOSTNAME_GATEWAYS | `true` | Host names of gateways between networks are resolved by the control plane
";

/// OpenTelemetry.
pub(super) const TRACES: &str = "
OTEL_BSP_EXPORT_TIMEOUT | `30000` | Milliseconds after which sending a batch of spans is abandoned
OTEL_BSP_MAX_EXPORT_BATCH_SIZE | `512` | Most spans of one request
OTEL_BSP_MAX_QUEUE_SIZE | `2048` | Most spans that wait to be sent; traces for which there is no room are dropped and counted
OTEL_BSP_SCHEDULE_DELAY | `5000` | Milliseconds for which spans are gathered
OTEL_EXPORTER_OTLP_CERTIFICATE | the system's | File with the roots of the collector's certificate, in PEM
OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE | - | File with the client certificate for the collector, in PEM
OTEL_EXPORTER_OTLP_CLIENT_KEY | - | File with its key
OTEL_EXPORTER_OTLP_COMPRESSION | `none` | `gzip` compresses requests, with `http/protobuf` alone
OTEL_EXPORTER_OTLP_ENDPOINT | - | Where traces are sent, as `http://collector:4317`; with `http/protobuf` the path is `/v1/traces` under it. Traces are off unless this or `OTEL_TRACES_EXPORTER` is set
OTEL_EXPORTER_OTLP_HEADERS | - | Headers of requests, as `name=value,name=value`, values percent-encoded
OTEL_EXPORTER_OTLP_INSECURE | - | With `true` an endpoint without a scheme is used without TLS
OTEL_EXPORTER_OTLP_PROTOCOL | `grpc` | `grpc` or `http/protobuf`
OTEL_EXPORTER_OTLP_TIMEOUT | `10000` | Milliseconds that one request may take
OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE | - | As the variable without `_TRACES`, over which it takes precedence
OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE | - | As the variable without `_TRACES`, over which it takes precedence
OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY | - | As the variable without `_TRACES`, over which it takes precedence
OTEL_EXPORTER_OTLP_TRACES_COMPRESSION | - | As the variable without `_TRACES`, over which it takes precedence
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT | - | As the variable without `_TRACES`, over which it takes precedence; its path is used unchanged
OTEL_EXPORTER_OTLP_TRACES_HEADERS | - | As the variable without `_TRACES`, over which it takes precedence
OTEL_EXPORTER_OTLP_TRACES_INSECURE | - | As the variable without `_TRACES`, over which it takes precedence
OTEL_EXPORTER_OTLP_TRACES_PROTOCOL | - | As the variable without `_TRACES`, over which it takes precedence
OTEL_EXPORTER_OTLP_TRACES_TIMEOUT | - | As the variable without `_TRACES`, over which it takes precedence
OTEL_RESOURCE_ATTRIBUTES | - | Resource attributes of the process, as `key=value,key=value`, values percent-encoded
OTEL_SDK_DISABLED | - | With `true` no traces are sent
OTEL_SERVICE_NAME | `navarch` | The attribute `service.name`
OTEL_TRACES_EXPORTER | - | With `otlp` traces are sent, to `localhost` unless an endpoint is set; with `none` none are sent
OTEL_TRACES_SAMPLER | `parentbased_always_on` | Which changes have a trace: `always_on`, `always_off`, `traceidratio`, or one of them after `parentbased_`, which is the same here
OTEL_TRACES_SAMPLER_ARG | `1` | With `traceidratio`: the share of changes that have one, between 0 and 1
";

/// Envoy's configuration.
pub(super) const ENVOY: &str = "
BLOCKED_CIDRS_IN_WASM_FETCH | - | Ranges of addresses from which Wasm modules are never fetched | the agent reads it, and fetches them
DISABLE_SHADOW_HOST_SUFFIX | `true` | Mirrored requests keep their authority; `false` adds `-shadow` to it
DISABLE_TRACK_REMAINING_CB_METRICS | `true` | Envoy does not count what is left up to the limits of its circuit breakers
ENABLE_100_CONTINUE_HEADERS | `true` | `100 Continue` is passed on
ENABLE_ENHANCED_DESTINATIONRULE_MERGE | `true` | DestinationRules of one host are merged only where their `exportTo` is the same
ENABLE_HCM_INTERNAL_NETWORKS | `false` | Addresses of the mesh networks count as internal
ENABLE_LOCALITY_WEIGHTED_LB_CONFIG | `false` | All clusters balance by the weights of localities, not only those whose DestinationRule says so
ENABLE_TLS_ON_SIDECAR_INGRESS | `false` | TLS settings of `Sidecar.ingress` count
ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS | `false` | ServiceEntries with wildcard hosts and dynamic DNS serve TLS, too, by the host in the SNI of the client
ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL | `false` | Envoy's status port accepts the PROXY protocol; the agent reads it
ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS | `false` | Proxies with IPv6 alone get listeners of IPv4 for outbound connections, too
ISTIO_WASM_MAX_BINARY_SIZE_BYTES | `268435456` | Most bytes of a Wasm module | the agent reads it, and fetches them
MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP | `1` | Connections that Envoy accepts at a time; `0` is without limit
METRICS_LOCALHOST_ACCESS_ONLY | `false` | Metrics of a proxy are only accessible from its own pod; the agent reads it
NAVARCH_FINE_GRAINED_ROUTES | `auto` | Which proxies on delta streams get virtual hosts one by one (VHDS), unless their metadata says otherwise: `auto` is those that start with a large route configuration and are known to take them, `true` all, `false` none
NAVARCH_FINE_GRAINED_ROUTES_MIN_HOSTS | `1000` | With `auto`: virtual hosts that a route configuration has, if it is large
PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS | `1024` | Most names that a proxy keeps in its cache of dynamic DNS
PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE | `false` | Ports of services keep their inbound listeners beside those of `Sidecar.ingress`
PILOT_DISABLE_MX_ALPN | `false` | Proxies do not offer `istio-peer-exchange` in TLS handshakes
PILOT_DNS_CARES_UDP_MAX_QUERIES | `100` | Number of queries after which Envoy's resolver opens a new socket; `0` is never
PILOT_DNS_JITTER_DURATION | `100ms` | Random time added to the one between DNS queries
PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN | `true` | Hosts match with a trailing dot, too
PILOT_ENABLE_ALPN_FILTER | `true` | What proxies offer in TLS handshakes follows the protocol of the request
PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES | `false` | Sidecars balance over the pods of headless services
PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER | `false` | One listener for all pods of a headless TCP port, not one for each
PILOT_ENABLE_METADATA_EXCHANGE | `true` | Proxies tell each other who they are
PILOT_ENABLE_MONGO_FILTER | `true` | Ports of MongoDB get Envoy's filter for it
PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS | `false` | CUSTOM policies of a workload may name several providers
PILOT_ENABLE_MYSQL_FILTER | `false` | Ports of MySQL get Envoy's filter for it
PILOT_ENABLE_PERSISTENT_SESSION_FILTER | `false` | Sessions can be kept at an endpoint
PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_INBOUND | `true` | In earlier releases: the protocol of connections to ports without a declared protocol is detected by their first bytes
PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_OUTBOUND | `true` | The same of outbound connections
PILOT_ENABLE_REDIS_FILTER | `false` | Ports of Redis get Envoy's filter for it
PILOT_ENABLE_TELEMETRY_LABEL | `true` | Clusters and endpoints carry the names that metrics use
PILOT_ENDPOINT_TELEMETRY_LABEL | `true` | Endpoints carry the names that metrics use
PILOT_ENVOY_FILTER_STATS | `false` | Metrics show which EnvoyFilters have an effect
PILOT_HTTP10 | `false` | HTTP listeners accept HTTP/1.0
PILOT_JWT_ENABLE_REMOTE_JWKS | `false` | Who fetches the keys of token issuers: `istiod` (`false`), `envoy`, or `hybrid` (`true`), which is proxies where the server is of the mesh. With a password in the address always istiod
PILOT_JWT_PUB_KEY_REFRESH_INTERVAL | `20m` | How often the control plane fetches the keys of token issuers
PILOT_MX_ADDITIONAL_LABELS | - | Further labels that proxies tell each other, comma-separated
PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE | `true` | A host that several namespaces have means a Kubernetes Service or the oldest, not the alphabetically first
PILOT_SIDECAR_USE_REMOTE_ADDRESS | `false` | Outbound listeners of sidecars use the address of the peer as that of the client
PILOT_SKIP_VALIDATE_TRUST_DOMAIN | `false` | Peers may be of any trust domain whose root is trusted
PILOT_TRACE_SAMPLING | `1` | Percentage of requests that are traced by default
PILOT_UNIFIED_SIDECAR_SCOPE | `true` | Of services of one host sidecars take a Kubernetes Service first, and Gateway API routes of their own namespace
PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES | `true` | Towards hosts outside the mesh a DestinationRule takes precedence over certificates that the proxy metadata names
";

/// Gateways of both APIs.
pub(super) const GATEWAYS: &str = "
ENABLE_GATEWAY_API_INFERENCE_EXTENSION | `false` | InferencePools are read, and their Services created
ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT | `true` | Addresses of a Gateway may refer to manually deployed proxies
ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY | `true` | Policies with a selector apply to gateways of the Gateway API, not only those with `targetRefs`
K8S_INGRESS_NS | `istio-system` | Namespace of the gateway that serves Ingresses
PILOT_ENABLE_AGENTGATEWAY | `false` | The GatewayClass `istio-agentgateway` is supported
PILOT_ENABLE_ALPHA_GATEWAY_API | `false` | Experimental kinds of the Gateway API are read
PILOT_ENABLE_GATEWAY_API | `true` | The Gateway API is read
PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS | `true` | Labels and annotations of a Gateway are copied to what is deployed for it
PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER | `true` | Gateways get a Deployment, a Service and what goes with them
PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER | `true` | The GatewayClasses of the control plane are created
PILOT_ENABLE_GATEWAY_API_STATUS | `true` | Objects of the Gateway API get their status
PILOT_ENABLE_QUIC_LISTENERS | `false` | HTTPS servers are served over QUIC, too, where a service of the gateway has the port for UDP
PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION | `true` | Hosts of a gateway with the same routes share a virtual host
PILOT_ENABLE_STRICT_GATEWAY_MERGING | `true` | What is deployed for a Gateway of the Gateway API serves no Istio Gateway of another namespace
PILOT_FILTER_GATEWAY_CLUSTER_CONFIG | `false` | Gateways only receive clusters of services that their routes reference
PILOT_GATEWAY_API_CONTROLLER_NAME | `istio.io/gateway-controller` | Name of the controller whose GatewayClasses are served
PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME | `istio` | Name of the GatewayClass that exists implicitly
PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT | `15s` | How long a TLS handshake with a gateway may take; `0s` is without limit
PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API | `true` | Gateways of the class `istio-remote` are the gateways of other networks
PILOT_SCOPE_GATEWAY_TO_NAMESPACE | `false` | Gateway pods only serve Gateways of their own namespace
";

/// ztunnel and waypoints.
pub(super) const AMBIENT: &str = "
AMBIENT_ENABLE_BAGGAGE | `false` | Waypoints exchange peer metadata in the header `baggage`
AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY | `false` | In ambient mode: dry-run policies are sent to ztunnel, too
AMBIENT_ENABLE_MULTI_NETWORK | `false` | Gateways of the class `istio-east-west` join the networks of an ambient mesh, for services that `serviceScopeConfigs` of mesh config selects
AMBIENT_ENABLE_MULTI_NETWORK_INGRESS | `false` | With `AMBIENT_ENABLE_MULTI_NETWORK`: ingress gateways send to workloads of other networks
AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT | `true` | With `AMBIENT_ENABLE_MULTI_NETWORK`: waypoints send to workloads of other networks
AMBIENT_ENABLE_STATUS | `true` | Writes conditions about waypoints and enforcement to the status of objects and policies
AMBIENT_SCOPED_ADDRESS_PUSHES | `true` | A changed workload is pushed only to the waypoints that serve it | a change goes to those proxies whose resources read it
ENABLE_INGRESS_WAYPOINT_ROUTING | `true` | Gateways send through the waypoints of services that have the label for it
ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES | `false` | Policies with a selector are enforced in front of waypoints, too
NAVARCH_SIDECAR_WAYPOINTS | `false` | Sidecars send through the waypoints of services that have the label `navarch.io/sidecar-use-waypoint` (docs/ambient.md)
PILOT_AUTO_ALLOW_WAYPOINT_POLICY | `false` | In ambient mode: ztunnel allows the waypoints of a workload, and nothing else unless a policy allows it
PILOT_ENABLE_AMBIENT | `false` | Ambient mode: ztunnel is served
PILOT_ENABLE_AMBIENT_WAYPOINTS | as `PILOT_ENABLE_AMBIENT` | Gateways may be waypoints
PILOT_ENABLE_SENDING_HBONE | `true` | Envoys may send by HBONE
PILOT_ENABLE_SIDECAR_LISTENING_HBONE | as `PILOT_ENABLE_AMBIENT` | Sidecars accept HBONE
PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE | `0` | HTTP/2 window of a connection of HBONE between Envoys; `0` is Envoy's own | always Envoy's own
PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE | `0` | The same of a stream | always Envoy's own
PILOT_PREFER_SENDING_HBONE | `false` | Envoys send by HBONE where both sides can
";

/// Writing to the cluster, and the webhooks.
pub(super) const WRITING: &str = "
ENABLE_NATIVE_SIDECARS | `auto` | Injected proxies are native sidecars: `true`, `false`, or `auto`, which is where all nodes can
INJECTION_WEBHOOK_CONFIG_NAME | `istio-sidecar-injector` | The MutatingWebhookConfiguration into which the roots are written; none if empty
INJECT_ENABLED | `true` | Pods are injected
ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY | `true` | A workload may register only by the service account of its WorkloadGroup
NAVARCH_PLAN_WARNINGS | `false` | The webhook `/plan` returns warnings with the effect of an object that is written or deleted
NAVARCH_WEBHOOK_ROOT_GRACE | `10m` | How long roots of other control planes are kept in webhook configurations
PILOT_ANALYSIS_INTERVAL | `10s` | How often configuration is analyzed, with `PILOT_ENABLE_ANALYSIS`
PILOT_CA_CERT_CONFIGMAP | `istio-ca-root-cert` | Name of the ConfigMap with the roots in each namespace
PILOT_CRL_CONFIGMAP | `istio-ca-crl` | Name of the ConfigMap with revocation lists in each namespace
PILOT_ENABLE_ANALYSIS | `false` | Configuration is analyzed, and the messages are written into statuses
PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS | `false` | The taint of a node is removed once istio-cni is ready on it
PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER | `true` | Secrets of other clusters are read
PILOT_ENABLE_STATUS | `false` | The number of proxies that have an object is written into its status, as earlier releases of istiod did
PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION | `true` | Workloads outside Kubernetes that name a WorkloadGroup get a WorkloadEntry when they connect
PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS | `true` | WorkloadEntries with health checks are only used once they are healthy
PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME | `cni.istio.io/not-ready` | The taint that is removed
PILOT_STATUS_MAX_WORKERS | `100` | Most statuses that are written at once | few at a time, whatever the size of the mesh
PILOT_STATUS_UPDATE_INTERVAL | `500ms` | How often that is looked at, with `PILOT_ENABLE_STATUS`
PILOT_WORKLOAD_ENTRY_GRACE_PERIOD | `10s` | How long the WorkloadEntry of a workload that has gone is kept
VALIDATION_WEBHOOK_CONFIG_NAME | `istio-istio-system` | The ValidatingWebhookConfiguration into which the roots are written; none if empty
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_not_read_has_its_effect_and_what_happens_instead() {
        let found = effect_of("PILOT_PUSH_THROTTLE").unwrap();
        assert!(found.effect.starts_with("No effect"), "{found:?}");
        assert_eq!(
            effect_of("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE").unwrap(),
            VariableEffect {
                effect: "Bits of the root's RSA key",
                instead: Some("`NAVARCH_CA_KEY_TYPE` names the kind of key"),
            }
        );
        assert_eq!(effect_of("PATH"), None);
    }
}
