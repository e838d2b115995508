//! Callers with a service account's token, checked by the Kubernetes API server (TokenReview).
//!
//! Anybody can show a token. What can be refused without the API server is; the rest is asked about a few at a time, in turn
//! by the addresses of clients. Answers are kept for a short while, and many who show the same token at once ask once: a
//! fleet of proxies that comes back must not fall upon the API server. Tokens themselves are not kept, only their hashes.

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
use crate::api_server::ApiServer;
use cache::{CacheLookup, ReviewCache};
use navarch_api::identity::{Caller, Identity, PodOfCaller};
use navarch_net::fair_semaphore::FairSemaphore;
use navarch_net::peer::counted_as;
use navarch_net::rate::RateLimit;

/// How long the API server may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Reviews under way, and with them connections to the API server.
const AT_ONCE: usize = 64;
/// Reviews that wait.
const MAX_QUEUED: usize = 16_384;
/// How long they do.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Tokens of one address that the API server may refuse, per second and at once. More are not asked about.
const REFUSED: (u32, u32) = (10, 100);
/// Bytes of a reason that are kept.
const MAX_REASON: usize = 256;
/// The group of all service accounts.
const GROUP: &str = "system:serviceaccounts";
/// What a service account's user name starts with.
const USER: &str = "system:serviceaccount:";
/// Where a review says which pod a token is bound to.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// Where it says that pod's UID.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// A service account and the pod that its token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The pod.
    pub pod: Option<PodOfCaller>,
}

/// The verdict on a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is good.
    Good(Account),
    /// It is not, and why.
    Bad(Arc<str>),
}

/// An answer to come; an error means that nobody answered.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Verdict, String>> + Send + 'a>>;

/// Whoever reviews tokens.
pub trait Reviewer: Send + Sync + 'static {
    /// Reviews a token that must be for one of these audiences.
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> Answer<'a>;
}

/// Reviews tokens, and remembers what was said.
pub struct TokenReviews {
    /// Who is asked.
    reviewer: Arc<dyn Reviewer>,
    /// `TOKEN_AUDIENCES`: whom tokens must be for.
    audiences: Vec<String>,
    /// What was said.
    kept: ReviewCache,
    /// Reviews under way, by the address of who shows the token.
    turns: Arc<FairSemaphore<IpAddr>>,
    /// Tokens that were refused, by the same.
    refused: RateLimit<IpAddr>,
}

impl TokenReviews {
    /// Asks `reviewer` about tokens for these audiences.
    #[must_use]
    pub fn new(reviewer: Arc<dyn Reviewer>, audiences: Vec<String>) -> Self {
        let (turns, refused) = (FairSemaphore::new(AT_ONCE, MAX_QUEUED), RateLimit::new(REFUSED.0, REFUSED.1));
        Self { reviewer, audiences, kept: ReviewCache::default(), turns, refused }
    }

