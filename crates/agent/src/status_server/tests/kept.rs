//! Connections for probes that are kept.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::hostile::over_tls;
use super::*;

/// An application that keeps connections open.
struct Application {
    port: u16,
    /// Number of accepted connections.
    accepted: Arc<AtomicUsize>,
    /// Number of requests with `connection: close`.
    closing: Arc<AtomicUsize>,
}

/// Starts an application that closes each connection after this number of requests, without notice.
async fn keeping(requests: usize, tasks: &mut JoinSet<()>) -> Application {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let application = Application {
        port: listener.local_addr().unwrap().port(),
        accepted: Arc::default(),
        closing: Arc::default(),
    };

    let accepted = application.accepted.clone();
    let closing = application.closing.clone();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            accepted.fetch_add(1, Ordering::SeqCst);
            let closing = closing.clone();
            open.spawn(async move {
                for _ in 0..requests {
                    let mut request = vec![0; 4096];
                    let length = stream.read(&mut request).await.unwrap_or(0);
                    if length == 0 {
                        return;
                    }
                    let text = String::from_utf8_lossy(&request).to_lowercase();
                    if text.contains("connection: close") {
                        closing.fetch_add(1, Ordering::SeqCst);
                    }
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    _ = stream.write_all(answer).await;
                }
            });
        }
    });

    application
}

/// A server that keeps connections for probes.
async fn keeping_setting(app: u16, tasks: JoinSet<()>) -> Setting {
    let keep = |config: &mut StatusConfig| config.keeps_probe_connections = true;
    setting_with(app, None, tasks, keep).await
}

/// Sends three probes, one after another.
async fn probe_three_times(setting: &Setting, path: &str) {
    for _ in 0..3 {
        let answer = setting.get(path).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_kept_connection_serves_all_probes() {
    let mut tasks = JoinSet::new();
    let app = keeping(usize::MAX, &mut tasks).await;
    let setting = keeping_setting(app.port, tasks).await;
    probe_three_times(&setting, "/app-health/a/livez").await;
    assert_eq!(app.accepted.load(Ordering::SeqCst), 1);
    assert_eq!(app.closing.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_connection_that_the_application_has_closed_is_replaced() {
    let mut tasks = JoinSet::new();
    let app = keeping(1, &mut tasks).await;
    let setting = keeping_setting(app.port, tasks).await;
    probe_three_times(&setting, "/app-health/a/livez").await;
    assert_eq!(app.accepted.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn by_default_each_probe_has_a_connection_of_its_own() {
    let mut tasks = JoinSet::new();
    let app = keeping(usize::MAX, &mut tasks).await;
    let setting = setting(app.port, None, tasks).await;
    probe_three_times(&setting, "/app-health/a/livez").await;
    assert_eq!(app.accepted.load(Ordering::SeqCst), 3);
    assert_eq!(app.closing.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn connections_over_tls_are_kept_with_either_version_of_http() {
    for protocols in [&[&b"h2"[..]][..], &[&b"http/1.1"[..]][..]] {
        let mut tasks = JoinSet::new();
        // It serves one connection at a time: a second one would wait for the end of the first.
        let app = over_tls(protocols, &mut tasks).await;
        let setting = keeping_setting(app, tasks).await;
        probe_three_times(&setting, "/app-health/s/livez").await;
    }
}

#[tokio::test]
async fn a_body_that_is_not_read_to_its_end_ends_the_connection() {
    let mut tasks = JoinSet::new();
    let body = "x".repeat(20_000);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 20000\r\n\r\n{body}");
    let app = application(answer, &mut tasks).await;
    let setting = keeping_setting(app, tasks).await;
    probe_three_times(&setting, "/app-health/a/livez").await;
}
