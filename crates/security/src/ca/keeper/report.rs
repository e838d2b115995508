//! Reports about the proxies of each replica, for the other replicas.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::super::replica_report::{
    HEARTBEAT_INTERVAL, REPORT_INTERVAL, is_forgotten, of_others, text,
};
use super::super::root_store::RootStoreError;
use super::super::rotation::{Missing, Phase};
use super::{FindMissing, KeeperError, RootKeeper};
use navarch_base::error_chain::chain;

impl RootKeeper {
    /// Writes the first report, before any proxy can connect.
    pub(super) async fn announce(&mut self) -> Result<(), KeeperError> {
        let roots = self.set.roots()?;
        match self.report(&[], &roots).await {
            // The first check tries again.
            Err(RootStoreError::Conflict) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Finds the proxies that lack roots, and reports this replica's own when due. False after a
    /// write conflict: the roots must be read again.
    pub(super) async fn collect_missing(
        &mut self,
        find_missing: &FindMissing,
        reports: &BTreeMap<String, String>,
    ) -> Result<bool, KeeperError> {
        let now = (self.config.clock)();
        let roots = self.set.roots()?;
        let Some(since) = self.set.next.as_ref().map(|next| next.since) else {
            self.missing.clear();
            if Instant::now() >= self.due_report {
                self.write_heartbeat(&roots).await;
            }
            return Ok(true);
        };

        let own = find_missing(&roots);
        self.missing.clone_from(&own);
        self.missing
            .extend(of_others(reports, &self.config.replica, &roots, since, now));

        if Instant::now() < self.due_report && own == self.reported {
            return Ok(true);
        }

        match self.report(&own, &roots).await {
            Ok(()) => Ok(true),
            Err(RootStoreError::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a heartbeat. A failure is not a problem of the roots, as nothing depends on the
    /// heartbeat now.
    async fn write_heartbeat(&mut self, roots: &str) {
        match self.report(&[], roots).await {
            Ok(()) | Err(RootStoreError::Conflict) => {}
            Err(error) => {
                tracing::warn!(
                    problem = chain(&error),
                    "failed to publish this replica's CA state"
                );
                self.due_report = Instant::now() + REPORT_INTERVAL;
            }
        }
    }

    /// Writes the report about this replica's proxies.
    async fn report(&mut self, own: &[Missing], roots: &str) -> Result<(), RootStoreError> {
        let now = (self.config.clock)();
        let text = text(own, roots, now);
        let version = self.version.as_deref();
        let reports = self
            .store
            .report(&self.config.replica, &text, version, |text| {
                is_forgotten(text, now)
            })
            .await?;

        self.version = reports;
        own.clone_into(&mut self.reported);
        self.due_report = Instant::now()
            + if self.set.phase() == Phase::Distributing {
                REPORT_INTERVAL
            } else {
                HEARTBEAT_INTERVAL
            };

        Ok(())
    }
}
