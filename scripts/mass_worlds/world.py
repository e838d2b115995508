"""The building blocks of random worlds."""

NAMESPACES = ["shop", "web", "bank"]
NAMES = ["a", "b", "c", "d"]
PORTS = [("http", 80), ("http-alt", 8080), ("grpc", 7070), ("tcp", 9000), ("https", 443), ("plain", 8000), ("tls-x", 9443), ("mongo", 27017), ("http2-x", 8081)]
OUTSIDE = ["api.example.com", "www.example.com", "*.example.com", "db.example.org", "cdn.example.net"]
SITES = ["shop.example.com", "*.example.com", "api.example.com", "*", "bank.example.org"]
GATEWAY_API = "gateway.networking.k8s.io/v1"


class World:
    def __init__(self, rng, ambient=False):
        self.r, self.ambient, self.objects, self.proxies, self.env = rng, ambient, [], [], []
        self.networks, self.remotes, self.mesh, self.seconds, self.ips = None, {}, {}, 0, 10
        self.services = []
        if ambient: self.env.append("PILOT_ENABLE_AMBIENT=true")

    # Small choices.
    def chance(self, p): return self.r.random() < p
    def pick(self, of): return self.r.choice(of)
    def some(self, of, least=0, most=None): return self.r.sample(of, self.r.randint(least, min(len(of), most or len(of))))
    def maybe(self, p, **fields): return fields if self.chance(p) else {}

    def ip(self):
        self.ips += 1
        return f"10.244.{self.ips // 250}.{self.ips % 250 + 1}"

    def add(self, api, kind, name, namespace, spec=None, labels=None, annotations=None, into=None, **rest):
        # Every object has its own creation time: istiod orders many objects by age, and ties at random.
        self.seconds += 1
        meta = {"name": name, "creationTimestamp": f"2026-01-01T{self.seconds // 3600:02}:{self.seconds // 60 % 60:02}:{self.seconds % 60:02}Z"}
        if namespace: meta["namespace"] = namespace
        if labels: meta["labels"] = labels
        if annotations: meta["annotations"] = annotations
        of = {"apiVersion": api, "kind": kind, "metadata": meta, **rest}
        if spec is not None: of["spec"] = spec
        into = self.objects if into is None else into
        if not any(o["kind"] == kind and o["apiVersion"].split("/")[0] == api.split("/")[0] and o["metadata"]["name"] == name
                   and o["metadata"].get("namespace") == namespace for o in into):
            into.append(of)

    def networking(self, kind, *args, **kw): self.add("networking.istio.io/v1", kind, *args, **kw)
    def security(self, kind, *args, **kw): self.add("security.istio.io/v1", kind, *args, **kw)

    # Kubernetes.
    def namespaces(self, into=None):
        for name in ["istio-system", "default"] + NAMESPACES:
            labels = {"kubernetes.io/metadata.name": name}
            if self.ambient and name in NAMESPACES and self.chance(.8): labels["istio.io/dataplane-mode"] = "ambient"
            if self.ambient and name in NAMESPACES and self.chance(.4): labels["istio.io/use-waypoint"] = self.pick(["wp", "none", "wp2"])
            self.add("v1", "Namespace", name, None, labels=labels, into=into,
                     annotations=self.maybe(.1, **{"networking.istio.io/exportTo": "."}) or None)
        for i in (1, 2):
            self.add("v1", "Node", f"node-{i}", None, {}, {"topology.kubernetes.io/region": f"region{i}", "topology.kubernetes.io/zone": f"zone{i}"}, into=into)

    def pod(self, name, namespace, labels, ports, into=None, ip=None, account=None):
        ip, annotations = ip or self.ip(), {}
        if self.ambient and self.chance(.7): annotations["ambient.istio.io/redirection"] = "enabled"
        ready = "True" if self.chance(.9) else "False"
        self.add("v1", "Pod", name, namespace, {
            "serviceAccountName": account or self.pick(["default", "app"]), "nodeName": self.pick(["node-1", "node-2"]),
            "containers": [{"name": "app", "image": "example.com/app:1", "ports": ports}]},
            labels, annotations or None, into, status={"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": ready}]})
        return ip, ready == "True"

    def service(self, name, namespace, into=None, pods=None):
        r, labels = self.r, {"app": name}
        if self.ambient and self.chance(.3): labels["istio.io/use-waypoint"] = self.pick(["wp", "none", "wp2"])
        if self.ambient and self.chance(.1): labels["istio.io/ingress-use-waypoint"] = "true"
        annotations = {**self.maybe(.15, **{"networking.istio.io/exportTo": self.pick([".", "*", "web", "web,shop"])}),
                       **self.maybe(.1, **{"networking.istio.io/traffic-distribution": "PreferClose"})}
        if self.chance(.08):
            self.add("v1", "Service", name, namespace, {"type": "ExternalName", "externalName": self.pick(OUTSIDE[:2] + [f"b.{namespace}.svc.cluster.local"]),
                     "ports": [{"name": n, "port": p} for n, p in self.some(PORTS, 1, 2)]}, labels, annotations, into)
            return
        ports = []
        for n, p in self.some(PORTS, 1, 3):
            target = self.pick([p, p + 10, "main"])
            ports.append({"name": n, "port": p, "protocol": "TCP", "targetPort": target, **self.maybe(.15, appProtocol=self.pick(["http", "https", "tcp", "grpc", "kubernetes.io/h2c", "kubernetes.io/ws"]))})
        headless = self.chance(.15)
        vip = "None" if headless else f"10.96.{NAMESPACES.index(namespace)}.{NAMES.index(name) + 1}"
        spec = {"type": "ClusterIP", "clusterIP": vip, "clusterIPs": [vip], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": {"app": name}, "ports": ports,
                **self.maybe(.15, sessionAffinity="ClientIP"), **self.maybe(.2, trafficDistribution=self.pick(["PreferClose", "PreferSameZone", "PreferSameNode"])),
                **self.maybe(.1, internalTrafficPolicy="Local"), **self.maybe(.1, publishNotReadyAddresses=True)}
        if self.chance(.1) and not headless: spec["externalIPs"] = ["203.0.113.77"]
        self.add("v1", "Service", name, namespace, spec, labels, annotations, into)
        self.services.append((name, namespace, ports))
        ends = []
        for i in range(r.randint(0, 3) if pods is None else pods):
            version = self.pick(["v1", "v2"])
            pod = f"{name}-{i}-{self.ips}"
            app = [{"containerPort": 8888, "name": "main", "protocol": "TCP"}]
            podlabels = {"app": name, "version": version}
            if not self.ambient or self.chance(.2): podlabels["security.istio.io/tlsMode"] = "istio"
            if self.ambient and self.chance(.1): podlabels["istio.io/use-waypoint"] = "wp"
            ip, ready = self.pod(pod, namespace, podlabels, app, into)
            ends.append({"addresses": [ip], "conditions": {"ready": ready, "serving": ready, "terminating": False}, "nodeName": "node-1", "zone": "zone1",
                         "targetRef": {"kind": "Pod", "name": pod, "namespace": namespace}})
            if self.chance(.25) and not self.remotes: self.sidecar(pod, namespace, ip, podlabels)
        self.add("discovery.k8s.io/v1", "EndpointSlice", f"{name}-slice", namespace, None, {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}, None, into,
                 addressType="IPv4", endpoints=ends, ports=[{"name": p["name"], "protocol": "TCP", "port": 8888 if p["targetPort"] == "main" else p["targetPort"]} for p in ports])

    def workloads(self, n):
        for _ in range(n):
            self.service(self.pick(NAMES), self.pick(NAMESPACES))

    # Proxies.
    def sidecar(self, name, namespace, ip, labels, **metadata):
        if len(self.proxies) < 3:
            self.proxies.append({"name": name, "type": "sidecar", "ip": ip, "pod": name, "namespace": namespace,
                                 "metadata": {"LABELS": labels, **self.maybe(.2, DNS_CAPTURE="true", DNS_AUTO_ALLOCATE="true"), **self.maybe(.5 if self.ambient else 0, ENABLE_HBONE="true"), **metadata}})

    def client(self, namespace=None):
        namespace = namespace or self.pick(NAMESPACES)
        labels = {"app": "client", "security.istio.io/tlsMode": "istio"}
        ip, _ = self.pod("client", namespace, labels, [], account="default")
        self.sidecar("client", namespace, ip, labels)

    def router(self, name, namespace, labels, account, kind="router", ports=(80, 443, 8080, 9000), service=None, **metadata):
        ip, _ = self.pod(f"{name}-1", namespace, labels, [{"containerPort": p, "protocol": "TCP"} for p in ports], account=account)
        service = service or name
        self.add("v1", "Service", service, namespace, {"type": "LoadBalancer" if kind == "router" else "ClusterIP", "clusterIP": f"10.97.0.{self.ips % 250}", "selector": dict(labels),
                 "ports": [{"name": f"p{p}", "port": p, "targetPort": p + 8000 if self.chance(.15) else p, "protocol": "TCP", **({"appProtocol": "hbone"} if p == 15008 else {})} for p in ports]}, dict(labels),
                 status={"loadBalancer": {"ingress": [{"ip": "203.0.113.30"}]}} if kind == "router" else {})
        self.add("discovery.k8s.io/v1", "EndpointSlice", f"{service}-slice", namespace, None, {"kubernetes.io/service-name": service}, addressType="IPv4",
                 endpoints=[{"addresses": [ip], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": f"{name}-1", "namespace": namespace}}],
                 ports=[{"name": f"p{p}", "protocol": "TCP", "port": p} for p in ports])
        self.proxies.append({"name": name, "type": kind, "ip": ip, "pod": f"{name}-1", "namespace": namespace, "metadata": {"LABELS": labels, "SERVICE_ACCOUNT": account, **metadata}})

    # References.
    def host(self, namespace=None):
        of = []
        if self.services and self.chance(.8):
            name, ns, _ = self.pick(self.services)
            of = [f"{name}.{ns}.svc.cluster.local"] * 4 + ([name] if ns == namespace else []) + [f"*.{ns}.svc.cluster.local"] * (self.r.random() < .2)
        return self.pick(of or OUTSIDE)

    def port(self): return self.pick(PORTS)[1]
    def export(self, p=.25): return self.maybe(p, exportTo=self.pick([["."], ["*"], ["web"], ["shop", "web"], ["~"]][:4]))

    # Istio's networking.
    def service_entry(self, n):
        namespace, resolution = self.pick(NAMESPACES), self.pick(["NONE", "STATIC", "DNS", "DNS_ROUND_ROBIN", "DNS"])
        hosts = self.some(OUTSIDE, 1, 2)
        if resolution.startswith("DNS"): hosts = [h for h in hosts if h[0] != "*"] or ["api.example.com"]
        ports = [{"number": p, "name": f"{n_}", **self.maybe(.97, protocol=self.pick(["HTTP", "TCP", "TLS", "HTTPS", "GRPC", "HTTP2", "MONGO"])), **self.maybe(.15, targetPort=p + 1)} for n_, p in self.some(PORTS, 1, 3)]
        ends = []
        if resolution in ("STATIC", "DNS", "DNS_ROUND_ROBIN") and self.chance(.6 if resolution != "STATIC" else 1):
            for _ in range(1 if resolution == "DNS_ROUND_ROBIN" else self.r.randint(1, 3)):
                address = self.ip() if resolution == "STATIC" or self.chance(.3) else self.pick(["be1.example.net", "be2.example.net"])
                ends.append({"address": address, **self.maybe(.3, weight=self.r.randint(1, 9)), **self.maybe(.3, labels={"version": self.pick(["v1", "v2"])}), **self.maybe(.3, locality=self.pick(["region1/zone1", "region2/zone2"])),
                             **self.maybe(.2, ports={ports[0]["name"]: 8443}), **self.maybe(.15, network=self.pick(["network1", "network2"])), **self.maybe(.1, serviceAccount="vm")})
        spec = {"hosts": hosts, "ports": ports, "resolution": resolution, "location": self.pick(["MESH_EXTERNAL", "MESH_INTERNAL"]), **self.export(),
                **self.maybe(.35, addresses=self.pick([["198.51.100.7"], ["198.51.100.0/24"], ["198.51.100.8"]])), **self.maybe(.15, subjectAltNames=["spiffe://x/ns/y/sa/z"])}
        if ends: spec["endpoints"] = ends
        elif resolution == "STATIC": spec["workloadSelector"] = {"labels": {"app": self.pick(NAMES)}}
        labels = self.maybe(.3, **{"istio.io/use-waypoint": "wp"}) if self.ambient else {}
        self.networking("ServiceEntry", f"se-{n}", namespace, spec, labels)

    def workload_entry(self, n):
        self.networking("WorkloadEntry", f"we-{n}", self.pick(NAMESPACES), {"address": self.ip(), "labels": {"app": self.pick(NAMES), "version": self.pick(["v1", "v2"])},
                        **self.maybe(.3, serviceAccount="vm"), **self.maybe(.3, ports={"http": 8765}), **self.maybe(.2, weight=3), **self.maybe(.3, locality="region1/zone1"), **self.maybe(.1, network="network2")})

    def destination(self, namespace):
        return {"host": self.host(namespace), **self.maybe(.6, port={"number": self.port()}), **self.maybe(.35, subset=self.pick(["v1", "v2", "none"]))}

    def text_match(self): return self.pick([{"exact": "/x"}, {"prefix": "/"}, {"prefix": "/api/"}, {"regex": "/r.*"}])

    def http_route(self, namespace, delegate):
        route = {}
        if self.chance(.6):
            route["match"] = [{k: v for k, v in {
                "uri": self.text_match(), "headers": {self.pick(["x-user", ":authority", "cookie"]): self.pick([{"exact": "u"}, {"prefix": "p"}, {"regex": "r+"}, {}])}, "method": {"exact": "GET"}, "port": self.port(), "scheme": {"exact": "http"},
                "sourceLabels": {"app": "client"}, "sourceNamespace": "shop", "gateways": [self.pick(["mesh", "shop/g1", "g1"])], "queryParams": {"q": {"exact": "1"}}, "ignoreUriCase": True,
                "withoutHeaders": {"x-no": {}}, "authority": {"exact": "shop.example.com"}, "statPrefix": "stat", "name": "m"}.items() if self.chance(.25 if k != "uri" else .7)} for _ in range(self.r.randint(1, 2))]
            route["match"] = [m for m in route["match"] if m] or [{"uri": {"prefix": "/"}}]
        if delegate and self.chance(.3): return {**route, "delegate": {"name": "vd", "namespace": self.pick(NAMESPACES)}}
        if self.chance(.1): return {**route, "redirect": {"uri": "/new", **self.maybe(.5, authority="z.example.com"), **self.maybe(.5, redirectCode=302), **self.maybe(.3, scheme="https"), **self.maybe(.3, derivePort="FROM_REQUEST_PORT")}}
        if self.chance(.06): return {**route, "directResponse": {"status": 418, "body": {"string": "no"}}}
        destinations = [{"destination": self.destination(namespace), "weight": 50} for _ in range(self.pick([1, 1, 2]))]
        if len(destinations) == 1: destinations[0].pop("weight")
        if self.chance(.2): destinations[0]["headers"] = {"request": {"set": {"x-d": "1"}}, "response": {"remove": ["x-r"]}}
        return {**route, "route": destinations, **self.maybe(.2, name="n"), **self.maybe(.2, timeout="3s"), **self.maybe(.2, retries={"attempts": 2, **self.maybe(.5, perTryTimeout="1s"), **self.maybe(.5, retryOn="5xx,gateway-error,503")}),
                **self.maybe(.15, rewrite={"uri": "/re", **self.maybe(.3, authority="re.example.com")}), **self.maybe(.15, fault={"delay": {"fixedDelay": "1s", "percentage": {"value": 10}}, **self.maybe(.5, abort={"httpStatus": 500, "percentage": {"value": 1}})}),
                **self.maybe(.15, mirror={"host": self.host(namespace)}), **self.maybe(.15, headers={"request": {"add": {"x-a": "b"}, "set": {"host": "h.example.com"}}}), **self.maybe(.15, corsPolicy={"allowOrigins": [{"exact": "https://x"}], "allowMethods": ["GET"], "maxAge": "1h"})}

    def virtual_service(self, n, gateways):
        namespace = self.pick(NAMESPACES)
        hosts = list(dict.fromkeys([self.host(namespace) if not gateways or self.chance(.4) else self.pick(SITES) for _ in range(self.pick([1, 1, 2]))]))
        spec = {"hosts": hosts, **self.export()}
        # istiod generates the routes twice if two of the names are of one Gateway.
        if gateways: spec["gateways"] = self.some(["shop/g1", "web/g2", "mesh", "istio-system/g1"] if namespace in ("shop", "istio-system") else ["shop/g1", "g1", "web/g2", "mesh"], 1, 3)
        kind = self.pick(["http", "http", "http", "tls", "tcp"])
        if kind == "http": spec["http"] = [self.http_route(namespace, True) for _ in range(self.r.randint(1, 3))]
        if kind == "tls": spec["tls"] = [{"match": [{"sniHosts": [hosts[0]], **self.maybe(.5, port=self.pick([443, 9443])), **self.maybe(.2, sourceLabels={"app": "client"})}], "route": [{"destination": self.destination(namespace)}]}]
        if kind == "tcp" or self.chance(.15): spec["tcp"] = [{**self.maybe(.6, match=[{"port": self.pick([9000, 27017, 443]), **self.maybe(.3, destinationSubnets=["10.96.0.0/16"])}]), "route": [{"destination": self.destination(namespace)}]}]
        self.networking("VirtualService", f"vs-{n}", namespace, spec)
        if n == 0 and kind == "http":
            self.networking("VirtualService", "vd", self.pick(NAMESPACES), {"http": [self.http_route(namespace, False) for _ in range(2)], **self.export(.1)})

    def policy(self):
        return {**self.maybe(.4, connectionPool={"tcp": {"maxConnections": 7, **self.maybe(.3, tcpKeepalive={"time": "60s"})}, **self.maybe(.5, http={"h2UpgradePolicy": self.pick(["UPGRADE", "DO_NOT_UPGRADE"]), "maxRequestsPerConnection": 3, **self.maybe(.3, useClientProtocol=True)})}),
                **self.maybe(.4, loadBalancer=self.pick([{"simple": "RANDOM"}, {"simple": "LEAST_REQUEST", "warmup": {"duration": "10s"}}, {"consistentHash": {"httpHeaderName": "x-h"}}, {"consistentHash": {"httpCookie": {"name": "c", "ttl": "0s"}}}, {"simple": "PASSTHROUGH"},
                             {"simple": "ROUND_ROBIN", "localityLbSetting": {"enabled": True, "failover": [{"from": "region1", "to": "region2"}]}}, {"localityLbSetting": {"distribute": [{"from": "region1/*", "to": {"region1/*": 80, "region2/*": 20}}]}}])),
                **self.maybe(.3, outlierDetection={"consecutive5xxErrors": 3, "interval": "5s", **self.maybe(.5, minHealthPercent=50)}),
                **self.maybe(.35, tls=self.pick([{"mode": "DISABLE"}, {"mode": "ISTIO_MUTUAL"}, {"mode": "SIMPLE", "sni": "s.example.com"}, {"mode": "SIMPLE", "credentialName": "cred"}, {"mode": "SIMPLE", "insecureSkipVerify": True}])),
                **self.maybe(.1, proxyProtocol={"version": "V2"})}

    def destination_rule(self, n):
        namespace = self.pick(NAMESPACES)
        policy = self.policy()
        if self.chance(.3): policy["portLevelSettings"] = [{"port": {"number": p}, **self.policy()} for p in {self.port(), self.port()}]
        spec = {"host": self.host(namespace), **({"trafficPolicy": policy} if policy else {}), **self.export(), **self.maybe(.15, workloadSelector={"matchLabels": {"app": "client"}})}
        if self.chance(.6): spec["subsets"] = [{"name": v, "labels": {"version": v}, **self.maybe(.3, trafficPolicy=self.policy())} for v in ("v1", "v2")]
        self.networking("DestinationRule", f"dr-{n}", namespace, spec)

    def sidecar_scope(self, n):
        spec = {**self.maybe(.4, workloadSelector={"labels": {"app": self.pick(NAMES + ["client"])}}),
                **self.maybe(.3, outboundTrafficPolicy={"mode": self.pick(["REGISTRY_ONLY", "ALLOW_ANY"])}),
                "egress": [{**self.maybe(.3, port={"number": self.port(), "protocol": self.pick(["HTTP", "TCP"]), "name": "e"}), "hosts": self.some(["./*", "*/*", "shop/*", "web/*", "~/*", "*/api.example.com", "shop/a.shop.svc.cluster.local"], 1, 3)}] }
        if self.chance(.3): spec["ingress"] = [{"port": {"number": 8888, "protocol": self.pick(["HTTP", "TCP", "GRPC"]), "name": "in"}, "defaultEndpoint": self.pick(["127.0.0.1:9999", "0.0.0.0:8888"])}]
        self.networking("Sidecar", f"sc-{n}", self.pick(NAMESPACES + ["istio-system"]), spec)

    # istiod crashes if "*/*" precedes another host with a namespace.
    def gateway(self, name, namespace):
        servers = []
        for i in range(self.r.randint(1, 4)):
            protocol, port = self.pick([("HTTP", 80), ("HTTP", 8080), ("HTTPS", 443), ("TLS", 443), ("TCP", 9000), ("HTTPS", 8443), ("HTTP2", 80), ("GRPC", 80), ("MONGO", 27017)])
            server = {"port": {"number": port, "name": f"s{i}", "protocol": protocol}, "hosts": [self.pick(["", "shop/", "./", "*/"] if h != "*" else ["", "shop/", "./"]) + h for h in self.some(SITES, 1, 2)], **self.maybe(.1, bind="10.0.0.1"), **self.maybe(.2, name=f"sv{i}")}
            if protocol in ("HTTPS", "TLS"): server["tls"] = self.pick([{"mode": "SIMPLE", "credentialName": "cred"}, {"mode": "MUTUAL", "credentialName": "cred"}, {"mode": "PASSTHROUGH"}, {"mode": "ISTIO_MUTUAL"}, {"mode": "AUTO_PASSTHROUGH"}, {"mode": "SIMPLE", "serverCertificate": "/c", "privateKey": "/k", "minProtocolVersion": "TLSV1_2"}])
            if protocol == "HTTP" and self.chance(.25): server["tls"] = {"httpsRedirect": True}
            servers.append(server)
        self.networking("Gateway", name, namespace, {"selector": {"istio": "ingressgateway"}, "servers": servers})

    def secret(self, namespace="istio-system"):
        data = {"tls.crt": "Y2VydA==", "tls.key": "a2V5", "ca.crt": "Y2E="}
        self.add("v1", "Secret", "cred", namespace, type="kubernetes.io/tls", data=data)

    # Security and extensions.
    def target(self, kinds):
        choice = self.r.random()
        if choice < .3: return {}
        if choice < .7 or not kinds: return {"selector": {"matchLabels": {"app": self.pick(NAMES)}}}
        kind, group, name = self.pick(kinds)
        return {"targetRefs": [{"kind": kind, "group": group, "name": name}]}

    def targets(self): return [("Service", "", self.pick(NAMES)), ("Gateway", "gateway.networking.k8s.io", "wp"), ("Gateway", "gateway.networking.k8s.io", "gw"), ("GatewayClass", "gateway.networking.k8s.io", "istio-waypoint"), ("ServiceEntry", "networking.istio.io", "se-0")]

    def policies(self, n):
        for i in range(n):
            namespace, kind = self.pick(NAMESPACES + ["istio-system"]), self.r.random()
            if kind < .3:
                spec = {**self.maybe(.5, selector={"matchLabels": {"app": self.pick(NAMES)}}), **self.maybe(.8, mtls={"mode": self.pick(["STRICT", "PERMISSIVE", "DISABLE", "UNSET"])})}
                if "selector" in spec and self.chance(.5): spec["portLevelMtls"] = {self.pick(["8888", "80", "9000"]): {"mode": self.pick(["STRICT", "PERMISSIVE", "DISABLE"])}}
                self.security("PeerAuthentication", f"pa-{i}", namespace, spec)
            elif kind < .8:
                rule = {**self.maybe(.6, **{"from": [{"source": self.pick([{"principals": ["cluster.local/ns/shop/sa/default", "*/sa/x"]}, {"namespaces": ["shop"]}, {"ipBlocks": ["10.0.0.0/8"]}, {"notNamespaces": ["web"]}, {"remoteIpBlocks": ["1.2.3.4"]}, {"requestPrincipals": ["*"]}, {"serviceAccounts": ["shop/app"]}])} for _ in range(self.r.randint(1, 2))]}),
                        **self.maybe(.6, to=[{"operation": self.pick([{"ports": ["80", "8888"]}, {"methods": ["GET"], "paths": ["/x*", "/{*}/y"]}, {"hosts": ["*.example.com"]}, {"notPorts": ["9000"]}, {"notPaths": ["/adm"]}])}]),
                        **self.maybe(.4, when=[self.pick([{"key": "request.headers[x]", "values": ["1", "p*"]}, {"key": "source.namespace", "notValues": ["bank"]}, {"key": "destination.port", "values": ["80"]}, {"key": "request.auth.claims[iss]", "values": ["*"]}, {"key": "connection.sni", "values": ["s"]}])])}
                spec = {"action": self.pick(["ALLOW", "DENY", "ALLOW"]), **self.target(self.targets() if self.ambient or self.chance(.2) else []), **self.maybe(.85, rules=[rule])}
                self.security("AuthorizationPolicy", f"ap-{i}", namespace, spec, annotations=self.maybe(.15, **{"istio.io/dry-run": "true"}) or None)
            else:
                self.security("RequestAuthentication", f"ra-{i}", namespace, {**self.target(self.targets() if self.ambient else []), "jwtRules": [{"issuer": "me", "jwks": '{"keys":[]}', **self.maybe(.4, audiences=["a"]), **self.maybe(.4, fromHeaders=[{"name": "x-jwt"}]), **self.maybe(.3, outputClaimToHeaders=[{"header": "x-c", "claim": "sub"}]), **self.maybe(.3, forwardOriginalToken=True)}]})

    def extensions(self, n):
        for i in range(n):
            namespace, kind = self.pick(NAMESPACES + ["istio-system"]), self.r.random()
            target = self.target(self.targets() if self.ambient or self.chance(.2) else [])
            if kind < .3:
                spec = {**target, **self.maybe(.4, tracing=[{**self.maybe(.5, randomSamplingPercentage=50), **self.maybe(.3, disableSpanReporting=True), **self.maybe(.4, customTags={"t": {"literal": {"value": "v"}}})}]),
                        **self.maybe(.5, accessLogging=[{"providers": [{"name": "envoy"}], **self.maybe(.3, disabled=True), **self.maybe(.4, filter={"expression": "response.code >= 400"}), **self.maybe(.4, match={"mode": self.pick(["CLIENT", "SERVER", "CLIENT_AND_SERVER"])})}]),
                        **self.maybe(.5, metrics=[{"providers": [{"name": "prometheus"}], "overrides": [{"match": {"metric": self.pick(["ALL_METRICS", "REQUEST_COUNT"]), "mode": self.pick(["CLIENT", "SERVER", "CLIENT_AND_SERVER"])}, **self.maybe(.5, disabled=True), **self.maybe(.5, tagOverrides={"method": {"value": "request.method"}, "source_app": {"operation": "REMOVE"}})}]}])}
                self.add("telemetry.istio.io/v1", "Telemetry", f"te-{i}", namespace, spec)
            elif kind < .55:
                self.add("extensions.istio.io/v1alpha1", "WasmPlugin", f"wa-{i}", namespace, {**target, "url": "https://example.com/w.wasm", "sha256": "a" * 64, "phase": self.pick(["AUTHN", "AUTHZ", "STATS", "UNSPECIFIED_PHASE"]), "priority": i, **self.maybe(.3, pluginConfig={"k": "v"}),
                         **self.maybe(.4, match=[{"mode": self.pick(["CLIENT", "SERVER"]), **self.maybe(.5, ports=[{"number": self.port()}])}]), **self.maybe(.3, failStrategy="FAIL_OPEN"), **self.maybe(.2, type="NETWORK")})
            elif kind < .9:
                context = self.pick(["SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY", "ANY"])
                lua = {"name": f"lua-{i}", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "inlineCode": "function envoy_on_request(h) end"}}
                patch = self.pick([
                    {"applyTo": "HTTP_FILTER", "match": {"context": context, "listener": {"filterChain": {"filter": {"name": "envoy.filters.network.http_connection_manager", "subFilter": {"name": self.pick(["envoy.filters.http.router", "envoy.filters.http.cors"])}}}, **self.maybe(.4, portNumber=self.port())}}, "patch": {"operation": self.pick(["INSERT_BEFORE", "INSERT_FIRST", "ADD"][:2]), "value": lua}},
                    {"applyTo": "CLUSTER", "match": {"context": context, "cluster": {**self.maybe(.5, service=self.host()), **self.maybe(.5, portNumber=self.port())}}, "patch": {"operation": "MERGE", "value": {"connect_timeout": "9s"}}},
                    {"applyTo": "NETWORK_FILTER", "match": {"context": context, "listener": {"filterChain": {"filter": {"name": "envoy.filters.network.http_connection_manager"}}}}, "patch": {"operation": "MERGE", "value": {"typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "server_name": "x"}}}},
                    {"applyTo": "VIRTUAL_HOST", "match": {"context": context, "routeConfiguration": {"vhost": {"name": f"{self.host()}:{self.port()}"}}}, "patch": {"operation": "MERGE", "value": {"include_request_attempt_count": False}}},
                    {"applyTo": "HTTP_ROUTE", "match": {"context": context, "routeConfiguration": {"vhost": {"route": {"action": "ANY"}}}}, "patch": {"operation": "MERGE", "value": {"request_headers_to_remove": ["x-gone"]}}},
                    {"applyTo": "LISTENER", "match": {"context": context, **self.maybe(.6, listener={"portNumber": self.port()})}, "patch": {"operation": "MERGE", "value": {"per_connection_buffer_limit_bytes": 4096}}},
                    {"applyTo": "LISTENER", "match": {"context": context, "listener": {"portNumber": self.port()}}, "patch": {"operation": "REMOVE"}},
                    {"applyTo": "FILTER_CHAIN", "match": {"context": context, "listener": {"filterChain": {**self.maybe(.4, transportProtocol="tls")}}}, "patch": {"operation": "MERGE", "value": {"transport_socket_connect_timeout": "7s"}}}])
                self.add("networking.istio.io/v1alpha3", "EnvoyFilter", f"ef-{i}", namespace, {**({"workloadSelector": {"labels": target["selector"]["matchLabels"]}} if "selector" in target else target), "configPatches": [patch], **self.maybe(.3, priority=i - 2)})
            else:
                self.add("networking.istio.io/v1beta1", "ProxyConfig", f"pc-{i}", namespace, {"concurrency": 1, **self.maybe(.5, selector={"matchLabels": {"app": "client"}}), "environmentVariables": {"X": "1"}})

    # Gateway API.
    def classes(self):
        for name, controller in (("istio", "istio.io/gateway-controller"), ("istio-waypoint", "istio.io/mesh-controller")):
            self.add(GATEWAY_API, "GatewayClass", name, None, {"controllerName": controller})

    def listener(self, i):
        protocol, port = self.pick([("HTTP", 80), ("HTTP", 80), ("HTTP", 8080), ("HTTPS", 443), ("TLS", 443), ("TCP", 9000)])
        out = {"name": f"l{i}", "port": port, "protocol": protocol, "allowedRoutes": {"namespaces": {"from": self.pick(["All", "All", "Same"])}, **self.maybe(.1, kinds=[{"kind": "HTTPRoute"}])}}
        if protocol != "TCP" and self.chance(.6): out["hostname"] = self.pick(SITES[:3] + SITES[4:])
        if protocol in ("HTTPS", "TLS"): out["tls"] = {"mode": "Passthrough"} if protocol == "TLS" and self.chance(.7) else {"mode": "Terminate", "certificateRefs": [{"name": "cred", **self.maybe(.2, namespace="bank")}]}
        return out

    def gateway_api_gateway(self, name, namespace):
        self.add(GATEWAY_API, "Gateway", name, namespace, {"gatewayClassName": "istio", "allowedListeners": {"namespaces": {"from": "All"}}, "listeners": [self.listener(i) for i in range(self.r.randint(1, 4))]},
                 status={"addresses": [{"type": "IPAddress", "value": "203.0.113.30"}]})
        labels = {"gateway.networking.k8s.io/gateway-name": name}
        if not any(p["name"] == name for p in self.proxies): self.router(name, namespace, labels, f"{name}-istio", service=f"{name}-istio", **({"ENABLE_HBONE": "true"} if self.ambient else {}))

    def waypoint(self, name, namespace, connect=True):
        labels = {"gateway.networking.k8s.io/gateway-name": name, "gateway.networking.k8s.io/gateway-class-name": "istio-waypoint", "gateway.istio.io/managed": "istio.io-mesh-controller", "istio.io/dataplane-mode": "none"}
        good = [{"type": t, "status": "True", "reason": t, "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"} for t in ("Accepted", "Programmed")]
        self.add(GATEWAY_API, "Gateway", name, namespace, {"gatewayClassName": "istio-waypoint", "listeners": [{"name": "mesh", "port": 15008, "protocol": "HBONE", **self.maybe(.3, allowedRoutes={"namespaces": {"from": "All"}})}]}, self.maybe(.5, **{"istio.io/waypoint-for": self.pick(["service", "workload", "all", "none"])}),
                 status={"addresses": [{"type": "Hostname", "value": f"{name}.{namespace}.svc.cluster.local"}], "conditions": good})
        self.router(name, namespace, labels, name, "waypoint", (15021, 15008), ENABLE_HBONE="true")
        self.proxies[-1]["name"] = f"{name}-{namespace}"

    def parents(self):
        out = []
        for _ in range(self.pick([1, 1, 2])):
            kind = self.r.random()
            if kind < .5: out.append({"name": self.pick(["gw", "gw", "gw2"]), "namespace": "shop", **self.maybe(.3, sectionName=self.pick(["l0", "l1", "x0"])), **self.maybe(.15, port=80)})
            elif kind < .85: out.append({"kind": "Service", "group": "", "name": self.pick(NAMES), **self.maybe(.4, namespace=self.pick(NAMESPACES)), **self.maybe(.4, port=self.port())})
            elif kind < .95: out.append({"kind": "ListenerSet", "group": "gateway.networking.k8s.io", "name": "ls", "namespace": "web", **self.maybe(.3, sectionName="x0")})
            else: out.append({"kind": "ServiceEntry", "group": "networking.istio.io", "name": "se-0"})
        return out

    def backend(self):
        if self.services and self.chance(.85):
            name, ns, ports = self.pick(self.services)
            out = {"name": name, "port": self.pick(ports)["port"], **self.maybe(.7, namespace=ns)}
        else: out = self.pick([{"name": "missing", "port": 80}, {"kind": "Hostname", "group": "networking.istio.io", "name": "api.example.com", "port": 443}])
        return {**out, **self.maybe(.4, weight=self.r.randint(0, 5))}

    def filters(self, grpc=False):
        choice = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-s", "value": "1"}], "remove": ["x-g"]}}, {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "x-r", "value": "2"}]}}, {"type": "RequestMirror", "requestMirror": {"backendRef": {k: v for k, v in self.backend().items() if k != "weight"}, **self.maybe(.3, percent=10)}}]
        if not grpc: choice.append({"type": "URLRewrite", "urlRewrite": {**self.maybe(.5, hostname="r.example.com"), "path": self.pick([{"type": "ReplaceFullPath", "replaceFullPath": "/f"}, {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/p"}])}})
        return self.some(choice, 0, 2)

    def route(self, n):
        namespace, kind = self.pick(NAMESPACES), self.pick(["HTTPRoute"] * 5 + ["GRPCRoute", "GRPCRoute", "TLSRoute", "TCPRoute"])
        spec = {"parentRefs": self.parents()}
        if kind in ("HTTPRoute", "GRPCRoute") and self.chance(.6): spec["hostnames"] = self.some(SITES[:3] + SITES[4:], 1, 2)
        if kind == "TLSRoute": spec["hostnames"] = self.some(SITES[:3] + SITES[4:], 1, 2)
        rules = []
        for _ in range(self.r.randint(1, 3) if kind in ("HTTPRoute", "GRPCRoute") else 1):
            rule = {"backendRefs": [self.backend() for _ in range(self.pick([1, 1, 2]))]}
            if kind == "HTTPRoute":
                if self.chance(.7): rule["matches"] = [{k: v for k, v in {"path": {"type": self.pick(["PathPrefix", "Exact", "PathPrefix"]), "value": self.pick(["/", "/x", "/x/y"])}, "headers": [{"name": "x-h", "value": "1"}], "method": "GET", "queryParams": [{"name": "q", "value": "1"}]}.items() if self.chance(.4 if k != "path" else .8)} for _ in range(self.pick([1, 1, 2]))]
                if self.chance(.12): rule = {**{k: v for k, v in rule.items() if k != "backendRefs"}, "filters": [{"type": "RequestRedirect", "requestRedirect": {**self.maybe(.5, scheme="https"), **self.maybe(.5, hostname="to.example.com"), **self.maybe(.3, port=8443), "statusCode": 301}}]}
                else:
                    rule["filters"] = self.filters()
                    if self.chance(.2): rule["backendRefs"][0]["filters"] = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": [{"name": "x-b", "value": "3"}]}}]
                if self.chance(.2): rule["timeouts"] = {"request": "3s", **self.maybe(.5, backendRequest="1s")}
                if self.chance(.15): rule["retry"] = {"attempts": 2, "codes": [503]}
            if kind == "GRPCRoute":
                if self.chance(.7): rule["matches"] = [{**self.maybe(.8, method={"service": "s.S", **self.maybe(.5, method="M")}), **self.maybe(.3, headers=[{"name": "x-h", "value": "1"}])}]
                rule["filters"] = self.filters(True)
            rules.append(rule)
        self.add(GATEWAY_API, kind, f"r-{n}", namespace, {**spec, "rules": rules})

    def attachments(self):
        if self.chance(.6): self.add(GATEWAY_API, "ListenerSet", "ls", "web", {"parentRef": {"name": "gw", "namespace": "shop", "kind": "Gateway", "group": "gateway.networking.k8s.io"}, "listeners": [{**self.listener(i), "name": f"x{i}"} for i in range(self.r.randint(1, 2))]})
        for namespace in NAMESPACES:
            if self.chance(.4): self.add("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", "grant", namespace, {"from": [{"group": "gateway.networking.k8s.io", "kind": k, "namespace": n} for k in ("HTTPRoute", "GRPCRoute", "Gateway", "TLSRoute", "TCPRoute") for n in self.some(NAMESPACES, 1)], "to": self.some([{"group": "", "kind": "Service"}, {"group": "", "kind": "Secret"}], 1)})
        if self.chance(.3) and self.services:
            name, ns, _ = self.pick(self.services)
            self.add("v1", "ConfigMap", "ca", ns, data={"ca.crt": "CA"})
            self.add(GATEWAY_API, "BackendTLSPolicy", "btp", ns, {"targetRefs": [{"group": "", "kind": "Service", "name": name}], "validation": {"hostname": "auth.example.com", **self.pick([{"wellKnownCACertificates": "System"}, {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}])}})


def times(w, least, most, make):
    for n in range(w.r.randint(least, most)): make(n)
