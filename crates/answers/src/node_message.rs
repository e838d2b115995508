//! The node message that the agent of a workload would send.

use std::net::IpAddr;

use navarch_api::settings::Settings;
use navarch_push::proxy::{Locality, Proxy};
use serde_json::{Map, Value};

/// The node message of a proxy that is not connected.
#[derive(Debug)]
pub struct NodeMessage<'a> {
    /// The type of the proxy, as in its id.
    pub kind: &'a str,
    /// The namespace of the workload.
    pub namespace: &'a str,
    /// The name of the workload.
    pub name: &'a str,
    /// Its addresses, the first of which is part of the id.
    pub ips: &'a [IpAddr],
    /// The labels of the pod or WorkloadEntry.
    pub labels: Map<String, Value>,
    /// The Kubernetes node; empty if there is none.
    pub node: &'a str,
    /// The name of its service account; empty if it is not known.
    pub service_account: &'a str,
    /// `region/zone/subzone`; empty if unknown.
    pub locality: &'a str,
    /// Metadata of the agent's own settings, which gives way to that of the other fields.
    pub further: Map<String, Value>,
}

impl NodeMessage<'_> {
    /// The proxy as the control plane with these settings would know it; `None` if it has no
    /// address, or the node would be rejected.
    #[must_use]
    pub fn proxy(self, settings: &Settings) -> Option<Proxy> {
        let Self {
            kind,
            namespace,
            name,
            ips,
            labels,
            node,
            service_account,
            locality,
            further,
        } = self;
        let first = ips.first()?;
        let id = format!(
            "{kind}~{first}~{name}.{namespace}~{namespace}.svc.{}",
            settings.domain_suffix
        );

        let all: Vec<String> = ips.iter().map(ToString::to_string).collect();
        let mut metadata = further;
        for (key, value) in [
            ("NAMESPACE", Value::from(namespace)),
            ("NAME", Value::from(name)),
            ("INSTANCE_IPS", Value::from(all.join(","))),
            ("NODE_NAME", Value::from(node)),
            ("CLUSTER_ID", Value::from(settings.cluster_id.as_str())),
            ("SERVICE_ACCOUNT", Value::from(service_account)),
            ("LABELS", Value::Object(labels)),
        ] {
            metadata.insert(key.to_owned(), value);
        }

        let metadata = Value::Object(metadata);
        let proxy = Proxy::parse(&id, metadata, Locality::parse(locality)).ok()?;
        Some(Proxy {
            uses_delta: true,
            ..proxy
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_an_agent_do_not_replace_what_its_pod_is() {
        let ips = [IpAddr::from([10, 0, 0, 1])];
        let message = || NodeMessage {
            kind: "sidecar",
            namespace: "shop",
            name: "web-1",
            ips: &ips,
            labels: Map::new(),
            node: "n1",
            service_account: "web",
            locality: "r/z",
            further: Map::from_iter([("NAMESPACE".to_owned(), Value::from("other"))]),
        };
        let proxy = message().proxy(&Settings::default()).unwrap();
        assert_eq!(&*proxy.name, "web-1.shop");
        assert_eq!(proxy.namespace.as_str(), "shop");
        assert_eq!(&*proxy.locality.zone, "z");

        let without_address = NodeMessage {
            ips: &[],
            ..message()
        };
        assert!(without_address.proxy(&Settings::default()).is_none());
    }
}
