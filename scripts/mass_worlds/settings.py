"""Worlds with random settings: mesh config, environment variables of istiod, metadata of proxies; two address families; Ingresses."""

import json

from mass_worlds import areas
from mass_worlds.world import NAMES, NAMESPACES, World, times

# The probability that a field of mesh config is set.
RARELY = .16


def mesh_config(w):
    config = {
        **w.maybe(.3, accessLogFile=w.pick(["/dev/stdout", "/var/log/a.json"])), **w.maybe(RARELY, accessLogEncoding="JSON"),
        **w.maybe(RARELY, accessLogFormat=w.pick(["%REQ(:PATH)%", '{"a":"%PROTOCOL%","b":{"c":"%BYTES_SENT%"}}', "x\n"])),
        **w.maybe(RARELY, enableEnvoyAccessLogService=True), **w.maybe(RARELY, disableEnvoyListenerLog=True), **w.maybe(RARELY, enableTracing=True),
        **w.maybe(.3, outboundTrafficPolicy={"mode": w.pick(["REGISTRY_ONLY", "ALLOW_ANY"])}),
        **w.maybe(RARELY, inboundTrafficPolicy={"mode": w.pick(["PASSTHROUGH", "LOCALHOST"])}),
        **w.maybe(RARELY, enableAutoMtls=False), **w.maybe(RARELY, verifyCertificateAtClient=False), **w.maybe(.1, enablePrometheusMerge=False),
        **w.maybe(RARELY, inboundClusterStatName="%SERVICE%_%SERVICE_PORT%_%SERVICE_PORT_NAME%_%SERVICE_NAME%"),
        **w.maybe(RARELY, outboundClusterStatName="%SERVICE_FQDN%.%SUBSET_NAME%.%TARGET_PORT%.%SERVICE_PORT_NAME%"),
        **w.maybe(RARELY, connectTimeout="4s"), **w.maybe(RARELY, protocolDetectionTimeout=w.pick(["0s", "3s"])), **w.maybe(RARELY, dnsRefreshRate="33s"),
        **w.maybe(RARELY, hboneIdleTimeout="9s"), **w.maybe(RARELY, h2UpgradePolicy="UPGRADE"),
        **w.maybe(RARELY, tcpKeepalive={"time": "11s", **w.maybe(.5, interval="3s"), **w.maybe(.5, probes=4)}),
        **w.maybe(RARELY, meshMTLS={"minProtocolVersion": "TLSV1_3", **w.maybe(.5, cipherSuites=["ECDHE-RSA-AES256-GCM-SHA384"]), **w.maybe(.5, ecdhCurves=["P-256"])}),
        **w.maybe(RARELY, tlsDefaults={**w.maybe(.6, minProtocolVersion="TLSV1_2"), **w.maybe(.5, cipherSuites=["ECDHE-ECDSA-AES256-GCM-SHA384"]), **w.maybe(.5, ecdhCurves=["P-384"])}),
        **w.maybe(RARELY, rootNamespace=w.pick(["shop", "bank"])), **w.maybe(RARELY, trustDomain=w.pick(["td.example", "old"])),
        **w.maybe(RARELY, trustDomainAliases=w.pick([["old"], ["old", "older"]])),
        **w.maybe(.3, localityLbSetting=w.pick([
            {"enabled": False}, {"enabled": True, "failover": [{"from": "region1", "to": "region2"}]}, {"failoverPriority": ["topology.kubernetes.io/region", "version"]},
            {"distribute": [{"from": "region1/*", "to": {"region1/*": 80, "region2/*": 20}}]}, {"failoverPriority": ["version=v1"]}])),
        **w.maybe(RARELY, pathNormalization={"normalization": w.pick(["NONE", "BASE", "MERGE_SLASHES", "DECODE_AND_MERGE_SLASHES", "DEFAULT"])}),
        **w.maybe(RARELY, defaultServiceExportTo=w.pick([["."], ["*"], ["shop"]])), **w.maybe(RARELY, defaultVirtualServiceExportTo=w.pick([["."], ["*"], ["shop", "web"]])),
        **w.maybe(RARELY, defaultDestinationRuleExportTo=w.pick([["."], ["*"], ["bank"]])),
        **w.maybe(.1, discoverySelectors=[{"matchLabels": {"kubernetes.io/metadata.name": "shop"}}, {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["web", "istio-system"]}]}]),
        **w.maybe(RARELY, serviceSettings=[{"settings": {"clusterLocal": True}, "hosts": ["*.shop.svc.cluster.local"]}]),
        **w.maybe(RARELY, defaultHttpRetryPolicy=w.pick([{"attempts": 0}, {"attempts": 5, "retryOn": "5xx,503"}, {"attempts": 3, "perTryTimeout": "2s", "retryRemoteLocalities": True}])),
        **w.maybe(RARELY, defaultInboundHttpRetryPolicy={"attempts": 2})}
    default = proxy_config(w)
    if default: config["defaultConfig"] = default
    if w.chance(.5): config |= with_providers(w)
    return config


