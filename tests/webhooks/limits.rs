//! Limits of the webhook port, over real TLS.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::any_certificate;

/// A connection to the port.
async fn connect(port: u16) -> TlsStream<TcpStream> {
    let config = any_certificate::client_config();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

/// Whether the port's certificate is signed by this root and no other.
pub(crate) async fn serves_certificate_of(port: u16, root: &str) -> bool {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap())
        .unwrap();
    let provider = navarch_net::cryptography::provider();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let connector = TlsConnector::from(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ));
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    connector
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
        .is_ok()
}

/// Sends a request and reads until the server closes the connection.
async fn ask(port: u16, head: &str, body: &[u8]) -> String {
    let mut stream = connect(port).await;
    let head = format!("{head}\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    drop(stream.write_all(head.as_bytes()).await);
    drop(stream.write_all(body).await);
    drop(stream.flush().await);
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "no response in time to {head}");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether the port accepts a new connection and responds.
pub(crate) async fn is_answered(port: u16) -> bool {
    let head = "POST /validate HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 2";
    ask(port, head, b"{}")
        .await
        .contains("could not decode body")
}

/// Tries to exceed the limits.
pub(crate) async fn hold(port: u16) {
    let json = "content-type: application/json";
    let post = |path: &str, kind: &str, length: usize| {
        format!("POST {path} HTTP/1.1\r\n{kind}\r\ncontent-length: {length}")
    };
    let status = |answer: &str| answer.split(' ').nth(1).unwrap_or_default().to_owned();

    for path in ["/validate", "/validate/x/y", "/inject", "/inject/cluster/c"] {
        assert_eq!(
            status(&ask(port, &post(path, json, 0), b"").await),
            "400",
            "{path}"
        );

        assert_eq!(
            status(&ask(port, &post(path, "content-type: text/plain", 2), b"{}").await),
            "415",
            "{path}"
        );
        let garbage = ask(port, &post(path, json, 2), b"{}").await;
        assert!(
            garbage.contains("could not decode body"),
            "{path}: {garbage}"
        );

        let deep = "[".repeat(100_000);
        let deep = ask(port, &post(path, json, deep.len()), deep.as_bytes()).await;
        assert!(deep.contains("could not decode body"), "{path}: {deep}");

        // A body that is announced as too large is not read; a chunked body is read only up to the
        // limit.
        assert_eq!(
            status(&ask(port, &post(path, json, 7 << 20), b"{").await),
            "413",
            "{path}"
        );
    }

    let chunked =
        "POST /validate HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked";
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    let answer = ask(port, chunked, &chunk.repeat(7)).await;
    assert!(answer.is_empty() || status(&answer) == "413", "{answer}");

    // Clients that send too slowly are disconnected within the maximum timeout of API servers.
    let slow = ask(port, &post("/validate", json, 100), b"{").await;
    assert_eq!(status(&slow), "408", "{slow}");

    // Announced bodies that never arrive do not delay other clients.
    let mut announced = Vec::new();

    for _ in 0..20 {
        let mut stream = connect(port).await;
        let head = format!(
            "{}\r\nhost: localhost\r\n\r\n{{",
            post("/validate", json, 6 << 20)
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        announced.push(stream);
    }

    let small = ask(port, &post("/validate", json, 2), b"{}").await;
    assert!(small.contains("could not decode body"), "{small}");
    drop(announced);

    for path in ["/ready", "/httpsReady"] {
        assert_eq!(
            status(&ask(port, &format!("GET {path} HTTP/1.1"), b"").await),
            "200"
        );
    }
}
