//! Requests that a browser sends for a page of another site: under another host (DNS rebinding), or
//! with a foreign origin.

use http::Method;
use tokio::net::TcpStream;
use tokio::sync::mpsc::error::TryRecvError;

use super::*;

/// The pages for loopback alone.
const LOCAL_PAGES: [(Method, &str); 6] = [
    (Method::POST, "/quitquitquit"),
    (Method::POST, "/drain"),
    (Method::GET, "/debug/ndsz"),
    (Method::GET, "/debug/pprof/"),
    (Method::GET, "/metrics"),
    (Method::GET, "/stats/prometheus"),
];

impl Setting {
    /// Requests a page over loopback, under this host and with further headers.
    async fn request(
        &self,
        method: &Method,
        path: &str,
        host: &str,
        headers: HeaderMap,
    ) -> StatusCode {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let request = LocalRequest {
            method: method.clone(),
            headers,
            ..LocalRequest::get(host, self.port, path, Duration::from_secs(5))
        };
        request.send_over(stream).await.unwrap().status
    }
}

#[tokio::test]
async fn pages_for_loopback_alone_are_denied_to_pages_of_other_sites() {
    let mut setting = setting(1, None, JoinSet::new()).await;
    let foreign_origin = HeaderMap::from_iter([(
        header::ORIGIN,
        HeaderValue::from_static("http://evil.example"),
    )]);

    for (method, path) in LOCAL_PAGES {
        let rebound = setting.request(&method, path, "evil.example", HeaderMap::new());
        assert_eq!(rebound.await, StatusCode::FORBIDDEN, "{path}");
        let foreign = setting.request(&method, path, "localhost", foreign_origin.clone());
        assert_eq!(foreign.await, StatusCode::FORBIDDEN, "{path}");
    }

    let received = setting.commands.try_recv();
    assert!(matches!(received, Err(TryRecvError::Empty)));
}

#[tokio::test]
async fn scripts_in_the_pod_quit_and_drain_under_the_names_of_loopback() {
    let mut setting = setting(1, None, JoinSet::new()).await;
    for host in ["localhost", "127.0.0.1", "::1"] {
        for (path, command) in [
            ("/quitquitquit", EnvoyCommand::Quit),
            ("/drain", EnvoyCommand::Drain),
        ] {
            let answered = setting.request(&Method::POST, path, host, HeaderMap::new());
            assert_eq!(answered.await, StatusCode::OK, "{host}");
            let received = setting.commands.recv().await.unwrap();
            assert_eq!(discriminant(&received), discriminant(&command));
        }
    }
}

#[tokio::test]
async fn probes_and_metrics_are_served_under_any_host() {
    let mut tasks = JoinSet::new();
    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    let app = application(answer.to_owned(), &mut tasks).await;
    let open = |config: &mut StatusConfig| config.metrics_on_loopback_only = false;
    let setting = setting_with(app, None, tasks, open).await;

    for path in [
        "/healthz/ready",
        "/app-health/a/livez",
        "/metrics",
        "/stats/prometheus",
    ] {
        for host in ["10.1.2.3", "fd00::7", "web-0.web.shop.svc"] {
            let answered = setting.request(&Method::GET, path, host, HeaderMap::new());
            assert_eq!(answered.await, StatusCode::OK, "{path} of {host}");
        }
    }
}

#[tokio::test]
async fn metrics_for_loopback_alone_are_served_to_a_listener_of_envoy_that_forwards_scrapes() {
    let setting = setting(1, None, JoinSet::new()).await;
    let path = "/stats/prometheus";
    let answered = setting.request(&Method::GET, path, "10.1.2.3", HeaderMap::new());
    assert_eq!(answered.await, StatusCode::OK);
}
