//! The HTTP paths of the webhooks, with their limits.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::Request;

use super::advice::{self, Adviser, Intent};
use super::inject::Injector;
use super::injection;
use super::injector_state::CurrentInjector;
use super::limits::{Limits, RejectReason, ReviewReader};
use super::metrics::{Metrics, PodOutcome};
use super::review::PendingResponse;
use super::validation;
use navarch_net::fair_semaphore::FairSemaphore;
use navarch_store::Objects;

/// Reviews larger than this are answered on a thread of their own, so that they do not block
/// others.
const LARGE: usize = 64 << 10;
/// Maximum number of waiting large reviews, which are rare.
const WAITING: usize = 256;

/// The current objects; `None` until all are read.
pub type ObjectsProvider = Arc<dyn Fn() -> Option<Objects> + Send + Sync>;

/// The state of the webhooks.
pub struct Webhooks {
    /// Returns whether Navarch is ready.
    ready: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Returns the current objects.
    objects_provider: ObjectsProvider,
    injector: CurrentInjector,
    /// The planner of `/plan`, if enabled.
    adviser: Option<Adviser>,
    /// Reads reviews within limits.
    intake: ReviewReader,
    /// Limits concurrent large reviews, each on a thread of its own, as answering takes a multiple
    /// of their size; fair among callers.
    large: Arc<FairSemaphore<IpAddr>>,
    metrics: Metrics,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks")
            .field("injector", &self.injector)
            .finish_non_exhaustive()
    }
}

impl Webhooks {
    /// The state that `/inject` reads. The handle follows later changes.
    #[must_use]
    pub fn injector(&self) -> CurrentInjector {
        self.injector.clone()
    }

    /// Webhooks with these dependencies.
    #[must_use]
    pub fn new(
        ready: Arc<dyn Fn() -> bool + Send + Sync>,
        objects_provider: ObjectsProvider,
        injector: CurrentInjector,
        limits: Limits,
        metrics: Metrics,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let large = FairSemaphore::new(processors, WAITING);
        Self {
            ready,
            objects_provider,
            injector,
            adviser: None,
            intake: ReviewReader::new(limits),
            large,
            metrics,
        }
    }

    /// Enables `/plan` with this planner.
    #[must_use]
    pub fn with_adviser(self, adviser: Adviser) -> Self {
        Self {
            adviser: Some(adviser),
            ..self
        }
    }
}

/// The requested webhook.
enum Webhook {
    /// `/validate`. Validity does not depend on other objects; only warnings do, and are omitted
    /// until those are read.
    Validation,
    /// `/inject`, with the full path and the injector.
    Injection(String, Arc<Injector>),
    /// `/plan`.
    Advice,
}

/// The result of a review.
enum ReviewOutcome {
    /// An encoded AdmissionReview.
    Answer(Vec<u8>),
    /// A response to which warnings may be added, and their subject.
    Advise(PendingResponse, Intent),
}

/// All paths of the webhooks. Paths below a webhook's path are the same webhook, as in istiod.
pub fn routes(webhooks: Arc<Webhooks>) -> Router {
    let advised = webhooks
        .adviser
        .is_some()
        .then(|| Router::new().route("/plan", any(advise)));
    advised
        .unwrap_or_default()
        .route("/validate", any(validate))
        .route("/validate/{*rest}", any(validate))
        .route("/validate/", any(validate))
        .route("/inject", any(inject))
        .route("/inject/", any(inject))
        .route("/inject/{*rest}", any(inject))
        .route("/httpsReady", get(ready))
        .with_state(webhooks)
}