def proxy_config(w):
    return {
        **w.maybe(RARELY, connectionSettings={
            **w.maybe(.5, listenerPerConnectionBufferLimitBytes=40000), **w.maybe(.5, clusterPerConnectionBufferLimitBytes=50000), **w.maybe(.5, httpIdleTimeout="61s"),
            **w.maybe(.5, httpRequestTimeout="62s"), **w.maybe(.5, httpRequestHeadersTimeout="5s"), **w.maybe(.5, httpStreamIdleTimeout="63s"), **w.maybe(.5, httpMaxConcurrentStreams=64),
            **w.maybe(.5, http2InitialStreamWindowSize=70000, http2InitialConnectionWindowSize=80000), **w.maybe(.5, httpMergeSlashes=True),
            **w.maybe(.5, httpHeadersWithUnderscoresAction=w.pick(["HEADERS_WITH_UNDERSCORES_REJECT_REQUEST", "HEADERS_WITH_UNDERSCORES_DROP_HEADER"]))}),
        **w.maybe(RARELY, gatewayTopology={
            **w.maybe(.5, numTrustedProxies=2), **w.maybe(.4, proxyProtocol={}),
            **w.maybe(.5, forwardClientCertDetails=w.pick(["SANITIZE", "FORWARD_ONLY", "APPEND_FORWARD", "SANITIZE_SET", "ALWAYS_FORWARD_ONLY"]))}),
        **w.maybe(RARELY, tracing={
            **w.maybe(.5, sampling=w.pick([0.0, 12.5, 100])), **w.maybe(.4, maxPathTagLength=99), **w.maybe(.5, zipkin={"address": "zipkin.shop:9411"}), **w.maybe(.2, enableIstioTags=False),
            **w.maybe(.4, customTags={"l": {"literal": {"value": "v"}}, "e": {"environment": {"name": "E", "defaultValue": "d"}}, "h": {"header": {"name": "x-h"}}})}),
        **w.maybe(RARELY, privateKeyProvider=w.pick([{"cryptomb": {"pollDelay": "10ms", **w.maybe(.5, fallback=True)}}, {"qat": {"pollDelay": "5ms"}}])),
        **w.maybe(RARELY, proxyHeaders={
            **w.maybe(.5, server=w.pick([{"disabled": True}, {"value": "srv"}])), **w.maybe(.5, forwardedClientCert=w.pick(["SANITIZE", "APPEND_FORWARD", "FORWARD_ONLY"])),
            **w.maybe(.4, setCurrentClientCertDetails={"subject": True, "uri": True, "dns": False, "cert": True}), **w.maybe(.4, requestId={"disabled": True}),
            **w.maybe(.4, attemptCount={"disabled": True}), **w.maybe(.4, envoyDebugHeaders={"disabled": True}), **w.maybe(.4, preserveHttp1HeaderCase=True),
            **w.maybe(.4, metadataExchangeHeaders={"mode": w.pick(["IN_MESH", "UNDEFINED"])})}),
        **w.maybe(RARELY, interceptionMode=w.pick(["TPROXY", "NONE"])), **w.maybe(RARELY, proxyMetadata={"ISTIO_META_DNS_CAPTURE": "true"}), **w.maybe(RARELY, statusPort=15555),
        **w.maybe(RARELY, drainDuration="4s"), **w.maybe(RARELY, extraStatTags=["x_tag"]), **w.maybe(RARELY, holdApplicationUntilProxyStarts=True),
        **w.maybe(RARELY, fileFlushInterval="2s", fileFlushMinSizeKb=8)}


