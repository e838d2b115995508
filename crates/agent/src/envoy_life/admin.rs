//! Envoy's admin API.

use std::time::Duration;

use serde::Deserialize;

use crate::local_http::{HttpError, LocalRequest};

/// Timeout of a request for the state of the server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a request for the requests of all endpoints.
const ENDPOINTS_TIMEOUT: Duration = Duration::from_secs(10);
/// Prefixes of clusters of the mesh, unlike those of the agent and the control plane.
const MESH_CLUSTERS: [&str; 2] = ["inbound|", "outbound|"];

/// Envoy's admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminApi {
    /// An address without a port: `127.0.0.1`, or `::1` in pods with IPv6 alone.
    pub host: String,
    /// `proxyAdminPort` of the proxy config, 15000 by default.
    pub port: u16,
}

/// Envoy's `/server_info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Whether it has its first configuration, its workers have started, and it does not drain.
    pub is_live: bool,
    /// `LIVE`, `PRE_INITIALIZING`, …
    pub state: String,
    /// The commit, the version and the kind of the build, such as `9e55…/1.40.0/Clean/RELEASE/BoringSSL`.
    pub version: String,
    /// The number of hot restarts before it.
    pub epoch: u32,
}

/// Requests of the mesh to endpoints, since Envoy has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCount {
    /// Answered, failed, and attempts to connect that failed.
    pub total: u64,
    /// Answers with a status of 500 or more, and failed attempts to connect.
    pub errors: u64,
}

/// The response of `/server_info`, as far as it is read.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ServerInfoMessage {
    version: String,
    state: String,
    command_line_options: CommandLineOptions,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CommandLineOptions {
    /// A number of zero is left out.
    restart_epoch: u32,
}

impl AdminApi {
    /// Sends a request, and returns the body of a successful response.
    pub(super) async fn send(&self, request: LocalRequest) -> Result<String, HttpError> {
        let response = request.send().await?;
        if !response.status.is_success() {
            return Err(HttpError::Status(response.status));
        }
        Ok(response.text().into_owned())
    }

    /// The state of the Envoy that has the admin port: during a hot restart the newest one.
    ///
    /// # Errors
    /// If there is no answer, as while one Envoy hands the port over to the next.
    pub async fn server(&self) -> Result<ServerInfo, HttpError> {
        let request = LocalRequest::get(&self.host, self.port, "/server_info", SERVER_TIMEOUT);
        let text = self.send(request).await?;
        let message: ServerInfoMessage =
            serde_json::from_str(&text).map_err(|error| HttpError::Body(error.to_string()))?;

        Ok(ServerInfo {
            is_live: message.state == "LIVE",
            state: message.state,
            version: message.version,
            epoch: message.command_line_options.restart_epoch,
        })
    }

    /// Counts the requests of all endpoints of the mesh. Envoy always has these counters, whatever
    /// stats the bootstrap includes, and does not take them over from the process before.
    ///
    /// # Errors
    /// If there is no answer, or it is larger than the limit of local responses.
    pub async fn requests(&self) -> Result<RequestCount, HttpError> {
        let request = LocalRequest::get(&self.host, self.port, "/clusters", ENDPOINTS_TIMEOUT);
        let text = self.send(request).await?;
        Ok(RequestCount::of_clusters(&text))
    }
}

impl RequestCount {
    /// Adds the counters of all endpoints, in lines of `cluster::address::counter::value`.
    fn of_clusters(text: &str) -> Self {
        let mut count = Self::default();
        let is_of_mesh = |line: &&str| MESH_CLUSTERS.iter().any(|prefix| line.starts_with(prefix));

        for line in text.lines().filter(is_of_mesh) {
            let mut fields = line.rsplitn(3, "::");
            let value = fields.next().and_then(|text| text.trim().parse().ok());
            let Some(value): Option<u64> = value else {
                continue;
            };

            match fields.next() {
                Some("rq_success") => count.total = count.total.saturating_add(value),
                Some("rq_error" | "cx_connect_fail") => {
                    count.total = count.total.saturating_add(value);
                    count.errors = count.errors.saturating_add(value);
                }
                Some(_) | None => {}
            }
        }

        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_mesh_are_counted_and_no_others() {
        let text = "outbound|80||bank.example::default_priority::max_connections::1024\n\
            outbound|80||bank.example::127.0.0.1:80::cx_connect_fail::1\n\
            outbound|80||bank.example::127.0.0.1:80::rq_error::2\n\
            outbound|80||bank.example::127.0.0.1:80::rq_success::10\n\
            outbound|80||bank.example::127.0.0.1:80::rq_total::12\n\
            inbound|8080||::[::1]:8080::rq_success::5\n\
            inbound|8080||::[::1]:8080::hostname::\n\
            xds-grpc::./etc/istio/proxy/XDS::rq_error::9\n";
        let count = RequestCount::of_clusters(text);
        let expected = RequestCount {
            total: 18,
            errors: 3,
        };
        assert_eq!(count, expected);
    }
}
