//! The status server with a small application on loopback.

use std::mem::discriminant;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

mod hostile;
mod kept;
mod other_sites;
mod profiles;

use super::{Probes, ScrapeConfig, StatusConfig, serve};
use crate::envoy_life::EnvoyCommand;
use crate::local_http::{LocalRequest, LocalResponse};
use crate::metrics::AgentMetrics;
use crate::own_metrics::OwnMetrics;

/// A server with its application, and the commands that it sends.
struct Setting {
    /// The server's port.
    port: u16,
    /// The agent's metrics.
    work: AgentMetrics,
    commands: mpsc::Receiver<EnvoyCommand>,
    /// The running tasks.
    _tasks: JoinSet<()>,
}

/// Sends the same bytes on every connection, and closes it.
async fn application(answer: String, tasks: &mut JoinSet<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            // A TCP probe sends no request.
            if stream.read(&mut request).await.unwrap_or(0) > 0 {
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    });
    port
}

/// A server whose probes and metrics go to the application at `app`.
async fn setting(app: u16, scrape: Option<String>, tasks: JoinSet<()>) -> Setting {
    setting_with(app, scrape, tasks, |_| {}).await
}

/// The same with another configuration.
async fn setting_with(
    app: u16,
    scrape: Option<String>,
    mut tasks: JoinSet<()>,
    change: impl FnOnce(&mut StatusConfig),
) -> Setting {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (give, commands) = mpsc::channel(4);
    let mut config = config(app, scrape, port, give);
    change(&mut config);
    let work = config.work.clone();

    tasks.spawn(serve(listener, config));
    Setting {
        port,
        work,
        commands,
        _tasks: tasks,
    }
}

/// The configuration of a server on a port.
fn config(
    app: u16,
    scrape: Option<String>,
    port: u16,
    commands: mpsc::Sender<EnvoyCommand>,
) -> StatusConfig {
    let probes = format!(
        r#"{{"/app-health/a/livez": {{"httpGet": {{"path": "/x", "port": {app}}}, "timeoutSeconds": 2}},
            "/app-health/a/readyz": {{"tcpSocket": {{"port": {app}}}, "timeoutSeconds": 2}},
            "/app-health/a/startupz": {{"grpc": {{"port": {app}}}, "timeoutSeconds": 1}},
            "/app-health/s/livez": {{"httpGet": {{"path": "/x", "port": {app}, "scheme": "HTTPS"}}, "timeoutSeconds": 2}}}}"#
    );

    StatusConfig {
        envoy: None,
        envoy_metrics: None,
        port,
        destination: "127.0.0.1".to_owned(),
        source: Ipv4Addr::new(127, 0, 0, 6).into(),
        http2_probes: true,
        keeps_probe_connections: false,
        probes: Probes::parse(&probes).unwrap(),
        scrape: scrape.map(|text| ScrapeConfig::parse(&text, port).unwrap().unwrap()),
        metrics_on_loopback_only: true,
        conditions: Vec::new(),
        name_table: Arc::new(|| None),
        proxy: crate::upgrade::status::SharedStatus::default(),
        metrics: Arc::new(|| "agent 1\n".to_owned()),
        work: AgentMetrics::default(),
        commands,
        rejections: navarch_net::rejections::Rejections::default(),
        mesh_metrics: None,
        connections: StatusConfig::CONNECTIONS,
        serves_profiles: true,
    }
}

