//! Requests to a metadata server: plain HTTP to an address of the machine's own link.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{MAX_TOKEN_BYTES, TokenError};
use crate::local_http::LocalRequest;

/// The address of the metadata server of every cloud. As for Google's own libraries it needs no
/// DNS, which could be forged.
const STANDARD_HOST: &str = "169.254.169.254";
const HTTP_PORT: u16 = 80;
/// The server is one hop away, but may have to ask others for the token.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of a metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetadataServer {
    host: String,
    port: u16,
}

/// The header without which a metadata server rejects requests: a browser or a redirect cannot add
/// it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequiredHeader {
    /// In lower case.
    pub(super) name: &'static str,
    pub(super) value: &'static str,
}

impl MetadataServer {
    /// The server of the cloud.
    pub(super) fn standard() -> Self {
        Self {
            host: STANDARD_HOST.to_owned(),
            port: HTTP_PORT,
        }
    }

    /// Parses `host`, `host:port` or `http://host:port`; `None` if it is something else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let address = text.strip_prefix("http://").unwrap_or(text);
        let address = address.strip_suffix('/').unwrap_or(address);
        let authority: Authority = address.parse().ok()?;

        let port = match address.strip_prefix(authority.host())? {
            "" => HTTP_PORT,
            rest => rest.strip_prefix(':')?.parse().ok()?,
        };

        let host = authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }

    /// The body of a response with status 200.
    pub(super) async fn get(
        &self,
        path: &str,
        header: RequiredHeader,
    ) -> Result<Bytes, TokenError> {
        let name = HeaderName::from_static(header.name);
        let value = HeaderValue::from_static(header.value);
        let request = LocalRequest {
            headers: HeaderMap::from_iter([(name, value)]),
            limit: usize::try_from(MAX_TOKEN_BYTES).unwrap_or(usize::MAX),
            ..LocalRequest::get(&self.host, self.port, path, REQUEST_TIMEOUT)
        };

        let response = request.send().await.map_err(|source| TokenError::Request {
            server: self.to_string(),
            source,
        })?;
        if response.status != StatusCode::OK {
            return Err(TokenError::Status {
                server: self.to_string(),
                status: response.status,
            });
        }

        Ok(response.body)
    }
}

impl fmt::Display for MetadataServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Escapes a value of a query.
pub(super) fn query_value(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_or_that_of_http() {
        let of = |host: &str, port| {
            Some(MetadataServer {
                host: host.to_owned(),
                port,
            })
        };

        let metadata = MetadataServer::parse("metadata.google.internal");
        assert_eq!(metadata, of("metadata.google.internal", 80));
        assert_eq!(MetadataServer::parse("h:8080"), of("h", 8080));
        assert_eq!(MetadataServer::parse("http://h:8080/"), of("h", 8080));
        assert_eq!(MetadataServer::parse("[::1]:8080"), of("::1", 8080));
        for invalid in ["", "https://h", "h:", "h:70000", "user@h", "h/path"] {
            assert_eq!(MetadataServer::parse(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn values_of_a_query_are_escaped() {
        assert_eq!(query_value("cluster.local"), "cluster.local");
        assert_eq!(query_value("api://a b&c"), "api%3A%2F%2Fa%20b%26c");
    }
}