def provider(w, kind):
    target = {"service": w.pick(["missing.shop.svc.cluster.local", "api.example.com"]), "port": w.pick([80, 443, 9000])}
    if w.services and w.chance(.8):
        name, namespace, ports = w.pick(w.services)
        host = f"{name}.{namespace}.svc.cluster.local"
        target = {"service": w.pick([host, f"{namespace}/{host}"]), "port": w.pick(ports)["port"]}
    headers = w.pick([[{"name": "x-k", "value": "v"}], [{"name": "x-e", "envName": "TOKEN"}]])
    form = w.pick([{"text": "%REQ(:PATH)% %RESPONSE_CODE%\n"}, {"text": "no end %FILTER_STATE(x)% %CEL(request.path)%"}, {"labels": {}},
                   {"labels": {"a": "%PROTOCOL%", "n": {"m": "%RESPONSE_CODE%", "l": ["x", 1, True]}, "num": 3.5, "null": None}}])
    length, timeout = w.maybe(.3, maxTagLength=77), w.maybe(.3, timeout="2s")
    checks = {**timeout, **w.maybe(.3, failOpen=True), **w.maybe(.3, clearRouteCache=True), **w.maybe(.3, includeRequestBodyInCheck={"maxRequestBytes": 10, **w.maybe(.5, allowPartialMessage=True), **w.maybe(.3, packAsBytes=True)})}
    return {
        "envoyFileAccessLog": {"path": w.pick(["/dev/stdout", "/log"]), **w.maybe(.7, logFormat=form), **w.maybe(.3, omitEmptyValues=True)},
        "envoyHttpAls": {**target, **w.maybe(.5, logName="als"), **w.maybe(.4, filterStateObjectsToLog=["wasm.x"]), **w.maybe(.4, additionalRequestHeadersToLog=["x-a"], additionalResponseHeadersToLog=["x-b"], additionalResponseTrailersToLog=["x-c"])},
        "envoyTcpAls": {**target, **w.maybe(.5, logName="tals"), **w.maybe(.4, filterStateObjectsToLog=["wasm.x"])},
        "envoyOtelAls": {**target, **w.maybe(.5, logName="otel"), **w.maybe(.7, logFormat=form)},
        "zipkin": {**target, **length, **timeout, **w.maybe(.3, enable64bitTraceId=True), **w.maybe(.3, path="/zip"), **w.maybe(.3, traceContextOption="USE_B3_WITH_W3C_PROPAGATION"), **w.maybe(.3, headers=headers)},
        "datadog": {**target, **length},
        "stackdriver": {**length, **w.maybe(.3, debug=True), **w.maybe(.4, maxNumberOfAttributes=5), **w.maybe(.4, logging={"labels": {"a": "request.path"}})},
        "skywalking": {**target, **w.maybe(.4, accessToken="tok")},
        "opentelemetry": {**target, **length, **w.pick([{}, {"http": {"path": "/v1/traces", "timeout": "2s", **w.maybe(.5, headers=headers)}}, {"grpc": {**timeout, **w.maybe(.5, initialMetadata=headers)}}]),
                          **w.maybe(.3, resourceDetectors=w.pick([{"environment": {}}, {"environment": {}, "dynatrace": {}}])), **w.maybe(.3, serviceAttributeEnrichment="OTEL_SEMANTIC_CONVENTIONS"),
                          **w.maybe(.3, dynatraceSampler={"tenant": "t", "clusterId": 5, **w.maybe(.5, rootSpansPerMinute=9), **w.maybe(.5, httpService={**target, "http": {"path": "/p", "timeout": "1s", "headers": headers}})})},
        "prometheus": {},
        "envoyExtAuthzHttp": {**target, **checks, **w.maybe(.3, pathPrefix="/pre"), **w.maybe(.3, statusOnError="403"), **w.maybe(.4, includeRequestHeadersInCheck=["x-a", "x-b-*", "*-c"]), **w.maybe(.3, includeAdditionalHeadersInCheck={"x-add": "v"}),
                              **w.maybe(.3, headersToUpstreamOnAllow=["x-u"], headersToDownstreamOnDeny=["x-d"], headersToDownstreamOnAllow=["x-da"])},
        "envoyExtAuthzGrpc": {**target, **checks, **w.maybe(.3, statusOnError="503")},
        "lightstep": {**target, "accessToken": "t"}, "opencensus": {**target, **w.maybe(.5, context=["W3C_TRACE_CONTEXT", "B3"])},
    }[kind]


