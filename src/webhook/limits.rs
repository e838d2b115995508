//! How much is taken from callers, and for how long they are waited for.

use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// The most bytes of a review: what the API server itself takes of an object, twice.
pub const MAX_BODY: usize = 6 << 20;

/// What is given to all callers together, and to each.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of reviews that are read or answered at once.
    pub bytes: usize,
    /// How long a review waits for its turn. Then the API server is told that it is too much.
    pub turn: Duration,
    /// How long a caller may take to send a review.
    pub body: Duration,
}

impl Default for Limits {
    /// Together well below the ten seconds for which an API server waits.
    fn default() -> Self {
        Self { bytes: 48 << 20, turn: Duration::from_secs(3), body: Duration::from_secs(5) }
    }
}

/// A review as it came, and its share of what is given to all.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    /// The bytes.
    pub(super) body: Bytes,
    /// Given back when dropped.
    pub(super) _share: SemaphorePermit<'a>,
}

/// Why a review is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// There are too many others.
    Busy,
    /// The sender is too slow.
    Slow,
    /// There is too much of it.
    TooLarge,
    /// The sender gave up, or does not speak HTTP.
    Broken,
    /// There is nothing.
    Empty,
    /// It is not JSON by its own word.
    WrongType,
}

impl IntoResponse for NotTaken {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "too many reviews at once; try again".to_owned()),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "the body came too slowly".to_owned()),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is too large: limit is {MAX_BODY}")),
            Self::Broken => (StatusCode::BAD_REQUEST, "the body could not be read".to_owned()),
            Self::Empty => (StatusCode::BAD_REQUEST, "no body found".to_owned()),
            Self::WrongType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid Content-Type, want `application/json`".to_owned())
            }
        };
        // What is left of a body is not read, so the connection is of no more use.
        let close = matches!(self, Self::Slow | Self::TooLarge | Self::Broken);
        let mut response = (status, text).into_response();
        if close {
            response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        response
    }
}

/// The bytes that are given to all reviews together, in kilobytes.
#[derive(Debug)]
pub(super) struct Budget {
    /// What is left.
    left: Semaphore,
    /// The limits.
    limits: Limits,
}

impl Budget {
    /// A budget of these limits; one review always fits.
    pub(super) fn new(limits: Limits) -> Self {
        Self { left: Semaphore::new(kilobytes(limits.bytes.max(MAX_BODY)) as usize), limits }
    }

    /// Takes a review.
    pub(super) async fn take(&self, request: Request<Body>) -> Result<Taken<'_>, NotTaken> {
        let said = request.headers().get(header::CONTENT_LENGTH);
        let said = said.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<usize>().ok());
        if said.is_some_and(|length| length > MAX_BODY) {
            return Err(NotTaken::TooLarge);
        }
        let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(is_json);
        let share = self.left.acquire_many(kilobytes(said.unwrap_or(MAX_BODY)));
        let share = timeout(self.limits.turn, share).await.map_err(|_| NotTaken::Busy)?;
        let share = share.map_err(|_| NotTaken::Busy)?;
        let body = Limited::new(request.into_body(), MAX_BODY).collect();
        let body = match timeout(self.limits.body, body).await {
            Err(_) => return Err(NotTaken::Slow),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(NotTaken::TooLarge),
            Ok(Err(_)) => return Err(NotTaken::Broken),
            Ok(Ok(body)) => body.to_bytes(),
        };
        if body.is_empty() {
            return Err(NotTaken::Empty);
        }
        if !is_json {
            return Err(NotTaken::WrongType);
        }
        Ok(Taken { body, _share: share })
    }
}

/// A number of bytes in kilobytes, at least one, rounded up.
fn kilobytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024).max(1)).unwrap_or(u32::MAX)
}

/// Whether a content type is JSON; parameters such as the character set do not matter.
fn is_json(value: &header::HeaderValue) -> bool {
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}
