//! The paths that the API server asks, and what keeps them from harm.

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
use super::limits::{Intake, Limits, NotTaken};
use super::metrics::{Metrics, PodFate};
use super::review::Unwritten;
use super::validation;
use navarch_net::fair_semaphore::FairSemaphore;
use navarch_store::Objects;

/// A review of more bytes is answered on a thread of its own: it must not hold up the others.
const LARGE: usize = 64 << 10;
/// Large reviews that may wait for their turn. There are seldom any.
const WAITING: usize = 256;

/// The objects of this moment; `None` as long as they are not all known.
pub type ObjectsProvider = Arc<dyn Fn() -> Option<Objects> + Send + Sync>;

/// What the webhooks answer with.
pub struct Webhooks {
    /// Says whether Navarch is ready.
    ready: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Gives the objects that are there already.
    surroundings: ObjectsProvider,
    /// What injects.
    injector: CurrentInjector,
    /// What says what changes would do, where that is asked for.
    adviser: Option<Adviser>,
    /// Takes reviews within limits.
    intake: Intake,
    /// Large reviews that are answered at once, each on a thread of its own: answering takes many times their bytes. Callers
    /// take turns.
    large: Arc<FairSemaphore<IpAddr>>,
    /// What is counted.
    metrics: Metrics,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").field("injector", &self.injector).finish_non_exhaustive()
    }
}

impl Webhooks {
    /// What injects, now and later.
    #[must_use]
    pub fn injector(&self) -> CurrentInjector {
        self.injector.clone()
    }

    /// Webhooks over a world.
    #[must_use]
    pub fn new(
        ready: Arc<dyn Fn() -> bool + Send + Sync>,
        surroundings: ObjectsProvider,
        injector: CurrentInjector,
        limits: Limits,
        metrics: Metrics,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let large = FairSemaphore::new(processors, WAITING);
        Self { ready, surroundings, injector, adviser: None, intake: Intake::new(limits), large, metrics }
    }

    /// Has `/plan` answer with what changes would do.
    #[must_use]
    pub fn with_adviser(self, adviser: Adviser) -> Self {
        Self { adviser: Some(adviser), ..self }
    }
}

/// Which webhook is asked.
enum Webhook {
    /// `/validate`. What is invalid is so whatever else there is; only warnings need other objects, and are left out as long
    /// as those are not known.
    Validation,
    /// `/inject`, with the whole path, and what injects.
    Injection(String, Arc<Injector>),
    /// `/plan`.
    Advice,
}

/// What is made of a review.
enum Decided {
    /// JSON of an AdmissionReview.
    Answer(Vec<u8>),
    /// An answer that warnings may be added to, and what they are to be about.
    Advise(Unwritten, Intent),
}

/// All paths of the webhooks. What is below a webhook's path is the same webhook, as with istiod.
pub fn routes(webhooks: Arc<Webhooks>) -> Router {
    let advised = webhooks.adviser.is_some().then(|| Router::new().route("/plan", any(advise)));
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

/// Whether Navarch is ready, for a port that nothing else says it on.
pub(super) async fn ready(State(webhooks): State<Arc<Webhooks>>) -> StatusCode {
    if (webhooks.ready)() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

impl Webhooks {
    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// The path that says whether Navarch is ready, for the port of the webhooks alone: the HTTP port has its own.
    pub fn readiness(self: &Arc<Self>) -> Router {
        Router::new().route("/ready", get(ready)).with_state(self.clone())
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
        Err(refusal) => {
            webhooks.metrics.pod(PodFate::Refused, Duration::ZERO);
            return refusal.into_response();
        }
    };
    let path = request.uri().path().to_owned();
    review(webhooks, Webhook::Injection(path, injector), request).await
}

/// Answers `/plan`.
async fn advise(State(webhooks): State<Arc<Webhooks>>, request: Request<Body>) -> Response {
    review(webhooks, Webhook::Advice, request).await
}

/// Takes a review and answers it.
async fn review(webhooks: Arc<Webhooks>, asked: Webhook, request: Request<Body>) -> Response {
    let taken = match webhooks.intake.take(request).await {
        Ok(taken) => taken,
        Err(not_taken) => {
            let response = not_taken.into_response();
            webhooks.metrics.not_taken(response.status().as_u16());
            return response;
        }
    };
    let decided = if taken.body.len() <= LARGE {
        decide(&webhooks, &asked, &taken.body)
    } else {
        let Ok(turn) = webhooks.large.take(taken.peer).await else {
            webhooks.metrics.not_taken(StatusCode::SERVICE_UNAVAILABLE.as_u16());
            return NotTaken::Busy.into_response();
        };
        // It goes on where the caller gives up, and is charged as long.
        let webhooks = webhooks.clone();
        let decided = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            decide(&webhooks, &asked, &taken.body)
        });
        decided.await.unwrap_or(None)
    };
    let answer = match decided {
        Some(Decided::Answer(answer)) => Some(answer),
        Some(Decided::Advise(answer, intent)) => advised(&webhooks, answer, intent).await,
        None => None,
    };
    match answer {
        Some(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        None => (StatusCode::INTERNAL_SERVER_ERROR, "failed to answer the AdmissionReview; see Navarch's log")
            .into_response(),
    }
}

/// An answer with what there is to say to an intent.
async fn advised(webhooks: &Webhooks, mut answer: Unwritten, intent: Intent) -> Option<Vec<u8>> {
    if let Some(adviser) = &webhooks.adviser {
        let advice = adviser(intent).await;
        webhooks.metrics.advised(advice.word());
        answer.warn(advice.lines());
    }
    written(answer.write())
}

/// An answer, where it could be written.
fn written(answer: Result<Vec<u8>, serde_json::Error>) -> Option<Vec<u8>> {
    answer.inspect_err(|error| tracing::error!(%error, "failed to encode an AdmissionReview response")).ok()
}

/// Answers the body of a review; `None` when that failed. A panic goes no further: the next review is answered as if it had
/// not been.
fn decide(webhooks: &Webhooks, asked: &Webhook, body: &[u8]) -> Option<Decided> {
    let answer = || {
        let objects = (webhooks.surroundings)();
        let answer = match asked {
            Webhook::Validation => validation::counted(body, objects.as_ref(), &webhooks.metrics),
            Webhook::Injection(path, injector) => {
                injection::counted(body, path, injector, objects.as_ref(), &webhooks.metrics)
            }
            Webhook::Advice => match advice::read(body) {
                (answer, Some(intent)) => return Some(Decided::Advise(answer, intent)),
                (answer, None) => answer.write(),
            },
        };
        written(answer).map(Decided::Answer)
    };
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or(None)
}