LOGS = ["envoyFileAccessLog", "envoyHttpAls", "envoyTcpAls", "envoyOtelAls"]
TRACES = ["zipkin", "datadog", "stackdriver", "skywalking", "opentelemetry", "lightstep", "opencensus"]
AUTHORIZERS = ["envoyExtAuthzHttp", "envoyExtAuthzGrpc"]


def with_providers(w):
    kinds = w.some(LOGS + TRACES + AUTHORIZERS + ["prometheus"], 1, 6)
    defaults = {"accessLogging": w.some([k for k in kinds if k in LOGS]), "tracing": w.some([k for k in kinds if k in TRACES], 0, 1), "metrics": w.some([k for k in kinds if k == "prometheus"])}
    defaults = {use: kinds for use, kinds in defaults.items() if kinds}
    return {"extensionProviders": [{"name": kind, kind: provider(w, kind)} for kind in kinds], **({"defaultProviders": defaults} if defaults else {})}


def use_providers(w):
    """Objects that name a provider."""
    for i, of in enumerate(w.mesh.get("extensionProviders", [])):
        name, namespace = of["name"], w.pick(NAMESPACES + ["istio-system"])
        if name in AUTHORIZERS and w.chance(.8):
            rules = w.pick([[{}], [{"to": [{"operation": {"paths": ["/adm*"], "ports": ["80"]}}]}], [{"to": [{"operation": {"ports": ["9000"]}}]}]])
            w.security("AuthorizationPolicy", f"ext-{i}", namespace, {"action": "CUSTOM", "provider": {"name": name}, **w.maybe(.5, selector={"matchLabels": {"app": w.pick(NAMES + ["client"])}}), "rules": rules})
        elif w.chance(.4):
            use, more = ("accessLogging", {"filter": {"expression": "response.code > 1"}}) if name in LOGS else ("metrics", {"reportingInterval": "5s"}) if name == "prometheus" else ("tracing", {"randomSamplingPercentage": 33.3})
            w.add("telemetry.istio.io/v1", "Telemetry", f"tp-{i}", namespace, {use: [{"providers": [{"name": name}], **(more if w.chance(.3) else {})}]})


BOOLEAN_VARIABLES = """ENABLE_100_CONTINUE_HEADERS ENABLE_ENHANCED_DESTINATIONRULE_MERGE ENABLE_HCM_INTERNAL_NETWORKS ENABLE_LOCALITY_WEIGHTED_LB_CONFIG
    ENABLE_MULTICLUSTER_HEADLESS ENABLE_PROXY_FIND_POD_BY_IP ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY ENABLE_TLS_ON_SIDECAR_INGRESS ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS
    ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS METRICS_LOCALHOST_ACCESS_ONLY PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS
    PILOT_DISABLE_MX_ALPN PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN PILOT_ENABLE_ALPN_FILTER PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER
    PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES PILOT_ENABLE_METADATA_EXCHANGE PILOT_ENABLE_MONGO_FILTER PILOT_ENABLE_MYSQL_FILTER PILOT_ENABLE_PERSISTENT_SESSION_FILTER
    PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_INBOUND PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_OUTBOUND PILOT_ENABLE_QUIC_LISTENERS PILOT_ENABLE_REDIS_FILTER PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION
    PILOT_ENABLE_SENDING_HBONE PILOT_ENABLE_SERVICEENTRY_SELECT_PODS PILOT_ENABLE_SIDECAR_LISTENING_HBONE PILOT_ENABLE_TELEMETRY_LABEL PILOT_ENDPOINT_TELEMETRY_LABEL
    PILOT_FILTER_GATEWAY_CLUSTER_CONFIG PILOT_HTTP10 PILOT_PREFER_SENDING_HBONE PILOT_SCOPE_GATEWAY_TO_NAMESPACE PILOT_SEND_UNHEALTHY_ENDPOINTS PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE
    PILOT_SIDECAR_USE_REMOTE_ADDRESS PILOT_SKIP_VALIDATE_TRUST_DOMAIN PILOT_UNIFIED_SIDECAR_SCOPE PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES DISABLE_SHADOW_HOST_SUFFIX
    DISABLE_TRACK_REMAINING_CB_METRICS PILOT_ENABLE_STRICT_GATEWAY_MERGING PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS PILOT_ENABLE_IP_AUTOALLOCATE ISTIO_DUAL_STACK PILOT_ENVOY_FILTER_STATS
    PILOT_ENABLE_AMBIENT ENABLE_LAZY_SIDECAR_EVALUATION ENABLE_NATIVE_SIDECARS PILOT_ENABLE_ALPHA_GATEWAY_API AMBIENT_ENABLE_BAGGAGE AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY
    ENABLE_INGRESS_WAYPOINT_ROUTING ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES PILOT_AUTO_ALLOW_WAYPOINT_POLICY PILOT_ENABLE_AMBIENT_WAYPOINTS""".split()
