//! Many connections between two processes of one machine: open files, and addresses to connect
//! from.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpSocket, TcpStream};

use super::mesh::behind;

/// Connections from one address. Linux has some 28,000 ports for them by default.
const CONNECTIONS_PER_ADDRESS: usize = 20_000;
/// The first address to connect from.
const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Files beside connections that each of the two processes needs.
const OTHER_FILES: usize = 200;

/// Raises this process's limit of open files as far as it may be raised; processes that are started
/// later inherit it.
///
/// # Errors
/// If that is too little for a number of connections.
pub(super) fn allow_files(connections: usize) -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read RLIMIT_NOFILE")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise RLIMIT_NOFILE")?;
    check(connections, usize::try_from(hard).unwrap_or(usize::MAX))
}

/// Checks that a limit of open files is enough for a number of connections.
fn check(connections: usize, files: usize) -> Result<()> {
    let needed = connections + OTHER_FILES;
    ensure!(
        needed <= files,
        "{connections} connections need {needed} open files on each side, and the hard limit is \
         {files}: raise it (`ulimit -Hn`, `LimitNOFILE=`, `nofile` of the container), or share \
         connections with --streams-per-connection"
    );
    Ok(())
}

/// The address from which a connection is opened.
fn source(connection: usize) -> Ipv4Addr {
    let number = u32::try_from(connection / CONNECTIONS_PER_ADDRESS).unwrap_or(u32::MAX);
    behind(FIRST_SOURCE, number)
}

/// Opens the connection with a number.
///
/// # Errors
/// If the server refuses it, or there is no port.
pub(super) async fn connect(server: SocketAddr, connection: usize) -> Result<TcpStream> {
    let source = source(connection);
    let socket = TcpSocket::new_v4()?;
    socket
        .bind((source, 0).into())
        .with_context(|| format!("no port at {source}"))?;
    socket
        .connect(server)
        .await
        .with_context(|| format!("connection {connection} from {source} to {server}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_files_are_an_error_that_says_how_many_are_needed() {
        assert!(check(19_800, 20_000).is_ok());
        let error = check(50_000, 20_000).unwrap_err().to_string();
        assert!(
            error.contains("50200 open files") && error.contains("20000"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn connections_come_from_as_many_addresses_as_they_need_ports() {
        assert_eq!(source(19_999), FIRST_SOURCE);
        assert_eq!(source(20_000), Ipv4Addr::new(127, 0, 0, 3));

        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .unwrap();
        let server = listener.local_addr().unwrap();
        let client = connect(server, 45_000).await.unwrap();
        let (_, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(peer.ip(), Ipv4Addr::new(127, 0, 0, 4));
    }
}
