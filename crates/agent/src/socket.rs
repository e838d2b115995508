//! Unix sockets that the agent listens on.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

/// The mode of sockets, for the agent's user and group only: they serve private keys.
const MODE: u32 = 0o660;
/// Timeout of the check whether a process listens on a socket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Listens on a socket, and replaces a stale one.
///
/// # Errors
/// If the directory or the socket cannot be created.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    Ok(listener)
}

/// Whether another process, such as SPIRE, listens on a socket. A stale socket does not count.
pub async fn is_served(path: &Path) -> bool {
    matches!(
        tokio::time::timeout(CONNECT_TIMEOUT, UnixStream::connect(path)).await,
        Ok(Ok(_))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_left_behind_is_replaced_and_a_live_one_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/socket");
        assert!(!is_served(&path).await);
        drop(listen(&path).unwrap());
        assert!(
            path.exists() && !is_served(&path).await,
            "it was left behind"
        );
        let _listener = listen(&path).unwrap();
        assert!(is_served(&path).await);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            MODE
        );
    }
}
