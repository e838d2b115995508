//! The plugins with servers on loopback.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::exchange::{Exchange as _, ExchangeError};
use super::super::google::{GoogleConfig, GoogleExchange};
use super::super::https::{Endpoint, HttpsClient};
use super::super::remote::{ClientSecret, RemoteExchange};
use super::super::request::{ACCESS_TOKEN, ErrorCode, JWT, RequestError, TokenRequest};
use super::super::secret::Secret;
use super::{clock, request};
use crate::upstream::Roots;

/// A server that keeps what it received, and sends these responses one after the other.
async fn server(
    responses: Vec<(u16, Value)>,
    tasks: &mut JoinSet<()>,
) -> (u16, Arc<Mutex<Vec<(String, String)>>>) {
    let received: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let kept = received.clone();
    let app = Router::new().fallback(move |request: Request| async move {
        let authorization = request.headers().get("authorization").cloned();
        let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
        let path = request.uri().path().to_owned();
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await;
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        let mut kept = kept.lock();
        let (status, response) = &responses[kept.len()];
        kept.push((
            format!("{path} {}", authorization.unwrap_or_default()),
            body,
        ));
        http::Response::builder()
            .status(*status)
            .body(Body::from(response.to_string()))
            .unwrap()
    });

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move { drop(axum::serve(listener, app).await) });
    (port, received)
}

/// A client without a certificate.
fn client() -> HttpsClient {
    HttpsClient {
        roots: Roots::System,
        certificate: None,
    }
}

#[tokio::test]
async fn the_exchange_at_any_server_passes_all_parameters_on() {
    let mut tasks = JoinSet::new();
    let response = json!({"access_token": "theirs", "issued_token_type": JWT, "token_type": "N_A", "expires_in": 60});
    let responses = vec![
        (200, response),
        (
            400,
            json!({"error": "invalid_scope", "error_description": "mine"}),
        ),
        (401, json!({"error": "invalid_client"})),
        (502, json!({})),
        (200, json!({"access_token": "theirs"})),
    ];
    let (port, received) = server(responses, &mut tasks).await;
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("secret");
    std::fs::write(&file, "s:t\n").unwrap();

    let remote = RemoteExchange {
        endpoint: Endpoint::parse(&format!("http://127.0.0.1:{port}/sts")).unwrap(),
        client: client(),
        secret: Some(ClientSecret {
            id: "me".to_owned(),
            file,
        }),
    };
    let further = [
        ("actor_token", "a"),
        ("actor_token_type", JWT),
        ("audience", "x"),
        ("audience", "y"),
        ("resource", "urn:z"),
    ];
    let asked = request(&further);
    let token = remote.exchange(&asked).await.unwrap();
    assert_eq!(token.token, Secret::new("theirs"));
    assert_eq!(token.lifetime, Some(Duration::from_secs(60)));
    let (head, body) = received.lock()[0].clone();
    // me:s%3At
    assert_eq!(head, "/sts Basic bWU6cyUzQXQ=");
    assert_eq!(TokenRequest::parse(body.as_bytes()).unwrap(), asked);

    let failures = [
        (400, ErrorCode::InvalidScope),
        (400, ErrorCode::InvalidTarget),
        (500, ErrorCode::InvalidTarget),
        (500, ErrorCode::InvalidTarget),
    ];
    for (status, code) in failures {
        let error = remote.exchange(&asked).await.unwrap_err();
        assert_eq!((error.status().as_u16(), error.code()), (status, code));
        assert!(!format!("{error:?} {error}").contains("mine"));
    }
}

#[tokio::test]
async fn googles_exchange_asks_for_a_federated_token_and_then_for_an_access_token() {
    let mut tasks = JoinSet::new();
    let responses = vec![
        (503, json!({})),
        (
            200,
            json!({"access_token": "federated", "expires_in": 1800}),
        ),
        (
            200,
            json!({"accessToken": "access", "expireTime": "2023-11-14T23:13:20Z"}),
        ),
        (403, json!({"error": "invalid_target"})),
    ];
    let (port, received) = server(responses, &mut tasks).await;
    let config = GoogleConfig {
        project_number: "12".to_owned(),
        identity_provider: "https://cluster".to_owned(),
        trust_domain: "p.svc.id.goog".to_owned(),
    };
    let url = format!("http://127.0.0.1:{port}");
    let google = GoogleExchange::at(
        &format!("{url}/federated"),
        &format!("{url}/access"),
        config,
        client(),
        clock,
    )
    .unwrap();

    let asked = request(&[]);
    assert_eq!(google.check(&asked), Ok(()));
    let other = TokenRequest {
        subject_token_type: ACCESS_TOKEN.to_owned(),
        ..asked.clone()
    };
    assert_eq!(google.check(&other), Err(RequestError::SubjectTokenType));

    let token = google.exchange(&asked).await.unwrap();
    assert_eq!(token.token, Secret::new("access"));
    assert_eq!(token.lifetime, Some(Duration::from_secs(3600)));
    assert_eq!(token.federated, Some(Duration::from_secs(1800)));

    let received_of = |number: usize| {
        let (head, body) = received.lock()[number].clone();
        (head, serde_json::from_str::<Value>(&body).unwrap())
    };
    let (head, body) = received_of(1);
    assert_eq!(head, "/federated ", "the first attempt is repeated");
    assert_eq!(
        body["audience"],
        "identitynamespace:p.svc.id.goog:https://cluster"
    );
    assert_eq!(body["subjectToken"], "mine");
    let (head, body) = received_of(2);
    assert_eq!(head, "/access Bearer federated");
    assert_eq!(body["lifetime"], "3600s");

    let error = google.exchange(&asked).await.unwrap_err();
    assert!(matches!(error, ExchangeError::Rejected { .. }));
    assert_eq!(
        received.lock().len(),
        4,
        "a rejected exchange is not repeated"
    );
}
