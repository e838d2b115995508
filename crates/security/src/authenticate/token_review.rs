//! Callers with a service account's token, checked by the Kubernetes API server (TokenReview).
//!
//! Anyone can send a token. Invalid ones are rejected without the API server where possible; the
//! others are reviewed a few at a time, fairly among client addresses. Results are cached for a
//! short time, and concurrent requests with the same token share one review, so that reconnecting
//! proxies do not overload the API server. Only hashes of tokens are stored.

mod cache;
mod claims;

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::MeshSnapshot;
use crate::api_server::{ApiServer, ReviewError};
use cache::{CacheLookup, ReviewCache};
use navarch_api::identity::{Caller, Identity, PodOfCaller};
use navarch_net::fair_semaphore::FairSemaphore;
use navarch_net::peer::client_key;
use navarch_net::rate::RateLimit;

const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum concurrent reviews, which is the number of connections to the API server.
const MAX_CONCURRENT_REVIEWS: usize = 64;
/// Maximum waiting reviews.
const MAX_QUEUED: usize = 16_384;
/// Timeout of waiting.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Rate and burst of rejected tokens per address. Beyond it, tokens are not reviewed.
const REJECTED_TOKENS: (u32, u32) = (10, 100);
/// Maximum length of a stored reason.
const MAX_REASON: usize = 256;
/// The group of all service accounts.
const GROUP: &str = "system:serviceaccounts";
/// Prefix of a service account's user name.
const USER: &str = "system:serviceaccount:";
/// Key of the pod that a token is bound to.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// Key of that pod's UID.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// A service account and the pod that its token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The third part of the user name `system:serviceaccount:<namespace>:<name>`.
    pub namespace: String,
    /// The name of the service account: the last part of the user name.
    pub name: String,
    /// `None` if the token is not bound to a pod, as with tokens in Secrets.
    pub pod: Option<PodOfCaller>,
}

/// The verdict on a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The token is valid.
    Good(Account),
    /// The token is invalid, and why.
    Bad(Arc<str>),
}

/// A pending result; an error means that the review failed.
pub type ReviewFuture<'a> = Pin<Box<dyn Future<Output = Result<Verdict, ReviewError>> + Send + 'a>>;

/// A reviewer of tokens.
pub trait Reviewer: Send + Sync + 'static {
    /// Reviews a token that must be for one of these audiences.
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> ReviewFuture<'a>;
}

/// Reviews tokens, and caches the results.
pub struct TokenReviews {
    reviewer: Arc<dyn Reviewer>,
    /// `TOKEN_AUDIENCES`: accepted audiences.
    audiences: Vec<String>,
    kept: ReviewCache,
    /// Limits concurrent reviews, fairly among client addresses.
    turns: Arc<FairSemaphore<IpAddr>>,
    /// Rejected tokens by client address.
    rejected: RateLimit<IpAddr>,
}

impl TokenReviews {
    /// Reviews tokens for these audiences with `reviewer`.
    #[must_use]
    pub fn new(reviewer: Arc<dyn Reviewer>, audiences: Vec<String>) -> Self {
        let turns = FairSemaphore::new(MAX_CONCURRENT_REVIEWS, MAX_QUEUED);
        let rejected = RateLimit::new(REJECTED_TOKENS.0, REJECTED_TOKENS.1);
        Self {
            reviewer,
            audiences,
            kept: ReviewCache::default(),
            turns,
            rejected,
        }
    }

    /// The caller of a token that `peer` sent.
    ///
    /// # Errors
    /// The reason why the token is invalid.
    pub(super) async fn caller(
        &self,
        token: &str,
        peer: Option<SocketAddr>,
        snapshot: &MeshSnapshot,
    ) -> Result<Caller, String> {
        let expires = claims::check(token, &self.audiences, Timestamp::now())?;
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| {
            client_key(peer.ip())
        });
        let verdict = match self
            .kept
            .lookup(Sha256::digest(token).into(), Instant::now())
        {
            CacheLookup::Hit(verdict) => verdict,
            CacheLookup::Miss(miss) => miss.answer(|| self.review_token(token, peer)).await?,
        };

