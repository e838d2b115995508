//! Opens TCP ports with a large accept backlog.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Maximum number of connections that wait to be accepted, as in Go programs; the kernel limits it
/// to `net.core.somaxconn`. `TcpListener::bind` uses 128: beyond it the kernel drops connection
/// attempts, and clients retry after a second, a kubelet's probe as well as an attacker's 200th
/// connection.
const BACKLOG: u32 = 4096;

/// Listens on an address. Must be called within a tokio runtime.
///
/// # Errors
/// If the port is in use or may not be opened.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // As in `TcpListener::bind`: a port can be bound again while its former connections are in
    // TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Listens on all addresses of the machine, of both families if it has IPv6. Must be called within
/// a tokio runtime.
///
/// # Errors
/// As for [`listen`].
pub fn listen_on_all(port: u16) -> io::Result<TcpListener> {
    let any = |ip: IpAddr| listen(SocketAddr::new(ip, port));
    match any(Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => any(Ipv4Addr::UNSPECIFIED.into()),
        listening => listening,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn hundreds_of_connections_wait_to_be_accepted() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for number in 0..400 {
            // A dropped attempt is made again after a second.
            let connected = timeout(Duration::from_millis(900), TcpStream::connect(address)).await;
            waiting.push(
                connected
                    .unwrap_or_else(|_| panic!("connection {number} waits"))
                    .unwrap(),
            );
        }
    }
}
