//! Amazon Web Services.

use std::time::Duration;

use http::Method;

use super::{METADATA_V4, Platform, put};
use crate::node::Locality;

/// The IPv6 address of the metadata server.
const METADATA_V6: &str = "fd00:ec2::254";
/// Timeout of one request: the server is one hop away.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(100);

/// The host of the metadata server.
fn host(v6: bool) -> &'static str {
    if v6 { METADATA_V6 } else { METADATA_V4 }
}

/// A session token; empty if the server does not support tokens.
async fn token(v6: bool) -> String {
    put(
        Method::PUT,
        host(v6),
        "/latest/api/token",
        &[("x-aws-ec2-metadata-token-ttl-seconds", "60")],
        REQUEST_TIMEOUT,
    )
    .await
    .unwrap_or_default()
}

/// Reads a path of the metadata.
async fn get(v6: bool, token: &str, path: &str) -> Option<String> {
    let path = format!("/latest/meta-data/{path}");
    let headers = [("x-aws-ec2-metadata-token", token)];
    let headers = if token.is_empty() { &[] } else { &headers[..] };
    put(Method::GET, host(v6), &path, headers, REQUEST_TIMEOUT).await
}

/// Whether the machine is an instance of this platform.
pub(super) async fn is_detected(v6: bool) -> bool {
    let token = token(v6).await;
    get(v6, &token, "iam/info")
        .await
        .is_some_and(|info| info.contains("arn:aws:iam"))
}

/// Reads the properties of the platform.
pub(super) async fn fetch(v6: bool) -> Platform {
    let token = token(v6).await;
    let get = async |path: &str| get(v6, &token, path).await.unwrap_or_default();
    let region = get("placement/region").await;
    let zone = get("placement/availability-zone").await;
    let instance = get("instance-id").await;
    let all = [
        ("aws_availability_zone", &zone),
        ("aws_region", &region),
        ("aws_instance_id", &instance),
    ];
    let known = all.into_iter().filter(|(_, value)| !value.is_empty());

    Platform {
        metadata: known
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect(),
        locality: Locality {
            region,
            zone,
            sub_zone: String::new(),
        },
        ..Platform::default()
    }
}
