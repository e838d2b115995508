//! The service with an exchange of the tests.

mod plugins;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode, header};
use navarch_net::rejections::Rejections;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::exchange::{Exchange, ExchangeError, IssuedToken};
use super::form;
use super::manager::TokenManager;
use super::request::{ACCESS_TOKEN, ErrorCode, GRANT_TYPE, JWT, RequestError, TokenRequest};
use super::secret::Secret;
use crate::local_http::{LocalRequest, LocalResponse};

/// A time for tests.
fn clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

/// The form of a request, with further parameters.
fn form_of(further: &[(&str, &str)]) -> String {
    let usual = [
        ("grant_type", GRANT_TYPE),
        ("subject_token", "mine"),
        ("subject_token_type", JWT),
    ];
    form::encode(usual.into_iter().chain(further.iter().copied()))
}

fn request(further: &[(&str, &str)]) -> TokenRequest {
    TokenRequest::parse(form_of(further).as_bytes()).unwrap()
}

/// Issues `token-1`, `token-2`, … when it gets permits; rejects the audience `nobody`.
#[derive(Clone, Debug)]
struct Fake {
    calls: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

impl Fake {
    fn new(permits: usize) -> Self {
        Self {
            calls: Arc::default(),
            permits: Arc::new(Semaphore::new(permits)),
        }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Exchange for Fake {
    fn exchange<'a>(
        &'a self,
        request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<IssuedToken, ExchangeError>> {
        async move {
            let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
            self.permits.acquire().await.unwrap().forget();
            if request.audiences == ["nobody"] {
                return Err(ExchangeError::Rejected {
                    status: StatusCode::BAD_REQUEST,
                    code: ErrorCode::InvalidTarget,
                });
            }
            Ok(IssuedToken {
                token: Secret::new(format!("token-{number}")),
                issued_token_type: ACCESS_TOKEN.to_owned(),
                token_type: "Bearer".to_owned(),
                scope: request.scope.clone(),
                lifetime: Some(Duration::from_secs(3600)),
                federated: None,
            })
        }
        .boxed()
    }
}

/// The service on a port of its own.
async fn serve(exchange: Fake, tasks: &mut JoinSet<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let manager = TokenManager::new(Box::new(exchange));
    tasks.spawn(super::serve(
        listener,
        manager,
        clock,
        Rejections::default(),
    ));
    port
}

/// Sends a form to the service.
async fn post(port: u16, form: String) -> LocalResponse {
    let mut request = LocalRequest::post("127.0.0.1", port, "/token", Duration::from_secs(20));
    request.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8"),
    );
    request.body = form.into();
    request.send().await.unwrap()
}

fn json_of(response: &LocalResponse) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

#[test]
fn requests_that_rfc_8693_does_not_allow_are_rejected() {
    let parse = |form: &str| TokenRequest::parse(form.as_bytes()).unwrap_err();
    assert_eq!(parse(""), RequestError::Missing("grant_type"));
    let other = parse("grant_type=password");
    assert_eq!(other, RequestError::GrantType);
    assert_eq!(other.code(), ErrorCode::UnsupportedGrantType);
    assert_eq!(parse("grant_type=%zz"), RequestError::Form);

    let further = |further: &[(&str, &str)]| parse(&form_of(further));
    assert_eq!(
        further(&[("subject_token", "other")]),
        RequestError::Repeated("subject_token")
    );
    assert_eq!(further(&[("resource", "/x")]), RequestError::Resource);
    assert_eq!(
        further(&[("resource", "https://x#y")]),
        RequestError::Resource
    );
    assert_eq!(further(&[("actor_token", "x")]), RequestError::Actor);
    assert_eq!(
        further(&[("scope", &"x".repeat(3000))]),
        RequestError::TooLong("scope")
    );
    assert_eq!(
        further(&[("audience", "x"); 9]),
        RequestError::Repeated("audience")
    );
}

#[test]
fn requests_share_a_token_only_if_all_parameters_are_the_same() {
    let all = [
        request(&[]),
        request(&[("audience", "a")]),
        request(&[("audience", "a"), ("audience", "b")]),
        request(&[("audience", "a"), ("resource", "urn:b")]),
        request(&[("audience", "a"), ("scope", "b")]),
        request(&[("audience", "a"), ("requested_token_type", JWT)]),
        TokenRequest {
            subject_token: Secret::new("other"),
            ..request(&[("audience", "a")])
        },
    ];
    let mut digests: Vec<_> = all.iter().map(TokenRequest::digest).collect();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), all.len());
    let empty = request(&[("audience", "a"), ("scope", ""), ("unknown", "x")]);
    assert_eq!(empty, request(&[("audience", "a")]));
    assert!(!format!("{empty:?}").contains("mine"));
}

#[tokio::test]
async fn a_token_is_exchanged_once_and_never_shown_in_the_status() {
    let mut tasks = JoinSet::new();
    let fake = Fake::new(8);
    let port = serve(fake.clone(), &mut tasks).await;

    for _ in 0..2 {
        let response = post(port, form_of(&[("audience", "bank"), ("scope", "read")])).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.headers["cache-control"], "no-store");
        assert_eq!(response.headers["content-type"], "application/json");
        let mut token = json_of(&response);
        let expires = token["expires_in"].take().as_u64().unwrap();
        assert!((3500..=3600).contains(&expires), "{expires}");
        assert_eq!(
            token,
            json!({"access_token": "token-1", "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer",
                "scope": "read", "expires_in": null})
        );
    }
    assert_eq!(fake.calls(), 1);

    let status = LocalRequest::get("127.0.0.1", port, "/stsStatus", Duration::from_secs(20));
    let status = status.send().await.unwrap();
    let text = String::from_utf8(status.body.to_vec()).unwrap();
    assert!(
        !text.contains("token-1") && !text.contains("mine"),
        "{text}"
    );
    let status: Value = serde_json::from_str(&text).unwrap();
    let entry = &status["tokens"][0];
    assert_eq!(
        (&entry["token_type"], &entry["target"]),
        (&json!(ACCESS_TOKEN), &json!("bank"))
    );
    let expires = entry["expire_time"].as_str().unwrap();
    assert!(expires.starts_with("2023-11-14T23:1"), "{expires}");
}

