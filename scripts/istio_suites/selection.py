"""Which of Istio's suites run, and on which clusters."""

import re

SUITES = [
    "pilot",
    "pilot/analysis",
    "pilot/gie",
    "pilot/nftables",
    "pilot/resourcefilter",
    "pilot/revisions",
    "security",
    "security/ca_custom_root",
    "security/cacert_rotation",
    "security/crl",
    "security/ecc_signature_algorithm",
    "security/external_ca",
    "security/external_sds_provider",
    "security/file_mounted_certs",
    "security/filebased_tls_origination",
    "security/https_jwt",
    "security/policy_attachment_only",
    "security/pqc",
    "security/remote_jwks",
    "telemetry/api",
    "telemetry/policy",
    "telemetry/policy/dynamicdns",
    "ambient",
    "ambient/pqc",
    "ambient/cni",
    "ambient/untaint",
    "ambient/waypoint",
    "helm",
]

# With two clusters of two networks: the tests of each suite, and why they run.
TWO_CLUSTERS = {
    # Services of the MCS API: of both clusters by one name, and those of the own cluster by another.
    "pilot/mcs/discoverability": ".*",
    # Each Service gets a ServiceExport, in either cluster.
    "pilot/mcs/autoexport": ".*",
    # Kubeconfigs of other clusters in files instead of Secrets, and what becomes of the cluster when they change.
    "pilot/filebasedkubeconfig": ".*",
    # All that are skipped with one cluster; TestTraffic, whose calls must reach the pods of both clusters.
    "pilot": "^(TestBadRemoteSecret|TestClusterLocal|TestMultiClusterWith(Contexts|Secrets)|TestRemoteClusters|TestTraffic"
    "|TestWorkloadEntryGateway)$",
    # Mutual TLS from one network to the other, and identities that policies see there.
    "security": "^(TestReachability|TestAuthz_(DenyNamespace|DenyPrincipal|Principal|TrustDomain))$",
    # ztunnels that reject the CA of the other cluster.
    "ambient/crl": ".*",
    # Gateways between networks that forward HBONE, and waypoints of both clusters.
    "ambient": "^(TestEastWestGatewayTLSRoute|TestMultinetworkFailover|TestServices|TestTrafficSplit)$",
}

# With a primary and a remote cluster, which has no control plane.
REMOTE_CLUSTER = {
    # Injection and xDS through a gateway of the primary.
    "pilot/mcs/discoverability": ".*",
    "pilot": TWO_CLUSTERS["pilot"],
}

# With a control plane in one cluster whose workloads and configuration are in another. `pilot/localwatcher` wants workloads in
# two, so three clusters.
EXTERNAL_CONTROL_PLANE = {
    # Injection, certificates and xDS from the other cluster.
    "pilot": "^TestTraffic$",
}

# Suites that only run with more than one cluster.
NEED_CLUSTERS = {
    "ambient/crl",
    "pilot/filebasedkubeconfig",
    "pilot/mcs/autoexport",
    "pilot/mcs/discoverability",
}

# With ztunnel, which is no published module: `NAVARCH_ZTUNNEL` names a built one.
AMBIENT = re.compile(r"^(ambient|helm)(/|$)")

# With Prometheus, as a pod.
PROMETHEUS = re.compile(r"^(ambient|telemetry)(/|$)")

# `make conformance` runs the same tests, with more features of the Gateway API.
NOT_RUN = {
    "pilot": "TestGatewayConformance",
    # The others fetch modules of Wasm from a registry in the internet.
    "ambient": "TestGatewayConformance|TestWasmPluginConfigurations|TestTrafficExtension_WasmConfigurations",
    # It needs Envoy's rate limit service, which is no published module; its pods are idle.
    "telemetry/policy": "TestRateLimiting",
    "telemetry/api": "TestCustomizeMetrics|TestTrafficExtension_|TestImagePullPolicy|TestGatewaySelection|TestBadWasm",
}

# Tests that cross all parts: injection, xDS, certificates, policies, gateways, gRPC without proxies. Some seven minutes.
SLICE = {
    "pilot": "^TestTraffic$",
    "security": "^TestAuthz_(DenyPrincipal|IngressGateway|JWT|PathTemplating|Principal)$",
}


class Topology:
    """How clusters make one mesh, in flags of Istio's test framework, and which tests run there."""

    def __init__(self, name, tests, *flags, clusters=2):
        self.name = name
        self.tests = tests
        self.flags = flags
        self.clusters = clusters

    def recorded(self, suite):
        """The name under which the outcomes of a suite are kept."""
        return f"{suite}, {self.name}" if self.name else suite

    def tests_of(self, suite):
        """The pattern of a suite's tests, which `--run` replaces."""
        return self.tests.get(suite, ".*")


SINGLE = Topology("", {suite: ".*" for suite in SUITES}, clusters=1)

NETWORKS = "--istio.test.kube.networkTopology=0:network-1,1:network-2"

# Those of two clusters.
TOPOLOGIES = {
    "primaries": Topology("two clusters", TWO_CLUSTERS, NETWORKS),
    "remote": Topology("a remote cluster", REMOTE_CLUSTER, NETWORKS, "--istio.test.kube.controlPlaneTopology=0:0,1:0"),
    "external": Topology(
        "an external control plane",
        EXTERNAL_CONTROL_PLANE,
        "--istio.test.kube.networkTopology=0:network-1,1:network-1",
        "--istio.test.kube.controlPlaneTopology=0:1,1:1",
        "--istio.test.kube.configTopology=0:0,1:0",
    ),
}
