//! Free ports on loopback.

use std::net::{SocketAddr, TcpListener};

/// A TCP port on 127.0.0.1 that was free a moment ago.
///
/// # Errors
/// When the machine has none.
pub fn free() -> std::io::Result<u16> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    Ok(listener.local_addr()?.port())
}
