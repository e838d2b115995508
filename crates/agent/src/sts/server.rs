//! The service's port, on loopback alone, and for no pages of other sites in a browser.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use prost_types::Timestamp;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::cache::HeldToken;
use super::exchange::ExchangeError;
use super::manager::TokenManager;
use super::request::{ErrorCode, RequestError, TokenRequest};
use crate::Clock;
use crate::http_server::{only_of_this_machine, serve_connection};
use navarch_base::printable::escape_json;
use navarch_net::port::{Port, PortLimits};
use navarch_net::rejections::Rejections;
use navarch_net::stream::PortStream;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 64;
/// Timeout of request headers, at first and after each response, as in Istio 1.14.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Timeout of a request's body, and how long a client may read nothing of a response.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a form. Tokens have up to a few KiB.
const MAX_FORM: usize = 64 << 10;

#[derive(Debug)]
struct Shared {
    manager: TokenManager,
    clock: Clock,
}

/// Serves until dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    manager: TokenManager,
    clock: Clock,
    rejections: Rejections,
) {
    let router = Router::new()
        .route("/token", any(token))
        .route("/stsStatus", get(status))
        .layer(from_fn(only_of_this_machine))
        .with_state(Arc::new(Shared { manager, clock }));
    let port = Port::new("sts", PortLimits::plain(MAX_CONNECTIONS), rejections);
    let serve = |stream: PortStream, peer| {
        let stream = stream.with_read_limit(BODY_TIMEOUT);
        serve_connection(stream, peer, router.clone(), IDLE_TIMEOUT)
    };
    port.for_each(&listener, &mut JoinSet::new(), serve).await;
}

/// A token for a request (`/token`).
async fn token(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let request = match read_request(&shared, request).await {
        Ok(request) => request,
        Err(error) => {
            tracing::warn!(%error, "invalid token request");
            return failure(request_status(error), error.code(), &error.to_string());
        }
    };

    let target = request.target();
    match shared.manager.token(&request).await {
        Ok(token) => answer(StatusCode::OK, &token_json(&token, Instant::now())),
        Err(error) => {
            log_failure(&target, &error);
            let mut response = failure(error.status(), error.code(), &error.to_string());
            if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            response
        }
    }
}

/// Kinds and expiry of all tokens (`/stsStatus`), without the tokens.
async fn status(State(shared): State<Arc<Shared>>) -> Response {
    let now = Instant::now();
    let clock = (shared.clock)();
    let tokens: Vec<Value> = shared
        .manager
        .tokens(now)
        .iter()
        .flat_map(|token| status_json(token, now, clock))
        .collect();
    answer(StatusCode::OK, &json!({ "tokens": tokens }))
}

/// Reads and checks a request.
async fn read_request(shared: &Shared, request: Request) -> Result<TokenRequest, RequestError> {
    if request.method() != Method::POST {
        return Err(RequestError::Method);
    }
    if !is_form(request.headers()) {
        return Err(RequestError::ContentType);
    }

    let body = axum::body::to_bytes(request.into_body(), MAX_FORM);
    let body = timeout(BODY_TIMEOUT, body)
        .await
        .map_err(|_| RequestError::Body)?
        .map_err(|_| RequestError::Body)?;
    let request = TokenRequest::parse(&body)?;
    shared.manager.check(&request)?;
    Ok(request)
}

/// Whether the content is a form, whatever the parameters of its type.
fn is_form(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    value
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| {
            value
                .trim()
                .eq_ignore_ascii_case("application/x-www-form-urlencoded")
        })
}

fn request_status(error: RequestError) -> StatusCode {
    if error == RequestError::Method {
        StatusCode::METHOD_NOT_ALLOWED
    } else {
        StatusCode::BAD_REQUEST
    }
}

/// Logs a failure. Those without an exchange repeat an earlier one.
fn log_failure(target: &str, error: &ExchangeError) {
    if matches!(error, ExchangeError::BackOff) {
        tracing::debug!(service = target, %error, "no token exchange");
    } else {
        tracing::warn!(
            service = target,
            error = error as &dyn std::error::Error,
            "token exchange failed"
        );
    }
}

/// A successful response (RFC 8693, section 2.2.1).
fn token_json(held: &HeldToken, now: Instant) -> Value {
    let token = &held.token;
    let mut response = Map::new();
    let mut put = |name: &str, value: Value| response.insert(name.to_owned(), value);

    put("access_token", token.token.expose().into());
    put("issued_token_type", token.issued_token_type.as_str().into());
    put("token_type", token.token_type.as_str().into());
    if let Some(expires) = held.expires {
        let remaining = expires.saturating_duration_since(now);
        put("expires_in", remaining.as_secs().into());
    }
    if let Some(scope) = &token.scope {
        put("scope", scope.as_str().into());
    }
    response.into()
}

/// A token, and the federated token that it was exchanged for, in the status.
fn status_json(held: &HeldToken, now: Instant, clock: SystemTime) -> Vec<Value> {
    let issued = clock - now.saturating_duration_since(held.issued);
    let entry = |kind: &str, lifetime: Duration| {
        json!({
            "token_type": kind,
            "target": held.target,
            "issue_time": Timestamp::from(issued).to_string(),
            "expire_time": Timestamp::from(issued + lifetime).to_string(),
        })
    };

    let token = &held.token;
    let lifetime = token.lifetime.unwrap_or_default();
    let Some(federated) = token.federated else {
        return vec![entry(&token.issued_token_type, lifetime)];
    };
    vec![
        entry("federated token", federated),
        entry("access token", lifetime),
    ]
}

/// An error (RFC 8693, section 2.2.2).
fn failure(status: StatusCode, code: ErrorCode, description: &str) -> Response {
    let body = json!({"error": code.as_str(), "error_description": description});
    let mut response = answer(status, &body);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

/// A response as JSON, which nobody may store. Clients choose the targets in it.
fn answer(status: StatusCode, body: &Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
        (header::PRAGMA, "no-cache"),
    ];
    let body = body.to_string();
    (status, headers, escape_json(&body).into_owned()).into_response()
}
