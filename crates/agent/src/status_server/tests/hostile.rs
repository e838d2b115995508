//! A malicious application, and one with HTTP/2.

use std::io::Read as _;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a beginning on every connection, then the same bytes as long as the peer reads.
async fn endless(beginning: &'static [u8], again: &'static [u8], tasks: &mut JoinSet<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            open.spawn(async move {
                let mut request = vec![0; 4096];
                let _ = stream.read(&mut request).await;
                let mut sent = stream.write_all(beginning).await;
                while sent.is_ok() {
                    sent = stream.write_all(again).await;
                }
            });
        }
    });
    port
}

/// A TLS server that prefers HTTP/2, and responds with the protocol of the request.
pub(super) async fn over_tls(protocols: &[&[u8]], tasks: &mut JoinSet<()>) -> u16 {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let chain = vec![key.cert.der().clone()];
    let private =
        rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let provider = navarch_net::cryptography::provider();
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();

    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
            let service = service_fn(
                |request: hyper::Request<hyper::body::Incoming>| async move {
                    let host = request.uri().host().map(str::to_owned);
                    let body = format!("{:?} {} {host:?}", request.version(), request.uri().path());
                    Ok::<_, std::convert::Infallible>(hyper::Response::new(Full::new(Bytes::from(
                        body,
                    ))))
                },
            );
            let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(stream, service).await;
        }
    });

    port
}

#[tokio::test]
async fn https_probes_use_http2_if_the_application_supports_it() {
    for (protocols, expected) in [
        (
            &[&b"h2"[..], b"http/1.1"][..],
            r#"HTTP/2.0 /x Some("127.0.0.1")"#,
        ),
        (&[&b"http/1.1"[..]][..], "HTTP/1.1 /x None"),
        (&[][..], "HTTP/1.1 /x None"),
    ] {
        let mut tasks = JoinSet::new();
        let app = over_tls(protocols, &mut tasks).await;
        let answer = setting(app, None, tasks)
            .await
            .get("/app-health/s/livez")
            .await;
        assert_eq!(
            (answer.status, &answer.body[..]),
            (StatusCode::OK, expected.as_bytes())
        );
    }
}

