//! Random content of objects.

use serde_json::{Value, json};

use super::{ANCHOR, NAMESPACES, PRIVATE_PORT, Slot, VERSION_HEADER, private_name, running};
use crate::proxy::POISON;
use crate::random::Random;

/// An object that gets its content.
pub(super) struct Draft<'a> {
    /// Empty if the object is cluster-scoped.
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) metadata: &'a mut Value,
    pub(super) random: &'a mut Random,
}

impl Draft<'_> {
    /// All members but kind, version and metadata; labels and annotations are added to the metadata.
    pub(super) fn content(mut self, slot: Slot) -> Value {
        match slot {
            Slot::Service => self.service(),
            Slot::Endpoints => self.endpoints(),
            Slot::Pod => self.pod(),
            Slot::VirtualService => self.virtual_service(),
            Slot::DestinationRule => self.destination_rule(),
            Slot::ServiceEntry => self.service_entry(),
            Slot::AuthorizationPolicy => self.authorization_policy(),
            Slot::PeerAuthentication => self.peer_authentication(),
            Slot::Sidecar => self.sidecar(),
            Slot::Gateway => self.gateway(),
            Slot::KubernetesGateway => self.kubernetes_gateway(),
            Slot::HttpRoute => self.http_route(),
            Slot::EnvoyFilter => self.envoy_filter(),
            Slot::Ingress => self.ingress(),
            Slot::Namespace => self.namespace(),
        }
    }

    /// The host of a random service.
    fn host(&mut self) -> String {
        match self.random.below(6) {
            0 => ANCHOR.to_owned(),
            1 => "ext.example.com".to_owned(),
            _ => {
                let namespace = self.random.of(&NAMESPACES);
                let number = self.random.below(2);
                format!("s{number}.{namespace}.svc.cluster.local")
            }
        }
    }

    /// The third byte of the addresses of the namespace.
    fn net(&self) -> usize {
        NAMESPACES
            .iter()
            .position(|namespace| *namespace == self.namespace)
            .map_or(0, |index| index + 1)
    }

    fn service(&mut self) -> Value {
        let mut ports = vec![json!({ "name": "http", "port": 80, "targetPort": 8080 })];
        if self.random.happens(200) {
            let visibility = self.random.of(&[".", "*", "bank"]);
            self.metadata["annotations"] = json!({ "networking.istio.io/exportTo": visibility });
            if visibility == "." {
                ports.push(json!({ "name": "tcp-private", "port": PRIVATE_PORT }));
            }
        }

        if self.random.happens(400) {
            ports.push(json!({ "name": "tcp-db", "port": 9000, "targetPort": 9000 }));
        }

        let address = if self.random.happens(150) {
            "None".to_owned()
        } else {
            let number = self.name.trim_start_matches('s');
            let variant = self.random.below(3) + 1;
            format!("172.16.{}.{variant}{number}", self.net())
        };
        json!({
            "spec": { "clusterIP": address, "ports": ports, "selector": { "app": self.name } },
        })
    }

    fn endpoints(&mut self) -> Value {
        self.metadata["labels"] = json!({ "kubernetes.io/service-name": self.name });
        let net = self.net();
        let endpoint = |number: usize| {
            json!({
                "addresses": [format!("10.0.{net}.{}", number + 10)],
                "conditions": { "ready": true },
                "targetRef": {
                    "kind": "Pod", "name": format!("pod-{number}"), "namespace": self.namespace,
                },
            })
        };

        let endpoints: Vec<Value> = (0..3)
            .filter(|_| self.random.happens(600))
            .map(endpoint)
            .collect();
        json!({
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{ "name": "http", "port": 8080 }, { "name": "tcp-db", "port": 9000 }],
        })
    }

    fn pod(&mut self) -> Value {
        let app = self.random.below(3);
        let version = self.random.of(&["v1", "v2"]);
        let tls_mode = self.random.of(&["istio", "disabled"]);
        self.metadata["labels"] = json!({
            "app": format!("s{app}"), "version": version, "security.istio.io/tlsMode": tls_mode,
        });

        let number = self.name.trim_start_matches("pod-").parse().unwrap_or(0) + 10;
        let address = format!("10.0.{}.{number}", self.net());
        let account = self.random.of(&["default", "robot"]);
        running(&address, account, self.random.happens(800))
    }

    fn virtual_service(&mut self) -> Value {
        if self.random.happens(350) {
            self.metadata["annotations"] = json!({
                "navarch.io/rollout": "25%,50%,100%", "navarch.io/rollout-pause": "20s",
            });
        }

        let mut http = json!({ "route": [{ "destination": { "host": self.host() } }] });
        if self.random.happens(500) {
            http["timeout"] = json!(format!("{}s", self.random.below(9) + 1));
        }
        // Which version it is, wherever a proxy holds it.
        let version = format!(
            "{}/{}@{:x}",
            self.namespace,
            self.name,
            self.random.number()
        );
        http["headers"] = json!({ "request": { "set": { VERSION_HEADER: version } } });
        // A proxy that rejects its first routes never counts: most are accepted.
        if self.random.happens(60) {
            http["headers"]["request"]["set"][POISON] = json!("1");
        }

        let visibility = self.random.of(&["*", "*", "*", "*", ".", "bank"]);
        if visibility == "." {
            let header = private_name(self.namespace);
            http["headers"]["request"]["add"] = json!({ header: "1" });
        }
        json!({ "spec": { "hosts": [self.host()], "http": [http], "exportTo": [visibility] } })
    }

    fn destination_rule(&mut self) -> Value {
        let policy = self.random.of(&["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM"]);
        let mut spec = json!({
            "host": self.host(), "trafficPolicy": { "loadBalancer": { "simple": policy } },
        });
        let mut subsets = Vec::new();
        if self.random.happens(300) {
            spec["exportTo"] = json!(["."]);
            // Other namespaces see those that the service's namespace exports.
            spec["host"] = json!(format!("s0.{}.svc.cluster.local", self.namespace));
            subsets.push(private_name(self.namespace));
        }
        if self.random.happens(300) {
            subsets.push("v1".to_owned());
        }
        spec["subsets"] = subsets
            .iter()
            .map(|name| json!({ "name": name, "labels": { "version": "v1" } }))
            .collect();
        json!({ "spec": spec })
    }

    fn service_entry(&mut self) -> Value {
        let host = format!("ext{}.example.com", self.random.below(3));
        let address = format!("10.9.0.{}", self.random.below(9) + 1);
        json!({ "spec": {
            "hosts": [host],
            "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
            "resolution": "STATIC",
            "endpoints": [{ "address": address }],
        } })
    }

    fn authorization_policy(&mut self) -> Value {
        let path = format!("/p{}", self.random.below(5));
        let action = self.random.of(&["ALLOW", "DENY"]);
        json!({ "spec": {
            "action": action,
            "rules": [{ "to": [{ "operation": { "paths": [path] } }] }],
        } })
    }

    fn peer_authentication(&mut self) -> Value {
        let mode = self.random.of(&["STRICT", "PERMISSIVE", "DISABLE"]);
        let mut spec = json!({ "mtls": { "mode": mode } });
        if self.name != "default" {
            spec["selector"] = json!({ "matchLabels": { "app": "web" } });
        }
        json!({ "spec": spec })
    }

    fn sidecar(&mut self) -> Value {
        let app = self.random.of(&["s0", "s1"]);
        let visible = format!("{}/*", self.random.of(&NAMESPACES));
        // The anchor stays visible to all, or the invariants about it would not hold.
        json!({ "spec": {
            "workloadSelector": { "labels": { "app": app } },
            "egress": [{ "hosts": ["shop/*", visible] }],
        } })
    }

    fn gateway(&mut self) -> Value {
        let port = 80 + self.random.below(3);
        let host = self.random.of(&["*", "shop.example.com"]);
        json!({ "spec": {
            "selector": { "app": "gateway" },
            "servers": [{
                "port": { "number": port, "name": "http", "protocol": "HTTP" }, "hosts": [host],
            }],
        } })
    }

    fn kubernetes_gateway(&mut self) -> Value {
        let port = 80 + self.random.below(2);
        let from = self.random.of(&["Same", "All"]);
        json!({ "spec": {
            "gatewayClassName": "istio",
            "listeners": [{
                "name": "http", "port": port, "protocol": "HTTP",
                "allowedRoutes": { "namespaces": { "from": from } },
            }],
        } })
    }

    fn http_route(&mut self) -> Value {
        let gateway = format!("gateway-{}", self.random.below(3));
        let host = format!("r{}.example.com", self.random.below(3));
        let service = format!("s{}", self.random.below(4));
        json!({ "spec": {
            "parentRefs": [{ "name": gateway }],
            "hostnames": [host],
            "rules": [{ "backendRefs": [{ "name": service, "port": 80 }] }],
        } })
    }

    fn envoy_filter(&mut self) -> Value {
        let app = self.random.of(&["web", "pay"]);
        let service = self.host();
        let timeout = format!("{}s", self.random.below(8) + 1);
        json!({ "spec": {
            "workloadSelector": { "labels": { "app": app } },
            "configPatches": [{
                "applyTo": "CLUSTER", "match": { "cluster": { "service": service } },
                "patch": { "operation": "MERGE", "value": {
                    "connect_timeout": timeout, "alt_stat_name": private_name(self.namespace),
                } },
            }],
        } })
    }

    fn ingress(&mut self) -> Value {
        let class = self.random.of(&["istio", "istio", "other"]);
        self.metadata["annotations"] = json!({ "kubernetes.io/ingress.class": class });

        let service = format!("s{}", self.random.below(3));
        let host = format!("i{}.example.com", self.random.below(3));
        let backend = json!({ "service": { "name": service, "port": { "number": 80 } } });
        let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
        json!({ "spec": { "rules": [{ "host": host, "http": { "paths": [path] } }] } })
    }

    fn namespace(&mut self) -> Value {
        let team = format!("t{}", self.random.below(3));
        self.metadata["labels"] = json!({ "team": team });
        json!({})
    }
}
