//! The cloud around the proxy, if there is one: what it says of region, zone and instance.
//!
//! `CLOUD_PLATFORM` names it (`aws`, `azure`, `gcp`, `none`); else it is found out, within a limit of time. Labels of
//! Google's instances are left out: they would need credentials of their own.

mod aws;
mod azure;
mod gcp;

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::timeout;

use super::local_http::Question;
use super::node::Locality;
use super::variables::Variables;

/// How long finding out may take altogether.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Where clouds answer an instance's questions.
const METADATA_V4: &str = "169.254.169.254";
/// The most of an answer that is read.
const MAX_ANSWER: usize = 1 << 20;

/// What a cloud says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// What telemetry tells of, such as `gcp_project`.
    pub metadata: BTreeMap<String, String>,
    /// Where the instance runs.
    pub locality: Locality,
    /// The instance's labels.
    pub labels: BTreeMap<String, String>,
    /// Whether a pod runs here: then labels of the instance are not the workload's.
    pub kubernetes: bool,
}

impl Default for Platform {
    fn default() -> Self {
        Self { metadata: BTreeMap::new(), locality: Locality::default(), labels: BTreeMap::new(), kubernetes: true }
    }
}

impl Platform {
    /// What variables alone say: all of Google's cloud where `GCP_METADATA` is set. `None` where the cloud is to be asked.
    #[must_use]
    pub fn of_variables(variables: &Variables) -> Option<Self> {
        match variables.text("CLOUD_PLATFORM").to_ascii_lowercase().as_str() {
            "none" => Some(Self::default()),
            "" | "gcp" => gcp::of_variables(variables),
            _ => None,
        }
    }

    /// Asks the cloud. `v6` is whether the proxy has IPv6, by which some answer too.
    pub async fn discover(variables: &Variables, v6: bool, resolv_conf: &str) -> Self {
        if let Some(known) = Self::of_variables(variables) {
            return known;
        }
        let asked = async {
            match variables.text("CLOUD_PLATFORM").to_ascii_lowercase().as_str() {
                "aws" => aws::ask(v6).await,
                "azure" => azure::ask().await,
                "gcp" => gcp::ask(variables, resolv_conf).await,
                _ if azure::is_here() => azure::ask().await,
                _ if gcp::is_here() => gcp::ask(variables, resolv_conf).await,
                _ if aws::is_here(v6).await => aws::ask(v6).await,
                _ => Self::default(),
            }
        };
        let platform = timeout(DETECTION_TIMEOUT, asked).await.unwrap_or_default();
        if platform != Self::default() {
            let (region, zone) = (&platform.locality.region, &platform.locality.zone);
            tracing::info!(%region, %zone, metadata = platform.metadata.len(), "cloud platform detected");
        }
        platform
    }
}

/// Puts a question to a cloud; `None` where it does not answer well.
async fn put(
    (method, host, path): (Method, &str, &str),
    headers: &[(&'static str, &str)],
    patience: Duration,
) -> Option<String> {
    let header = |(name, value): &(&'static str, &str)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?))
    };
    let headers: HeaderMap = headers.iter().filter_map(header).collect();
    let question = Question { method, headers, limit: MAX_ANSWER, ..Question::get(host, 80, path, patience) };
    let answer = question.ask().await.ok().filter(|answer| answer.status == StatusCode::OK)?;
    Some(String::from_utf8_lossy(&answer.body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn googles_metadata_can_be_given_by_variables() {
        let variables =
            [("GCP_METADATA", "p|1|c|europe-west3"), ("GCP_ZONE", "europe-west3-a"), ("KUBERNETES_SERVICE_HOST", "x")];
        let platform = Platform::of_variables(&variables.into_iter().collect()).unwrap();
        assert_eq!(platform.metadata["gcp_project"], "p");
        assert_eq!(
            platform.metadata["gcp_gke_cluster_url"],
            "https://container.googleapis.com/v1/projects/p/locations/europe-west3/clusters/c"
        );
        assert_eq!(
            (platform.locality.region.as_str(), platform.locality.zone.as_str()),
            ("europe-west3", "europe-west3-a")
        );
        assert!(platform.kubernetes);
        assert_eq!(Platform::of_variables(&Variables::default()), None);
    }
}
