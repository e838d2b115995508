//! Microsoft Azure.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{METADATA_V4, Platform, put};
use crate::node::Locality;
use navarch_base::regular_file;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The default API version, unless the server lists a newer one.
const VERSION: &str = "2019-08-15";
/// The file with the machine's vendor.
const VENDOR: &str = "/sys/class/dmi/id/sys_vendor";

/// Whether the machine is an instance of this platform.
pub(super) fn is_detected() -> bool {
    regular_file::read_text(VENDOR.as_ref())
        .is_ok_and(|vendor| vendor.contains("Microsoft Corporation"))
}

/// Sends a request to the metadata server.
async fn get(query: &str) -> Option<Value> {
    let path = format!("/metadata/instance?{query}");
    let text = put(
        Method::GET,
        METADATA_V4,
        &path,
        &[("metadata", "True")],
        REQUEST_TIMEOUT,
    )
    .await?;
    serde_json::from_str(&text).ok()
}

/// Reads the properties of the platform.
pub(super) async fn fetch() -> Platform {
    let versions = get("").await.unwrap_or_default();
    let versions = versions
        .get("newest-versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let version = versions
        .filter_map(Value::as_str)
        .max()
        .filter(|version| *version > VERSION)
        .unwrap_or(VERSION);
    let answer = get(&format!("api-version={version}"))
        .await
        .unwrap_or_default();
    answer.get("compute").map(platform).unwrap_or_default()
}

/// The properties from the description of a machine.
fn platform(compute: &Value) -> Platform {
    let text = |key: &str| {
        compute
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };

    let named = ["name", "location", "vmId"]
        .into_iter()
        .map(|key| (format!("azure_{key}"), text(key)));
    let mut metadata: BTreeMap<_, _> = named.filter(|(_, value)| !value.is_empty()).collect();

    match compute.get("tagsList").and_then(Value::as_array) {
        Some(tags) => metadata.extend(tags.iter().filter_map(|tag| {
            let text = |key: &str| tag.get(key).and_then(Value::as_str);
            Some((
                format!("azure_{}", text("name")?),
                text("value")?.to_owned(),
            ))
        })),
        None => metadata.extend(
            text("tags")
                .split(';')
                .filter(|tag| !tag.is_empty())
                .map(|tag| {
                    let (key, value) = tag.split_once(':').unwrap_or((tag, ""));
                    (format!("azure_{key}"), value.to_owned())
                }),
        ),
    }

    let locality = Locality {
        region: text("location"),
        zone: text("zone"),
        sub_zone: String::new(),
    };

    Platform {
        metadata,
        locality,
        ..Platform::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::platform;

    #[test]
    fn tags_of_both_forms_are_metadata() {
        let new = json!({ "name": "n", "location": "w", "zone": "1", "tagsList": [{ "name": "a", "value": "b" }] });
        let new = platform(&new);
        assert_eq!(
            (new.locality.region.as_str(), new.locality.zone.as_str()),
            ("w", "1")
        );
        assert_eq!(new.metadata["azure_a"], "b");
        let old = platform(&json!({ "tags": "a:b;c" }));
        assert_eq!(
            (
                old.metadata["azure_a"].as_str(),
                old.metadata["azure_c"].as_str()
            ),
            ("b", "")
        );
    }
}
