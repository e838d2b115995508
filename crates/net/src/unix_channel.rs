//! A gRPC channel over a Unix socket, to a process of a known user.

use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::grpc_target::Keepalive;

/// The user who may always serve a socket.
const ROOT: u32 = 0;
/// The bit of a socket's mode that lets all users connect.
const WRITABLE_BY_OTHERS: u32 = 0o002;
/// The bit of a folder's mode that lets all users reach what is in it.
const PASSABLE_BY_OTHERS: u32 = 0o001;
/// Timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A Unix socket, and the user who serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixTarget {
    /// The path of the socket.
    pub path: PathBuf,
    /// The user of the serving process, besides root and this process's own user.
    pub user: Option<u32>,
    /// Whether a socket that every user of the machine can connect to is logged, once: the server
    /// trusts whoever connects.
    pub warns_if_public: bool,
}

/// Why a socket is not used.
#[derive(Debug, thiserror::Error)]
pub enum UnixTargetError {
    /// The path is not that of a socket.
    #[error("{0} is not a socket")]
    NoSocket(PathBuf),
    /// Another user owns the socket, or serves it.
    #[error(
        "{path} is served by user {user}; only this process's user, root and a configured one may"
    )]
    Stranger {
        /// Where the socket is.
        path: PathBuf,
        /// The user of the socket's file or of its process.
        user: u32,
    },
}

/// Opens the connections of a channel.
#[derive(Clone, Debug)]
struct Connector(Arc<ConnectorState>);

#[derive(Debug)]
struct ConnectorState {
    target: UnixTarget,
    /// That every user can connect.
    warning: Once,
}

impl UnixTarget {
    /// A channel that connects when it is first used, and again after its connection has ended.
    #[must_use]
    pub fn channel(self) -> Channel {
        let keepalive = Keepalive::default();
        Endpoint::from_static("http://localhost")
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout)
            .connect_with_connector_lazy(Connector(Arc::new(ConnectorState {
                target: self,
                warning: Once::new(),
            })))
    }

    /// Connects to the socket, if a permitted user serves it. A process that may replace the socket
    /// could otherwise take the place of the server.
    async fn connect(&self) -> io::Result<UnixStream> {
        let metadata = std::fs::symlink_metadata(&self.path)?;
        if !metadata.file_type().is_socket() {
            return Err(io::Error::other(UnixTargetError::NoSocket(
                self.path.clone(),
            )));
        }
        self.check(metadata.uid())?;

        let stream = UnixStream::connect(&self.path).await?;
        self.check(stream.peer_cred()?.uid())?;
        Ok(stream)
    }

    /// Checks a user.
    fn check(&self, user: u32) -> io::Result<()> {
        let own = rustix::process::geteuid().as_raw();
        if [Some(own), Some(ROOT), self.user].contains(&Some(user)) {
            return Ok(());
        }
        Err(io::Error::other(UnixTargetError::Stranger {
            path: self.path.clone(),
            user,
        }))
    }

    /// Whether every user of the machine can connect: by the mode of the socket and of all folders
    /// above it.
    fn is_public(&self) -> bool {
        let has = |path: &Path, bit: u32| {
            std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & bit != 0)
        };
        let Ok(path) = self.path.canonicalize() else {
            return false;
        };
        has(&path, WRITABLE_BY_OTHERS)
            && path
                .ancestors()
                .skip(1)
                .all(|folder| has(folder, PASSABLE_BY_OTHERS))
    }
}

impl ConnectorState {
    async fn connect(&self) -> io::Result<UnixStream> {
        let stream = self.target.connect().await?;
        if self.target.warns_if_public && self.target.is_public() {
            self.warning.call_once(|| {
                tracing::warn!(
                    socket = %self.target.path.display(),
                    "every user of this machine can connect to the socket"
                );
            });
        }
        Ok(stream)
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let state = self.0.clone();
        Box::pin(async move { Ok(TokioIo::new(state.connect().await?)) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_in_a_private_folder_is_not_public() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let target = UnixTarget {
            path: inner.join("socket"),
            user: None,
            warns_if_public: true,
        };
        let _listener = UnixListener::bind(&target.path).unwrap();
        let set = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };

        for (socket, inner_mode, folder_mode, is_public) in [
            (0o777, 0o755, 0o755, true),
            (0o755, 0o755, 0o755, false),
            (0o777, 0o750, 0o755, false),
            (0o777, 0o755, 0o700, false),
        ] {
            set(&target.path, socket);
            set(&inner, inner_mode);
            set(folder.path(), folder_mode);
            // The folder of temporary files may itself be private.
            let may_be_public =
                folder.path().ancestors().skip(1).all(|above| {
                    std::fs::metadata(above).unwrap().mode() & PASSABLE_BY_OTHERS != 0
                });
            assert_eq!(target.is_public(), is_public && may_be_public, "{socket:o}");
        }
    }

    #[tokio::test]
    async fn only_a_socket_of_a_permitted_user_is_connected_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let target = UnixTarget {
            path: path.clone(),
            user: None,
            warns_if_public: true,
        };
        assert_eq!(
            target.connect().await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );

        std::fs::write(&path, "").unwrap();
        let error = target.connect().await.unwrap_err();
        assert!(error.to_string().contains("is not a socket"), "{error}");
        std::fs::remove_file(&path).unwrap();

        let _listener = UnixListener::bind(&path).unwrap();
        target.connect().await.unwrap();
        let error = target.check(4711).unwrap_err();
        assert!(error.to_string().contains("served by user 4711"), "{error}");
        let target = UnixTarget {
            user: Some(4711),
            ..target
        };
        target.check(4711).unwrap();
    }
}
