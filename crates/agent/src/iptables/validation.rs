//! Checks whether connections are captured, for pods whose rules another component applies.
//!
//! The rules must redirect a connection to a port without a listener to Envoy's port. The listener
//! there recognizes the connection by its original destination.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};

use super::options::Options;

/// The exit code of a failed validation; istio-cni's repair controller recognizes it.
pub const VALIDATION_EXIT_CODE: i32 = 126;

/// Why validation failed.
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    /// Neither of Envoy's ports could be bound.
    #[error("failed to listen on port {0} and port {1}")]
    Listen(String, String),
    /// No captured connection arrived in time.
    #[error("no connection was captured within {0:?}: the rules are missing or do not work")]
    Timeout(Duration),
}

/// Waits until a connection is captured.
///
/// # Errors
/// When no captured connection arrives before the timeout.
pub fn validate(options: &Options) -> Result<(), ValidationError> {
    let (listen, connect): (IpAddr, IpAddr) = if options.host_address.is_ipv6() {
        (
            Ipv6Addr::LOCALHOST.into(),
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6).into(),
        )
    } else {
        (
            Ipv4Addr::LOCALHOST.into(),
            Ipv4Addr::new(127, 0, 0, 6).into(),
        )
    };

    let (captured, arrival) = mpsc::channel();
    let ports = [&options.capture.proxy_port, &options.capture.inbound_port];
    let mut listening = false;

    for port in ports.into_iter().filter_map(|port| port.parse().ok()) {
        let Ok(listener) = TcpListener::bind(SocketAddr::new(listen, port)) else {
            continue;
        };
        listening = true;
        let captured = captured.clone();
        let probe_port = options.probe_port;
        // The process exits after the validation, which ends the thread.
        thread::spawn(move || accept(&listener, probe_port, &captured));
    }

    if !listening {
        let [proxy, inbound] = ports.map(Clone::clone);
        return Err(ValidationError::Listen(proxy, inbound));
    }

    let target = SocketAddr::new(connect, options.probe_port);
    thread::spawn(move || {
        loop {
            if let Err(error) = TcpStream::connect_timeout(&target, Duration::from_secs(1)) {
                tracing::debug!(%error, "connection was not captured");
            }
            thread::sleep(Duration::from_secs(1));
        }
    });

    arrival
        .recv_timeout(options.probe_timeout)
        .map_err(|_| ValidationError::Timeout(options.probe_timeout))
}

/// Accepts connections until one has the probe port as its original destination.
fn accept(listener: &TcpListener, probe_port: u16, captured: &mpsc::Sender<()>) {
    for stream in listener.incoming() {
        match stream.and_then(|stream| original_port(&stream)) {
            Ok(port) if port == probe_port => {
                // The receiver may have timed out.
                let _ = captured.send(());
                return;
            }
            Ok(port) => tracing::debug!(port, "captured a connection to another port"),
            Err(error) => tracing::warn!(%error, "captured connection has no original destination"),
        }
    }
}

/// The original destination port of a captured connection.
fn original_port(stream: &TcpStream) -> io::Result<u16> {
    let port = if stream.peer_addr()?.is_ipv6() {
        getsockopt(stream, sockopt::Ip6tOriginalDst)?.sin6_port
    } else {
        getsockopt(stream, sockopt::OriginalDst)?.sin_port
    };
    Ok(u16::from_be(port))
}
