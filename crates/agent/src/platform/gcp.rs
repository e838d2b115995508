//! Google Cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;

use super::{METADATA_V4, Platform, put};
use crate::node::Locality;
use crate::variables::Variables;
use navarch_base::regular_file;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The root path of the metadata.
const ROOT: &str = "/computeMetadata/v1";

/// The metadata paths to request, and the node metadata key of each.
const PROPERTIES: [(&str, &str); 7] = [
    ("gcp_project", "project/project-id"),
    ("gcp_project_number", "project/numeric-project-id"),
    ("gcp_gke_cluster_name", "instance/attributes/cluster-name"),
    ("gcp_gce_instance", "instance/name"),
    ("gcp_gce_instance_id", "instance/id"),
    (
        "gcp_gce_instance_template",
        "instance/attributes/instance-template",
    ),
    (
        "gcp_gce_instance_created_by",
        "instance/attributes/created-by",
    ),
];

/// The platform from `GCP_METADATA` (`project|number|cluster|location`), if set.
pub(super) fn of_variables(variables: &Variables) -> Option<Platform> {
    let text = variables.text("GCP_METADATA");
    if text.is_empty() {
        return None;
    }

    let mut metadata = BTreeMap::new();
    let parts: Vec<_> = text.split('|').collect();
    if let [project, number, cluster, location] = parts.as_slice() {
        let keys = [
            "gcp_project",
            "gcp_project_number",
            "gcp_gke_cluster_name",
            "gcp_location",
        ];
        let values = [project, number, cluster, location];
        metadata.extend(
            keys.into_iter()
                .zip(values)
                .map(|(key, value)| (key.to_owned(), (*value).to_owned())),
        );
    }

    let quota = variables.text("GCP_QUOTA_PROJECT");
    if !quota.is_empty() {
        metadata.insert("gcp_quota_project".to_owned(), quota.to_owned());
    }

    add_cluster_url(&mut metadata);
    let zone = variables.text("GCP_ZONE");
    if !zone.is_empty() {
        metadata.insert("gcp_zone".to_owned(), zone.to_owned());
    }

    Some(Platform {
        metadata,
        locality: locality(zone),
        kubernetes: in_pod(variables),
        ..Platform::default()
    })
}

/// Whether the proxy runs in a pod.
fn in_pod(variables: &Variables) -> bool {
    !variables.text("KUBERNETES_SERVICE_HOST").is_empty()
}

/// Adds the cluster's URL, if project, location and name are known.
fn add_cluster_url(metadata: &mut BTreeMap<String, String>) {
    let known =
        ["gcp_project", "gcp_location", "gcp_gke_cluster_name"].map(|key| metadata.get(key));
    if let [Some(project), Some(location), Some(cluster)] = known {
        let path = format!("projects/{project}/locations/{location}/clusters/{cluster}");
        metadata.insert(
            "gcp_gke_cluster_url".to_owned(),
            format!("https://container.googleapis.com/v1/{path}"),
        );
    }
}

/// The locality of a zone, such as `europe-west3-a`; empty if it is not a zone.
fn locality(zone: &str) -> Locality {
    match zone.rsplit_once('-') {
        Some((region, letter)) if region.matches('-').count() == 1 && !letter.is_empty() => {
            Locality {
                region: region.to_owned(),
                zone: zone.to_owned(),
                sub_zone: String::new(),
            }
        }
        _ => Locality::default(),
    }
}

/// The zone in the search domains of a pod's `resolv.conf`.
fn zone_of_search(resolv_conf: &str) -> Option<&str> {
    let lines = resolv_conf
        .lines()
        .filter(|line| line.starts_with("search"));
    let domains = lines
        .flat_map(str::split_whitespace)
        .filter(|domain| domain.ends_with(".internal"));
    let mut zones = domains.filter_map(|domain| domain.split_once(".c.").map(|(zone, _)| zone));
    zones.find(|zone| zone.matches('-').count() == 2)
}

/// Reads a path of the metadata.
async fn get(path: &str) -> Option<String> {
    let path = format!("{ROOT}/{path}");
    put(
        Method::GET,
        METADATA_V4,
        &path,
        &[("metadata-flavor", "Google")],
        REQUEST_TIMEOUT,
    )
    .await
}

/// Whether the machine is an instance of this platform.
pub(super) fn is_detected() -> bool {
    regular_file::read_text("/sys/class/dmi/id/product_name".as_ref())
        .is_ok_and(|name| name.trim().starts_with("Google"))
}

/// Reads the properties of the platform.
pub(super) async fn fetch(variables: &Variables, resolv_conf: &str) -> Platform {
    let mut metadata = BTreeMap::new();

    for (key, path) in PROPERTIES {
        if let Some(value) = get(path).await {
            metadata.insert(key.to_owned(), value);
        }
    }

    // A zone has the form `projects/<number>/zones/<zone>`.
    let zone = get("instance/zone")
        .await
        .and_then(|zone| Some(zone.rsplit('/').next()?.to_owned()));
    if let Some(location) = get("instance/attributes/cluster-location")
        .await
        .or_else(|| zone.clone())
    {
        metadata.insert("gcp_location".to_owned(), location);
    }
    add_cluster_url(&mut metadata);
    let zone = zone_of_search(resolv_conf)
        .map(str::to_owned)
        .or(zone)
        .unwrap_or_default();

    Platform {
        metadata,
        locality: locality(&zone),
        kubernetes: in_pod(variables),
        ..Platform::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_zone_is_in_its_search_domains() {
        let text = "nameserver 1.1.1.1\nsearch a.svc.cluster.local us-central1-a.c.project.internal google.internal\n";
        assert_eq!(zone_of_search(text), Some("us-central1-a"));
        assert_eq!(locality("us-central1-a").region, "us-central1");
        assert_eq!(locality("nowhere"), Locality::default());
        assert_eq!(zone_of_search("search google.internal"), None);
    }
}
