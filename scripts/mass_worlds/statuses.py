"""Gateways, routes and policies of the Gateway API with many faults, whose statuses are compared: references to missing objects or
without a ReferenceGrant, conflicts, unsupported kinds and protocols."""

import base64, functools, json, subprocess

from mass_worlds.world import GATEWAY_API, NAMES, NAMESPACES, World, times

HOSTS = ["shop.example.com", "*.example.com", "api.example.com", "bank.example.org", "a.shop.example.com", "*.shop.example.com"]
GROUP = "gateway.networking.k8s.io"


@functools.cache
def certificate():
    """A certificate and its key, in PEM."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650", "-subj", "/CN=x", "-keyout", "-", "-out", "-"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    at = text.index("-----BEGIN CERTIFICATE")
    return text[at:], text[:at]


def in_base64(text): return base64.b64encode(text.encode()).decode()


def namespaces_of_routes(w):
    return w.pick([{"from": "All"}, {"from": "All"}, {"from": "Same"}, {"from": "Selector", "selector": {"matchLabels": {"kubernetes.io/metadata.name": w.pick(NAMESPACES)}}},
                   {"from": "Selector", "selector": {"matchExpressions": [{"key": "team", "operator": w.pick(["Exists", "DoesNotExist"])}]}}])


def listener(w, name):
    known = [("HTTP", 80), ("HTTP", 80), ("HTTP", 8080), ("HTTPS", 443), ("HTTPS", 443), ("TLS", 443), ("TLS", 8443), ("TCP", 9000)]
    protocol, port = w.pick(known + w.pick([[], [], [("TCP", 80), ("UDP", 53), ("example.com/x", 70), ("HBONE", 15008)]]))
    out = {"name": name, "port": port, "protocol": protocol}
    kinds = [[{"kind": "HTTPRoute"}], [{"kind": "GRPCRoute"}, {"kind": "HTTPRoute"}], [{"kind": "TCPRoute"}], [{"kind": "TLSRoute"}], [{"kind": "Bogus"}],
             [{"kind": "HTTPRoute"}, {"kind": "Bogus", "group": "x.io"}], [{"kind": "HTTPRoute", "group": "wrong.io"}]]
    if w.chance(.85): out["allowedRoutes"] = {**w.maybe(.9, namespaces=namespaces_of_routes(w)), **w.maybe(.25, kinds=w.pick(kinds))}
    if protocol not in ("TCP", "UDP") and w.chance(.6): out["hostname"] = w.pick(HOSTS)
    if protocol in ("HTTPS", "TLS"):
        # If no ReferenceGrant permits a Secret of another namespace, istiod releases differ in whether they report it as missing.
        references = [{"name": w.pick(["cred", "cred", "cred", "bad", "missing", "nokey"]), **w.maybe(.08, kind="ConfigMap"), **w.maybe(.05, group="x.io", kind="Y")} for _ in range(w.pick([1, 1, 1, 2]))]
        if w.chance(.2): references[0] = {"name": "cred", "namespace": w.pick(["bank", "shop"])}
        options = w.maybe(.1, options={w.pick(["gateway.istio.io/tls-terminate-mode", "x.io/y"]): w.pick(["MUTUAL", "ISTIO_MUTUAL", "bogus"])})
        passes = w.chance(.7 if protocol == "TLS" else .08)
        out["tls"] = {"mode": "Passthrough"} if passes else {"mode": "Terminate", "certificateRefs": references, **options}
    elif w.chance(.05): out["tls"] = {"mode": "Terminate", "certificateRefs": [{"name": "cred"}]}
    return out


def gateway(w, name, namespace):
    service, address = f"{name}-istio", lambda: w.pick([
        {"type": "IPAddress", "value": "203.0.113.30"}, {"type": "IPAddress", "value": "203.0.113.99"}, {"type": "Hostname", "value": f"{name}-istio.{namespace}.svc.cluster.local"},
        {"type": "Hostname", "value": "none.shop.svc.cluster.local"}, {"value": "1.2.3.4"}, {"type": "Hostname", "value": f"{name}-istio"}])
    authorities = lambda kind, name: {"validation": {"caCertificateRefs": [{"group": "", "kind": kind, "name": name}]}}
    w.add(GATEWAY_API, "Gateway", name, namespace, {
        "gatewayClassName": w.pick(["istio"] * 8 + ["missing", "foreign"]), "listeners": [listener(w, f"l{i}") for i in range(w.r.randint(1, 5))],
        **w.maybe(.6, allowedListeners={"namespaces": w.pick([{"from": "All"}, {"from": "Same"}, {"from": "None"}, {"from": "Selector", "selector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}])}),
        **w.maybe(.3, addresses=[address() for _ in range(w.pick([1, 1, 2]))]),
        **w.maybe(.12, infrastructure=w.pick([{"labels": {"x": "y"}}, {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "opts"}}, {"parametersRef": {"group": "x.io", "kind": "Y", "name": "opts"}}])),
        **w.maybe(.12, tls=w.pick([{"frontend": {"default": authorities("ConfigMap", w.pick(["ca", "missing"]))}}, {"frontend": {"default": {}, "perPort": [{"port": 443, "tls": authorities(w.pick(["ConfigMap", "Secret"]), "ca")}]}},
                                   {"backend": {"clientCertificateRef": {"name": w.pick(["cred", "missing"]), **w.maybe(.3, namespace="bank")}}}]))})
    if not w.chance(.75): return
    w.router(name, namespace, {"gateway.networking.k8s.io/gateway-name": name}, service, service=service, ports=w.pick([(80, 443, 8080, 9000), (80, 443), (15021, 80), (80, 443, 8080, 8443, 9000)]))
    for of in w.objects:
        if of["kind"] == "Service" and of["metadata"]["name"] == service:
            kind, of["status"] = w.pick([("LoadBalancer", {"loadBalancer": {"ingress": [{"ip": "203.0.113.30"}]}})] * 2 + [("LoadBalancer", {"loadBalancer": {"ingress": [{"hostname": "lb.example.net"}]}}), ("LoadBalancer", {}), ("ClusterIP", {}), ("NodePort", {})])
            of["spec"] |= {"type": kind, "clusterIPs": [of["spec"]["clusterIP"]]}
        if of["kind"] == "EndpointSlice" and of["metadata"]["name"] == f"{service}-slice" and w.chance(.15): of["endpoints"] = []


def parents(w):
    out = {}
    for _ in range(w.pick([1, 1, 2, 3])):
        of_gateway = {"name": w.pick(["gw", "gw", "gw2", "nogw"]), **w.maybe(.85, namespace="shop"), **w.maybe(.35, sectionName=w.pick(["l0", "l1", "l2", "x0", "nope"])), **w.maybe(.2, port=w.pick([80, 443, 8080, 9000, 1]))}
        of_service = {"kind": "Service", "group": "", "name": w.pick(NAMES), **w.maybe(.5, namespace=w.pick(NAMESPACES)), **w.maybe(.4, port=w.port())}
        of_set = {"kind": "ListenerSet", "group": GROUP, "name": w.pick(["ls", "ls", "ls2"]), "namespace": "web", **w.maybe(.4, sectionName=w.pick(["x0", "x1", "nope"])), **w.maybe(.15, port=80)}
        other = w.pick([{"kind": "ServiceEntry", "group": "networking.istio.io", "name": w.pick(["se-0", "se-9"])}, {"kind": w.pick(["Bogus", "Mesh"]), "group": w.pick(["x.io", GROUP]), "name": "y"}])
        parent = w.pick([of_gateway] * 6 + [of_service] * 2 + [of_set, other])
        out[json.dumps(parent, sort_keys=True)] = parent
    return list(out.values())


def backend(w, weighted=True):
    weight = w.maybe(.4, weight=w.r.randint(0, 5)) if weighted else {}
    if w.services and w.chance(.72):
        name, namespace, ports = w.pick(w.services)
        return {"name": name, **w.maybe(.93, port=w.pick([w.pick(ports)["port"]] * 4 + [12345])), **w.maybe(.75, namespace=namespace), **weight}
    istio = "networking.istio.io"
    return {**w.pick([{"name": "missing", "port": 80}, {"name": "missing", "port": 80, "namespace": "bank"}, {"kind": "Hostname", "group": istio, "name": "api.example.com", "port": 443},
                      {"kind": "Hostname", "group": istio, "name": "nope.example.com", "port": 443}, {"kind": "ServiceEntry", "group": istio, "name": "se-0", "port": 80},
                      {"kind": "ServiceImport", "group": "multicluster.x-k8s.io", "name": "a", "port": 80}, {"kind": "Bogus", "group": "x.io", "name": "y", "port": 1}, {"kind": "Pod", "name": "p", "port": 80}]), **weight}


EXTENSION = {"type": "ExtensionRef", "extensionRef": {"group": "x.io", "kind": "Y", "name": "z"}}

def filters(w, is_http):
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": backend(w, False)}}
    of_http = [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/p"}}}, {"type": "CORS", "cors": {"allowOrigins": ["https://x"]}}]
    chosen = w.some([{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-s", "value": "1"}]}}, mirror, EXTENSION] + of_http * is_http, 1, 2)
    return {"filters": chosen} if w.chance(.4) else {}


def rule(w, kind):
    out = {**w.maybe(.92 if kind in ("HTTPRoute", "GRPCRoute") else 1, backendRefs=[backend(w) for _ in range(w.pick([1, 1, 2]))])}
    if kind == "HTTPRoute":
        matches = w.maybe(.7, matches=[{"path": {"type": w.pick(["PathPrefix", "Exact", "RegularExpression"]), "value": w.pick(["/", "/x", "/x/y"])}, **w.maybe(.2, headers=[{"name": "x-h", "type": "RegularExpression", "value": w.pick(["a+", "("])}])}])
        if w.chance(.1): return {**matches, "filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": w.pick([301, 302, 303, 307, 308])}}]}
        out |= {**matches, **filters(w, True), **w.maybe(.12, timeouts={"request": "3s"})}
        if out.get("backendRefs") and w.chance(.15): out["backendRefs"][0]["filters"] = [w.pick([EXTENSION, {"type": "RequestMirror", "requestMirror": {"backendRef": backend(w, False)}}, {"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": [{"name": "x", "value": "y"}]}}])]
    if kind == "GRPCRoute": out |= {**w.maybe(.6, matches=[{"method": {**w.maybe(.8, service="s.S"), "method": "M", **w.maybe(.2, type="RegularExpression")}}]), **filters(w, False)}
    return out


def route(w, n):
    kind = w.pick(["HTTPRoute"] * 5 + ["GRPCRoute", "GRPCRoute", "TLSRoute", "TLSRoute", "TCPRoute"])
    names = {"hostnames": w.some(HOSTS, 1, 2)} if kind == "TLSRoute" or kind != "TCPRoute" and w.chance(.6) else {}
    w.add(GATEWAY_API, kind, f"r-{n}", w.pick(NAMESPACES), {"parentRefs": parents(w), **names, "rules": [rule(w, kind) for _ in range(w.r.randint(1, 3) if kind in ("HTTPRoute", "GRPCRoute") else 1)]})


def policy(w, n):
    name, namespace, ports = w.pick(w.services) if w.services else ("a", "shop", [{"name": "http"}])
    if w.chance(.7): w.add("v1", "ConfigMap", "ca", namespace, data=w.pick([{"ca.crt": certificate()[0]}, {"ca.crt": "x"}, {}]))
    target = lambda: {"group": "", "kind": w.pick(["Service"] * 5 + ["Bogus"]), "name": w.pick([name, name, name, "missing"]), **w.maybe(.3, sectionName=w.pick([w.pick(ports)["name"], "nope"]))}
    references = [{"group": "", "kind": w.pick(["ConfigMap", "ConfigMap", "Secret"]), "name": w.pick(["ca", "ca", "missing"])} for _ in range(w.pick([1, 1, 2]))]
    w.add(GATEWAY_API, "BackendTLSPolicy", f"btp-{n}", namespace, {
        "targetRefs": [target() for _ in range(w.pick([1, 1, 2]))],
        "validation": {"hostname": "auth.example.com", **w.pick([{"wellKnownCACertificates": "System"}, {"caCertificateRefs": references}]), **w.maybe(.2, subjectAltNames=[{"type": "Hostname", "hostname": "x.example.com"}])}})


def statuses(rng):
    w = World(rng)
    # Gateways are not deployed: the world contains the Services that some of them would get.
    w.env = ["PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER=false"] + w.some(["PILOT_ENABLE_ALPHA_GATEWAY_API=true"])
    w.namespaces()
    for of in w.objects:
        if of["kind"] == "Namespace" and w.chance(.4): of["metadata"]["labels"]["team"] = "t"
    w.add(GATEWAY_API, "GatewayClass", "foreign", None, {"controllerName": "example.com/x"})
    w.client(); w.workloads(rng.randint(2, 5))
    chain, key = certificate()
    for namespace in NAMESPACES:
        if w.chance(.75): w.add("v1", "Secret", "cred", namespace, type="kubernetes.io/tls", data={"tls.crt": in_base64(chain), "tls.key": in_base64(key)})
    w.add("v1", "Secret", "bad", "shop", type="kubernetes.io/tls", data={"tls.crt": in_base64("x"), "tls.key": in_base64("y")})
    w.add("v1", "Secret", "nokey", "shop", type="Opaque", data={"tls.crt": in_base64(chain)})
    if w.chance(.6): w.add("v1", "ConfigMap", "ca", "shop", data=w.pick([{"ca.crt": chain}, {"ca.crt": "x"}, {"other": "y"}]))
    gateway(w, "gw", "shop")
    if w.chance(.5): gateway(w, "gw2", "shop")
    for name in w.some(["ls", "ls2"]):
        parent = {"name": w.pick(["gw", "gw", "nogw"]), **w.maybe(.85, namespace="shop"), "kind": w.pick(["Gateway"] * 5 + ["Service"]), "group": GROUP}
        w.add(GATEWAY_API, "ListenerSet", name, "web", {"parentRef": parent, "listeners": [listener(w, f"x{i}") for i in range(rng.randint(1, 3))]})
    for namespace in NAMESPACES:
        if not w.chance(.4): continue
        origins = [{"group": GROUP, "kind": kind, "namespace": of} for kind in w.some(["HTTPRoute", "GRPCRoute", "Gateway", "TLSRoute", "TCPRoute", "ListenerSet"], 1) for of in w.some(NAMESPACES, 1)]
        targets = [{"group": "", "kind": "Service", **w.maybe(.2, name="a")}] * w.chance(.8) + [{"group": "", "kind": "Secret", **w.maybe(.2, name="cred")}] * w.chance(.7)
        w.add("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", "grant", namespace, {"from": origins[:16], "to": targets or [{"group": "", "kind": "Service"}]})
    times(w, 0, 2, w.service_entry); times(w, 2, 7, lambda n: route(w, n)); times(w, 0, 3, lambda n: policy(w, n))
    # An API server sets times in whole seconds: all but the Gateway API's objects are written at once.
    for of in w.objects:
        if not of["apiVersion"].startswith("gateway.networking"): of["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    w.proxies = w.proxies[:1]
    return w

AREAS = {"gatewayapi-status": statuses}
