//! Tests with a fake metadata server.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use navarch_testkit::wait::until;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

thread_local! {
    /// The time of [`clock`] in this thread, in seconds since 1970.
    static NOW: Cell<u64> = const { Cell::new(1_000_000) };
}

fn clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW.get())
}

/// Lets time pass.
fn pass(seconds: u64) {
    NOW.set(NOW.get() + seconds);
}

/// A JWT that is valid for some seconds from now.
fn jwt(seconds: u64, id: &str) -> String {
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(json!({"alg": "RS256"}));
    let claims = part(json!({"exp": NOW.get() + seconds, "jti": id}));
    format!("{header}.{claims}.c2lnbmF0dXJl")
}

/// A metadata server.
struct FakeServer {
    address: SocketAddr,
    state: Arc<FakeState>,
    _tasks: JoinSet<()>,
}

struct FakeState {
    response: Mutex<(StatusCode, String)>,
    /// Path, query and the headers of both clouds.
    requests: Mutex<Vec<String>>,
}

impl FakeServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(FakeState {
            response: Mutex::new((StatusCode::NOT_FOUND, String::new())),
            requests: Mutex::default(),
        });

        let shared = state.clone();
        let app = Router::new().fallback(move |request: Request| {
            let header = |name: &str| {
                let value = request.headers().get(name);
                value.map_or("-", |value| value.to_str().unwrap())
            };
            shared.requests.lock().push(format!(
                "{} {} {}",
                request.uri(),
                header("metadata-flavor"),
                header("metadata")
            ));
            let (status, body) = shared.response.lock().clone();
            async move { (status, [("location", "/elsewhere")], body) }
        });

        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            state,
            _tasks: tasks,
        }
    }

    /// Answers the following requests with this.
    fn answer(&self, status: StatusCode, body: &str) {
        *self.state.response.lock() = (status, body.to_owned());
    }

    fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }

    /// The sources that variables select, with this server as that of both clouds.
    fn sources(&self, variables: &[(&str, &str)]) -> TokenSources {
        let address = self.address.to_string();
        let url = format!("http://{address}/");
        let addresses = [
            ("GCE_METADATA_HOST", address.as_str()),
            ("AZURE_POD_IDENTITY_AUTHORITY_HOST", url.as_str()),
        ];
        let all = addresses.iter().chain(variables).copied().collect();
        TokenSources::from_variables(&all, clock).unwrap()
    }
}

/// The error of variables.
fn error_of(variables: &[(&str, &str)]) -> String {
    let variables = variables.iter().copied().collect();
    TokenSources::from_variables(&variables, clock)
        .unwrap_err()
        .to_string()
}

const BY_GOOGLE: (&str, &str) = ("CREDENTIAL_FETCHER_TYPE", "GoogleComputeEngine");

#[tokio::test]
async fn one_token_of_google_serves_both_the_ca_and_the_control_plane() {
    let server = FakeServer::start().await;
    let sources = server.sources(&[BY_GOOGLE, ("TRUST_DOMAIN", "example.org")]);
    let token = jwt(3600, "one");
    server.answer(StatusCode::OK, &format!("{token}\n"));

    for source in [&sources.ca, &sources.control_plane, &sources.ca] {
        assert_eq!(source.token().await.unwrap(), Some(token.clone()));
    }
    let path = "/computeMetadata/v1/instance/service-accounts/default/identity";
    let request = format!("{path}?audience=example.org&format=full Google -");
    assert_eq!(server.requests(), [request]);
}

#[tokio::test]
async fn a_token_of_azure_is_for_the_audience_and_the_identity_of_variables() {
    let server = FakeServer::start().await;
    let sources = server.sources(&[
        ("CREDENTIAL_FETCHER_TYPE", "AzureVirtualMachine"),
        ("NAVARCH_CREDENTIAL_AUDIENCE", "api://mesh"),
        ("AZURE_CLIENT_ID", "id"),
    ]);
    let token = jwt(3600, "one");
    let response = json!({"access_token": token, "expires_on": "1", "token_type": "Bearer"});
    server.answer(StatusCode::OK, &response.to_string());

    assert_eq!(sources.ca.token().await.unwrap(), Some(token));
    let query = "api-version=2018-02-01&resource=api%3A%2F%2Fmesh&client_id=id";
    let request = format!("/metadata/identity/oauth2/token?{query} - true");
    assert_eq!(server.requests(), [request]);
}

