//! Checks of the API server: its kinds, the control plane's access rights, and its clock.

mod definitions;
mod rights;
mod webhooks;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use navarch_answers::doctor::{self, Check, Health, Level};
use navarch_kubernetes::InWords;
use navarch_source::ReadKind;
use navarch_webhook::registration::{FoundWebhooks, HookKind};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use self::definitions::Served;
pub use self::rights::Right;
pub use self::webhooks::Hooks;

/// Timeout of all checks.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long answers are cached, which limits requests to the API server.
const CACHE_TIME: Duration = Duration::from_secs(5);
const MAX_CONCURRENT_REQUESTS: usize = 8;

/// The last answers of the API server, with their time.
type LatestState = Option<(Instant, Arc<ApiServerState>)>;

/// The API server as the control plane sees it. Clones share it.
#[derive(Clone)]
pub struct ApiServerHealth {
    client: kube::Client,
    kinds: Arc<[ReadKind]>,
    rights: Arc<[Right]>,
    hooks: Hooks,
    /// The last answers, with their time. Concurrent requests wait for the same answers.
    latest: Arc<Mutex<LatestState>>,
}

#[derive(Clone, Debug, Default)]
struct ApiServerState {
    /// The resources by group and version.
    served: Served,
    /// The missing rights.
    denied: Vec<Right>,
    /// The control plane's user name at the API server.
    user: String,
    /// Webhook configurations by kind; none if they may not be read.
    hooks: Vec<(HookKind, FoundWebhooks)>,
    /// Its clock, with the times of request and response.
    time: Option<(Timestamp, [Timestamp; 2])>,
    /// The error that ended the checks.
    problem: Option<String>,
}

impl fmt::Debug for ApiServerHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerHealth")
            .field("rights", &self.rights.len())
            .finish_non_exhaustive()
    }
}

impl ApiServerHealth {
    /// No answers yet.
    #[must_use]
    pub fn new(
        client: kube::Client,
        kinds: Vec<ReadKind>,
        mut rights: Vec<Right>,
        hooks: Hooks,
    ) -> Self {
        let read = kinds.iter().flat_map(|kind| {
            let namespace = kind
                .namespace
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();

            let right = |verb| {
                Right::to(
                    verb,
                    kind.group,
                    &kind.resource,
                    "objects of this kind are not read",
                )
            };

            ["list", "watch"].map(|verb| right(verb).within(&namespace))
        });

        rights.extend(read);
        Self {
            client,
            kinds: kinds.into(),
            rights: rights.into(),
            hooks,
            latest: Arc::default(),
        }
    }

    /// Runs the checks, and reports what is missing. `roots` are the roots of the webhooks (PEM),
    /// once they are served.
    pub(super) async fn add_findings(&self, roots: Option<Arc<str>>, health: &mut Health) {
        let seen = self.seen(roots).await;
        if let Some(problem) = &seen.problem {
            let what = format!("the API server does not respond to the control plane: {problem}");
            return health.add(
                Check::Definitions,
                Level::Wrong,
                what,
                "kubectl get --raw /readyz?verbose",
            );
        }

        definitions::check(&self.kinds, &seen.served, health);
        rights::check(&seen.denied, &seen.user, health);
        seen.hooks
            .iter()
            .for_each(|(kind, hooks)| webhooks::check(*kind, hooks, &self.hooks.revision, health));

        if let Some((server_time, window)) = seen.time {
            let whose = ["the API server", "the control plane's"];
            doctor::clock(
                health,
                server_time,
                window,
                whose,
                "timedatectl status, on both nodes",
            );
        }
    }

    /// The current or cached answers.
    async fn seen(&self, roots: Option<Arc<str>>) -> Arc<ApiServerState> {
        let mut latest = self.latest.lock().await;
        if let Some((at, seen)) = &*latest
            && at.elapsed() < CACHE_TIME
        {
            return seen.clone();
        }
        let problem = |problem| ApiServerState {
            problem: Some(problem),
            ..ApiServerState::default()
        };

        let seen = match timeout(API_SERVER_TIMEOUT, self.fetch_state(roots)).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) => problem(InWords(&error).to_string()),
            Err(_) => problem(format!("no response within {API_SERVER_TIMEOUT:?}")),
        };
        let seen = Arc::new(seen);
        *latest = Some((Instant::now(), seen.clone()));

        seen
    }

    async fn fetch_state(&self, roots: Option<Arc<str>>) -> kube::Result<ApiServerState> {
        let client = &self.client;
        let others = async {
            let hooks = webhooks::found(client, &self.hooks, roots);
            Ok((self.user().await, hooks.await))
        };
        let (time, served, denied, (user, hooks)) = tokio::try_join!(
            self.time(),
            definitions::served(client, &self.kinds),
            rights::denied(client, &self.rights),
            others
        )?;
        Ok(ApiServerState {
            served,
            denied,
            user,
            hooks,
            time,
            problem: None,
        })
    }

    /// Its clock from a response header; `None` if there is none.
    async fn time(&self) -> kube::Result<Option<(Timestamp, [Timestamp; 2])>> {
        let requested_at = Timestamp::now();
        let request = http::Request::get("/version")
            .body(Body::empty())
            .map_err(kube::Error::HttpError)?;
        let answer = self.client.send(request).await?;
        let window = [requested_at, Timestamp::now()];
        let date = answer
            .headers()
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| Some((http_date(date)?, window))))
    }

    /// The control plane's user name; empty if the API server does not report it (before Kubernetes
    /// 1.28).
    async fn user(&self) -> String {
        let reviews = Api::<SelfSubjectReview>::all(self.client.clone());
        let answer = reviews
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await;
        let user = answer
            .ok()
            .and_then(|answer| answer.status?.user_info?.username);
        user.unwrap_or_default()
    }
}

/// An HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    let universal = text
        .strip_suffix("GMT")
        .map(|rest| format!("{rest}+0000"))?;
    jiff::fmt::rfc2822::parse(&universal)
        .ok()
        .map(|moment| moment.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(
            http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            "1994-11-06T08:49:37Z".parse().ok()
        );
        assert_eq!(http_date("yesterday"), None);
    }
}
