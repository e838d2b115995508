//! A workload that is not a pod, and its WorkloadEntry.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::entry_state;
use navarch_api::identity::Identity;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;

/// Maximum length of an object's name.
const MAX_NAME: usize = 253;
/// The label of a workload that accepts HBONE.
const TUNNEL: &str = "networking.istio.io/tunnel";
/// The label with the locality of a workload; the value of an object's label may not contain
/// slashes.
const LOCALITY: &str = "istio-locality";

/// A workload, as its proxy describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The proxy's name, for logs.
    pub proxy: Arc<str>,
    /// The namespace of the proxy, which its WorkloadEntry and WorkloadGroup are in, too.
    pub namespace: Namespace,
    /// The first address.
    pub address: IpAddr,
    /// The network; empty is none.
    pub network: String,
    /// The WorkloadGroup or WorkloadEntry that the proxy names.
    pub claim: Claim,
    /// Labels of its own.
    pub labels: BTreeMap<String, String>,
    /// `region/zone/subzone`; empty if unknown.
    pub locality: String,
    /// Whether its agent reports health.
    pub is_probed: bool,
    /// Whether it accepts HBONE.
    pub takes_hbone: bool,
    /// Its authenticated identity, if clients are authenticated.
    pub identity: Option<Identity>,
}

/// The WorkloadEntry of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A new entry from this WorkloadGroup (`AUTO_REGISTER_GROUP`).
    Group(String),
    /// An existing entry (`WORKLOAD_ENTRY`).
    Entry(String),
}

impl Workload {
    /// The claimed entry, or `<group>-<address>-<network>` with hyphens for colons, cut to 253
    /// bytes.
    #[must_use]
    pub fn entry(&self) -> NamespacedName {
        let name = match &self.claim {
            Claim::Entry(name) => name.clone(),
            Claim::Group(group) => {
                let mut name = format!("{group}-{}", self.address.to_string().replace(':', "-"));
                if !self.network.is_empty() {
                    name.push('-');
                    name.push_str(&self.network);
                }
                // The end of the name is unique, so the start is truncated.
                let start = name.len().saturating_sub(MAX_NAME);
                name.split_off(name.ceil_char_boundary(start))
            }
        };
        NamespacedName::new(self.namespace.as_str(), &name)
    }

    /// Checks that the workload's identity belongs to its namespace.
    pub(super) fn is_proved(&self) -> Result<&Identity, String> {
        let Some(identity) = &self.identity else {
            return Err(
                "registration of a WorkloadEntry requires an authenticated identity: connect over TLS".to_owned()
            );
        };
        if identity.namespace != self.namespace {
            return Err(format!("{identity} is not in namespace {}", self.namespace));
        }
        Ok(identity)
    }

    /// The key of the workload's rate limit: its service account, or without one its namespace.
    pub(super) fn rate_limit_key(&self) -> NamespacedName {
        let namespace = || NamespacedName::new(self.namespace.as_str(), "");
        self.identity
            .as_ref()
            .map_or_else(namespace, Identity::account)
    }

    /// Checks that the workload may use an entry of this service account.
    pub(super) fn may_control(&self, service_account: &str) -> Result<(), String> {
        let identity = self.is_proved()?;
        match service_account {
            "" => Ok(()),
            account if identity.service_account == *account => Ok(()),
            account => Err(format!(
                "{identity} is not service account {account} of the WorkloadEntry"
            )),
        }
    }

    /// The new entry: the group's template with the workload's own values.
    pub(super) fn entry_of(
        &self,
        group: &Group<'_>,
        connection: &entry_state::Connection<'_>,
    ) -> Value {
        let mut spec = group
            .spec
            .get("template")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();

        spec.insert(
            "address".to_owned(),
            Value::String(self.address.to_string()),
        );
        let labels = self.labels_in(group.spec, &spec);
        if !labels.is_empty() {
            spec.insert("labels".to_owned(), json!(labels));
        }

        for (member, value) in [("network", &self.network), ("locality", &self.locality)] {
            if !value.is_empty() {
                spec.insert(member.to_owned(), Value::String(value.clone()));
            }
        }

        let mut annotations =
            BTreeMap::from([(entry_state::GROUP.to_owned(), group.name.to_owned())]);
        annotations.extend(texts(group.spec.pointer("/metadata/annotations")));
        if self.is_probed {
            annotations.insert(entry_state::CHECKED.to_owned(), "true".to_owned());
        }

        connection.write(&mut annotations);
        let entry = self.entry();
        json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "WorkloadEntry",
            "metadata": {
                "name": &*entry.name,
                "namespace": entry.namespace.as_str(),
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [{
                    "apiVersion": "networking.istio.io/v1",
                    "kind": "WorkloadGroup",
                    "name": group.name,
                    "uid": group.uid,
                    "controller": true,
                }],
            },
            "spec": spec,
        })
    }

    /// The entry's labels: the template's, overridden by the group's, overridden by the workload's.
    fn labels_in(&self, group: &Value, template: &Map<String, Value>) -> BTreeMap<String, String> {
        let mut labels = texts(template.get("labels"));
        labels.extend(texts(group.pointer("/metadata/labels")));
        labels.extend(self.labels.clone());
        labels.remove(LOCALITY);
        if self.takes_hbone {
            labels
                .entry(TUNNEL.to_owned())
                .or_insert_with(|| "http".to_owned());
        }
        labels
    }
}

