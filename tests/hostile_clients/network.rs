//! A network namespace for the test, and connections from any address in it.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, ensure};
use hyper_util::rt::TokioIo;
use navarch_testkit::skip::skip;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::any_certificate;

/// Set if the process is already in the network namespace.
const INSIDE: &str = "NAVARCH_TEST_NETWORK";
/// Sets up the network: the server's address, 10.77.0.0/16 for clients, and a default route, by
/// which kube-apiserver finds its own address.
const SCRIPT: &str = r#"ip link set lo up && ip addr add 10.77.0.1/16 dev lo && ip route add default dev lo && exec "$@""#;

/// The server's address.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Runs a test of this binary: the first time again in a new network namespace, the second time for
/// real.
pub(crate) fn run<F: Future<Output = Result<()>>>(
    test: &str,
    body: impl FnOnce() -> F,
) -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        return runtime.block_on(body());
    }

    let mut unshare = vec!["--net", "--mount"];
    if !nix::unistd::getuid().is_root() {
        unshare.extend(["--user", "--map-root-user"]);
    }

    let tried = Command::new("unshare")
        .args(&unshare)
        .args(["ip", "link", "set", "lo", "up"])
        .output();
    if !tried.is_ok_and(|output| output.status.success()) {
        skip("it needs unshare and ip, and the right to make a network namespace");
        return Ok(());
    }

    let mut command = Command::new("unshare");
    command.args(unshare);
    command.args(["--fork", "--kill-child", "sh", "-c", SCRIPT, "sh"]);
    command
        .arg(std::env::current_exe()?)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1");
    command.stdin(Stdio::null());

    let good = if std::env::args().any(|argument| argument == "--nocapture") {
        command.status().context("cannot run unshare")?.success()
    } else {
        // Printed by this process, so that the test harness shows the output of a failed test.
        let output = command.output().context("cannot run unshare")?;
        println!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(
            String::from_utf8_lossy(&output.stdout).contains("1 passed")
                || !output.status.success(),
            "no test ran"
        );
        output.status.success()
    };

    ensure!(good, "{test} failed in its network namespace");
    Ok(())
}

/// The address of a client in a group of clients.
pub(crate) fn client(group: u8, number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, group, u8::try_from(number % 250).unwrap() + 1)
}

/// Connects from an address.
pub(crate) async fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A TLS configuration that accepts any server certificate, with this ALPN protocol.
pub(crate) fn tls_config(protocol: &str) -> Arc<ClientConfig> {
    let mut config = any_certificate::client_config();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

/// Connects with TLS from an address.
pub(crate) async fn connect_tls(
    from: Ipv4Addr,
    to: SocketAddr,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = connect(from, to).await?;
    let name = ServerName::try_from("istiod.istio-system.svc").unwrap();
    TlsConnector::from(config).connect(name, stream).await
}

/// A byte stream, plain or TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Connects from an address.
#[derive(Clone)]
struct Connector {
    from: Ipv4Addr,
    to: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

impl tonic::codegen::Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Io>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { from, to, tls } = self.clone();
        Box::pin(async move {
            let stream: Box<dyn Io> = match tls {
                Some(config) => Box::new(connect_tls(from, to, config).await?),
                None => Box::new(connect(from, to).await?),
            };
            Ok(TokioIo::new(stream))
        })
    }
}

/// A gRPC channel from an address.
pub(crate) async fn channel(
    from: Ipv4Addr,
    to: SocketAddr,
    tls: bool,
) -> Result<Channel, tonic::transport::Error> {
    let connector = Connector {
        from,
        to,
        tls: tls.then(|| tls_config("h2")),
    };
    Endpoint::from_static("http://istiod.istio-system.svc")
        .connect_with_connector(connector)
        .await
}
