//! How much is taken from callers, and for how long they are waited for.

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

/// The most bytes of a review: what the API server itself takes of an object, twice.
pub const MAX_BODY: usize = 6 << 20;
/// What counts as a small review. The first bytes of each are charged to a budget of their own, so that large ones never
/// keep small ones out.
pub const SMALL_BODY: usize = 64 << 10;

/// What is given to all callers together, and to each.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of reviews that are read or answered at once, without the first [`SMALL_BODY`] of each.
    pub bytes: usize,
    /// The first bytes of all of them.
    pub small_bytes: usize,
    /// How long a review waits for capacity before it is rejected as busy (503).
    pub turn: Duration,
    /// How long a caller may take to send a review.
    pub body: Duration,
    /// Where reviews that are not taken are counted.
    pub rejections: Rejections,
}

impl Default for Limits {
    /// Together well below the ten seconds for which an API server waits.
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

/// A review as it came.
#[derive(Debug)]
pub(super) struct ReceivedReview {
    pub(super) body: Bytes,
    /// Whose they are.
    pub(super) peer: IpAddr,
    /// What is charged for them.
    _charges: [Charge; 2],
    /// What it takes of its caller's share, if it is large.
    _share_of_caller: Option<CallerShare>,
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

impl NotTaken {
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

/// Takes reviews within limits, fairly by the address of the caller.
#[derive(Debug)]
pub(super) struct Intake {
    /// Pays for the first [`SMALL_BODY`] of each review.
    small: Arc<Budget>,
    /// Pays for the rest.
    large: Arc<Budget>,
    /// Lets each caller send only as many large reviews at once as it can be sure to finish: were all of them begun, all
    /// might wait for the room that the others hold.
    caller_shares: Arc<CallerShares>,
    limits: Limits,
}

impl Intake {
    /// An intake with these limits; one review always fits.
    pub(super) fn new(limits: Limits) -> Self {
        // Half of a budget is what a caller alone may hold; a quarter is left to it beside two others that hold all they may.
        let bytes = limits.bytes.max(4 * MAX_BODY);
        Self {
            small: Budget::new(limits.small_bytes.max(4 * SMALL_BODY)),
            large: Budget::new(bytes),
            caller_shares: CallerShares::new(bytes / 4),
            limits,
        }
    }

    /// Takes a review, or counts why not.
    pub(super) async fn take(&self, request: Request<Body>) -> Result<ReceivedReview, NotTaken> {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip());
        let taken = self.take_from(peer, request).await;
        if let Err(not_taken) = &taken {
            self.limits.rejections.count("https", not_taken.reason(), peer);
        }
        taken
    }

    /// Takes a review of a caller.
    async fn take_from(&self, peer: IpAddr, request: Request<Body>) -> Result<ReceivedReview, NotTaken> {
        let said = request.headers().get(header::CONTENT_LENGTH);
        let said = said.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<usize>().ok());
        if said.is_some_and(|length| length > MAX_BODY) {
            return Err(NotTaken::TooLarge);
        }
        let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(is_json);
        let share = match said {
            Some(..=SMALL_BODY) => None,
            large => {
                let share = self.caller_shares.take(peer, large.unwrap_or(MAX_BODY));
                Some(timeout(self.limits.turn, share).await.map_err(|_| NotTaken::Busy)?)
            }
        };
        let waits_for_room = AtomicBool::new(false);
        let reading = self.read(peer, request.into_body(), said, &waits_for_room);
        let (body, charges) = match timeout(self.limits.body, reading).await {
            Ok(read) => read?,
            Err(_) if waits_for_room.load(Ordering::Relaxed) => return Err(NotTaken::Busy),
            Err(_) => return Err(NotTaken::Slow),
        };
        if body.is_empty() {
            return Err(NotTaken::Empty);
        }
        if !is_json {
            return Err(NotTaken::WrongType);
        }
        Ok(ReceivedReview { body, peer, _charges: charges, _share_of_caller: share })
    }

    /// Reads a body; its bytes are charged as they come, whatever their number was said to be.
    async fn read(
        &self,
        peer: IpAddr,
        mut body: Body,
        said: Option<usize>,
        waits_for_room: &AtomicBool,
    ) -> Result<(Bytes, [Charge; 2]), NotTaken> {
        let free = |budget: &Arc<Budget>| budget.charge(peer, 0).map_err(|_| NotTaken::Busy);
        let (mut small, mut large) = (free(&self.small)?, free(&self.large)?);
        let mut bytes = Vec::with_capacity(said.unwrap_or_default().min(SMALL_BODY));
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| NotTaken::Broken)?.into_data() else { continue };
            if bytes.len() + data.len() > MAX_BODY {
                return Err(NotTaken::TooLarge);
            }
            let first = data.len().min(SMALL_BODY.saturating_sub(bytes.len()));
            waits_for_room.store(true, Ordering::Relaxed);
            let charged = async {
                small.grow_when_free(first).await;
                large.grow_when_free(data.len() - first).await;
            };
            timeout(self.limits.turn, charged).await.map_err(|_| NotTaken::Busy)?;
            waits_for_room.store(false, Ordering::Relaxed);
            if bytes.len() + data.len() > bytes.capacity() {
                // Memory that is not written to costs nothing, so it may be as much as was said.
                bytes.reserve_exact(said.unwrap_or_default().saturating_sub(bytes.len()).max(data.len()));
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.into(), [small, large]))
    }
}