OTHER_VARIABLES = {
    "PILOT_DNS_JITTER_DURATION": ["1s", "0s"], "PILOT_DNS_CARES_UDP_MAX_QUERIES": ["5", "0"], "PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT": ["3s", "0s"],
    "PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE": ["99000"], "PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE": ["98000"], "PILOT_TRACE_SAMPLING": ["7"], "MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP": ["0", "3"],
    "PILOT_MX_ADDITIONAL_LABELS": ["role,foo"], "TRUSTED_GATEWAY_CIDR": ["10.0.0.0/8"], "PILOT_PERSISTENT_SESSION_LABEL": ["app"], "PILOT_DRAINING_LABEL": ["version"],
    "RESOLVE_HOSTNAME_GATEWAYS": ["false"], "PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS": ["10"]}
METADATA = {
    "HTTP10": ["1"], "IDLE_TIMEOUT": ["10s", "0s"], "OUTBOUND_LISTENER_EXACT_BALANCE": ["true"], "INBOUND_LISTENER_EXACT_BALANCE": ["true"], "UNPRIVILEGED_POD": ["true"],
    "INTERCEPTION_MODE": ["TPROXY", "NONE", "REDIRECT"], "DNS_CAPTURE": ["true"], "DNS_AUTO_ALLOCATE": ["true"], "ROUTER_MODE": ["sni-dnat"], "NETWORK": ["network1"],
    "ISTIO_VERSION": ["1.20.0", "1.26.0", "1.31.0", "1.32.0"], "ENABLE_HBONE": ["true"], "TLS_CLIENT_CERT_CHAIN": ["/c"], "TLS_CLIENT_KEY": ["/k"], "TLS_CLIENT_ROOT_CERT": ["/r"],
    "TLS_SERVER_CERT_CHAIN": ["/sc"], "TLS_SERVER_KEY": ["/sk"], "TLS_SERVER_ROOT_CERT": ["/sr"], "HTTP_PROXY_PORT": ["15007"], "WORKLOAD_NAME": ["wl"], "MESH_ID": ["m"],
    "FILE_BASED_CERTIFICATES": ["true"], "SERVICE_ACCOUNT": ["app"], "ENVOY_STATUS_PORT": [15021], "ENVOY_PROMETHEUS_PORT": [15090], "ANNOTATIONS": [{"sidecar.istio.io/extraStatTags": "x"}]}


def set_variables(w):
    known = {entry.split("=")[0] for entry in w.env}
    chosen = {name: w.pick(["true", "false"]) for name in w.some(BOOLEAN_VARIABLES, 1, 3)}
    if w.chance(.4):
        name = w.pick(sorted(OTHER_VARIABLES))
        chosen[name] = w.pick(OTHER_VARIABLES[name])
    w.env += [f"{name}={value}" for name, value in chosen.items() if name not in known]


def set_metadata(w):
    for proxy in w.proxies:
        if proxy["type"] == "ztunnel" or w.chance(.3): continue
        for key in w.some(sorted(METADATA), 1, 3): proxy["metadata"].setdefault(key, w.pick(METADATA[key]))
        config = proxy_config(w) if w.chance(.3) else {}
        if config: proxy["metadata"]["PROXY_CONFIG"] = config


def any_area(rng, *names): return areas.AREAS[rng.choice(names)](rng)


def settings(rng):
    w = any_area(rng, "mesh", "gateway", "gatewayapi", "extensions")
    w.mesh |= mesh_config(w); use_providers(w)
    return w

