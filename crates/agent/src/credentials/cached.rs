//! Keeps the token of a metadata server until it must be renewed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::identity_token::IdentityToken;
use super::{Cloud, TokenError};
use crate::Clock;
use navarch_net::backoff::Backoff;

/// Delays after failures.
const RETRY: Backoff = Backoff::jittered(Duration::from_millis(500), Duration::from_secs(30));

/// The tokens of a metadata server. Clones share their state.
#[derive(Clone, Debug)]
pub struct MetadataTokens(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cloud: Cloud,
    /// The clock for the expiry of tokens.
    clock: Clock,
    /// Locked during a request, so that there is one at a time.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    token: Option<IdentityToken>,
    backoff: Backoff,
    /// Before this time the server is not asked again; none after a success.
    retry_at: Option<Instant>,
}

impl MetadataTokens {
    /// The tokens of a cloud; none is requested yet.
    pub(super) fn new(cloud: Cloud, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            cloud,
            clock,
            state: Mutex::new(State {
                token: None,
                backoff: RETRY,
                retry_at: None,
            }),
        }))
    }

    /// The current token. It is renewed before it expires; if that fails, it is used until then.
    ///
    /// # Errors
    /// If there is no valid token.
    pub async fn token(&self) -> Result<String, TokenError> {
        let Inner {
            cloud,
            clock,
            state,
        } = &*self.0;
        let mut state = state.lock().await;

        if let Some(token) = &state.token
            && token.is_fresh(clock())
        {
            return Ok(token.text().to_owned());
        }

        match state.renew(cloud, *clock).await {
            Ok(text) => Ok(text),
            Err(error) => {
                let valid = state.token.as_ref().filter(|token| token.is_valid(clock()));
                valid.map(|token| token.text().to_owned()).ok_or(error)
            }
        }
    }
}

impl State {
    /// Requests a new token, unless the last request failed just now.
    async fn renew(&mut self, cloud: &Cloud, clock: Clock) -> Result<String, TokenError> {
        let wait = self
            .retry_at
            .map(|retry_at| retry_at.saturating_duration_since(Instant::now()))
            .filter(|wait| !wait.is_zero());
        if let Some(wait) = wait {
            return Err(TokenError::Waiting(wait));
        }

        let received = cloud
            .fetch()
            .await
            .and_then(|text| IdentityToken::received(text, clock()));
        match received {
            Ok(token) => {
                tracing::debug!(?token, "received a token from the metadata server");
                let text = token.text().to_owned();
                self.token = Some(token);
                self.backoff.reset();
                self.retry_at = None;
                Ok(text)
            }
            Err(error) => {
                let wait = self.backoff.next_delay();
                self.retry_at = Some(Instant::now() + wait);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    again_in = ?wait,
                    "failed to get a token from the metadata server"
                );
                Err(error)
            }
        }
    }
}
