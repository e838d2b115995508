//! A gRPC channel over a Unix socket, to a process of a known user.

use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::grpc_target::Keepalive;

/// The user who may always serve a socket.
const ROOT: u32 = 0;
/// The bit of a mode that lets all users connect.
const WRITABLE_BY_OTHERS: u32 = 0o002;
/// Timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A Unix socket, and the user who serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixTarget {
    /// The path of the socket.
    pub path: PathBuf,
    /// The user of the serving process, besides root and this process's own user.
    pub user: Option<u32>,
    /// Whether a socket that every user of the machine can connect to is logged: the server trusts
    /// whoever connects.
    pub is_private: bool,
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
        /// The socket.
        path: PathBuf,
        /// The user of the socket's file or of its process.
        user: u32,
    },
}

/// Opens the connections of a channel.
#[derive(Clone, Debug)]
struct Connector(Arc<UnixTarget>);

impl UnixTarget {
    /// A channel that connects when it is first used, and again after its connection has ended.
    #[must_use]
    pub fn channel(self) -> Channel {
        let keepalive = Keepalive::default();
        Endpoint::from_static("http://localhost")
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout)
            .connect_with_connector_lazy(Connector(Arc::new(self)))
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
        if self.is_private && metadata.mode() & WRITABLE_BY_OTHERS != 0 {
            tracing::warn!(
                socket = %self.path.display(),
                "every user of this machine can connect to the socket"
            );
        }

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

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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
        let target = self.0.clone();
        Box::pin(async move { Ok(TokioIo::new(target.connect().await?)) })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn only_a_socket_of_a_permitted_user_is_connected_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let target = UnixTarget {
            path: path.clone(),
            user: None,
            is_private: true,
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
