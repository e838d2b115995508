//! What operators may ask of the keeper of the roots.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::super::rotation::{Origin, Refusal, RootSet};
use super::status::RotationStatus;
use super::{KeeperError, RootKeeper};
use navarch_api::error_chain::chain;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Make a new root and distribute it; it signs when everybody trusts it.
    Begin,
    /// Have the root that is being distributed sign now, if everybody trusts it.
    Switch,
    /// Have it sign now, whoever is cut off by it.
    SwitchRegardless,
}

/// Why an order is not obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RotateError {
    /// It is not safe, or there is nothing to do.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It cannot be done.
    #[error("{0}")]
    Failed(String),
    /// Nobody keeps roots here.
    #[error("this server has no CA whose roots could be rotated")]
    NoKeeper,
}

/// An order that waits for its answer.
pub(super) struct PendingOrder {
    pub(super) order: Order,
    /// Where the answer goes.
    pub(super) answer: oneshot::Sender<Result<(), RotateError>>,
}

/// Takes orders for the keeper, and tells where things stand. Clones are one.
#[derive(Clone, Debug)]
pub struct Orders {
    /// To the keeper.
    sender: mpsc::Sender<PendingOrder>,
    /// From the keeper.
    status: watch::Receiver<Arc<RotationStatus>>,
}

impl std::fmt::Debug for PendingOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingOrder").field("order", &self.order).finish_non_exhaustive()
    }
}

impl Orders {
    /// To a keeper and from it.
    pub(super) fn new(sender: mpsc::Sender<PendingOrder>, status: watch::Receiver<Arc<RotationStatus>>) -> Self {
        Self { sender, status }
    }

    /// Where things stand.
    #[must_use]
    pub fn status(&self) -> Arc<RotationStatus> {
        self.status.borrow().clone()
    }

    /// Gives an order and waits until it is obeyed or refused.
    ///
    /// # Errors
    /// When it is refused or fails.
    pub async fn give(&self, order: Order) -> Result<(), RotateError> {
        let (answer, answered) = oneshot::channel();
        let asked = PendingOrder { order, answer };
        self.sender.send(asked).await.map_err(|_| RotateError::NoKeeper)?;
        answered.await.map_err(|_| RotateError::NoKeeper)?
    }
}

impl RootKeeper {
    /// Obeys an order, after a look at all.
    pub(super) async fn obey(&mut self, order: Order) -> Result<(), RotateError> {
        if let Some(problem) = &self.problem {
            return Err(RotateError::Failed(problem.clone()));
        }
        let failed = |error: KeeperError| RotateError::Failed(chain(&error));
        let next = self.ordered(order).map_err(failed)??;
        self.keep(next.clone()).await.map_err(failed)?;
        if self.set == next {
            tracing::info!(?order, "root rotation command done");
            Ok(())
        } else {
            Err(RotateError::Failed(
                "another replica changed the roots first; check the status and try again".to_owned(),
            ))
        }
    }

    /// The set that an order leads to.
    fn ordered(&self, order: Order) -> Result<Result<RootSet, Refusal>, KeeperError> {
        let now = (self.config.clock)();
        let rules = &self.config.rules;
        Ok(match order {
            Order::Begin if self.set.origin == Origin::PluggedIn => Err(Refusal::PluggedIn),
            Order::Begin if self.set.next.is_some() => Err(Refusal::UnderWay),
            Order::Begin => self.set.begin((self.config.make)(now)?, Origin::SelfSigned, rules, now)?,
            Order::Switch if self.set.next.is_some() && !self.missing.is_empty() => {
                Err(Refusal::Missing(self.missing.clone()))
            }
            Order::Switch | Order::SwitchRegardless => self.set.switch(rules, now)?,
        })
    }
}
