//! Limits of reviews: size, memory and time.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::caller_shares::{CallerShare, CallerShares};
use navarch_net::budget::{Budget, Charge};
use navarch_net::rejections::Rejections;

/// Maximum size of a review: twice the API server's limit of an object.
pub const MAX_BODY: usize = 6 << 20;
/// Size of a small review. The first bytes of each review are charged to a separate budget, so that
/// large ones never block small ones.
pub const SMALL_BODY: usize = 64 << 10;

/// Limits of all callers together, and of each.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory of concurrent reviews, without the first [`SMALL_BODY`] of each.
    pub bytes: usize,
    /// Memory of the first [`SMALL_BODY`] of all reviews.
    pub small_bytes: usize,
    /// How long a review waits for capacity before it is rejected as busy (503).
    pub turn: Duration,
    /// Timeout of receiving a review.
    pub body: Duration,
    /// Counter of rejected reviews.
    pub rejections: Rejections,
}

impl Default for Limits {
    /// The sum is well below the API server's timeout of ten seconds.
    fn default() -> Self {
        Self {
            bytes: 48 << 20,
            small_bytes: 16 << 20,
            turn: Duration::from_secs(3),
            body: Duration::from_secs(5),
            rejections: Rejections::default(),
        }
    }
}

#[derive(Debug)]
pub(super) struct ReceivedReview {
    pub(super) body: Bytes,
    pub(super) peer: IpAddr,
    /// The memory charge.
    _charges: [Charge; 2],
    /// The taken part of the caller's share, if the review is large.
    _share_of_caller: Option<CallerShare>,
}

/// Why a review is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RejectReason {
    /// There are too many concurrent reviews.
    Busy,
    /// The sender is too slow.
    Slow,
    /// The review is too large.
    TooLarge,
    /// The connection failed, or the body is not valid HTTP.
    Broken,
    /// The body is empty.
    Empty,
    /// The content type is not JSON.
    WrongType,
}

impl RejectReason {
    /// The reason in metrics.
    fn reason(self) -> &'static str {
        match self {
            Self::Busy => "too_many_reviews",
            Self::Slow => "slow_body",
            Self::TooLarge => "body_too_large",
            Self::Broken => "broken_body",
            Self::Empty => "no_body",
            Self::WrongType => "wrong_content_type",
        }
    }
}

impl IntoResponse for RejectReason {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many reviews at once; try again".to_owned(),
            ),
            Self::Slow => (
                StatusCode::REQUEST_TIMEOUT,
                "timed out reading the body".to_owned(),
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is too large: limit is {MAX_BODY}"),
            ),
            Self::Broken => (
                StatusCode::BAD_REQUEST,
                "the body could not be read".to_owned(),
            ),
            Self::Empty => (StatusCode::BAD_REQUEST, "no body found".to_owned()),
            Self::WrongType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "invalid Content-Type, want `application/json`".to_owned(),
            ),
        };

        // The rest of the body is not read, so the connection must be closed.
        let close = matches!(self, Self::Slow | Self::TooLarge | Self::Broken);
        let mut response = (status, text).into_response();

        if close {
            response.headers_mut().insert(
                header::CONNECTION,
                header::HeaderValue::from_static("close"),
            );
        }

        response
    }
}

/// Reads reviews within limits, fairly among callers' addresses.
#[derive(Debug)]
pub(super) struct ReviewReader {
    /// Budget of the first [`SMALL_BODY`] of each review.
    small: Arc<Budget>,
    /// Budget of the rest.
    large: Arc<Budget>,
    /// Limits concurrent large reviews of each caller to those that are sure to finish: otherwise
    /// all of them might wait for memory that the others hold.
    caller_shares: Arc<CallerShares>,
    limits: Limits,
}

impl ReviewReader {
    /// An intake with these limits; one review of maximum size always fits.
    pub(super) fn new(limits: Limits) -> Self {
        // A single caller may hold half of a budget; a quarter remains for it beside two other
        // callers at their maximum.
        let bytes = limits.bytes.max(4 * MAX_BODY);
        Self {
            small: Budget::new(limits.small_bytes.max(4 * SMALL_BODY)),
            large: Budget::new(bytes),
            caller_shares: CallerShares::new(bytes / 4),
            limits,
        }
    }

