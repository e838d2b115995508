//! Constraints of the schemas beyond types: at least those of Istio's own CRDs, so that an object
//! admitted here is admitted there.

use super::limit::Limit::{self, *};

/// A port, without 0.
const PORT: Limit = Range(1.0, 65_535.0);

/// Durations of at least 1 ms.
const MILLISECOND: Limit = Rule(
    "duration(self) >= duration('1ms')",
    "must be a duration of at least 1ms",
);

/// Label values of selectors, without wildcards.
const NO_PATTERN: Limit = Rule(
    "!self.contains('*')",
    "must not contain a wildcard; labels are compared literally",
);

/// Unix socket addresses must be absolute paths.
const SOCKET_IS_ABSOLUTE: Limit = Rule(
    "!self.startsWith('unix://') || self.startsWith('unix:///') || self.startsWith('unix://@')",
    "a unix:// address must be an absolute path or an abstract name",
);

/// Unix socket addresses must not be directories.
const SOCKET_IS_NO_FOLDER: Limit = Rule(
    "!self.startsWith('unix://') || !self.endsWith('/')",
    "a unix:// address must not end with a slash",
);

/// Unix sockets have no ports.
const SOCKET_HAS_NO_PORTS: Limit = Rule(
    "!(has(self.address) && self.address.startsWith('unix://') && has(self.ports))",
    "a unix:// address has no ports; remove ports",
);

/// An address or a network is required.
const SOME_ADDRESS: Limit = Rule(
    "has(self.address) || has(self.network)",
    "address or network must be set",
);

const PORT_NAMES: Limit = Rule(
    "self.all(name, name.size() < 63 && name.matches('^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$'))",
    "the names of ports must be short and made of letters, digits and inner dashes",
);

/// At most one way to reference certificates.
const CREDENTIAL_OR_LIST: Limit = Rule(
    "!(has(self.credentialName) && has(self.credentialNames))",
    "set credentialName or credentialNames, not both",
);

const SECRETS_OR_FILES: Limit = Rule(
    "!(has(self.tlsCertificates) && has(self.credentialNames))",
    "set credentialNames or tlsCertificates, not both",
);

/// At most one way to attach a policy.
const ONE_ATTACHMENT: Limit = Rule(
    "[has(self.selector), has(self.targetRef), has(self.targetRefs)].filter(set, set).size() <= 1",
    "set only one of selector, targetRef and targetRefs",
);

const MODULE_URL: Limit = Rule(
    "(isURL(self) ? url(self) : url('http://' + self)).getScheme() in ['', 'http', 'https', 'file', 'oci']",
    "must be a URL of scheme http, https, file or oci, or the name of an image",
);

/// The hash of a module.
const SHA256: Limit = Pattern("^([a-f0-9]{64})?$");

/// The URL of keys.
const WEB_URL: Limit = Rule(
    "url(self).getScheme() in ['http', 'https']",
    "must be a URL of scheme http or https",
);

const HEADER_NAME: Limit = Pattern("^[-_A-Za-z0-9]+$");

/// UPSERT requires a value. A single rule with the next one would exceed the API server's cost
/// limit.
const UPSERT_HAS_VALUE: Limit = Rule(
    "!has(self.operation) || self.operation != 'UPSERT' || self.value != ''",
    "UPSERT requires a value",
);

/// REMOVE has no value.
const REMOVE_HAS_NONE: Limit = Rule(
    "!has(self.operation) || self.operation != 'REMOVE' || !has(self.value)",
    "REMOVE has no value",
);