#[tokio::test]
async fn texts_of_others_are_escaped() {
    let table = |config: &mut StatusConfig| {
        config.name_table = Arc::new(|| Some(serde_json::json!({ "web\u{202e}.shop": [] })));
    };
    let setting = setting_with(1, None, JoinSet::new(), table).await;
    let names = setting.get("/debug/ndsz").await;
    assert_eq!(&names.body[..], br#"{"web\u202e.shop":[]}"#);

    let missing = setting.get("/app-health/\u{202e}/livez").await;
    let text = String::from_utf8_lossy(&missing.body);
    assert!(text.ends_with(r"/app-health/\u{202e}/livez"), "{text}");
}

#[tokio::test]
async fn metrics_without_end_are_cut_off() {
    let mut tasks = JoinSet::new();
    let app = endless(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n",
        &[b'x'; 64 << 10],
        &mut tasks,
    )
    .await;
    let one = setting(app, Some(format!(r#"{{"port":"{app}"}}"#)), tasks).await;
    let question = LocalRequest::get("127.0.0.1", one.port, "/metrics", TIMEOUT);
    let merged = question.send().await.unwrap();

    assert!(
        merged.body.len() <= (10 << 20) + 100,
        "{}",
        merged.body.len()
    );

    let mut tasks = JoinSet::new();
    let other = application(
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nb 1\n".to_owned(),
        &mut tasks,
    )
    .await;
    let app = endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 64 << 10], &mut tasks).await;
    let scrape = format!(r#"{{"targets":[{{"port":"{app}"}},{{"port":"{other}"}}]}}"#);
    let several = setting(app, Some(scrape), tasks).await;
    let merged = LocalRequest::get("127.0.0.1", several.port, "/metrics", TIMEOUT)
        .send()
        .await
        .unwrap();

    assert_eq!(
        &merged.body[..],
        b"agent 1\nb 1\n",
        "the other target's metrics are present"
    );
}

#[tokio::test]
async fn answers_that_drip_or_are_all_headers_end_with_the_probes_time_and_room() {
    for (beginning, again) in [
        // An endless body is read up to the limit.
        (&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'x'; 4096][..]),
        (b"HTTP/1.1 200 OK\r\n", b"x-more: and more of the same\r\n"),
        (
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"1;and-an-extension-without-sense\r\nx\r\n",
        ),
    ] {
        let mut tasks = JoinSet::new();
        let app = endless(beginning, again, &mut tasks).await;
        let setting = setting(app, None, tasks).await;
        let response = LocalRequest::get("127.0.0.1", setting.port, "/app-health/a/livez", TIMEOUT)
            .send()
            .await
            .unwrap();
        assert!(response.body.len() <= 10 << 10, "{}", response.body.len());
    }
}

#[tokio::test]
async fn floods_of_http_2_frames_fail_only_their_own_probe() {
    // A SETTINGS frame, then endless frames: SETTINGS, PING, RST_STREAM, CONTINUATION.
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    let floods: [&'static [u8]; 4] = [
        settings,
        b"\0\0\x08\x06\0\0\0\0\0abcdefgh",
        b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
        b"\0\0\x10\x09\0\0\0\0\x01\0\x06x-more\x06and-on",
    ];

    for again in floods {
        let mut tasks = JoinSet::new();
        let app = endless(settings, again, &mut tasks).await;
        let setting = setting(app, None, tasks).await;
        let response =
            LocalRequest::get("127.0.0.1", setting.port, "/app-health/a/startupz", TIMEOUT)
                .send()
                .await
                .unwrap();
        assert_eq!(response.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(setting.get("/healthz/ready").await.status, StatusCode::OK);
    }
}

/// A connection from another loopback address, which counts as another peer.
async fn connect_from(last: u8, port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind((Ipv4Addr::new(127, 0, 0, last), 0).into())
        .unwrap();
    socket
        .connect((Ipv4Addr::LOCALHOST, port).into())
        .await
        .unwrap()
}

#[tokio::test]
async fn silent_connections_are_closed_in_favour_of_others() {
    let setting = setting(1, None, JoinSet::new()).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut stream = connect_from(2, setting.port).await;
        stream.write_all(b"GET /").await.unwrap();
        silent.push(stream);
    }
    for _ in 0..10 {
        let question = LocalRequest::get("127.0.0.1", setting.port, "/healthz/ready", TIMEOUT);
        assert_eq!(question.send().await.unwrap().status, StatusCode::OK);
    }
    let mut rest = Vec::new();
    let closed = timeout(TIMEOUT, silent[0].read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the idlest connections were closed");
}

#[tokio::test]
async fn slow_scrapers_are_rejected_and_others_are_served() {
    let mut tasks = JoinSet::new();
    let app = endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 64 << 10], &mut tasks).await;
    let setting = setting(app, Some(format!(r#"{{"port":"{app}"}}"#)), tasks).await;
    let ask = async |from| {
        let mut stream = connect_from(from, setting.port).await;
        // This scrape's timeout is longer than the test.
        let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nx-prometheus-scrape-timeout-seconds: 100\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        timeout(TIMEOUT, stream.read_exact(&mut status))
            .await
            .unwrap()
            .unwrap();
        (String::from_utf8_lossy(&status[9..]).into_owned(), stream)
    };

    let mut held = Vec::new();
    let mut rejected = 0;

    for _ in 0..60 {
        let (status, stream) = ask(2).await;
        rejected += usize::from(status == "503");
        held.push(stream);
    }

    assert!(
        (1..60).contains(&rejected),
        "{rejected} of 60 were rejected"
    );
    let text = OwnMetrics::new(setting.work.clone()).scrape();
    assert!(
        text.contains(&format!(
            "istio_agent_scrape_failures_total{{type=\"agent\"}} {rejected}\n"
        )),
        "{text}"
    );

    assert_eq!(ask(3).await.0, "200");
}

#[tokio::test]
async fn large_scrapes_are_compressed_if_accepted() {
    let mut tasks = JoinSet::new();
    let body = "app_requests 1\n".repeat(1000);
    let app = application(
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}"),
        &mut tasks,
    )
    .await;
    let setting = setting(app, Some(format!(r#"{{"port":"{app}"}}"#)), tasks).await;

    let headers =
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
    let question = LocalRequest::get("127.0.0.1", setting.port, "/stats/prometheus", TIMEOUT);
    let packed = LocalRequest {
        headers: headers.clone(),
        ..question
    }
    .send()
    .await
    .unwrap();
    assert_eq!(packed.headers[header::CONTENT_ENCODING], "gzip");
    assert!(packed.body.len() < body.len() / 10, "{}", packed.body.len());
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..])
        .read_to_string(&mut text)
        .unwrap();

    assert_eq!(text, format!("agent 1\n{body}"));
    let question = LocalRequest::get("127.0.0.1", setting.port, "/healthz/ready", TIMEOUT);
    let short = LocalRequest {
        headers,
        ..question
    }
    .send()
    .await
    .unwrap();
    assert!(!short.headers.contains_key(header::CONTENT_ENCODING));
}