#[tokio::test]
async fn the_status_has_no_characters_that_a_terminal_obeys() {
    let mut tasks = JoinSet::new();
    let port = serve(Fake::new(8), &mut tasks).await;
    let response = post(port, form_of(&[("audience", "bank\u{202e}")])).await;
    assert_eq!(response.status, 200);

    let status = LocalRequest::get("127.0.0.1", port, "/stsStatus", Duration::from_secs(20));
    let status = status.send().await.unwrap();
    let text = String::from_utf8_lossy(&status.body);
    assert!(text.contains(r"bank\u202e"), "{text}");
}

#[tokio::test]
async fn errors_have_codes_and_no_parts_of_the_request() {
    let mut tasks = JoinSet::new();
    let fake = Fake::new(8);
    let port = serve(fake.clone(), &mut tasks).await;

    let rejected = post(port, form_of(&[("audience", "nobody")])).await;
    assert_eq!(rejected.status, 400);
    assert_eq!(rejected.headers["cache-control"], "no-store");
    assert_eq!(json_of(&rejected)["error"], "invalid_target");
    let again = post(port, form_of(&[("audience", "nobody")])).await;
    assert_eq!(again.status, 503, "the exchange is not repeated at once");
    assert_eq!(again.headers["retry-after"], "1");
    assert_eq!(fake.calls(), 1);

    let invalid = post(port, "grant_type=secret-word".to_owned()).await;
    assert_eq!(invalid.status, 400);
    assert_eq!(json_of(&invalid)["error"], "unsupported_grant_type");
    assert!(!String::from_utf8_lossy(&invalid.body).contains("secret-word"));
    let large = post(port, form_of(&[("actor_token", &"x".repeat(65_500))])).await;
    assert_eq!(json_of(&large)["error"], "invalid_request");

    let timeout = Duration::from_secs(20);
    let get = LocalRequest::get("127.0.0.1", port, "/token", timeout);
    assert_eq!(get.send().await.unwrap().status, 405);
    let untyped = LocalRequest::post("127.0.0.1", port, "/token", timeout);
    assert_eq!(untyped.send().await.unwrap().status, 400);
    assert_eq!(fake.calls(), 1);
}

#[tokio::test]
async fn pages_of_other_sites_in_a_browser_get_no_token_and_no_status() {
    let mut tasks = JoinSet::new();
    let fake = Fake::new(8);
    let port = serve(fake.clone(), &mut tasks).await;
    let token_request = |host: &str| {
        let mut request = LocalRequest::post(host, port, "/token", Duration::from_secs(20));
        request.headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        request.body = form_of(&[("audience", "bank")]).into();
        request
    };
    let status = async |request: LocalRequest| {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        request.send_over(stream).await.unwrap().status
    };

    let mut foreign = token_request("localhost");
    foreign.headers.insert(
        header::ORIGIN,
        HeaderValue::from_static("http://evil.example"),
    );
    assert_eq!(status(foreign).await, StatusCode::FORBIDDEN);
    let rebound = token_request("evil.example");
    assert_eq!(status(rebound).await, StatusCode::FORBIDDEN);
    let timeout = Duration::from_secs(20);
    let all = LocalRequest::get("evil.example", port, "/stsStatus", timeout);
    assert_eq!(status(all).await, StatusCode::FORBIDDEN);
    assert_eq!(fake.calls(), 0);

    for host in ["localhost", "127.0.0.1", "::1"] {
        assert_eq!(status(token_request(host)).await, StatusCode::OK, "{host}");
    }
}

#[tokio::test]
async fn requests_for_one_target_wait_for_one_exchange() {
    let fake = Fake::new(0);
    let manager = Arc::new(TokenManager::new(Box::new(fake.clone())));
    let mut tasks = JoinSet::new();
    // Three with the same parameters, and one for the same audience with another scope.
    for scope in ["a", "a", "a", "b"] {
        let manager = manager.clone();
        tasks.spawn(async move {
            let request = request(&[("audience", "bank"), ("scope", scope)]);
            manager.token(&request).await.unwrap();
        });
    }

    while fake.calls() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fake.calls(), 1, "the others wait");
    fake.permits.add_permits(8);
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(fake.calls(), 2);
}

#[tokio::test]
async fn the_number_of_waiting_requests_is_limited() {
    let fake = Fake::new(0);
    let manager = Arc::new(TokenManager::new(Box::new(fake.clone())));
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let manager = manager.clone();
        tasks.spawn(async move {
            let audience = number.to_string();
            drop(manager.token(&request(&[("audience", &audience)])).await);
        });
    }
    while fake.calls() < 64 {
        tokio::task::yield_now().await;
    }

    let busy = manager.token(&request(&[("audience", "bank")])).await;
    assert!(matches!(busy, Err(ExchangeError::Busy)), "{busy:?}");
}
