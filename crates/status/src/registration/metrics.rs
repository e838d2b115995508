//! Metrics of the registration, under istiod's names.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Handles of the metrics. Cloning shares them.
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
    /// Makes the metrics known.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        for (name, help, counter) in [
            ("auto_registration_success", "Workloads that were registered", &metrics.created),
            ("auto_registration_updates", "Registered workloads that came back", &metrics.updated),
            ("auto_registration_unregister", "Registered workloads that went", &metrics.ended),
            ("auto_registration_deletes", "Entries that were deleted some time later", &metrics.deleted),
            ("auto_registration_errors", "Registrations that failed", &metrics.failed),
        ] {
            registry.register(name, help, counter.clone());
        }
        metrics
    }
}
