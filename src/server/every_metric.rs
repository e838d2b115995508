//! All metrics of the control plane, for the documentation page.

use std::sync::Arc;

use super::boot::Boot;
use super::engine::Engine;
use super::{Config, security, sources};
use navarch_api::decode::Subject;
use navarch_security::ca::{self, CallMetrics};
use navarch_source::{FilePosition, Problem, ProblemKind, ProblemSource};
use navarch_status::RegistrationMetrics;
use navarch_xds::metrics::Metrics;

/// The files that register metrics, all of which are called here; a test compares them with the
/// sources.
pub(crate) const REGISTERING: &[&str] = &[
    "crates/net/src/rejections.rs",
    "crates/otlp/src/metrics.rs",
    "crates/push/src/metrics.rs",
    "crates/record/src/metrics.rs",
    "crates/remotes/src/metrics.rs",
    "crates/security/src/ca/call_metrics.rs",
    "crates/security/src/ca/metrics.rs",
    "crates/source/src/rejected_configs.rs",
    "crates/source/src/xds/metrics.rs",
    "crates/status/src/registration/metrics.rs",
    "crates/webhook/src/metrics.rs",
    "crates/xds/src/metrics.rs",
    "crates/xds/src/metrics/traffic.rs",
    "src/server/engine.rs",
];

/// The exposition of a control plane that has rejected one client and one mesh config, and the
/// debug output of its registry, as metrics without values have no lines in the exposition.
pub(crate) fn exposition(config: &Config) -> anyhow::Result<(String, String)> {
    let mut config = config.clone();
    config.settings.envoy_filter_stats = true;
    config.record = None;
    let mut boot = Boot::new();
    boot.rejections.count("grpc", "memory", "10.0.0.1");
    let _engine = Engine::start(&config, &mut boot)?;

    let mut metrics = boot.take_metrics();
    let _ = navarch_record::Metrics::register(&mut metrics);
    let place: Arc<str> = Arc::from("mesh");
    let problem = Problem {
        place: FilePosition {
            file: place.clone(),
            line: 0,
        },
        subject: Subject::default(),
        fault: ProblemKind::Unreadable(String::new()),
    };

    let mut sources = sources::metrics(&mut metrics);
    sources
        .rejected_configs
        .note(ProblemSource::Mesh, &place, &[problem]);
    let _ = (
        navarch_webhook::Metrics::register(&mut metrics),
        ca::Metrics::register(&mut metrics, security::clock),
    );
    let _ = navarch_otlp::Metrics::register(&mut metrics);
    let _ = (
        Metrics::register(&mut metrics),
        RegistrationMetrics::register(&mut metrics),
    );

    let _ = (
        CallMetrics::register(&mut metrics),
        navarch_remotes::Metrics::register(&mut metrics),
    );
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &metrics)?;

    Ok((text, format!("{metrics:?}")))
}
