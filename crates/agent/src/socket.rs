//! Unix sockets that the agent listens on.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use tokio::net::{UnixListener, UnixStream};

/// The mode of sockets, as pilot-agent's: every user who can reach the folder can connect, such as
/// an application without a proxy, which has a user of its own. In a pod only its own containers
/// have the folder, and only those that mount it.
const MODE: u32 = 0o666;
/// The mode of a folder that is created for a socket, as pilot-agent's.
const FOLDER_MODE: u32 = 0o750;
/// Timeout of the check whether a process listens on a socket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of further attempts to listen, as pilot-agent's.
const RETRIES: u32 = 5;

/// Listens on a socket, and replaces a stale one.
///
/// # Errors
/// If the directory or the socket cannot be created.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(folder)?;
    }
    let new = unpublished(path)?;
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }

    // The umask decides the mode at first, so the socket gets its name once it has its mode: until
    // then clients find the stale one or none.
    let listener = UnixListener::bind(&new)?;
    open_to_all(&new)?;
    std::fs::rename(&new, path)?;

    Ok(listener)
}

/// Tries again to listen after an attempt failed with `error`: five times, the first time after
/// `wait`, which doubles.
///
/// # Errors
/// The error of the last attempt.
pub async fn listen_again(
    path: &Path,
    mut error: io::Error,
    mut wait: Duration,
) -> io::Result<UnixListener> {
    for retry in 1..=RETRIES {
        tracing::warn!(
            path = %path.display(),
            %error,
            retry,
            ?wait,
            "failed to listen on a socket; trying again"
        );
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2);
        error = match listen(path) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
    }

    Err(error)
}

/// Lets every user connect to a socket. Where applications may write to the folder, one may put a
/// link or another file in the socket's place, whose mode must not change.
fn open_to_all(socket: &Path) -> io::Result<()> {
    // A handle of the directory entry itself: a link is not followed, and a socket not connected.
    // std removes O_PATH from flags where libc is musl.
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let entry = File::from(open(socket, flags, Mode::empty())?);
    if !entry.metadata()?.file_type().is_socket() {
        let reason = "something else has taken the place of the socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }

    let handle = format!("/proc/self/fd/{}", entry.as_raw_fd());
    std::fs::set_permissions(handle, Permissions::from_mode(MODE))
}

/// The path of a socket before it is published. It is only one byte longer than its own, because
/// the length of a socket's path is limited.
fn unpublished(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    Ok(path.with_file_name(hidden))
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
    use std::collections::BTreeSet;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

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
    }

    #[tokio::test]
    async fn a_socket_is_tried_again_until_its_folder_can_be_created() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("sockets");
        std::fs::write(&place, "a file in the folder's place").unwrap();
        let path = place.join("socket");
        let error = listen(&path).unwrap_err();

        let freed = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            std::fs::remove_file(&place).unwrap();
        };
        let again = listen_again(&path, error, Duration::from_millis(10));
        let (listener, ()) = tokio::join!(again, freed);

        let _listener = listener.unwrap();
        assert!(is_served(&path).await);
    }

    #[tokio::test]
    async fn after_the_last_attempt_its_error_is_returned() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("sockets");
        std::fs::write(&place, "a file in the folder's place").unwrap();
        let path = place.join("socket");

        let first = io::Error::other("the first error");
        let started = tokio::time::Instant::now();
        let error = listen_again(&path, first, Duration::from_millis(2))
            .await
            .unwrap_err();

        assert_ne!(error.kind(), io::ErrorKind::Other);
        // 2, 4, 8, 16 and 32 ms.
        assert!(started.elapsed() >= Duration::from_millis(62));
    }

    /// The mode of a file or folder.
    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn every_user_who_reaches_the_folder_can_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/XDS");

        let _listener = listen(&path).unwrap();

        assert_eq!(mode(&path), 0o666);
        assert_eq!(mode(path.parent().unwrap()), 0o750);
        let names = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(names, 1, "the name before it was published is gone");
    }

    #[test]
    fn the_mode_of_a_file_behind_a_link_does_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key.pem");
        let planted = folder.path().join(".XDS");
        std::fs::write(&key, "KEY").unwrap();
        let before = mode(&key);
        symlink(&key, &planted).unwrap();

        let outcome = open_to_all(&planted);

        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(mode(&key), before);
        assert_ne!(before, 0o666);
    }

    #[tokio::test]
    async fn a_socket_never_has_another_mode_while_it_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("XDS");
        let first = listen(&path).unwrap();

        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let seen = path.clone();
        let watching = std::thread::spawn(move || {
            let mut modes = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                modes.insert(
                    std::fs::metadata(&seen)
                        .map(|found| found.mode() & 0o777)
                        .ok(),
                );
            }
            modes
        });
        for _ in 0..2000 {
            listen(&path).unwrap();
        }
        stop.store(true, Ordering::Relaxed);

        assert_eq!(watching.join().unwrap(), BTreeSet::from([Some(0o666)]));
        drop(first);
    }
}