    /// The caller that a token is for, which `peer` shows.
    ///
    /// # Errors
    /// Says why the token is not good.
    pub(super) async fn caller(
        &self,
        token: &str,
        peer: Option<SocketAddr>,
        snapshot: &MeshSnapshot,
    ) -> Result<Caller, String> {
        let expires = claims::check(token, &self.audiences, Timestamp::now())?;
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| counted_as(peer.ip()));
        let verdict = match self.kept.look(Sha256::digest(token).into(), Instant::now()) {
            CacheLookup::Hit(verdict) => verdict,
            CacheLookup::Miss(asking) => asking.answer(|| self.ask(token, peer)).await?,
        };
        match verdict {
            Verdict::Good(account) => {
                let text = format!("spiffe://{}/ns/{}/sa/{}", snapshot.trust_domain, account.namespace, account.name);
                let identity = Identity::parse(&text).map_err(|error| error.to_string())?;
                Ok(Caller { identities: vec![identity], pod: account.pod, expires })
            }
            Verdict::Bad(reason) => Err(reason.to_string()),
        }
    }

    /// Asks about a token that `peer` shows.
    async fn ask(&self, token: &str, peer: IpAddr) -> Result<Verdict, &'static str> {
        let allowed = || match self.refused.allows(&peer, Instant::now()) {
            true => Ok(()),
            false => Err("too many tokens from this address were refused; try again later"),
        };
        allowed()?;
        let turn = tokio::time::timeout(QUEUE_TIMEOUT, self.turns.take(peer)).await;
        let Ok(Ok(_turn)) = turn else {
            return Err("too many tokens wait to be reviewed; try again later");
        };
        // Others from there may have been refused meanwhile.
        allowed()?;
        let asked = tokio::time::timeout(REVIEW_TIMEOUT, self.reviewer.review(token, &self.audiences)).await;
        let verdict = asked.unwrap_or_else(|_| Err("no answer in time".to_owned())).map_err(|error| {
            tracing::warn!(error, "failed to review a token");
            "the API server is temporarily unavailable"
        })?;
        if let Verdict::Bad(_) = verdict {
            self.refused.charge(&peer, Instant::now());
        }
        Ok(verdict)
    }
}

impl fmt::Debug for TokenReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviews").field("audiences", &self.audiences).finish_non_exhaustive()
    }
}

impl Reviewer for ApiServer {
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> Answer<'a> {
        Box::pin(async move {
            let spec = TokenReviewSpec {
                token: token.to_owned(),
                audiences: (!audiences.is_empty()).then(|| audiences.to_vec()),
            };
            let review = TokenReview { spec, ..TokenReview::default() };
            let answer = self
                .reviews::<TokenReview>()
                .create(&PostParams::default(), &review)
                .await
                .map_err(|error| error.to_string())?;
            Ok(read(answer, audiences))
        })
    }
}

fn read(review: TokenReview, audiences: &[String]) -> Verdict {
    let bad = |reason: &str| Verdict::Bad(reason.split_at(reason.floor_char_boundary(MAX_REASON)).0.into());
    let status = review.status.unwrap_or_default();
    if status.authenticated != Some(true) {
        let reason = status.error.filter(|reason| !reason.is_empty());
        return bad(reason.as_deref().unwrap_or("the API server does not know it"));
    }
    // An API server that knows nothing of audiences leaves them out, and must then not be believed.
    let meant = status.audiences.unwrap_or_default();
    if !audiences.is_empty() && !meant.iter().any(|audience| audiences.contains(audience)) {
        return bad("it is for another audience");
    }
    let user = status.user.unwrap_or_default();
    if !user.groups.unwrap_or_default().iter().any(|group| group == GROUP) {
        return bad("it is not a service account's");
    }
    let account =
        user.username.as_deref().and_then(|name| name.strip_prefix(USER)).and_then(|name| name.split_once(':'));
    let Some((namespace, name)) = account.filter(|(_, name)| !name.contains(':')) else {
        return bad("it is not a service account's");
    };
    let extra = user.extra.unwrap_or_default();
    let first = |key: &str| extra.get(key).and_then(|values| values.first()).cloned();
    let pod = first(POD_NAME).zip(first(POD_UID));
    let pod = pod.map(|(name, uid)| PodOfCaller { name: name.into(), uid: uid.into(), cluster: None });
    Verdict::Good(Account { namespace: namespace.to_owned(), name: name.to_owned(), pod })
}

/// A moment in the claims of a token.
pub(super) fn expiry_of_claims(exp: &Value) -> Option<Timestamp> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "beyond all time is beyond what a moment can be, which is asked next"
    )]
    let seconds = exp.as_f64()? as i64;
    Timestamp::from_second(seconds).ok()
}

/// The pod in the claims of a token.
pub(super) fn pod_of_claims(pod: &Value) -> Option<PodOfCaller> {
    let text = |key: &str| pod.get(key).and_then(Value::as_str).map(Arc::from);
    Some(PodOfCaller { name: text("name")?, uid: text("uid")?, cluster: None })
}