impl Setting {
    /// Requests a page of the server.
    async fn get(&self, path: &str) -> LocalResponse {
        LocalRequest::get("127.0.0.1", self.port, path, Duration::from_secs(5))
            .send()
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn a_probe_passes_on_the_applications_status_and_body() {
    let mut tasks = JoinSet::new();
    let body = "x".repeat(20_000);
    let app = application(
        format!("HTTP/1.1 418 I'm a teapot\r\nconnection: close\r\n\r\n{body}"),
        &mut tasks,
    )
    .await;
    let setting = setting(app, None, tasks).await;
    let answer = setting.get("/app-health/a/livez").await;

    assert_eq!(
        (answer.status, answer.body.len()),
        (StatusCode::IM_A_TEAPOT, 10 << 10)
    );
    assert_eq!(
        setting.get("/app-health/a/readyz").await.status,
        StatusCode::OK
    );

    assert_eq!(
        setting.get("/app-health/a/startupz").await.status,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(
        setting.get("/app-health/b/livez").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn a_redirect_to_another_host_is_a_success_that_leads_nowhere() {
    for location in [
        "http://169.254.169.254/latest/meta-data",
        "http://localhost:1/",
        "//example.com/",
        "ftp:x",
    ] {
        let mut tasks = JoinSet::new();
        let answer = format!(
            "HTTP/1.1 302 Found\r\nlocation: {location}\r\nconnection: close\r\n\r\nsecret"
        );
        let app = application(answer, &mut tasks).await;
        let answer = setting(app, None, tasks)
            .await
            .get("/app-health/a/livez")
            .await;
        assert_eq!(
            (answer.status, answer.body.len()),
            (StatusCode::OK, 0),
            "{location}"
        );
    }
}

#[tokio::test]
async fn a_redirect_to_itself_is_followed_ten_times() {
    let mut tasks = JoinSet::new();
    let app = application(
        "HTTP/1.1 302 Found\r\nlocation: /again\r\nconnection: close\r\n\r\n".to_owned(),
        &mut tasks,
    )
    .await;
    let answer = setting(app, None, tasks)
        .await
        .get("/app-health/a/livez")
        .await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn metrics_of_one_target_keep_their_format_and_those_of_several_one_end() {
    let mut tasks = JoinSet::new();
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/openmetrics-text; version=1.0.0\r\nconnection: close\r\n\r\na 1\n# EOF";
    let app = application(answer.to_owned(), &mut tasks).await;
    let one = setting(app, Some(format!(r#"{{"port":"{app}"}}"#)), tasks).await;
    let merged = one.get("/stats/prometheus").await;
    assert_eq!(&merged.body[..], b"agent 1\na 1\n# EOF");
    assert!(
        merged.headers[header::CONTENT_TYPE]
            .to_str()
            .unwrap()
            .contains("openmetrics")
    );

    let mut tasks = JoinSet::new();
    let other = application(answer.to_owned(), &mut tasks).await;
    let scrape =
        format!(r#"{{"targets":[{{"port":"{app}"}},{{"port":"{other}"}},{{"port":"1"}}]}}"#);
    let merged = setting(app, Some(scrape), tasks)
        .await
        .get("/metrics")
        .await;
    assert_eq!(&merged.body[..], b"agent 1\na 1\na 1\n# EOF\n");
}

#[tokio::test]
async fn an_unresponsive_application_delays_a_scrape_only_until_its_timeout() {
    let mut tasks = JoinSet::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let app = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
        }
    });

    let setting = setting(app, Some(format!(r#"{{"port":"{app}"}}"#)), tasks).await;
    let mut headers = HeaderMap::new();
    headers.insert(
        "x-prometheus-scrape-timeout-seconds",
        HeaderValue::from_static("0.2"),
    );
    let question = LocalRequest::get(
        "127.0.0.1",
        setting.port,
        "/metrics",
        Duration::from_secs(5),
    );

    let answer = LocalRequest {
        headers,
        ..question
    }
    .send()
    .await
    .unwrap();
    assert_eq!(&answer.body[..], b"agent 1\n");
}

#[tokio::test]
async fn the_start_takes_until_the_pod_is_first_found_ready() {
    let setting = setting(1, None, JoinSet::new()).await;
    let metrics = OwnMetrics::new(setting.work.clone());
    let startup = || {
        let text = metrics.scrape();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix("istio_agent_startup_duration_seconds "));
        value.unwrap().parse::<f64>().unwrap()
    };
    assert!(startup() == 0.0);
    assert_eq!(setting.get("/healthz/ready").await.status, StatusCode::OK);
    let first = startup();
    assert_eq!(setting.get("/healthz/ready").await.status, StatusCode::OK);
    assert!(first > 0.0 && startup() == first);
}

#[tokio::test]
async fn commands_require_post() {
    let mut setting = setting(1, None, JoinSet::new()).await;
    assert_eq!(
        setting.get("/quitquitquit").await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );

    for (path, command) in [
        ("/drain", EnvoyCommand::Drain),
        ("/quitquitquit", EnvoyCommand::Quit),
    ] {
        let answer = LocalRequest::post("127.0.0.1", setting.port, path, Duration::from_secs(5))
            .send()
            .await
            .unwrap();
        assert_eq!(
            (answer.status, &answer.body[..]),
            (StatusCode::OK, &b"OK"[..])
        );
        let received = setting.commands.recv().await.unwrap();
        assert_eq!(discriminant(&received), discriminant(&command));
    }

    assert_eq!(setting.get("/healthz/ready").await.status, StatusCode::OK);
    assert_eq!(
        setting.get("/debug/ndsz").await.status,
        StatusCode::NOT_FOUND
    );
}
