//! A small HTTP backend that returns its name, and what it received.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::Request;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A running backend. It ends when dropped.
#[derive(Debug)]
pub struct Backend {
    /// The listen address.
    pub address: SocketAddr,
    /// Requests served so far.
    served: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Backend {
    /// Starts a backend that answers every request with `name`, and returns the received path and
    /// host in headers (`x-seen-path`, `x-seen-host`).
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn start(name: &str, address: SocketAddr) -> Result<Self> {
        let listener = bind(address)
            .await
            .with_context(|| format!("backend {name} at {address}"))?;
        let address = listener.local_addr()?;
        let served = Arc::new(AtomicUsize::new(0));
        let count = served.clone();
        let name = name.to_owned();
        let app = Router::new().fallback(move |request: Request| {
            count.fetch_add(1, Ordering::Relaxed);
            let path = request.uri().path().to_owned();
            let host = request
                .headers()
                .get("host")
                .and_then(|host| host.to_str().ok())
                .unwrap_or_default()
                .to_owned();
            let name = name.clone();
            async move { ([("x-seen-path", path), ("x-seen-host", host)], name) }
        });

        let task = tokio::spawn(async move {
            // Ends with the task; clients see the errors of their connections.
            drop(axum::serve(listener, app).await);
        });

        Ok(Self {
            address,
            served,
            task,
        })
    }

    /// Requests served so far.
    #[must_use]
    pub fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// Opens a port, and waits for its previous owner to close it.
async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            outcome => return outcome,
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}
