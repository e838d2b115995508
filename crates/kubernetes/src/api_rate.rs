//! A rate limit of requests to the Kubernetes API.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tower_service::Service;

/// The rate limit of the Kubernetes API client: client-go's token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApiRate {
    /// `--kubernetesApiQPS`: sustained requests per second.
    pub per_second: f64,
    /// `--kubernetesApiBurst`: burst size.
    pub burst: u32,
}

/// A service with this rate limit. Clones share the limit; requests above it wait.
#[derive(Clone, Debug)]
pub(crate) struct Limited<S> {
    inner: S,
    /// When the bucket is full again; `None` without a limit.
    bucket: Option<Arc<Bucket>>,
}

/// Tokens that come back with time.
#[derive(Debug)]
struct Bucket {
    /// The time per token.
    interval: Duration,
    /// The time to refill the bucket.
    capacity: Duration,
    /// When the bucket is full again.
    full_at: Mutex<Instant>,
}

impl Bucket {
    /// Takes a token; returns when it may be used.
    fn take(&self, now: Instant) -> Instant {
        let mut full_at = self.full_at.lock();
        *full_at = (*full_at).max(now) + self.interval;
        full_at.checked_sub(self.capacity).unwrap_or(now).max(now)
    }
}

impl<S> Limited<S> {
    /// The service with this limit, if there is one.
    pub(crate) fn new(inner: S, rate: Option<ApiRate>) -> Self {
        let bucket = rate.map(|rate| {
            let interval = Duration::from_secs_f64(rate.per_second.recip());
            Arc::new(Bucket {
                interval,
                capacity: interval * rate.burst,
                full_at: Mutex::new(Instant::now()),
            })
        });
        Self { inner, bucket }
    }
}

impl<S, R> Service<R> for Limited<S>
where
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The clone was not asked whether it is ready; the service itself was.
        let clone = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, clone);
        let turn = self
            .bucket
            .as_ref()
            .map(|bucket| bucket.take(Instant::now()));
        Box::pin(async move {
            if let Some(turn) = turn {
                tokio::time::sleep_until(turn).await;
            }
            ready.call(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_sent_at_once_and_the_rest_at_the_rate() {
        let rate = ApiRate {
            per_second: 10.0,
            burst: 3,
        };
        let limited = Limited::new((), Some(rate));
        let bucket = limited.bucket.unwrap();
        let start = Instant::now();
        let turns: Vec<_> = (0..5)
            .map(|_| (bucket.take(start) - start).as_millis())
            .collect();
        assert_eq!(turns, [0, 0, 0, 100, 200]);
        // An idle second brings all back, and no more than that.
        let later = start + Duration::from_secs(1);
        let turns: Vec<_> = (0..4)
            .map(|_| (bucket.take(later) - later).as_millis())
            .collect();
        assert_eq!(turns, [0, 0, 0, 100]);
    }
}
