//! Compresses responses with gzip while they are sent, if the client accepts it: metrics shrink to
//! a tenth.

use std::io::Write as _;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use tokio_stream::StreamExt as _;

/// Minimum size of a compressed response.
const LEAST: u64 = 1024;

/// Compresses the response of `next`, if the client accepts it and it is large enough.
pub(super) async fn pack(request: Request, next: Next) -> Response {
    let wanted = is_accepted(request.headers());
    let response = next.run(request).await;
    let short = response
        .body()
        .size_hint()
        .upper()
        .is_some_and(|length| length < LEAST);
    if !wanted || short || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }

    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts
        .headers
        .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts
        .headers
        .append(header::VARY, HeaderValue::from_static("Accept-Encoding"));

    Response::from_parts(parts, packed(body))
}

/// Whether a client accepts gzip: by name or by `*`, unless the quality is zero.
fn is_accepted(headers: &HeaderMap) -> bool {
    let all = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let weights = all.flat_map(|text| text.split(',')).filter_map(|part| {
        let mut parts = part.split(';').map(str::trim);
        let name = parts
            .next()
            .filter(|name| name.eq_ignore_ascii_case("gzip") || *name == "*")?;
        let weight = parts
            .find_map(|parameter| parameter.strip_prefix("q=")?.parse::<f32>().ok())
            .unwrap_or(1.0);
        Some((name != "*", weight))
    });

    // A name takes precedence over `*`.
    weights
        .max_by(|one, other| one.0.cmp(&other.0))
        .is_some_and(|(_, weight)| weight > 0.0)
}

/// A body that is being compressed; `None` once its end was written.
type Packing = Option<(BodyDataStream, GzEncoder<Vec<u8>>)>;

/// The compressed body. An error of the body is passed on.
fn packed(body: Body) -> Body {
    let packer = GzEncoder::new(Vec::new(), Compression::fast());
    Body::from_stream(stream::unfold(
        Some((body.into_data_stream(), packer)),
        step,
    ))
}

/// Reads until the encoder has output.
async fn step(state: Packing) -> Option<(Result<Bytes, axum::Error>, Packing)> {
    let (mut body, mut packer) = state?;

    loop {
        let written = match body.next().await {
            Some(Ok(data)) => packer.write_all(&data),
            Some(Err(error)) => return Some((Err(error), None)),
            None => {
                return Some((
                    packer.finish().map(Bytes::from).map_err(axum::Error::new),
                    None,
                ));
            }
        };

        if let Err(error) = written {
            return Some((Err(axum::Error::new(error)), None));
        }

        let ready = std::mem::take(packer.get_mut());
        if !ready.is_empty() {
            return Some((Ok(ready.into()), Some((body, packer))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_accepted() {
        for (text, taken) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("*", true),
            ("*;q=0", false),
            ("*, gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(text))]);
            assert_eq!(is_accepted(&headers), taken, "{text}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }
}
