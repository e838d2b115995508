//! Metrics of the webhooks, under istiod's names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::injector_state::InjectorState;
use super::review::Resource;
use navarch_api::crds;
use navarch_base::counter::Count;
use navarch_base::label_text::LabelText;

/// Handles of all metrics that are registered here. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// `galley_validation_passed`.
    passed: Family<ResourceLabels, Count>,
    /// `galley_validation_failed`.
    failed: Family<FailureLabels, Count>,
    /// `galley_validation_http_error`.
    http_errors: Family<StatusLabel, Count>,
    /// `galley_validation_config_updates`.
    validation_updates: Count,
    /// `galley_validation_config_update_error`.
    validation_update_errors: Family<ReasonLabel, Count>,
    /// `webhook_patch_attempts_total`.
    injection_updates: Family<NameLabel, Counter>,
    /// `webhook_patch_failures_total`.
    injection_update_errors: Family<PatchLabels, Counter>,
    /// `webhook_patch_retries_total`.
    injection_retries: Family<NameLabel, Counter>,
    /// `sidecar_injection_requests_total`.
    requests: Counter,
    /// `sidecar_injection_success_total`.
    injected: Counter,
    /// `sidecar_injection_failure_total`.
    not_injectable: Counter,
    /// `sidecar_injection_skip_total`.
    skipped: Counter,
    /// `sidecar_injection_time_seconds`.
    injection_time: Histogram,
    /// `navarch_injector_state`.
    injector: Family<StateLabel, Gauge>,
    /// `navarch_plan_warnings_total`.
    advised: Family<OutcomeLabel, Counter>,
}

/// The outcome of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The resource of a validated object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    group: LabelText,
    version: LabelText,
    resource: LabelText,
}

/// The resource of a rejected object, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    group: LabelText,
    version: LabelText,
    resource: LabelText,
    /// The reason, as in istiod.
    reason: &'static str,
}

/// The state of the injector.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// An HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

/// The reason of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// A webhook configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: LabelText,
}

/// A webhook configuration whose update failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PatchLabels {
    name: LabelText,
    reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodOutcome {
    Injected,
    /// The pod was not changed.
    Skipped,
    /// The pod was rejected.
    Rejected,
}

impl Metrics {
    /// Registers `galley_validation_*`, `webhook_patch_*` and `sidecar_injection_*`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = metrics.clone();
        registry.register(
            "galley_validation_passed",
            "Objects accepted by validation",
            m.passed,
        );

        registry.register(
            "galley_validation_failed",
            "Objects rejected by validation, by reason",
            m.failed,
        );

        registry.register(
            "galley_validation_http_error",
            "AdmissionReviews rejected with an HTTP error, by status",
            m.http_errors,
        );
        let help = "Updates of ValidatingWebhookConfigurations";
        registry.register(
            "galley_validation_config_updates",
            help,
            m.validation_updates,
        );

        let help = "Failed updates of ValidatingWebhookConfigurations";
        registry.register(
            "galley_validation_config_update_error",
            help,
            m.validation_update_errors,
        );

        registry.register(
            "webhook_patch_attempts",
            "Updates of MutatingWebhookConfigurations",
            m.injection_updates,
        );
        let help = "Failed updates of MutatingWebhookConfigurations";
        registry.register("webhook_patch_failures", help, m.injection_update_errors);
        let help = "Retried updates of MutatingWebhookConfigurations";
        registry.register("webhook_patch_retries", help, m.injection_retries);

        registry.register(
            "sidecar_injection_requests",
            "Injection requests",
            m.requests,
        );
        registry.register("sidecar_injection_success", "Pods injected", m.injected);
        registry.register(
            "sidecar_injection_failure",
            "Pods that failed to be injected",
            m.not_injectable,
        );

        registry.register(
            "sidecar_injection_skip",
            "Pods not injected by policy",
            m.skipped,
        );

        registry.register(
            "sidecar_injection_time_seconds",
            "Duration of an injection request, in seconds",
            m.injection_time,
        );
        let help = "1 for the current state of the injector configuration: off, pending, failed, ready, or stale if the newest one is invalid";
        registry.register("navarch_injector_state", help, m.injector);
        let help = "Objects whose effect was planned for admission warnings, by result: told, unchanged, late, busy or unknown";
        registry.register("navarch_plan_warnings", help, m.advised);