def environment(rng):
    w = any_area(rng, "mesh", "mesh", "gateway", "gatewayapi", "extensions", "ambient", "clusters")
    set_variables(w)
    return w

def metadata(rng):
    w = any_area(rng, "mesh", "gateway", "extensions", "gatewayapi")
    set_metadata(w)
    return w

def cluster_settings(rng):
    w = any_area(rng, "clusters")
    if w.chance(.5): w.mesh |= mesh_config(w); w.mesh.pop("discoverySelectors", None)
    if w.chance(.6): set_variables(w)
    if w.chance(.5): set_metadata(w)
    return w

def waypoints(rng):
    w = any_area(rng, "ambient")
    if w.chance(.7): w.mesh |= mesh_config(w); w.mesh.pop("discoverySelectors", None); use_providers(w)
    if w.chance(.6): set_variables(w)
    if w.chance(.4): w.extensions(rng.randint(1, 3))
    for of in w.objects:
        if of["kind"] in ("AuthorizationPolicy", "Telemetry", "WasmPlugin", "RequestAuthentication") and w.chance(.3) and "targetRefs" not in of["spec"]:
            of["spec"].pop("selector", None)
            of["spec"]["targetRefs"] = [dict(zip(("kind", "group", "name"), w.pick(w.targets())))]
    return w

def grpc(rng):
    """Proxies are gRPC clients and servers."""
    w = any_area(rng, "mesh")
    if w.chance(.4): w.mesh |= mesh_config(w)
    if w.chance(.3): set_variables(w)
    hosts = [f"{name}.{namespace}.svc.cluster.local:{port['port']}" for name, namespace, ports in w.services for port in ports]
    entries = [of["spec"] for of in w.objects if of["kind"] == "ServiceEntry"]
    hosts += [f"{host}:{port['number']}" for spec in entries for host in spec["hosts"] if host[0] != "*" for port in spec["ports"]]
    for proxy in w.proxies:
        names = w.some(hosts, 1, 5) if hosts else ["missing.shop.svc.cluster.local:80"]
        if w.chance(.5): names.append(f"xds.istio.io/grpc/lds/inbound/[::]:{w.pick([8888, 80, 9000, 17070, 90, 7080])}")
        if w.chance(.2): names.append(w.pick(["a.shop:80", "b:80", "c.web.svc.cluster.local", "nope.shop.svc.cluster.local:1"]))
        proxy["subscribe"] = {"listeners": names}
        proxy["metadata"] = {"GENERATOR": "grpc", "LABELS": proxy["metadata"]["LABELS"], "NAMESPACE": proxy["namespace"], "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": proxy["ip"], "SERVICE_ACCOUNT": "default"}
    return w


def in_ipv6(address): return "fd00::" + ":".join(address.split(".")[1:])

FAMILIES = {"4": ["IPv4"], "6": ["IPv6"], "46": ["IPv4", "IPv6"], "64": ["IPv6", "IPv4"]}

def of_families(address, families): return [address if family == "IPv4" else in_ipv6(address) for family in FAMILIES[families]]

