//! The address of a collector.

use http::Uri;

/// The address of a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether to use TLS.
    pub tls: bool,
    /// The host, without brackets.
    pub host: String,
    /// The URL's port, else the scheme's default.
    pub port: u16,
    /// The path, for HTTP only.
    pub path: String,
}

impl Endpoint {
    /// The endpoint of an address such as `http://collector:4317`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority()?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if host.is_empty() || authority.as_str().contains('@') || uri.query().is_some() {
            return None;
        }

        let has_port = authority
            .as_str()
            .rsplit(']')
            .next()
            .is_some_and(|rest| rest.contains(':'));

        let port = match authority.port_u16() {
            Some(port) => port,
            None if has_port => return None,
            None if tls => 443,
            None => 80,
        };

        Some(Self {
            tls,
            host: host.to_owned(),
            port,
            path: uri.path().to_owned(),
        })
    }

    /// `host:port`.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The same with another path.
    pub(crate) fn with_path(self, path: String) -> Self {
        Self { path, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_need_scheme_and_host_and_hide_passwords() {
        let read =
            |text: &str| Endpoint::parse(text).map(|read| (read.tls, read.authority(), read.path));
        let is = |tls: bool, authority: &str, path: &str| {
            Some((tls, authority.to_owned(), path.to_owned()))
        };
        assert_eq!(
            read("http://collector:4317"),
            is(false, "collector:4317", "/")
        );

        assert_eq!(
            read("https://collector/v1/traces"),
            is(true, "collector:443", "/v1/traces")
        );
        assert_eq!(read("http://[::1]:4318/a/"), is(false, "[::1]:4318", "/a/"));
        assert_eq!(read("http://[::1]"), is(false, "[::1]:80", "/"));

        for wrong in [
            "",
            "collector:4317",
            "/v1/traces",
            "grpc://a:1",
            "unix:///a",
            "http://",
            "http://a:b",
            "http://a:70000",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }

        assert_eq!(read("http://user:password@a:1"), None);
    }
}