        metrics
    }

    /// Sets the state of the injector.
    pub fn injector(&self, now: &InjectorState) {
        for state in InjectorState::LABELS {
            self.injector
                .get_or_create(&StateLabel { state })
                .set(i64::from(state == now.label()));
        }
    }

    /// Counts a planned object.
    pub(super) fn advised(&self, outcome: &'static str) {
        self.advised.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a validated object; `rejected` is istiod's reason if it was rejected.
    pub(super) fn count_validated(&self, of: &Resource, rejected: Option<&'static str>) {
        let Resource {
            group,
            version,
            resource,
        } = labels_of(of);

        match rejected {
            None => self
                .passed
                .get_or_create(&ResourceLabels {
                    group: group.into(),
                    version: version.into(),
                    resource: resource.into(),
                })
                .inc(),
            Some(reason) => self
                .failed
                .get_or_create(&FailureLabels {
                    group: group.into(),
                    version: version.into(),
                    resource: resource.into(),
                    reason,
                })
                .inc(),
        };
    }

    /// Counts a review that was rejected unread.
    pub(super) fn count_unread(&self, status: u16) {
        self.http_errors
            .get_or_create(&StatusLabel { status })
            .inc();
    }

    /// Counts a reviewed pod.
    pub(super) fn pod(&self, fate: PodOutcome, took: Duration) {
        self.requests.inc();
        match fate {
            PodOutcome::Injected => self.injected.inc(),
            PodOutcome::Skipped => self.skipped.inc(),
            PodOutcome::Rejected => self.not_injectable.inc(),
        };
        self.injection_time.observe(took.as_secs_f64());
    }

    /// Counts an update of a validating webhook configuration.
    pub(super) fn validation_update(&self, is_good: bool) {
        if is_good {
            self.validation_updates.inc();
        } else {
            self.validation_update_errors
                .get_or_create(&ReasonLabel { reason: "update" })
                .inc();
        }
    }

    /// Counts an update of a mutating webhook configuration.
    pub(super) fn injection_update(&self, name: &str, is_good: bool) {
        self.injection_updates
            .get_or_create(&NameLabel { name: name.into() })
            .inc();

        if !is_good {
            let labels = PatchLabels {
                name: name.into(),
                reason: "webhook_update_failure",
            };
            self.injection_update_errors.get_or_create(&labels).inc();
            // Each failed update is retried.
            self.injection_retries
                .get_or_create(&NameLabel { name: name.into() })
                .inc();
        }
    }
}

/// The labels of a resource. Any client can send a review, so unknown resources must not create new
/// label values.
fn labels_of(of: &Resource) -> Resource {
    if crds::is_defined(&of.group, &of.version, &of.resource) {
        return of.clone();
    }
    let other = || "other".to_owned();
    Resource {
        group: other(),
        version: other(),
        resource: other(),
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            passed: Family::default(),
            failed: Family::default(),
            http_errors: Family::default(),
            validation_updates: Count::default(),
            validation_update_errors: Family::default(),
            injection_updates: Family::default(),
            injection_update_errors: Family::default(),
            injection_retries: Family::default(),
            requests: Counter::default(),
            injected: Counter::default(),
            not_injectable: Counter::default(),
            skipped: Counter::default(),
            injection_time: Histogram::new([0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0]),
            injector: Family::default(),
            advised: Family::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_metrics_share_one_label_set_for_unknown_resources() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let of = |group: &str, version: &str, resource: &str| Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
        };

        for number in 0..100 {
            metrics.count_validated(&of(&format!("{number}.istio.io"), "v1", "gateways"), None);
            metrics.count_validated(
                &of("networking.istio.io", &format!("v{number}x"), "gateways"),
                None,
            );
            metrics.count_validated(
                &of("networking.istio.io", "v1", &"x".repeat(number)),
                Some("invalid_resource"),
            );
        }

        metrics.count_validated(&of("networking.istio.io", "v1beta1", "gateways"), None);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(
            (
                rows("galley_validation_passed{"),
                rows("galley_validation_failed{")
            ),
            (2, 1),
            "{text}"
        );

        assert!(
            text.contains(
                "group=\"networking.istio.io\",version=\"v1beta1\",resource=\"gateways\"} 1"
            ),
            "{text}"
        );
    }
}
