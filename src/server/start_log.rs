//! The log lines of the start.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::Config;

/// The addresses of the ports by name, with the actual port if 0 was requested.
pub(super) struct Addresses(Vec<(&'static str, Option<SocketAddr>)>);

impl Addresses {
    /// The addresses of listeners; `None` is a disabled port.
    pub(super) fn of(listeners: &[(&'static str, Option<TcpListener>)]) -> std::io::Result<Self> {
        let address = |listener: &Option<TcpListener>| {
            listener.as_ref().map(TcpListener::local_addr).transpose()
        };
        let addresses = listeners
            .iter()
            .map(|(name, listener)| Ok((*name, address(listener)?)));
        addresses.collect::<std::io::Result<_>>().map(Self)
    }

    /// Logs the addresses before any port is served: a client that requested port 0 needs them to
    /// poll readiness.
    pub(super) fn log(&self) {
        tracing::info!(addresses = self.to_string(), "listening");
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, address)) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            match address {
                Some(address) => write!(f, "{space}{name}={address}")?,
                None => write!(f, "{space}{name}=off")?,
            }
        }
        Ok(())
    }
}

/// Logs the start: the release, the cluster and the addresses.
pub(super) fn log_start(config: &Config, sources: &str, addresses: &Addresses) {
    let revision = if config.webhooks.revision.is_empty() {
        "default"
    } else {
        &config.webhooks.revision
    };
    let cluster = config.settings.cluster_id.as_str();
    let namespace = config.settings.system_namespace.as_str();
    let version = config.build.version;
    let addresses = addresses.to_string();
    tracing::info!(
        version, revision, cluster, namespace, sources, addresses, "started"
    );
}

/// Logs panics in one line: translators' panics are caught, attributed to their objects and
/// survived.
pub(super) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(
            place,
            message = panic.payload_as_str().unwrap_or_default(),
            "thread panicked"
        );
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_bound_port_is_logged_instead_of_0() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let addresses = Addresses::of(&[("http", Some(listener)), ("grpc", None)]).unwrap();
        assert_eq!(
            addresses.to_string(),
            format!("http=127.0.0.1:{port} grpc=off")
        );
    }
}