/// The fields of a WorkloadGroup that its entries need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) spec: &'a Value,
}

/// The string fields of an object.
fn texts(object: Option<&Value>) -> BTreeMap<String, String> {
    let members = object.and_then(Value::as_object).into_iter().flatten();
    members
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload {
            proxy: Arc::from("vm-1.shop"),
            namespace: Namespace::new("shop"),
            address: "10.0.0.9".parse().unwrap(),
            network: String::new(),
            claim: Claim::Group("vms".to_owned()),
            labels: BTreeMap::new(),
            locality: String::new(),
            is_probed: false,
            takes_hbone: false,
            identity: Identity::parse("spiffe://cluster.local/ns/shop/sa/web").ok(),
        }
    }

    #[test]
    fn entries_are_named_after_group_address_and_network() {
        let name = |workload: &Workload| workload.entry().to_string();
        assert_eq!(name(&workload()), "shop/vms-10.0.0.9");
        let six = Workload {
            address: "fd00::9".parse().unwrap(),
            network: "lan".to_owned(),
            ..workload()
        };
        assert_eq!(name(&six), "shop/vms-fd00--9-lan");

        let long = Workload {
            claim: Claim::Group("g".repeat(300)),
            ..workload()
        };
        let long = long.entry().name.clone();
        assert!(
            long.len() == MAX_NAME && long.ends_with("g-10.0.0.9"),
            "{long}"
        );

        let own = Workload {
            claim: Claim::Entry("mine".to_owned()),
            ..workload()
        };
        assert_eq!(name(&own), "shop/mine");
    }

    #[test]
    fn an_entry_merges_the_template_and_workload_metadata() {
        let spec = json!({
            "metadata": { "labels": { "tier": "group", "app": "group" }, "annotations": { "note": "kept" } },
            "template": { "labels": { "app": "template", "v": "1" }, "serviceAccount": "web", "ports": { "http": 8080 } },
        });
        let labels = [("app", "own"), (LOCALITY, "r.z")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let workload = Workload {
            labels: labels.into(),
            locality: "r/z".to_owned(),
            network: "lan".to_owned(),
            is_probed: true,
            takes_hbone: true,
            ..workload()
        };

        let at = "2026-01-02T03:04:05.5Z".parse().unwrap();
        let group = Group {
            name: "vms",
            uid: "u1",
            spec: &spec,
        };

        let entry = workload.entry_of(
            &group,
            &entry_state::Connection {
                instance: "istiod-1",
                at,
            },
        );

        assert_eq!(
            entry["spec"],
            json!({
                "address": "10.0.0.9", "network": "lan", "locality": "r/z", "serviceAccount": "web",
                "ports": { "http": 8080 },
                "labels": { "app": "own", "tier": "group", "v": "1", TUNNEL: "http" },
            })
        );

        assert_eq!(entry["metadata"]["labels"], entry["spec"]["labels"]);
        assert_eq!(
            entry["metadata"]["annotations"],
            json!({
                "istio.io/autoRegistrationGroup": "vms", "note": "kept",
                "proxy.istio.io/health-checks-enabled": "true",
                "istio.io/workloadController": "istiod-1", "istio.io/connectedAt": "2026-01-02T03:04:05.5Z",
            })
        );

        assert_eq!(entry["metadata"]["ownerReferences"][0]["uid"], "u1");
    }

    #[test]
    fn only_the_entrys_own_account_may_take_it() {
        let fits = |workload: &Workload, account: &str| workload.may_control(account).is_ok();
        assert!(fits(&workload(), "web") && fits(&workload(), ""));
        assert!(!fits(&workload(), "api"));
        let stranger = Identity::parse("spiffe://cluster.local/ns/bank/sa/web").ok();
        assert!(!fits(
            &Workload {
                identity: stranger,
                ..workload()
            },
            ""
        ));

        assert!(!fits(
            &Workload {
                identity: None,
                ..workload()
            },
            ""
        ));
    }
}
