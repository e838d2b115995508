//! The cloud platform of the proxy, if any: region, zone and instance.
//!
//! `CLOUD_PLATFORM` selects it (`aws`, `azure`, `gcp`, `none`); otherwise it is detected, with a
//! timeout. Labels of Google's instances are omitted, as reading them needs further credentials.

mod aws;
mod azure;
mod gcp;

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::timeout;

use super::local_http::LocalRequest;
use super::node::Locality;
use super::variables::Variables;

/// Timeout of the whole detection.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// The address of the metadata server.
const METADATA_V4: &str = "169.254.169.254";
/// Maximum size of a response.
const MAX_RESPONSE: usize = 1 << 20;

/// The properties of a cloud platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Metadata for telemetry, such as `gcp_project`.
    pub metadata: BTreeMap<String, String>,
    /// The locality of the instance.
    pub locality: Locality,
    /// The instance's labels.
    pub labels: BTreeMap<String, String>,
    /// Whether the proxy runs in a pod: then labels of the instance are not the workload's.
    pub kubernetes: bool,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            metadata: BTreeMap::new(),
            locality: Locality::default(),
            labels: BTreeMap::new(),
            kubernetes: true,
        }
    }
}

impl Platform {
    /// The platform from variables only: all of Google's if `GCP_METADATA` is set. `None` if the
    /// metadata server must be asked.
    #[must_use]
    pub fn of_variables(variables: &Variables) -> Option<Self> {
        match variables
            .text("CLOUD_PLATFORM")
            .to_ascii_lowercase()
            .as_str()
        {
            "none" => Some(Self::default()),
            "" | "gcp" => gcp::of_variables(variables),
            _ => None,
        }
    }

    /// Reads the platform from the metadata server. `v6` is whether the proxy has IPv6, which some
    /// servers support.
    pub async fn discover(variables: &Variables, v6: bool, resolv_conf: &str) -> Self {
        if let Some(known) = Self::of_variables(variables) {
            return known;
        }

        let detection = async {
            match variables
                .text("CLOUD_PLATFORM")
                .to_ascii_lowercase()
                .as_str()
            {
                "aws" => aws::fetch(v6).await,
                "azure" => azure::fetch().await,
                "gcp" => gcp::fetch(variables, resolv_conf).await,
                _ if azure::is_detected() => azure::fetch().await,
                _ if gcp::is_detected() => gcp::fetch(variables, resolv_conf).await,
                _ if aws::is_detected(v6).await => aws::fetch(v6).await,
                _ => Self::default(),
            }
        };

        let platform = timeout(DETECTION_TIMEOUT, detection)
            .await
            .unwrap_or_default();
        if platform != Self::default() {
            let region = &platform.locality.region;
            let zone = &platform.locality.zone;
            tracing::info!(%region, %zone, metadata = platform.metadata.len(), "cloud platform detected");
        }

        platform
    }
}

/// Sends a request to a metadata server; `None` if it fails.
async fn put(
    method: Method,
    host: &str,
    path: &str,
    headers: &[(&'static str, &str)],
    timeout: Duration,
) -> Option<String> {
    let header = |(name, value): &(&'static str, &str)| {
        Some((
            HeaderName::from_static(name),
            HeaderValue::from_str(value).ok()?,
        ))
    };

    let headers: HeaderMap = headers.iter().filter_map(header).collect();
    let question = LocalRequest {
        method,
        headers,
        limit: MAX_RESPONSE,
        ..LocalRequest::get(host, 80, path, timeout)
    };

    let answer = question
        .send()
        .await
        .ok()
        .filter(|answer| answer.status == StatusCode::OK)?;

    Some(answer.text().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn google_cloud_metadata_can_be_set_by_environment_variables() {
        let variables = [
            ("GCP_METADATA", "p|1|c|europe-west3"),
            ("GCP_ZONE", "europe-west3-a"),
            ("KUBERNETES_SERVICE_HOST", "x"),
        ];
        let platform = Platform::of_variables(&variables.into_iter().collect()).unwrap();
        assert_eq!(platform.metadata["gcp_project"], "p");
        assert_eq!(
            platform.metadata["gcp_gke_cluster_url"],
            "https://container.googleapis.com/v1/projects/p/locations/europe-west3/clusters/c"
        );

        assert_eq!(
            (
                platform.locality.region.as_str(),
                platform.locality.zone.as_str()
            ),
            ("europe-west3", "europe-west3-a")
        );

        assert!(platform.kubernetes);
        assert_eq!(Platform::of_variables(&Variables::default()), None);
    }
}