def dual_stack(rng):
    """Services, pods and proxies of one address family or of both."""
    w = World(rng)
    w.env.append(f"ISTIO_DUAL_STACK={w.pick(['true', 'true', 'false'])}")
    w.namespaces(); w.client(); w.workloads(rng.randint(2, 5))
    of_service, slices = {}, []
    for of in w.objects:
        meta, spec = of["metadata"], of.get("spec")
        if of["kind"] == "Service" and spec["type"] != "ExternalName":
            families = of_service[(meta["namespace"], meta["name"])] = w.pick(["4", "6", "46", "64", "46"])
            spec["ipFamilies"], spec["ipFamilyPolicy"] = FAMILIES[families], "SingleStack" if len(families) == 1 else w.pick(["PreferDualStack", "RequireDualStack"])
            if spec["clusterIP"] != "None": spec["clusterIPs"] = of_families(spec["clusterIP"], families)
            spec["clusterIP"] = spec["clusterIPs"][0]
        if of["kind"] == "Pod":
            addresses = of_families(of["status"]["podIP"], w.pick(["4", "6", "46", "64"]))
            of["status"] |= {"podIP": addresses[0], "podIPs": [{"ip": address} for address in addresses]}
            for proxy in w.proxies:
                if proxy["pod"] == meta["name"]: proxy["ip"] = addresses[0]; proxy["metadata"]["INSTANCE_IPS"] = ",".join(addresses)
        families = of_service.get((meta["namespace"], meta["labels"]["kubernetes.io/service-name"]), "4") if of["kind"] == "EndpointSlice" else "4"
        if "6" in families:
            ipv6 = json.loads(json.dumps(of))
            ipv6["addressType"] = "IPv6"
            for endpoint in ipv6["endpoints"]: endpoint["addresses"] = [in_ipv6(address) for address in endpoint["addresses"]]
            if families == "6": of.update(ipv6)
            else: ipv6["metadata"]["name"] += "-v6"; slices.append(ipv6)
    w.objects += slices
    times(w, 0, 3, w.service_entry); times(w, 0, 2, lambda n: w.virtual_service(n, False)); times(w, 0, 2, w.destination_rule); times(w, 0, 1, w.sidecar_scope); w.policies(rng.randint(0, 2))
    for spec in (of["spec"] for of in w.objects if of["kind"] == "ServiceEntry"):
        # istiod uses any of several addresses for HTTP.
        if w.chance(.5): spec["addresses"] = w.pick([["2001:db8::8"], ["2001:db8::/64"]])
        for endpoint in spec.get("endpoints", []):
            if w.chance(.4) and spec["resolution"] == "STATIC": endpoint["address"] = f"2001:db8:5::{rng.randint(1, 99):x}"
    return w


def ingress(rng):
    w = World(rng)
    w.namespaces(); w.router("istio-ingressgateway", "istio-system", {"istio": "ingressgateway", "app": "istio-ingressgateway"}, "ingress", ports=(80, 443, 8080))
    w.client(); w.workloads(rng.randint(2, 4)); w.secret(); w.secret("shop")
    w.mesh = {**w.maybe(.4, ingressControllerMode=w.pick(["DEFAULT", "STRICT", "OFF"])), **w.maybe(.3, ingressClass=w.pick(["istio", "other"])), **w.maybe(.2, ingressService="istio-ingressgateway")}
    for name, controller in (("istio", "istio.io/ingress-controller"), ("other", "example.com/x")):
        w.add("networking.k8s.io/v1", "IngressClass", name, None, {"controller": controller})
    def backend():
        name, _, ports = w.pick(w.services or [("a", "shop", [{"port": 80, "name": "http"}])])
        port = w.pick(ports)
        return {"service": {"name": name, "port": w.pick([{"number": port["port"]}, {"name": port["name"]}])}}
    def path():
        kind = w.pick(["Prefix", "Exact", "ImplementationSpecific"])
        value = w.pick(["/", "/x", "/x/", "/x/y"] + ["/x*", "/.*"] * (kind == "ImplementationSpecific"))
        return {"pathType": kind, "backend": backend(), **({} if kind == "ImplementationSpecific" and w.chance(.2) else {"path": value})}
    hosts = ["api.example.com", "shop.example.com", "www.example.com"]
    for i in range(rng.randint(1, 5)):
        rules = [{**w.maybe(.7, host=w.pick(hosts + ["*.example.com"])), "http": {"paths": [path() for _ in range(rng.randint(1, 3))]}} for _ in range(rng.randint(0, 3))]
        tls = [{**w.maybe(.7, hosts=w.some(hosts, 1)), **w.maybe(.9, secretName=w.pick(["cred", "cred", "none"]))} for _ in range(rng.randint(1, 2))]
        spec = {**w.maybe(.5, ingressClassName=w.pick(["istio", "other", "missing"])), **w.maybe(.9, rules=rules), **w.maybe(.3, defaultBackend=backend()), **w.maybe(.4, tls=tls)}
        w.add("networking.k8s.io/v1", "Ingress", f"in-{i}", w.pick(NAMESPACES), spec, annotations=w.maybe(.4, **{"kubernetes.io/ingress.class": w.pick(["istio", "other"])}) or None)
    if w.chance(.5): w.gateway("g1", "shop")
    times(w, 0, 2, lambda n: w.virtual_service(n, True)); times(w, 0, 2, w.destination_rule); w.policies(rng.randint(0, 1))
    return w

AREAS = {f.__name__: f for f in (settings, environment, metadata, cluster_settings, waypoints, grpc, dual_stack, ingress)}
