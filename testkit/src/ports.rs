//! Free ports on loopback.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Where ports are looked for: below those that the kernel gives to connections, one of which might have it before it is used.
const FIRST: u16 = 20_000;
/// How many there are.
const COUNT: u16 = 12_000;
/// How many are tried.
const TRIES: usize = 100;

/// A TCP port on 127.0.0.1 that was free a moment ago, and that nobody gets by chance.
///
/// # Errors
/// When the machine has none.
pub fn free() -> io::Result<u16> {
    let mut last = None;
    for attempt in 0..TRIES {
        let random = RandomState::new().hash_one(attempt) % u64::from(COUNT);
        let port = FIRST + u16::try_from(random).unwrap_or_default();
        match TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrInUse)))
}
