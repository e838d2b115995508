//! The locality of the asking proxy, for agents whose cloud platform does not tell it
//! (`NAVARCH_ZONE_FROM_CONTROL_PLANE`): that of the node of its pod, or of its WorkloadEntry.
//!
//! Pilot answered so for the agents of Istio's first versions.

use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::Locality as LocalityMessage;

use super::build::encode;
use navarch_api::istio::WorkloadEntry;
use navarch_api::names::ResourceName;
use navarch_push::proxy::Locality;
use navarch_push::view::View;

/// There is one with an empty name, if the locality is known.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    let name = known(view).map(|_| ResourceName::default());
    name.into_iter().collect()
}

/// The locality as a message.
pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let locality = known(view).filter(|_| name.is_empty())?;
    Some(encode(&LocalityMessage {
        region: locality.region.to_string(),
        zone: locality.zone.to_string(),
        sub_zone: locality.sub_zone.to_string(),
    }))
}

/// The locality of the proxy. Its WorkloadEntry counts where neither its labels nor its pod have a
/// zone: a ServiceEntry that selects the WorkloadEntry is not required.
pub(super) fn known(view: &View<'_>) -> Option<Locality> {
    let locality = view.proxy().locality();
    if !locality.zone.is_empty() {
        return Some(locality);
    }

    let of_entry = locality_of_entry(view);
    of_entry.or_else(|| Some(locality).filter(|locality| *locality != Locality::default()))
}

/// The locality of the WorkloadEntry of the proxy's namespace at its primary address.
fn locality_of_entry(view: &View<'_>) -> Option<Locality> {
    let proxy = view.proxy();
    let cluster_ref = proxy.proxy_cluster();
    let address = proxy.ips().first().copied()?;
    let entries = &view.targets_at_in(&cluster_ref, address)?.entries;

    let namespaces = entries.iter().map(|found| found.entry.namespace.clone());
    let own = proxy.namespace_among(namespaces)?;
    let found = entries.iter().find(|found| found.entry.namespace == own)?;

    let entry = view.object_in::<WorkloadEntry>(&cluster_ref, &found.entry)?;
    let text = &*entry.spec.locality;
    (!text.is_empty()).then(|| Locality::parse(text))
}

#[cfg(test)]
mod tests {
    use navarch_push::resource::ResourceType;
    use serde_json::json;

    use super::*;
    use crate::test_mesh::{TestMesh, networking};

    /// The locality that the first sidecar of a mesh gets, which is `web-1` of `shop` at
    /// 10.244.0.1.
    fn locality(mesh: &str) -> Option<LocalityMessage> {
        let mut mesh = TestMesh::new(mesh);
        let proxy = mesh.with_metadata("sidecar", "shop", "web", &json!({}));
        let names = mesh.all_names(proxy, ResourceType::Locality);
        let mut found = mesh.named::<LocalityMessage>(proxy, ResourceType::Locality, &[""]);
        let locality = found.remove("");

        assert_eq!(names.len(), usize::from(locality.is_some()), "{names:?}");
        locality
    }

    fn message(region: &str, zone: &str, sub_zone: &str) -> LocalityMessage {
        LocalityMessage {
            region: region.to_owned(),
            zone: zone.to_owned(),
            sub_zone: sub_zone.to_owned(),
        }
    }

    /// A WorkloadEntry at the address of the sidecar.
    fn entry(namespace: &str, locality: &str) -> String {
        let spec = format!("{{address: 10.244.0.1, locality: {locality}}}");
        networking("WorkloadEntry", namespace, "machine", &spec)
    }

    #[test]
    fn a_pod_has_the_locality_of_its_node() {
        let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: \
            {topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z, \
            topology.istio.io/subzone: s}}\n---\n";
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, labels: {app: web}}\n\
            spec: {serviceAccountName: web, nodeName: n1}\n\
            status: {phase: Running, podIP: 10.244.0.1, podIPs: [{ip: 10.244.0.1}], \
            conditions: [{type: Ready, status: 'True'}]}\n---\n";

        let found = locality(&format!("{node}{pod}"));
        assert_eq!(found, Some(message("r", "z", "s")));
        assert_eq!(locality(pod), None, "nothing is known of the node");
    }

    #[test]
    fn a_machine_has_the_locality_of_its_workload_entry() {
        assert_eq!(
            locality(&entry("shop", "r/z/s")),
            Some(message("r", "z", "s"))
        );
        assert_eq!(locality(&entry("shop", "r/z")), Some(message("r", "z", "")));
        assert_eq!(locality(&entry("shop", "''")), None);
        assert_eq!(
            locality(&entry("bank", "r/z")),
            None,
            "entries of other namespaces do not count"
        );
    }

    #[test]
    fn a_proxy_without_pod_and_entry_has_no_locality() {
        assert_eq!(locality(""), None);
    }
}
