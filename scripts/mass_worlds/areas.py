"""Worlds of Istio's and the Gateway API's objects, by area."""

from mass_worlds.world import NAMES, NAMESPACES, World, times


def mesh(rng):
    w = World(rng)
    w.namespaces(); w.client(); w.workloads(rng.randint(2, 6)); w.secret("shop"); w.secret("web")
    times(w, 0, 4, w.service_entry); times(w, 0, 3, w.workload_entry); times(w, 0, 4, lambda n: w.virtual_service(n, False)); times(w, 0, 4, w.destination_rule)
    times(w, 0, 2, w.sidecar_scope); w.policies(rng.randint(0, 4))
    return w

def gateway(rng):
    w = World(rng)
    w.namespaces(); w.router("ingress", "istio-system", {"istio": "ingressgateway"}, "ingress"); w.client(); w.workloads(rng.randint(2, 4)); w.secret(); w.secret("shop")
    for name, namespace in w.some([("g1", "shop"), ("g2", "web"), ("g1", "istio-system")], 1): w.gateway(name, namespace)
    times(w, 0, 2, w.service_entry); times(w, 1, 5, lambda n: w.virtual_service(n, True)); times(w, 0, 3, w.destination_rule); w.policies(rng.randint(0, 3))
    return w

def gatewayapi(rng):
    w = World(rng)
    w.namespaces(); w.classes(); w.client(); w.workloads(rng.randint(2, 5)); w.secret("shop"); w.secret("bank")
    w.gateway_api_gateway("gw", "shop")
    if w.chance(.3): w.gateway_api_gateway("gw2", "shop")
    w.attachments(); times(w, 1, 6, w.route); times(w, 0, 2, w.destination_rule); times(w, 0, 2, w.service_entry); w.policies(rng.randint(0, 2))
    if w.chance(.3): w.virtual_service(0, False)
    return w

def ambient(rng):
    w = World(rng, True)
    w.namespaces(); w.classes(); w.client("web"); w.workloads(rng.randint(2, 6))
    w.proxies.append({"name": "ztunnel", "type": "ztunnel", "ip": "10.244.9.1", "pod": "ztunnel-1", "namespace": "istio-system", "metadata": {"NODE_NAME": "node-1", "SERVICE_ACCOUNT": "ztunnel"}, "types": ["addresses", "authorizations"]})
    w.waypoint("wp", "shop")
    if w.chance(.4): w.waypoint(w.pick(["wp", "wp2"]), w.pick(["web", "bank"]))
    if w.chance(.4): w.gateway_api_gateway("gw", "shop"); w.secret("shop"); w.attachments()
    times(w, 0, 3, w.route); times(w, 0, 2, w.service_entry); times(w, 0, 3, w.workload_entry); times(w, 0, 2, w.destination_rule); w.policies(rng.randint(0, 6)); times(w, 0, 1, lambda n: w.virtual_service(n, False))
    if w.chance(.3): w.extensions(rng.randint(1, 2))
    return w

def extensions(rng):
    w = World(rng)
    w.namespaces(); w.classes(); w.client("shop"); w.workloads(rng.randint(1, 4)); w.secret()
    w.router("ingress", "istio-system", {"istio": "ingressgateway"}, "ingress"); w.gateway("g1", "shop"); times(w, 1, 2, lambda n: w.virtual_service(n, True))
    w.extensions(rng.randint(2, 8)); times(w, 0, 1, w.service_entry); times(w, 0, 1, w.destination_rule)
    if w.chance(.4): w.mesh = {"accessLogFile": "/dev/stdout", **w.maybe(.5, accessLogEncoding="JSON")}
    return w

def clusters(rng):
    w = World(rng)
    w.namespaces(); w.client(); w.remotes["remote"] = []
    w.networks = {"networks": {n: {"endpoints": [{"fromRegistry": c}], "gateways": [{"address": a, "port": 15443}]} for n, c, a in (("network1", "Kubernetes", "203.0.113.1"), ("network2", "remote", "203.0.113.2"))}} if w.chance(.7) else None
    w.proxies[0]["metadata"].update({"NETWORK": "network1"} if w.networks else {})
    w.proxies[0]["locality"] = "region1/zone1"
    w.workloads(rng.randint(2, 4))
    w.namespaces(w.remotes["remote"])
    for _ in range(rng.randint(1, 4)): w.service(w.pick(NAMES), w.pick(NAMESPACES), w.remotes["remote"])
    w.router("eastwest", "istio-system", {"istio": "eastwestgateway"}, "eastwest", ports=(15443,), **({"NETWORK": "network1", "REQUESTED_NETWORK_VIEW": "network1", "ROUTER_MODE": "sni-dnat"} if w.networks else {}))
    w.networking("Gateway", "cross", "istio-system", {"selector": {"istio": "eastwestgateway"}, "servers": [{"port": {"number": 15443, "name": "tls", "protocol": "TLS"}, "tls": {"mode": "AUTO_PASSTHROUGH"}, "hosts": ["*.local"]}]})
    times(w, 0, 3, w.destination_rule); times(w, 0, 2, w.service_entry); times(w, 0, 2, w.workload_entry); times(w, 0, 2, lambda n: w.virtual_service(n, False)); w.policies(rng.randint(0, 2))
    if w.chance(.3): w.mesh = {"serviceSettings": [{"settings": {"clusterLocal": True}, "hosts": [w.pick(["a.shop.svc.cluster.local", "*.web.svc.cluster.local"])]}]}
    return w

def letters(rng):
    """Hosts of Istio's objects with capitals."""
    w = rng.choice([mesh, gateway])(rng)
    for of in w.objects:
        if of["apiVersion"].startswith("networking.istio.io/"): with_capitals(rng, of["spec"])
    return w

def with_capitals(rng, value):
    """Has a third of the hosts in a spec begin with a capital, or be of capitals alone."""
    def spelled(host):
        namespace, slash, name = host.rpartition("/")
        return namespace + slash + (rng.choice([name.title(), name.upper()]) if rng.random() < .33 else name)
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key == "host": value[key] = spelled(inner)
        elif key == "hosts": value[key] = [spelled(host) for host in inner]
        else: with_capitals(rng, inner)
    for inner in value if isinstance(value, list) else (): with_capitals(rng, inner)

AREAS = {f.__name__: f for f in (mesh, gateway, gatewayapi, ambient, extensions, clusters, letters)}
