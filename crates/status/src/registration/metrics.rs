//! Metrics of the registration, under istiod's names.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Handles of the metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RegistrationMetrics {
    /// `auto_registration_success_total`.
    pub(super) created: Counter,
    /// `auto_registration_updates_total`.
    pub(super) updated: Counter,
    /// `auto_registration_unregister_total`.
    pub(super) ended: Counter,
    /// `auto_registration_deletes_total`.
    pub(super) deleted: Counter,
    /// `auto_registration_errors_total`.
    pub(super) failed: Counter,
}

impl RegistrationMetrics {
    /// Registers the counters `auto_registration_*_total`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();

        for (name, help, counter) in [
            (
                "auto_registration_success",
                "Workloads registered",
                &metrics.created,
            ),
            (
                "auto_registration_updates",
                "Reconnects of registered workloads",
                &metrics.updated,
            ),
            (
                "auto_registration_unregister",
                "Disconnects of registered workloads",
                &metrics.ended,
            ),
            (
                "auto_registration_deletes",
                "WorkloadEntries deleted after their grace period",
                &metrics.deleted,
            ),
            (
                "auto_registration_errors",
                "Failed registrations",
                &metrics.failed,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }

        metrics
    }
}