/// The readiness path `/httpsReady`, for ports that have no other one.
pub(super) async fn ready(State(webhooks): State<Arc<Webhooks>>) -> StatusCode {
    if (webhooks.ready)() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

impl Webhooks {
    /// The handle with which the paths count. Clones count together.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// The readiness path for the webhooks' own port: the HTTP port has another one.
    pub fn readiness(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/ready", get(ready))
            .with_state(self.clone())
    }
}

/// Answers `/validate`.
async fn validate(State(webhooks): State<Arc<Webhooks>>, request: Request<Body>) -> Response {
    review(webhooks, Webhook::Validation, request).await
}

/// Answers `/inject`.
async fn inject(State(webhooks): State<Arc<Webhooks>>, request: Request<Body>) -> Response {
    let injector = match webhooks.injector.load().injector() {
        Ok(injector) => injector,
        Err(rejection) => {
            webhooks.metrics.pod(PodOutcome::Rejected, Duration::ZERO);
            return rejection.into_response();
        }
    };
    let path = request.uri().path().to_owned();
    review(webhooks, Webhook::Injection(path, injector), request).await
}

/// Answers `/plan`.
async fn advise(State(webhooks): State<Arc<Webhooks>>, request: Request<Body>) -> Response {
    review(webhooks, Webhook::Advice, request).await
}

/// Reads a review and answers it.
async fn review(webhooks: Arc<Webhooks>, webhook: Webhook, request: Request<Body>) -> Response {
    let taken = match webhooks.intake.take(request).await {
        Ok(taken) => taken,
        Err(not_taken) => {
            let response = not_taken.into_response();
            webhooks.metrics.count_unread(response.status().as_u16());
            return response;
        }
    };

    let decided = if taken.body.len() <= LARGE {
        decide(&webhooks, &webhook, &taken.body)
    } else {
        let Ok(turn) = webhooks.large.take(taken.peer).await else {
            webhooks
                .metrics
                .count_unread(StatusCode::SERVICE_UNAVAILABLE.as_u16());
            return RejectReason::Busy.into_response();
        };
        // It continues when the caller disconnects, and stays charged until it ends.
        let webhooks = webhooks.clone();
        let decided = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            decide(&webhooks, &webhook, &taken.body)
        });
        decided.await.unwrap_or(None)
    };

    let answer = match decided {
        Some(ReviewOutcome::Answer(answer)) => Some(answer),
        Some(ReviewOutcome::Advise(answer, intent)) => advised(&webhooks, answer, intent).await,
        None => None,
    };

    match answer {
        Some(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        None => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed to handle the AdmissionReview; see the log of Navarch",
        )
            .into_response(),
    }
}

/// A response with the warnings about an intent.
async fn advised(
    webhooks: &Webhooks,
    mut answer: PendingResponse,
    intent: Intent,
) -> Option<Vec<u8>> {
    if let Some(adviser) = &webhooks.adviser {
        let advice = adviser(intent).await;
        webhooks.metrics.advised(advice.word());
        answer.warn(advice.lines());
    }
    written(answer.write())
}

/// The encoded response; `None` if encoding failed.
fn written(answer: Result<Vec<u8>, serde_json::Error>) -> Option<Vec<u8>> {
    answer
        .inspect_err(
            |error| tracing::error!(%error, "failed to encode an AdmissionReview response"),
        )
        .ok()
}

/// Answers the body of a review; `None` if that fails. Panics are caught and do not affect other
/// reviews.
fn decide(webhooks: &Webhooks, webhook: &Webhook, body: &[u8]) -> Option<ReviewOutcome> {
    let answer = || {
        let objects = (webhooks.objects_provider)();
        let answer = match webhook {
            Webhook::Validation => validation::counted(body, objects.as_ref(), &webhooks.metrics),
            Webhook::Injection(path, injector) => {
                injection::counted(body, path, injector, objects.as_ref(), &webhooks.metrics)
            }
            Webhook::Advice => match advice::read(body) {
                (answer, Some(intent)) => return Some(ReviewOutcome::Advise(answer, intent)),
                (answer, None) => answer.write(),
            },
        };
        written(answer).map(ReviewOutcome::Answer)
    };
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or(None)
}
