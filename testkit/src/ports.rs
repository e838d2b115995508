//! Ports of this machine, each for one test program at a time.
//!
//! Prefer port 0, with which a server chooses its port when it opens it. This is for ports that
//! another program must know in advance, and for those that a sample prescribes.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::BuildHasher as _;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The range of free ports. Samples and programs prescribe lower ones.
const PORTS: RangeInclusive<u16> = 20_000..=65_535;
/// The ports of Services of type NodePort.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;
/// Linux's default range of ephemeral ports.
const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;
/// Maximum number of attempts.
const TRIES: usize = 200;
/// Maximum time that another test may hold a prescribed port; some programs hold them for all their
/// tests.
const HELD_TIMEOUT: Duration = Duration::from_mins(15);

/// The locks of this process's free ports; the operating system releases them when it ends, in
/// whatever way.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port that is free on all addresses, for TCP and UDP, and that no other call, in this process
/// or another, returns before this process ends. The kernel does not use it for connections.
///
/// # Errors
/// If the machine has none.
pub fn free() -> io::Result<u16> {
    let ephemeral = ephemeral();
    let ports: Vec<u16> = PORTS
        .filter(|port| !ephemeral.contains(port) && !NODE_PORTS.contains(port))
        .collect();
    let mut last = io::Error::other(format!("all ports are ephemeral: {ephemeral:?}"));

    for attempt in 0..TRIES.min(ports.len()) {
        let random = RandomState::new().hash_one(attempt) % ports.len() as u64;
        let port = ports
            .get(usize::try_from(random).unwrap_or_default())
            .copied()
            .unwrap_or(*PORTS.start());
        let Some(file) = lock(port)? else { continue };
        match open(port) {
            Ok(()) => {
                HELD.lock().push(file);
                return Ok(port);
            }
            Err(error) => last = error,
        }
    }

    Err(last)
}

/// Locks of prescribed ports, which no other test has, of this program or another, until this is
/// dropped.
#[derive(Debug)]
pub struct Taken(#[expect(dead_code, reason = "an open file stays locked")] Vec<File>);

/// Locks prescribed ports, and waits while another test has them.
///
/// # Errors
/// On a timeout.
pub async fn take(ports: &[u16]) -> io::Result<Taken> {
    // In a fixed order, to avoid deadlocks.
    let ports: BTreeSet<u16> = ports.iter().copied().collect();
    let end = Instant::now() + HELD_TIMEOUT;
    let mut files = Vec::new();

    for port in ports {
        loop {
            if let Some(file) = lock(port)? {
                files.push(file);
                break;
            }
            if Instant::now() >= end {
                let why = format!("another test has held port {port} for {HELD_TIMEOUT:?}");
                return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    Ok(Taken(files))
}

/// The locked file of a port; `None` if it is already locked, including by this process.
fn lock(port: u16) -> io::Result<Option<File>> {
    let file = folder()?.join(port.to_string());
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(file)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The directory with a file for each port that was ever locked. It is never removed, and neither
/// are the files: a locked file that is removed could be created and locked again by another
/// process.
fn folder() -> io::Result<PathBuf> {
    let user = std::fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let folder = std::env::temp_dir().join(format!("navarch-test-ports-{user}"));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Fails if any process listens on a port, even on one address only.
fn open(port: u16) -> io::Result<()> {
    drop(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?);
    drop(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?);
    Ok(())
}

/// The ephemeral ports of the kernel.
fn ephemeral() -> RangeInclusive<u16> {
    let text =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = text
        .split_whitespace()
        .filter_map(|bound| bound.parse().ok());
    match (bounds.next(), bounds.next()) {
        (Some(first), Some(last)) => first..=last,
        _ => EPHEMERAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_ports_are_unique_and_not_ephemeral() {
        let ports: Vec<u16> = (0..20).map(|_| free().expect("a port")).collect();
        let different: BTreeSet<_> = ports.iter().collect();
        assert_eq!(different.len(), ports.len());
        assert!(
            ports.iter().all(|port| !ephemeral().contains(port)),
            "{ports:?}"
        );
        assert!(
            ports
                .iter()
                .all(|port| lock(*port).expect("it can be tried").is_none()),
            "another could have one"
        );
    }

    #[test]
    fn a_port_with_a_listener_at_one_address_is_not_free() {
        let port = free().expect("a port");
        assert!(open(port).is_ok());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
        assert!(open(port).is_err());
        drop(listener);
    }

    #[tokio::test]
    async fn prescribed_ports_are_waited_for() {
        // Ports that no sample prescribes.
        let first = take(&[11, 7]).await.expect("the ports are free");
        let second = tokio::spawn(take(&[7]));
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        second.await.expect("it ends").expect("they are free again");
    }
}