    /// Reads a review, or counts the rejection.
    pub(super) async fn take(
        &self,
        request: Request<Body>,
    ) -> Result<ReceivedReview, RejectReason> {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |ConnectInfo(peer)| {
            peer.ip()
        });
        let taken = self.read_review(peer, request).await;
        if let Err(not_taken) = &taken {
            self.limits
                .rejections
                .count("https", not_taken.reason(), peer);
        }
        taken
    }

    /// Reads a review of a caller.
    async fn read_review(
        &self,
        peer: IpAddr,
        request: Request<Body>,
    ) -> Result<ReceivedReview, RejectReason> {
        let header = request.headers().get(header::CONTENT_LENGTH);
        let header = header
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse::<usize>().ok());
        if header.is_some_and(|length| length > MAX_BODY) {
            return Err(RejectReason::TooLarge);
        }

        let is_json = request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(is_json);
        let share = match header {
            Some(..=SMALL_BODY) => None,
            large => {
                let share = self.caller_shares.take(peer, large.unwrap_or(MAX_BODY));
                Some(
                    timeout(self.limits.turn, share)
                        .await
                        .map_err(|_| RejectReason::Busy)?,
                )
            }
        };

        let waits_for_room = AtomicBool::new(false);
        let reading = self.read(peer, request.into_body(), header, &waits_for_room);
        let (body, charges) = match timeout(self.limits.body, reading).await {
            Ok(read) => read?,
            Err(_) if waits_for_room.load(Ordering::Relaxed) => return Err(RejectReason::Busy),
            Err(_) => return Err(RejectReason::Slow),
        };
        if body.is_empty() {
            return Err(RejectReason::Empty);
        }

        if !is_json {
            return Err(RejectReason::WrongType);
        }

        Ok(ReceivedReview {
            body,
            peer,
            _charges: charges,
            _share_of_caller: share,
        })
    }

    /// Reads a body; its bytes are charged as they arrive, whatever the announced length.
    async fn read(
        &self,
        peer: IpAddr,
        mut body: Body,
        content_length: Option<usize>,
        waits_for_room: &AtomicBool,
    ) -> Result<(Bytes, [Charge; 2]), RejectReason> {
        let free = |budget: &Arc<Budget>| budget.charge(peer, 0).map_err(|_| RejectReason::Busy);
        let mut small = free(&self.small)?;
        let mut large = free(&self.large)?;
        let mut bytes = Vec::with_capacity(content_length.unwrap_or_default().min(SMALL_BODY));

        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| RejectReason::Broken)?.into_data() else {
                continue;
            };

            if bytes.len() + data.len() > MAX_BODY {
                return Err(RejectReason::TooLarge);
            }

            let first = data.len().min(SMALL_BODY.saturating_sub(bytes.len()));
            waits_for_room.store(true, Ordering::Relaxed);
            let charged = async {
                small.grow_when_free(first).await;
                large.grow_when_free(data.len() - first).await;
            };
            timeout(self.limits.turn, charged)
                .await
                .map_err(|_| RejectReason::Busy)?;

            waits_for_room.store(false, Ordering::Relaxed);

            if bytes.len() + data.len() > bytes.capacity() {
                // Untouched memory costs nothing, so the announced length may be reserved.
                bytes.reserve_exact(
                    content_length
                        .unwrap_or_default()
                        .saturating_sub(bytes.len())
                        .max(data.len()),
                );
            }

            bytes.extend_from_slice(&data);
        }

        Ok((bytes.into(), [small, large]))
    }
}

