//! Which proxies have a voice: those with a verified identity, in a workload that is registered at
//! the address that they connect from.

use std::net::IpAddr;
use std::sync::Arc;

use super::instance::Mark;
use super::votes::Voter;
use crate::context::PushContext;
use crate::proxy::Proxy;
use navarch_api::kubernetes::{Pod, PodPhase};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_registry::{workload_name_of_entry, workload_name_of_pod};
use navarch_store::Objects;

/// The registered workload of a proxy with a voice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Under which its answers count.
    pub voter: Voter,
    /// Its Deployment, WorkloadGroup or other owner; `None` if it has no owner.
    pub owner: Option<Arc<str>>,
}

/// The voice of a proxy, which connects from this address; `None` if it has none. Only the name of
/// its pod is taken from its own words, and must fit everything else.
#[must_use]
pub fn voter(context: &PushContext, proxy: &Proxy, peer: Option<IpAddr>) -> Option<Voter> {
    registered(context, proxy, peer).map(|registered| registered.voter)
}

/// As [`voter`], with the owner of its pod or WorkloadEntry.
#[must_use]
pub fn registered(
    context: &PushContext,
    proxy: &Proxy,
    peer: Option<IpAddr>,
) -> Option<Registered> {
    let account = proxy.identity.as_ref()?.account();
    let address = peer?.to_canonical();
    let (name, _) = proxy.name.rsplit_once('.')?;
    let pod = NamespacedName::new(account.namespace.as_str(), name);

    let mut clusters = std::iter::once(&context.objects).chain(context.remotes.values());
    if let Some(pod) = clusters.find_map(|objects| pod_at(objects, &pod, &account, address)) {
        return Some(of_object(account, &pod.meta, workload_name_of_pod(pod)));
    }

    let entries = &context.directory.targets.get(&address)?.entries;
    let mut names = entries.iter().map(|one| &one.entry);
    let meta = names.find_map(|entry| entry_of(&context.objects, entry, &account))?;
    Some(of_object(account, meta, workload_name_of_entry(meta)))
}

/// The voice of a pod or WorkloadEntry, whose workload has this name.
fn of_object(account: NamespacedName, meta: &ObjectMeta, workload: Arc<str>) -> Registered {
    let uid = meta.uid.to_string();
    let mark = if uid.is_empty() {
        Mark::Unknown
    } else {
        Mark::Uid(uid.into())
    };
    let voter = Voter {
        account,
        workload: meta.key.clone(),
        mark,
    };

    Registered {
        owner: (workload != meta.key.name).then_some(workload),
        voter,
    }
}

/// The pod of this name, if a cluster has it at the address, with the account.
fn pod_at<'a>(
    objects: &'a Objects,
    pod: &NamespacedName,
    account: &NamespacedName,
    address: IpAddr,
) -> Option<&'a Object<Pod>> {
    let object = objects.pods.get(pod)?;
    let pod = &object.spec;
    let has_ended = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
    let is_there = !has_ended
        && pod.service_account.as_str() == &*account.name
        && pod.pod_ips.contains(&address);
    is_there.then_some(&**object)
}

/// The WorkloadEntry of this name, if it is of the account.
fn entry_of<'a>(
    objects: &'a Objects,
    entry: &NamespacedName,
    account: &NamespacedName,
) -> Option<&'a ObjectMeta> {
    let object = objects.workload_entries.get(entry)?;
    let is_of_account =
        entry.namespace == account.namespace && object.spec.service_account == *account.name;
    is_of_account.then_some(&object.meta)
}

#[cfg(test)]
mod tests {
    use navarch_api::identity::Identity;
    use serde_json::json;

    use super::*;
    use crate::proxy::Locality;
    use crate::testing::mesh_of;

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
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: uid-of-{name}}}\n\
                 spec: {{serviceAccountName: web, containers: [{{name: app, image: app}}]}}\n\
                 status: {{phase: {phase}, podIP: 10.0.0.1, podIPs: [{{ip: 10.0.0.1}}]}}\n---\n"
            )
        };
        let entry = "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, namespace: shop}\n\
                     spec: {address: 10.0.0.2, serviceAccount: web}\n";
        let state = mesh_of(&(pod("web-1", "Running") + &pod("web-2", "Succeeded") + entry));
        let context = state.context();
        let web = Some("spiffe://cluster.local/ns/shop/sa/web");
        let found = |name: &str, identity, address: [u8; 4]| {
            voter(&context, &proxy(name, identity), Some(address.into()))
        };

        let expected = Voter {
            account: NamespacedName::new("shop", "web"),
            workload: NamespacedName::new("shop", "web-1"),
            mark: Mark::Uid(Arc::from("uid-of-web-1")),
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

    #[test]
    fn the_owner_of_a_workload_is_that_of_the_registry() {
        let owned = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, labels: {service.istio.io/workload-name: web}}\n\
                     spec: {serviceAccountName: web, containers: [{name: app, image: app}]}\n\
                     status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}\n---\n";
        let bare = owned
            .replace(", labels: {service.istio.io/workload-name: web}", "")
            .replace("web-1", "web-2")
            .replace("10.0.0.1", "10.0.0.2");
        let state = mesh_of(&format!("{owned}{bare}"));
        let context = state.context();
        let owner = |name: &str, address: [u8; 4]| {
            let proxy = proxy(name, Some("spiffe://cluster.local/ns/shop/sa/web"));
            let found = registered(&context, &proxy, Some(address.into())).unwrap();
            (found.owner, found.voter.mark)
        };

        assert_eq!(
            owner("web-1.shop", [10, 0, 0, 1]),
            (Some(Arc::from("web")), Mark::Unknown)
        );
        assert_eq!(owner("web-2.shop", [10, 0, 0, 2]), (None, Mark::Unknown));
    }
}
