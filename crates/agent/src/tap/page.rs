//! `GET /debug/…`: a debug request by HTTP, with the response as JSON.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use navarch_base::printable::{escape_json, escape_lines};
use navarch_proto::any::type_url;
use navarch_proto::envoy::service::discovery::v3::DiscoveryResponse;
use navarch_proto::json::Codec;
use prost::Message as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use super::Tap;

/// Timeout for the control plane's response, as in Istio.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The HTTP statuses of failed requests; any other is 502.
const STATUSES: [(Code, StatusCode); 6] = [
    (Code::InvalidArgument, StatusCode::BAD_REQUEST),
    (Code::Unauthenticated, StatusCode::FORBIDDEN),
    (Code::PermissionDenied, StatusCode::FORBIDDEN),
    (Code::ResourceExhausted, StatusCode::TOO_MANY_REQUESTS),
    (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
    (Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
];

/// The parameters of a page.
#[derive(Debug, Deserialize)]
pub(super) struct Parameters {
    /// The requested resource: a proxy, or the page of `/debug`.
    #[serde(default, rename = "resourceName")]
    resource_name: String,
}

/// The response of type `istio.io` and the path.
pub(super) async fn page(
    State(tap): State<Tap>,
    uri: Uri,
    Query(Parameters { resource_name }): Query<Parameters>,
) -> Response {
    let names = Some(resource_name).filter(|name| !name.is_empty());
    let type_url = format!("istio.io{}", uri.path());
    let forwarded = tap.forward(type_url, names.into_iter().collect(), TIMEOUT);
    let response = match forwarded.await {
        Ok(response) => response,
        Err(status) => return failure(&status),
    };

    // Reading the descriptors takes long for a thread that also answers DNS.
    let written = tokio::task::spawn_blocking(move || document(&response));
    match written.await {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn failure(status: &Status) -> Response {
    let code = STATUSES
        .iter()
        .find(|(code, _)| *code == status.code())
        .map_or(StatusCode::BAD_GATEWAY, |(_, code)| *code);
    let text = format!("{}\n", status.message());
    (code, escape_lines(&text).into_owned()).into_response()
}

/// The response as text that is safe to show: proxies and objects choose texts in it.
fn document(response: &DiscoveryResponse) -> String {
    let text = format!("{:#}\n", to_json(response));
    escape_json(&text).into_owned()
}

/// The response as protobuf's JSON. Resources that are no messages, such as debug pages, have no
/// such form: then the bytes are in base64, and the names those of Go's structs, as in Istio.
fn to_json(response: &DiscoveryResponse) -> Value {
    let bytes = response.encode_to_vec();
    Codec::new()
        .to_json(&type_url::<DiscoveryResponse>(), &bytes)
        .unwrap_or_else(|_| with_bytes(response))
}

fn with_bytes(response: &DiscoveryResponse) -> Value {
    let resources: Vec<Value> = response
        .resources
        .iter()
        .map(|any| json!({ "type_url": any.type_url, "value": STANDARD.encode(&any.value) }))
        .collect();

    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("version_info", response.version_info.as_str().into());
    put("resources", resources.into());
    put("type_url", response.type_url.as_str().into());
    put("nonce", response.nonce.as_str().into());
    if let Some(control_plane) = &response.control_plane {
        put(
            "control_plane",
            json!({ "identifier": control_plane.identifier }),
        );
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use navarch_proto::any::pack;
    use navarch_proto::envoy::config::core::v3::Node;
    use prost_types::Any;

    use super::*;

    #[test]
    fn messages_are_written_out_and_pages_are_bytes() {
        let node = Node {
            id: "web-1.shop".to_owned(),
            ..Node::default()
        };
        let mut response = DiscoveryResponse {
            version_info: "1".to_owned(),
            resources: vec![pack(&node)],
            type_url: "istio.io/connections".to_owned(),
            ..DiscoveryResponse::default()
        };
        let json = to_json(&response);
        assert_eq!(json["versionInfo"], "1");
        assert_eq!(json["resources"][0]["id"], "web-1.shop");

        response.resources = vec![Any {
            type_url: "istio.io/debug".to_owned(),
            value: b"{}".to_vec(),
        }];
        let json = to_json(&response);
        assert_eq!(json["version_info"], "1");
        assert_eq!(
            json["resources"],
            json!([{ "type_url": "istio.io/debug", "value": "e30=" }])
        );
        assert_eq!(json.get("control_plane"), None);
    }

    #[tokio::test]
    async fn texts_of_others_are_escaped() {
        let node = Node {
            id: "web-1.shop\u{202e}".to_owned(),
            ..Node::default()
        };
        let response = DiscoveryResponse {
            resources: vec![pack(&node)],
            ..DiscoveryResponse::default()
        };
        let text = document(&response);
        assert!(text.contains(r"web-1.shop\u202e"), "{text}");

        let failure = failure(&Status::permission_denied("\u{1b}[2J"));
        let body = axum::body::to_bytes(failure.into_body(), 1024).await;
        assert_eq!(&body.unwrap()[..], b"\\u{1b}[2J\n");
    }

    #[test]
    fn a_failure_has_the_status_of_its_reason() {
        let status = |code| failure(&Status::new(code, "why")).status().as_u16();
        assert_eq!(status(Code::PermissionDenied), 403);
        assert_eq!(status(Code::ResourceExhausted), 429);
        assert_eq!(status(Code::Unavailable), 503);
        assert_eq!(status(Code::DeadlineExceeded), 504);
        assert_eq!(status(Code::Internal), 502);
    }
}
