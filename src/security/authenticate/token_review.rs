//! Callers with a service account's token, checked by the Kubernetes API server (TokenReview).
//!
//! Answers are kept for a short while, and many who show the same token at once ask once: a fleet of proxies that comes back
//! must not fall upon the API server. Tokens themselves are not kept, only their hashes.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::Glance;
use crate::api::identity::{Caller, Identity, PodOfCaller};
use crate::security::api_server::ApiServer;

/// How long a good token is not asked about again.
const KEPT_GOOD: Duration = Duration::from_secs(60);
/// How long a bad one is not.
const KEPT_BAD: Duration = Duration::from_secs(10);
/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Tokens that are remembered; beyond it all that have run out go, and if none have, all.
const MAX_KEPT: usize = 50_000;
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

/// What is said of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is good.
    Good(Account),
    /// It is not, and why.
    Bad(String),
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
    /// By hash of the token.
    kept: Mutex<BTreeMap<[u8; 32], Kept>>,
}

/// One token that was asked about.
#[derive(Clone, Debug)]
struct Kept {
    /// When it was.
    since: Instant,
    /// What was said, or a place to wait for it.
    verdict: Arc<OnceCell<Verdict>>,
}

impl Kept {
    /// Whether it still counts.
    fn counts(&self, now: Instant) -> bool {
        let long = match self.verdict.get() {
            Some(Verdict::Good(_)) => KEPT_GOOD,
            Some(Verdict::Bad(_)) => KEPT_BAD,
            None => PATIENCE * 2,
        };
        now < self.since + long
    }
}

impl TokenReviews {
    /// Asks `reviewer` about tokens for these audiences.
    #[must_use]
    pub fn new(reviewer: Arc<dyn Reviewer>, audiences: Vec<String>) -> Self {
        Self { reviewer, audiences, kept: Mutex::default() }
    }

    /// The caller that a token is for.
    ///
    /// # Errors
    /// Says why the token is not good.
    pub(super) async fn caller(&self, token: &str, glance: &Glance) -> Result<Caller, String> {
        let cell = self.cell(token, Instant::now());
        let ask = || async {
            let asked = tokio::time::timeout(PATIENCE, self.reviewer.review(token, &self.audiences)).await;
            asked.unwrap_or_else(|_| Err("no answer in time".to_owned()))
        };
        let verdict = cell.get_or_try_init(ask).await.map_err(|error| {
            tracing::warn!(error, "the API server does not review tokens");
            "the API server cannot be asked at the moment".to_owned()
        })?;
        match verdict {
            Verdict::Good(account) => {
                let text = format!("spiffe://{}/ns/{}/sa/{}", glance.trust_domain, account.namespace, account.name);
                let identity = Identity::parse(&text).map_err(|error| error.to_string())?;
                Ok(Caller { identities: vec![identity], pod: account.pod.clone(), expires: expiry(token) })
            }
            Verdict::Bad(reason) => Err(reason.clone()),
        }
    }

    /// The place where a token's verdict is, or will be.
    fn cell(&self, token: &str, now: Instant) -> Arc<OnceCell<Verdict>> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut kept = self.kept.lock();
        if let Some(known) = kept.get(&hash).filter(|known| known.counts(now)) {
            return known.verdict.clone();
        }
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, known| known.counts(now));
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
        }
        let verdict = Arc::new(OnceCell::new());
        kept.insert(hash, Kept { since: now, verdict: verdict.clone() });
        verdict
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

/// Reads a review.
fn read(review: TokenReview, audiences: &[String]) -> Verdict {
    let bad = |reason: &str| Verdict::Bad(reason.to_owned());
    let status = review.status.unwrap_or_default();
    if status.authenticated != Some(true) {
        let reason = status.error.filter(|reason| !reason.is_empty());
        return Verdict::Bad(reason.unwrap_or_else(|| "the API server does not know it".to_owned()));
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
    let pod = pod.map(|(name, uid)| PodOfCaller { name: name.into(), uid: uid.into() });
    Verdict::Good(Account { namespace: namespace.to_owned(), name: name.to_owned(), pod })
}

/// When a token expires that the API server has called good, if it is a JWT that says so.
fn expiry(token: &str) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    expiry_of_claims(claims.get("exp")?)
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
    Some(PodOfCaller { name: text("name")?, uid: text("uid")? })
}