#[tokio::test]
async fn a_token_is_renewed_ten_minutes_before_it_expires() {
    let server = FakeServer::start().await;
    let sources = server.sources(&[BY_GOOGLE]);
    let [first, second] = [jwt(3600, "first"), jwt(7200, "second")];
    server.answer(StatusCode::OK, &first);
    assert_eq!(sources.ca.token().await.unwrap(), Some(first.clone()));

    server.answer(StatusCode::OK, &second);
    pass(2999);
    assert_eq!(sources.ca.token().await.unwrap(), Some(first));
    pass(1);
    assert_eq!(sources.ca.token().await.unwrap(), Some(second));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_token_that_cannot_be_renewed_is_used_until_it_expires() {
    let server = FakeServer::start().await;
    let sources = server.sources(&[BY_GOOGLE]);
    let token = jwt(3600, "one");
    server.answer(StatusCode::OK, &token);
    sources.ca.token().await.unwrap();

    server.answer(StatusCode::SERVICE_UNAVAILABLE, "");
    pass(3599);
    assert_eq!(sources.ca.token().await.unwrap(), Some(token.clone()));
    assert_eq!(sources.ca.token().await.unwrap(), Some(token));
    assert_eq!(server.requests().len(), 2, "it is not asked again at once");
    pass(1);
    assert!(sources.ca.token().await.is_err());
}

#[tokio::test]
async fn a_server_that_failed_is_asked_again_after_a_delay() {
    let server = FakeServer::start().await;
    let sources = server.sources(&[BY_GOOGLE]);
    let error = sources.ca.token().await.unwrap_err();
    assert!(
        matches!(&error, TokenError::Status { status, .. } if *status == StatusCode::NOT_FOUND),
        "{error}"
    );

    let token = jwt(3600, "one");
    server.answer(StatusCode::OK, &token);
    let error = sources.ca.token().await.unwrap_err();
    assert!(matches!(error, TokenError::Waiting(_)), "{error}");
    assert_eq!(server.requests().len(), 1);
    until("it is asked again", async || {
        sources.ca.token().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_response_without_a_valid_token_is_an_error() {
    let server = FakeServer::start().await;
    let expired = jwt(0, "one");
    let large = "x".repeat(17 << 10);
    let valid = jwt(3600, "one");
    let cases = [
        (StatusCode::OK, "{\"instanceId\": \"i-1\"}", "not a JWT"),
        (StatusCode::OK, "a.b.c", "not a JWT"),
        (StatusCode::OK, expired.as_str(), "expired token"),
        (StatusCode::OK, large.as_str(), "the request to"),
        (StatusCode::FOUND, valid.as_str(), "302"),
    ];

    for (status, body, expected) in cases {
        let sources = server.sources(&[BY_GOOGLE]);
        server.answer(status, body);
        let error = sources.ca.token().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(
        server.requests().len(),
        cases.len(),
        "no redirect is followed"
    );
}

#[tokio::test]
async fn a_token_is_not_printed() {
    let server = FakeServer::start().await;
    let sources = server.sources(&[BY_GOOGLE]);
    let token = jwt(3600, "one");
    server.answer(StatusCode::OK, &token);
    sources.ca.token().await.unwrap();

    let printed = format!("{sources:?}");
    let signature = token.rsplit('.').next().unwrap();
    assert!(printed.contains("IdentityToken"), "{printed}");
    assert!(!printed.contains(signature), "{printed}");
}

#[test]
fn tokens_are_in_a_file_unless_a_variable_names_a_cloud() {
    let sources = |variables: &[(&str, &str)]| {
        let variables = variables.iter().copied().collect();
        let sources = TokenSources::from_variables(&variables, clock).unwrap();
        [sources.ca, sources.control_plane].map(
            |source| matches!(source, TokenSource::File(path) if path == Path::new(TOKEN_FILE)),
        )
    };

    assert_eq!(sources(&[]), [true, true]);
    assert_eq!(sources(&[("CREDENTIAL_FETCHER_TYPE", "JWT")]), [true, true]);
    assert_eq!(sources(&[BY_GOOGLE]), [false, false]);
    assert_eq!(sources(&[("XDS_AUTH_PROVIDER", "gcp")]), [true, false]);
    let only_ca = [BY_GOOGLE, ("XDS_AUTH_PROVIDER", "JWT")];
    assert_eq!(sources(&only_ca), [false, true]);
}

#[tokio::test]
async fn the_policy_selects_the_file_with_the_token_or_none() {
    let source = |policy: &str| {
        let variables = [("JWT_POLICY", policy)].into_iter().collect();
        let sources = TokenSources::from_variables(&variables, clock).unwrap();
        sources.ca
    };
    let is_in = |policy: &str, file: &str| matches!(source(policy), TokenSource::File(path) if path == Path::new(file));

    assert!(is_in("", TOKEN_FILE) && is_in("third-party-jwt", TOKEN_FILE));
    let mounted = "./var/run/secrets/kubernetes.io/serviceaccount/token";
    assert!(is_in("first-party-jwt", mounted));
    assert_eq!(source("none").token().await.unwrap(), None);
    let unknown = error_of(&[("JWT_POLICY", "third-party")]);
    assert!(
        unknown.starts_with("JWT_POLICY=\"third-party\" is unknown"),
        "{unknown}"
    );
}

#[test]
fn unsupported_types_and_addresses_are_rejected_by_name() {
    for variable in ["CREDENTIAL_FETCHER_TYPE", "XDS_AUTH_PROVIDER"] {
        let unknown = error_of(&[(variable, "Mock")]);
        let named = format!("{variable}=\"Mock\" is unknown: set it to JWT");
        assert!(unknown.starts_with(&named), "{unknown}");
        let aws = error_of(&[(variable, "AmazonEC2")]);
        let named = format!("{variable}=AmazonEC2 is not supported");
        assert!(aws.starts_with(&named) && aws.contains(TOKEN_FILE), "{aws}");
    }

    let address = error_of(&[BY_GOOGLE, ("GCE_METADATA_HOST", "https://metadata")]);
    assert!(address.starts_with("GCE_METADATA_HOST="), "{address}");
}
