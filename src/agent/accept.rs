//! Connections to the agent's own ports: so many at once, more wait to be accepted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The pause after a connection could not be accepted, as when there are no files left.
const PAUSE: Duration = Duration::from_millis(50);

/// Has each connection conversed with while there is `room`, until dropped; all of them end then.
pub(super) async fn each<F>(listener: TcpListener, room: Arc<Semaphore>, converse: impl Fn(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut open = JoinSet::new();
    loop {
        // Never closed.
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        while open.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => {
                let conversation = converse(stream, peer);
                open.spawn(async move {
                    let _permit = permit;
                    conversation.await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "no connection could be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
