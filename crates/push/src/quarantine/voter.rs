//! Which proxies have a voice: those with a verified identity, in a workload that the registry
//! knows at the address that they connect from.

use std::net::IpAddr;

use super::votes::Voter;
use crate::context::PushContext;
use crate::proxy::Proxy;
use navarch_api::kubernetes::PodPhase;
use navarch_api::object::NamespacedName;
use navarch_store::Objects;

/// The voice of a proxy, which connects from this address; `None` if it has none. Only the name of
/// its pod is taken from its own words, and must fit everything else.
#[must_use]
pub fn voter(context: &PushContext, proxy: &Proxy, peer: Option<IpAddr>) -> Option<Voter> {
    let account = proxy.identity.as_ref()?.account();
    let address = peer?.to_canonical();
    let (name, _) = proxy.name.rsplit_once('.')?;
    let pod = NamespacedName::new(account.namespace.as_str(), name);

    let is_pod = std::iter::once(&context.objects)
        .chain(context.remotes.values())
        .any(|objects| is_pod_at(objects, &pod, &account, address));
    if is_pod {
        return Some(Voter {
            account,
            workload: pod,
        });
    }

    let entries = &context.directory.targets.get(&address)?.entries;
    let mut names = entries.iter().map(|one| &one.entry);
    let entry = names.find(|entry| is_entry_of(&context.objects, entry, &account))?;
    Some(Voter {
        workload: entry.clone(),
        account,
    })
}

/// Whether a cluster has this pod at the address, with the account.
fn is_pod_at(
    objects: &Objects,
    pod: &NamespacedName,
    account: &NamespacedName,
    address: IpAddr,
) -> bool {
    objects.pods.get(pod).is_some_and(|object| {
        let pod = &object.spec;
        let has_ended = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
        !has_ended
            && pod.service_account.as_str() == &*account.name
            && pod.pod_ips.contains(&address)
    })
}

/// Whether a WorkloadEntry is of the account.
fn is_entry_of(objects: &Objects, entry: &NamespacedName, account: &NamespacedName) -> bool {
    entry.namespace == account.namespace
        && objects
            .workload_entries
            .get(entry)
            .is_some_and(|object| object.spec.service_account == *account.name)
}

#[cfg(test)]
mod tests {
    use navarch_api::decode::{Format, Outcome, decode_documents};
    use navarch_api::identity::Identity;
    use navarch_api::settings::Settings;
    use serde_json::json;

    use super::*;
    use crate::mesh_state::{Change, MeshState};
    use crate::proxy::Locality;

    fn mesh(yaml: &str) -> MeshState {
        let mut state = MeshState::new(Settings::default());
        for document in decode_documents(yaml, Format::Yaml) {
            match document.outcome {
                Outcome::Read { object, .. } => _ = state.apply([Change::Put(object)]),
                other @ (Outcome::Ignored | Outcome::Rejected(_)) => panic!("{other:?}"),
            }
        }
        state
    }

    fn proxy(name: &str, identity: Option<&str>) -> Proxy {
        let id = format!("sidecar~10.0.0.1~{name}~shop.svc.cluster.local");
        let proxy = Proxy::parse(&id, json!({}), Locality::default()).unwrap();
        Proxy {
            identity: identity.map(|text| Identity::parse(text).unwrap()),
            ..proxy
        }
    }

    #[test]
    fn only_known_workloads_at_their_own_address_may_vote() {
        let pod = |name: &str, phase: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\n\
                 spec: {{serviceAccountName: web, containers: [{{name: app, image: app}}]}}\n\
                 status: {{phase: {phase}, podIP: 10.0.0.1, podIPs: [{{ip: 10.0.0.1}}]}}\n---\n"
            )
        };
        let entry = "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, namespace: shop}\n\
                     spec: {address: 10.0.0.2, serviceAccount: web}\n";
        let state = mesh(&(pod("web-1", "Running") + &pod("web-2", "Succeeded") + entry));
        let context = state.context();
        let web = Some("spiffe://cluster.local/ns/shop/sa/web");
        let found = |name: &str, identity, address: [u8; 4]| {
            voter(&context, &proxy(name, identity), Some(address.into()))
        };

        let expected = Voter {
            account: NamespacedName::new("shop", "web"),
            workload: NamespacedName::new("shop", "web-1"),
        };
        assert_eq!(found("web-1.shop", web, [10, 0, 0, 1]), Some(expected));

        // Without an identity, at another address, as another pod, account or namespace.
        assert_eq!(found("web-1.shop", None, [10, 0, 0, 1]), None);
        assert_eq!(found("web-1.shop", web, [10, 0, 0, 9]), None);
        assert_eq!(
            found("web-2.shop", web, [10, 0, 0, 1]),
            None,
            "it has ended"
        );
        assert_eq!(found("web-3.shop", web, [10, 0, 0, 1]), None);
        for other in [
            "spiffe://cluster.local/ns/shop/sa/other",
            "spiffe://cluster.local/ns/evil/sa/web",
        ] {
            assert_eq!(found("web-1.shop", Some(other), [10, 0, 0, 1]), None);
        }
        assert_eq!(voter(&context, &proxy("web-1.shop", web), None), None);
    }
}