        match verdict {
            Verdict::Good(account) => {
                let text = format!(
                    "spiffe://{}/ns/{}/sa/{}",
                    snapshot.trust_domain, account.namespace, account.name
                );
                let identity = Identity::parse(&text).map_err(|error| error.to_string())?;
                Ok(Caller {
                    identities: vec![identity],
                    pod: account.pod,
                    expires,
                })
            }
            Verdict::Bad(reason) => Err(reason.to_string()),
        }
    }

    /// Reviews a token that `peer` sent.
    async fn review_token(&self, token: &str, peer: IpAddr) -> Result<Verdict, &'static str> {
        let allowed = || match self.rejected.allows(&peer, Instant::now()) {
            true => Ok(()),
            false => Err("too many tokens from this address were rejected; try again later"),
        };
        allowed()?;
        let turn = tokio::time::timeout(QUEUE_TIMEOUT, self.turns.take(peer)).await;
        let Ok(Ok(_turn)) = turn else {
            return Err("too many TokenReviews are pending; try again later");
        };

        // Other tokens of this address may have been rejected in the meantime.
        allowed()?;
        let result =
            tokio::time::timeout(REVIEW_TIMEOUT, self.reviewer.review(token, &self.audiences))
                .await;
        let verdict = result
            .unwrap_or(Err(ReviewError::TimedOut))
            .map_err(|error| {
                tracing::warn!(%error, "failed to review a token");
                "the API server is temporarily unavailable"
            })?;

        if let Verdict::Bad(_) = verdict {
            self.rejected.charge(&peer, Instant::now());
        }

        Ok(verdict)
    }
}

impl fmt::Debug for TokenReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviews")
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

impl Reviewer for ApiServer {
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> ReviewFuture<'a> {
        Box::pin(async move {
            let spec = TokenReviewSpec {
                token: token.to_owned(),
                audiences: (!audiences.is_empty()).then(|| audiences.to_vec()),
            };
            let review = TokenReview {
                spec,
                ..TokenReview::default()
            };
            let answer = self
                .reviews::<TokenReview>()
                .create(&PostParams::default(), &review)
                .await?;
            Ok(read(answer, audiences))
        })
    }
}

fn read(review: TokenReview, audiences: &[String]) -> Verdict {
    let bad = |reason: &str| {
        Verdict::Bad(
            reason
                .split_at(reason.floor_char_boundary(MAX_REASON))
                .0
                .into(),
        )
    };

    let status = review.status.unwrap_or_default();
    if status.authenticated != Some(true) {
        let reason = status.error.filter(|reason| !reason.is_empty());
        return bad(reason.as_deref().unwrap_or("the API server rejected it"));
    }

    // An API server without audience support omits them, and its result must not be trusted.
    let meant = status.audiences.unwrap_or_default();
    if !audiences.is_empty() && !meant.iter().any(|audience| audiences.contains(audience)) {
        return bad("it is for another audience");
    }

    let user = status.user.unwrap_or_default();
    if !user
        .groups
        .unwrap_or_default()
        .iter()
        .any(|group| group == GROUP)
    {
        return bad("it is not a service account token");
    }
    let account = user
        .username
        .as_deref()
        .and_then(|name| name.strip_prefix(USER))
        .and_then(|name| name.split_once(':'));
    let Some((namespace, name)) = account.filter(|(_, name)| !name.contains(':')) else {
        return bad("it is not a service account token");
    };

    let extra = user.extra.unwrap_or_default();
    let first = |key: &str| extra.get(key).and_then(|values| values.first()).cloned();
    let pod = first(POD_NAME).zip(first(POD_UID));
    let pod = pod.map(|(name, uid)| PodOfCaller {
        name: name.into(),
        uid: uid.into(),
        cluster: None,
    });

    Verdict::Good(Account {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        pod,
    })
}

/// A moment in the claims of a token.
pub(super) fn expiry_of_claims(exp: &Value) -> Option<Timestamp> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an overflow is out of range, which is checked next"
    )]
    let seconds = exp.as_f64()? as i64;
    Timestamp::from_second(seconds).ok()
}

/// The pod in the claims of a token.
pub(super) fn pod_of_claims(pod: &Value) -> Option<PodOfCaller> {
    let text = |key: &str| pod.get(key).and_then(Value::as_str).map(Arc::from);
    Some(PodOfCaller {
        name: text("name")?,
        uid: text("uid")?,
        cluster: None,
    })
}
