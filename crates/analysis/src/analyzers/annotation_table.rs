//! Istio's annotations: the kinds that may have them, and which are deprecated.

pub(super) struct Annotation {
    pub(super) name: &'static str,
    /// The kinds that may have it; `Any` is all.
    pub(super) kinds: &'static [&'static str],
    pub(super) is_deprecated: bool,
}

/// An annotation in use.
const fn used(name: &'static str, kinds: &'static [&'static str]) -> Annotation {
    Annotation {
        name,
        kinds,
        is_deprecated: false,
    }
}

const fn deprecated(name: &'static str, kinds: &'static [&'static str]) -> Annotation {
    Annotation {
        name,
        kinds,
        is_deprecated: true,
    }
}

/// Annotations of pods.
const POD: &[&str] = &["Pod"];

/// All annotations, by name.
pub(super) const ANNOTATIONS: &[Annotation] = &[
    deprecated("alpha.istio.io/canonical-serviceaccounts", &["Service"]),
    deprecated("alpha.istio.io/kubernetes-serviceaccounts", &["Service"]),
    used("ambient.istio.io/bypass-inbound-capture", POD),
    used("ambient.istio.io/dns-capture", POD),
    used("ambient.istio.io/redirection", POD),
    used(
        "ambient.istio.io/waypoint-inbound-binding",
        &["GatewayClass", "Gateway"],
    ),
    used("galley.istio.io/analyze-suppress", &["Any"]),
    used("gateway.istio.io/controller-version", &["Any"]),
    used("gateway.istio.io/name-override", &["Gateway"]),
    used("gateway.istio.io/service-account", &["Gateway"]),
    used("inject.istio.io/templates", POD),
    used("istio.io/autoRegistrationGroup", &["WorkloadEntry"]),
    used("istio.io/connectedAt", &["WorkloadEntry"]),
    used("istio.io/disconnectedAt", &["WorkloadEntry"]),
    used("istio.io/dry-run", &["AuthorizationPolicy"]),
    used("istio.io/reroute-virtual-interfaces", POD),
    used("istio.io/rev", POD),
    used(
        "istio.io/use-waypoint-canary-weight",
        &["Service", "ServiceEntry", "Namespace"],
    ),
    used("istio.io/workloadController", &["WorkloadEntry"]),
    used("kubernetes.io/ingress.class", &["Ingress"]),
    used("networking.istio.io/exportTo", &["Service"]),
    used("networking.istio.io/service-type", &["Gateway"]),
    used(
        "networking.istio.io/traffic-distribution",
        &["Namespace", "Service", "ServiceEntry"],
    ),
    used("prometheus.istio.io/merge-metrics", POD),
    used("proxy.istio.io/config", POD),
    used("proxy.istio.io/overrides", POD),
    used("readiness.status.sidecar.istio.io/applicationPorts", POD),
    used("readiness.status.sidecar.istio.io/failureThreshold", POD),
    used("readiness.status.sidecar.istio.io/initialDelaySeconds", POD),
    used("readiness.status.sidecar.istio.io/periodSeconds", POD),
    used("sidecar.istio.io/agentLogLevel", POD),
    used("sidecar.istio.io/bootstrapOverride", POD),
    used("sidecar.istio.io/componentLogLevel", POD),
    deprecated("sidecar.istio.io/discoveryAddress", POD),
    deprecated("sidecar.istio.io/extraStatTags", POD),
    deprecated("sidecar.istio.io/inject", POD),
    used("sidecar.istio.io/interceptionMode", POD),
    used("sidecar.istio.io/logLevel", POD),
    used("sidecar.istio.io/nativeSidecar", POD),
    used("sidecar.istio.io/proxyCPU", POD),
    used("sidecar.istio.io/proxyCPULimit", POD),
    used("sidecar.istio.io/proxyImage", POD),
    used("sidecar.istio.io/proxyImageType", POD),
    used("sidecar.istio.io/proxyMemory", POD),
    used("sidecar.istio.io/proxyMemoryLimit", POD),
    used("sidecar.istio.io/rewriteAppHTTPProbers", POD),
    deprecated("sidecar.istio.io/statsCompression", POD),
    used("sidecar.istio.io/statsEvictionInterval", POD),
    used("sidecar.istio.io/statsFlushInterval", POD),
    used("sidecar.istio.io/statsHistogramBins", POD),
    used("sidecar.istio.io/statsHistogramBuckets", POD),
    deprecated("sidecar.istio.io/statsInclusionPrefixes", POD),
    deprecated("sidecar.istio.io/statsInclusionRegexps", POD),
    deprecated("sidecar.istio.io/statsInclusionSuffixes", POD),
    used("sidecar.istio.io/status", POD),
    used("sidecar.istio.io/userVolume", POD),
    used("sidecar.istio.io/userVolumeMount", POD),
    used("status.sidecar.istio.io/port", POD),
    used("topology.istio.io/controlPlaneClusters", &["Namespace"]),
    used("traffic.istio.io/nodeSelector", &["Service"]),
    used("traffic.sidecar.istio.io/excludeInboundPorts", POD),
    used("traffic.sidecar.istio.io/excludeInterfaces", POD),
    used("traffic.sidecar.istio.io/excludeOutboundIPRanges", POD),
    used("traffic.sidecar.istio.io/excludeOutboundPorts", POD),
    used("traffic.sidecar.istio.io/includeInboundPorts", POD),
    used("traffic.sidecar.istio.io/includeOutboundIPRanges", POD),
    used("traffic.sidecar.istio.io/includeOutboundPorts", POD),
    deprecated("traffic.sidecar.istio.io/kubevirtInterfaces", POD),
];

/// An annotation of Istio's.
pub(super) fn find(name: &str) -> Option<&'static Annotation> {
    ANNOTATIONS
        .iter()
        .find(|annotation| annotation.name == name)
}