/// Whether a content type is JSON; parameters such as the character set do not matter.
fn is_json(value: &header::HeaderValue) -> bool {
    let essence = value
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    /// The limits, with less time.
    fn hasty() -> Limits {
        let turn = Duration::from_millis(100);
        let body = Duration::from_secs(2);
        Limits {
            turn,
            body,
            ..Limits::default()
        }
    }

    /// A client by the last part of its address.
    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// A review that announces a length and comes in pieces.
    fn review(announced: usize) -> (mpsc::Sender<Vec<u8>>, Request<Body>) {
        let (sender, receiver) = mpsc::channel(1000);
        let body = ReceiverStream::new(receiver)
            .map(|data: Vec<u8>| Ok::<_, std::io::Error>(Bytes::from(data)));
        let request = Request::post("/validate")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_LENGTH, announced);
        (sender, request.body(Body::from_stream(body)).unwrap())
    }

    /// A review that is there as a whole.
    fn whole(length: usize) -> Request<Body> {
        let (sender, request) = review(length);
        sender.try_send(vec![b' '; length]).unwrap();
        request
    }

    #[tokio::test]
    async fn announced_body_sizes_do_not_block_others() {
        let intake = Arc::new(ReviewReader::new(hasty()));
        let mut silent = tokio::task::JoinSet::new();
        let mut senders = Vec::new();

        for last in 1..=64 {
            let (sender, request) = review(MAX_BODY);
            senders.push(sender);
            let intake = intake.clone();
            silent.spawn(async move { intake.read_review(peer(last), request).await.map(drop) });
        }

        tokio::task::yield_now().await;

        for length in [2, MAX_BODY] {
            let taken = intake.read_review(peer(100), whole(length)).await.unwrap();
            assert_eq!(
                taken.body.len(),
                length,
                "nothing has come, so nothing is charged"
            );
        }

        while let Some(outcome) = silent.join_next().await {
            assert_eq!(outcome.unwrap(), Err(RejectReason::Slow));
        }

        assert_eq!(
            (
                intake.small.held(),
                intake.large.held(),
                intake.caller_shares.len()
            ),
            (0, 0, 0)
        );
    }

    #[tokio::test]
    async fn a_client_with_large_bodies_waits_and_leaves_room_for_others() {
        let intake = ReviewReader::new(hasty());
        let mut held = Vec::new();

        // Two of the largest are what one caller may send at once.
        for _ in 0..2 {
            held.push(intake.read_review(peer(1), whole(MAX_BODY)).await.unwrap());
        }

        assert_eq!(
            intake
                .read_review(peer(1), whole(MAX_BODY))
                .await
                .unwrap_err(),
            RejectReason::Busy
        );

        held.push(
            intake
                .read_review(peer(1), whole(SMALL_BODY))
                .await
                .unwrap(),
        );

        for last in 2..4 {
            held.push(
                intake
                    .read_review(peer(last), whole(MAX_BODY))
                    .await
                    .unwrap(),
            );
        }

        drop(held);
        assert_eq!(
            intake
                .read_review(peer(1), whole(MAX_BODY))
                .await
                .unwrap()
                .body
                .len(),
            MAX_BODY
        );

        assert_eq!(
            (
                intake.small.held(),
                intake.large.held(),
                intake.caller_shares.len()
            ),
            (0, 0, 0)
        );
    }

    #[tokio::test]
    async fn small_reviews_are_accepted_while_large_ones_use_all_memory() {
        let limits = Limits {
            bytes: 0,
            ..hasty()
        };
        let intake = ReviewReader::new(limits);

        // As many callers as it takes until no large review fits.
        let mut held = Vec::new();

        for last in 1..100 {
            match intake.read_review(peer(last), whole(MAX_BODY)).await {
                Ok(taken) => held.push(taken),
                Err(reason) => {
                    assert_eq!(reason, RejectReason::Busy);
                    break;
                }
            }
        }

        assert!((2..99).contains(&held.len()), "{}", held.len());

        for last in 100..200 {
            held.push(
                intake
                    .read_review(peer(last), whole(SMALL_BODY))
                    .await
                    .unwrap(),
            );
        }
    }

    #[tokio::test]
    async fn bodies_that_drip_or_grow_too_large_are_cut() {
        let intake = ReviewReader::new(hasty());
        let (sender, request) = review(100);
        sender.try_send(vec![b'{']).unwrap();
        assert_eq!(
            intake.read_review(peer(1), request).await.unwrap_err(),
            RejectReason::Slow
        );
        let (sender, mut request) = review(0);
        request.headers_mut().remove(header::CONTENT_LENGTH);

        for _ in 0..7 {
            sender.try_send(vec![b' '; 1 << 20]).unwrap();
        }

        drop(sender);
        assert_eq!(
            intake.read_review(peer(1), request).await.unwrap_err(),
            RejectReason::TooLarge
        );
        assert_eq!(
            intake
                .read_review(peer(1), whole(MAX_BODY + 1))
                .await
                .unwrap_err(),
            RejectReason::TooLarge
        );
    }
}
