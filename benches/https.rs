//! A client of the webhook port with as many connections as an API server might keep, each of which
//! sends one review at a time.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::ports;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::any_certificate;

/// Concurrent connections of the benchmark.
const CONNECTIONS: u64 = 16;
/// How long the start may take, until the webhooks are configured.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A running Navarch and its webhook port.
pub(crate) struct Port {
    _navarch: Navarch,
    port: u16,
    /// The latency of each review.
    taken: Mutex<Vec<Duration>>,
    /// The directory with its configuration.
    _folder: tempfile::TempDir,
}

/// Sends one review and returns the response.
async fn ask(
    client: &mut http1::SendRequest<Full<Bytes>>,
    path: &'static str,
    body: Bytes,
) -> Bytes {
    let request = Request::post(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body))
        .expect("the request is valid");
    let answer = client
        .send_request(request)
        .await
        .expect("the webhook responds");
    assert_eq!(answer.status(), 200);
    answer
        .into_body()
        .collect()
        .await
        .expect("the response is complete")
        .to_bytes()
}

impl Port {
    /// Starts Navarch on an empty mesh with the default injection settings.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let port = ports::free()?;
        let [mesh, inject] = ["mesh", "var/lib/istio/inject"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(&mesh)?;
        std::fs::create_dir_all(&inject)?;
        std::fs::write(inject.join("config"), "")?;
        std::fs::write(inject.join("values"), "")?;

        // Navarch reads the injection settings from a directory below its working directory.
        let program = folder.path().join("navarch");
        let script = format!(
            "#!/bin/sh\ncd '{}' && exec {} \"$@\"\n",
            folder.path().display(),
            env!("CARGO_BIN_EXE_navarch")
        );
        std::fs::write(&program, script)?;

        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let arguments = [
            format!("--https-addr=127.0.0.1:{port}"),
            "--log-level=error".to_owned(),
        ];

        // The ports are fixed, so the log, which would name them, is discarded: writing it must not
        // be measured.
        let navarch =
            Navarch::start_at(&program, &mesh, &arguments, &[], Addresses::free()?).await?;
        Ok(Self {
            _navarch: navarch,
            port,
            taken: Mutex::default(),
            _folder: folder,
        })
    }

    /// Waits until a response contains a text.
    pub(crate) async fn wait_for(&self, path: &'static str, body: &Bytes, text: &str) {
        let mut client = self.connect().await.expect("the port is open");
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let answer = ask(&mut client, path, body.clone()).await;
            let answer = String::from_utf8_lossy(&answer);
            if answer.contains(text) {
                return;
            }
            assert!(
                Instant::now() < end,
                "{path} has no {text:?} in its response {answer}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The time that a number of reviews take over all connections.
    pub(crate) async fn ask(&self, path: &'static str, body: &Bytes, times: u64) -> Duration {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(self.connect().await.expect("the port is open"));
        }

        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for (index, mut client) in (0..).zip(clients) {
            let body = body.clone();
            tasks.spawn(async move {
                let mut taken = Vec::new();
                for _ in 0..times / CONNECTIONS + u64::from(index < times % CONNECTIONS) {
                    let requested_at = Instant::now();
                    ask(&mut client, path, body.clone()).await;
                    taken.push(requested_at.elapsed());
                }
                taken
            });
        }

        let taken = tasks.join_all().await;
        let elapsed = start.elapsed();
        self.taken.lock().extend(taken.into_iter().flatten());
        elapsed
    }

    /// The median and the 99th percentile of the latency since the last call.
    pub(crate) fn percentiles(&self) -> (Duration, Duration) {
        let mut taken = std::mem::take(&mut *self.taken.lock());
        taken.sort_unstable();
        let at = |percent: usize| {
            taken
                .get(taken.len() * percent / 100)
                .copied()
                .unwrap_or_default()
        };
        (at(50), at(99))
    }

    /// Opens one connection.
    async fn connect(&self) -> anyhow::Result<http1::SendRequest<Full<Bytes>>> {
        let config = any_certificate::client_config();
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from("localhost")?, stream)
            .await?;
        let (client, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}