/// Whether a content type is JSON; parameters such as the character set do not matter.
fn is_json(value: &header::HeaderValue) -> bool {
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
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
        let (turn, body) = (Duration::from_millis(100), Duration::from_secs(2));
        Limits { turn, body, ..Limits::default() }
    }

    /// A client by the last part of its address.
    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// A review that announces a length and comes in pieces.
    fn review(announced: usize) -> (mpsc::Sender<Vec<u8>>, Request<Body>) {
        let (sender, receiver) = mpsc::channel(1000);
        let body = ReceiverStream::new(receiver).map(|data: Vec<u8>| Ok::<_, std::io::Error>(Bytes::from(data)));
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
    async fn announced_bytes_keep_nobody_else_out() {
        let intake = Arc::new(Intake::new(hasty()));
        let mut silent = tokio::task::JoinSet::new();
        let mut senders = Vec::new();
        for last in 1..=64 {
            let (sender, request) = review(MAX_BODY);
            senders.push(sender);
            let intake = intake.clone();
            silent.spawn(async move { intake.take_from(peer(last), request).await.map(drop) });
        }
        tokio::task::yield_now().await;
        for length in [2, MAX_BODY] {
            let taken = intake.take_from(peer(100), whole(length)).await.unwrap();
            assert_eq!(taken.body.len(), length, "nothing has come, so nothing is charged");
        }
        while let Some(outcome) = silent.join_next().await {
            assert_eq!(outcome.unwrap(), Err(NotTaken::Slow));
        }
        assert_eq!((intake.small.held(), intake.large.held(), intake.caller_shares.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn whoever_sends_much_waits_for_its_own_and_leaves_room_for_others() {
        let intake = Intake::new(hasty());
        let mut held = Vec::new();
        // Two of the largest are what one caller may send at once.
        for _ in 0..2 {
            held.push(intake.take_from(peer(1), whole(MAX_BODY)).await.unwrap());
        }
        assert_eq!(intake.take_from(peer(1), whole(MAX_BODY)).await.unwrap_err(), NotTaken::Busy);
        held.push(intake.take_from(peer(1), whole(SMALL_BODY)).await.unwrap());
        for last in 2..4 {
            held.push(intake.take_from(peer(last), whole(MAX_BODY)).await.unwrap());
        }
        drop(held);
        assert_eq!(intake.take_from(peer(1), whole(MAX_BODY)).await.unwrap().body.len(), MAX_BODY);
        assert_eq!((intake.small.held(), intake.large.held(), intake.caller_shares.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn small_reviews_get_in_while_large_ones_hold_all() {
        let limits = Limits { bytes: 0, ..hasty() };
        let intake = Intake::new(limits);
        // As many callers as it takes until no large review fits.
        let mut held = Vec::new();
        for last in 1..100 {
            match intake.take_from(peer(last), whole(MAX_BODY)).await {
                Ok(taken) => held.push(taken),
                Err(reason) => {
                    assert_eq!(reason, NotTaken::Busy);
                    break;
                }
            }
        }
        assert!((2..99).contains(&held.len()), "{}", held.len());
        for last in 100..200 {
            held.push(intake.take_from(peer(last), whole(SMALL_BODY)).await.unwrap());
        }
    }

    #[tokio::test]
    async fn bodies_that_drip_or_grow_too_large_are_cut() {
        let intake = Intake::new(hasty());
        let (sender, request) = review(100);
        sender.try_send(vec![b'{']).unwrap();
        assert_eq!(intake.take_from(peer(1), request).await.unwrap_err(), NotTaken::Slow);
        let (sender, mut request) = review(0);
        request.headers_mut().remove(header::CONTENT_LENGTH);
        for _ in 0..7 {
            sender.try_send(vec![b' '; 1 << 20]).unwrap();
        }
        drop(sender);
        assert_eq!(intake.take_from(peer(1), request).await.unwrap_err(), NotTaken::TooLarge);
        assert_eq!(intake.take_from(peer(1), whole(MAX_BODY + 1)).await.unwrap_err(), NotTaken::TooLarge);
    }
}