/// All constraints with their places (see [`Limit::apply`]).
pub(super) const LIMITS: &[(&str, Limit)] = &[
    ("ConnectionKeepalive.interval", MILLISECOND),
    ("ConnectionKeepalive.timeout", MILLISECOND),
    ("HttpSettings.idleTimeout", MILLISECOND),
    ("TcpSettings.connectTimeout", MILLISECOND),
    ("TcpSettings.maxConnectionDuration", MILLISECOND),
    ("TcpKeepalive.interval", MILLISECOND),
    ("TcpKeepalive.time", MILLISECOND),
    ("OutlierDetection.baseEjectionTime", MILLISECOND),
    ("OutlierDetection.interval", MILLISECOND),
    (
        "OutlierDetection.outlierDetectionHttpErrorCodes[]",
        Range(100.0, 599.0),
    ),
    (
        "OutlierDetection.failurePercentageThreshold",
        Range(0.0, 100.0),
    ),
    (
        "LoadBalancerSettings",
        AtMostOne(&["simple", "consistentHash", "backendUtilization"]),
    ),
    ("LoadBalancerSettings.warmupDurationSecs", MILLISECOND),
    (
        "ConsistentHashLb",
        AtMostOne(&[
            "httpHeaderName",
            "httpCookie",
            "useSourceIp",
            "httpQueryParameterName",
        ]),
    ),
    ("ConsistentHashLb", AtMostOne(&["ringHash", "maglev"])),
    ("ConsistentHashLb.useSourceIp", NotNull),
    ("HttpCookie", Required(&["name"])),
    ("CookieAttribute", Required(&["name"])),
    ("WarmupConfiguration", Required(&["duration"])),
    ("WarmupConfiguration.duration", MILLISECOND),
    ("WarmupConfiguration.minimumPercent", Range(0.0, 100.0)),
    ("WarmupConfiguration.aggression", AtLeast(0.0)),
    (
        "ZoneAwareLoadBalancerSetting.minClusterSize",
        Range(1.0, 4_294_967_295.0),
    ),
    ("RetryBudget.percent", Range(0.0, 100.0)),
    ("TunnelSettings", Required(&["targetHost", "targetPort"])),
    ("TrafficPolicy.portLevelSettings", Size(0, 4096)),
    ("Subset", Required(&["name"])),
    ("DestinationRule", Required(&["host"])),
    ("PolicyWorkloadSelector.matchLabels", Size(0, 4096)),
    (
        "PolicyWorkloadSelector.matchLabels",
        Rule(
            "self.all(key, key != '' && !key.contains('*'))",
            "names of labels must not be empty or contain a wildcard",
        ),
    ),
    ("PolicyWorkloadSelector.matchLabels[]", Length(0, 63)),
    ("PolicyWorkloadSelector.matchLabels[]", NO_PATTERN),
    ("WorkloadSelector.labels", Size(0, 256)),
    ("WorkloadSelector.labels[]", Length(0, 63)),
    ("WorkloadSelector.labels[]", NO_PATTERN),
    ("Destination", Required(&["host"])),
    ("StringMatch", AtMostOne(&["exact", "prefix", "regex"])),
    ("HttpBody", AtMostOne(&["string", "bytes"])),
    ("HttpBody.bytes", Format("byte")),
    ("HttpDirectResponse", Required(&["status"])),
    ("CorsPolicy.maxAge", MILLISECOND),
    (
        "Abort",
        AtMostOne(&["httpStatus", "grpcStatus", "http2Error"]),
    ),
    ("Abort.httpStatus", NotNull),
    ("Delay", AtMostOne(&["fixedDelay", "exponentialDelay"])),
    ("Delay.fixedDelay", MILLISECOND),
    ("Delay.exponentialDelay", MILLISECOND),
    ("HttpRedirect", AtMostOne(&["port", "derivePort"])),
    ("HttpRedirect.port", NotNull),
    ("HttpRetry.backoff", MILLISECOND),
    ("HttpRetry.perTryTimeout", MILLISECOND),
    ("HttpMirrorPolicy", Required(&["destination"])),
    ("HttpRouteDestination", Required(&["destination"])),
    ("HttpRoute.timeout", MILLISECOND),
    ("HttpRoute.mirrorPercent", Alias("mirror_percent")),
    ("RouteDestination", Required(&["destination"])),
    ("TlsRoute", Required(&["match"])),
    ("TlsMatchAttributes", Required(&["sniHosts"])),
    ("Server", Required(&["port", "hosts"])),
    ("Port", Required(&["number", "protocol", "name"])),
    ("ServerTlsSettings", CREDENTIAL_OR_LIST),
    ("ServerTlsSettings", SECRETS_OR_FILES),
    ("ServerTlsSettings.credentialNames", Size(1, 2)),
    ("ServerTlsSettings.tlsCertificates", Size(1, 2)),
    ("ServiceEntry", Required(&["hosts"])),
    (
        "ServiceEntry",
        Rule(
            "!(has(self.workloadSelector) && has(self.endpoints))",
            "set workloadSelector or endpoints, not both",
        ),
    ),
    (
        "ServiceEntry",
        Rule(
            "!has(self.addresses) || !has(self.resolution) || self.resolution in ['STATIC', 'NONE'] || \
             !self.addresses.exists(address, address.contains('/'))",
            "addresses may hold CIDRs only with resolution NONE or STATIC",
        ),
    ),
    (
        "ServiceEntry",
        Rule(
            "!has(self.endpoints) || (has(self.resolution) && self.resolution != 'NONE')",
            "endpoints need a resolution other than NONE",
        ),
    ),
    (
        "ServiceEntry",
        Rule(
            "!has(self.resolution) || self.resolution != 'DNS_ROUND_ROBIN' || !has(self.endpoints) || \
             self.endpoints.size() <= 1",
            "resolution DNS_ROUND_ROBIN takes one endpoint at most",
        ),
    ),
    ("ServiceEntry.hosts", Size(1, 256)),
    (
        "ServiceEntry.hosts[]",
        Rule("self != '*'", "a host must not be the bare wildcard"),
    ),
    ("ServiceEntry.addresses", Size(0, 256)),
    ("ServiceEntry.addresses[]", Length(0, 64)),
    ("ServiceEntry.ports", Size(0, 256)),
    ("ServiceEntry.ports", KeyedBy("name")),
    (
        "ServiceEntry.ports",
        Rule(
            "self.all(port, self.exists_one(other, port.number == other.number))",
            "two ports must not have one number",
        ),
    ),
    ("ServiceEntry.endpoints", Size(0, 4096)),
    ("ServicePort", Required(&["number", "name"])),
    ("ServicePort.number", PORT),
    ("ServicePort.targetPort", PORT),
    ("ServicePort.name", Length(0, 256)),
    ("ServicePort.protocol", Length(0, 256)),
    ("WorkloadEntry", SOME_ADDRESS),
    ("WorkloadEntry", SOCKET_HAS_NO_PORTS),
    ("WorkloadEntry.address", Length(0, 256)),
    ("WorkloadEntry.address", SOCKET_IS_ABSOLUTE),
    ("WorkloadEntry.address", SOCKET_IS_NO_FOLDER),
    ("WorkloadEntry.labels", Size(0, 256)),
    ("WorkloadEntry.locality", Length(0, 2048)),
    ("WorkloadEntry.network", Length(0, 2048)),
    ("WorkloadEntry.ports", Size(0, 128)),
    ("WorkloadEntry.ports", PORT_NAMES),
    ("WorkloadEntry.ports[]", PORT),
    ("WorkloadEntry.serviceAccount", Length(0, 253)),
    ("IstioEgressListener", Required(&["hosts"])),
    ("IstioIngressListener", Required(&["port"])),
    (
        "PeerAuthentication",
        Rule(
            "!has(self.portLevelMtls) || (has(self.selector) && has(self.selector.matchLabels) && \
             self.selector.matchLabels.size() > 0)",
            "portLevelMtls needs a selector with labels",
        ),
    ),
    ("PeerAuthentication.portLevelMtls", MinEntries(1)),
    (
        "PeerAuthentication.portLevelMtls",
        Rule(
            "self.all(port, 0 < int(port) && int(port) <= 65535)",
            "ports must be from 1 to 65535",
        ),
    ),
    ("IstioStatus", KeepsUnknown),
    ("IstioStatus.observedGeneration", IntOrString),
    ("IstioCondition.lastProbeTime", Format("date-time")),
    ("IstioCondition.lastTransitionTime", Format("date-time")),
    ("IstioCondition.observedGeneration", IntOrString),
    ("PortSelector.number", PORT),
    ("PolicyTargetReference", Required(&["kind", "name"])),
    ("PolicyTargetReference.group", Length(0, 253)),
    (
        "PolicyTargetReference.group",
        Pattern(r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$"),
    ),
    ("PolicyTargetReference.kind", Length(1, 63)),
    (
        "PolicyTargetReference.kind",
        Pattern("^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"),
    ),
    ("PolicyTargetReference.name", Length(1, 253)),
    (
        "PolicyTargetReference.namespace",
        Rule(
            "self.size() == 0",
            "a target must be in the policy's own namespace",
        ),
    ),
    ("AuthorizationPolicy", ONE_ATTACHMENT),
    ("AuthorizationPolicy", AtMostOne(&["provider"])),
    ("AuthorizationPolicy.rules", Size(0, 512)),
    ("AuthorizationPolicy.targetRefs", Size(0, 16)),
    ("AuthorizationRule.from", Size(0, 512)),
    (
        "AuthorizationSource",
        Rule(
            "!(has(self.serviceAccounts) || has(self.notServiceAccounts)) || !(has(self.principals) || \
             has(self.notPrincipals) || has(self.namespaces) || has(self.notNamespaces))",
            "serviceAccounts say all about the caller; take principals and namespaces away",
        ),
    ),
    ("AuthorizationSource.serviceAccounts", Size(0, 16)),
    ("AuthorizationSource.serviceAccounts[]", Length(0, 320)),
    ("AuthorizationSource.notServiceAccounts", Size(0, 16)),
    ("AuthorizationSource.notServiceAccounts[]", Length(0, 320)),
    ("AuthorizationCondition", Required(&["key"])),
    ("RequestAuthentication", ONE_ATTACHMENT),
    ("RequestAuthentication.targetRefs", Size(0, 16)),
    ("RequestAuthentication.jwtRules", Size(0, 4096)),
    ("JwtRule.issuer", MinLength(1)),
    ("JwtRule.audiences[]", MinLength(1)),
    ("JwtRule.fromCookies[]", MinLength(1)),
    ("JwtRule.fromParams[]", MinLength(1)),
    ("JwtRule.jwksUri", Length(1, 2048)),
    ("JwtRule.jwksUri", WEB_URL),
    ("JwtRule.jwksUri", Alias("jwks_uri")),
    (
        "JwtRule",
        Rule(
            "[has(self.jwksUri), has(self.jwks_uri), has(self.jwks)].filter(set, set).size() <= 1",
            "set only one of jwksUri and jwks",
        ),
    ),
    ("JwtRule.spaceDelimitedClaims", Size(0, 64)),
    ("JwtRule.spaceDelimitedClaims[]", MinLength(1)),
    ("JwtRule.timeout", MILLISECOND),
    ("JwtHeader", Required(&["name"])),
    ("JwtHeader.name", MinLength(1)),
    ("ClaimToHeader", Required(&["header", "claim"])),
    ("ClaimToHeader.claim", MinLength(1)),
    ("ClaimToHeader.header", MinLength(1)),
    ("ClaimToHeader.header", HEADER_NAME),
    ("Telemetry", ONE_ATTACHMENT),
    ("Telemetry.targetRefs", Size(0, 16)),
    ("ProviderRef", Required(&["name"])),
    ("ProviderRef.name", MinLength(1)),
    ("Tracing.randomSamplingPercentage", Range(0.0, 100.0)),
    (
        "TracingTag",
        AtMostOne(&["literal", "environment", "header", "formatter"]),
    ),
    ("TracingTagText", Required(&["value"])),
    ("TracingTagText.value", MinLength(1)),
    ("TracingTagSource", Required(&["name"])),
    ("TracingTagSource.name", MinLength(1)),
    ("Metrics.reportingInterval", MILLISECOND),
    ("MetricSelector", AtMostOne(&["metric", "customMetric"])),
    ("MetricSelector.customMetric", MinLength(1)),
    ("TagOverride", UPSERT_HAS_VALUE),
    ("TagOverride", REMOVE_HAS_NONE),
    ("TrafficExtension", AtMostOne(&["wasm", "lua"])),
    (
        "TrafficExtension",
        Rule("has(self.wasm) != has(self.lua)", "set wasm or lua"),
    ),
    (
        "TrafficExtension",
        Rule(
            "!(has(self.selector) && has(self.targetRefs))",
            "set selector or targetRefs, not both",
        ),
    ),
    ("TrafficExtension.targetRefs", Size(0, 16)),
    ("LuaConfig", Required(&["inlineCode"])),
    ("LuaConfig.inlineCode", Length(1, 65_536)),
    ("WasmConfig", Required(&["url"])),
    ("WasmConfig.url", MinLength(1)),
    ("WasmConfig.url", MODULE_URL),
    ("WasmConfig.sha256", SHA256),
    ("WasmConfig.imagePullSecret", Length(1, 253)),
    ("WasmConfig.pluginName", Length(1, 256)),
    ("WasmPlugin", Required(&["url"])),
    ("WasmPlugin", ONE_ATTACHMENT),
    ("WasmPlugin.targetRefs", Size(0, 16)),
    ("WasmPlugin.url", MinLength(1)),
    ("WasmPlugin.url", MODULE_URL),
    ("WasmPlugin.sha256", SHA256),
    ("WasmPlugin.imagePullSecret", Length(1, 253)),
    ("WasmPlugin.pluginName", Length(1, 256)),
    ("TrafficSelector.ports", KeyedBy("number")),
    ("TrafficSelector.ports[]", Required(&["number"])),
    ("VmConfig.env", Size(0, 256)),
    ("VmConfig.env", KeyedBy("name")),
    ("EnvVar", Required(&["name"])),
    (
        "EnvVar",
        Rule(
            "!has(self.valueFrom) || self.valueFrom != 'HOST' || !has(self.value)",
            "a value from the host cannot be set here",
        ),
    ),
    ("EnvVar.name", Length(1, 256)),
    ("EnvVar.value", Length(0, 2048)),
    (
        "EnvoyFilter",
        Rule(
            "!(has(self.workloadSelector) && has(self.targetRefs))",
            "set workloadSelector or targetRefs, not both",
        ),
    ),
    ("EnvoyFilter.targetRefs", Size(0, 16)),
    (
        "EnvoyConfigMatch",
        AtMostOne(&["listener", "routeConfiguration", "cluster", "waypoint"]),
    ),
    (
        "EnvoyConfigMatch",
        Rule(
            "has(self.waypoint) == (has(self.context) && self.context == 'WAYPOINT')",
            "waypoint and the context WAYPOINT go together",
        ),
    ),
    ("WaypointMatch.portNumber", PORT),
    ("ProxyConfig.concurrency", AtLeast(0.0)),
    ("ProxyConfig.environmentVariables[]", Length(0, 2048)),
    ("WorkloadGroup", Required(&["template"])),
    // Instead of the rules for entries: a registering workload supplies its address.
    ("WorkloadGroup.template", SOCKET_HAS_NO_PORTS),
    ("WorkloadGroupMetadata.annotations", Size(0, 256)),
    ("WorkloadGroupMetadata.labels", Size(0, 256)),
    (
        "ReadinessProbe",
        AtMostOne(&["httpGet", "tcpSocket", "exec", "grpc"]),
    ),
    ("ReadinessProbe.failureThreshold", AtLeast(0.0)),
    ("ReadinessProbe.initialDelaySeconds", AtLeast(0.0)),
    ("ReadinessProbe.periodSeconds", AtLeast(0.0)),
    ("ReadinessProbe.successThreshold", AtLeast(0.0)),
    ("ReadinessProbe.timeoutSeconds", AtLeast(0.0)),
    ("ExecHealthCheckConfig", Required(&["command"])),
    ("ExecHealthCheckConfig.command[]", MinLength(1)),
    ("GrpcHealthCheckConfig.port", PORT),
    ("HttpHealthCheckConfig", Required(&["port"])),
    ("HttpHealthCheckConfig.port", PORT),
    (
        "HttpHealthCheckConfig.scheme",
        Rule("self in ['', 'HTTP', 'HTTPS']", "must be HTTP or HTTPS"),
    ),
    ("ProbeHeader.name", HEADER_NAME),
    ("TcpHealthCheckConfig", Required(&["port"])),
    ("TcpHealthCheckConfig.port", PORT),
];
