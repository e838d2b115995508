//! `/debug/doctor`: problems, each with a next step.

mod api_server;
mod certificates;
mod configuration;
mod proxies;

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use serde_json::json;

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::doctor::{Check, Health, Level, MAX_FINDINGS_PER_CHECK};
use navarch_answers::rollout::{RolloutState, Rollouts};
use navarch_net::rejections::Rejections;
use navarch_push::context::PushContext;
use navarch_push::engine::{Faulty, Remark};
use navarch_push::rollout::RolloutProgress;
use navarch_push::worker::Inspect;

pub use api_server::{ApiServerHealth, Hooks, Right};
pub use certificates::Certificates;

/// The parameter of the expensive checks: requests to the API server, and a digest of all
/// configuration.
const WHOLE_PARAMETER: &str = "whole";

pub(super) async fn doctor(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let looked = state.push.inspect(|inspect: &Inspect<'_>| {
        (
            inspect.engine.faults(),
            inspect.engine.remarks(),
            inspect.engine.sizes().results,
        )
    });

    let Ok((faults, remarks, results)) = looked.await else {
        return reply::ended();
    };

    let context = state.push.context();
    let connections = state.connections.list();
    let mut health = Health {
        version: state.build.version.to_owned(),
        proxies: connections.len(),
        services: context.directory.services.len(),
        results,
        ..Health::default()
    };

    let now = Timestamp::now();
    readiness(&state, &mut health);

    if parameters.contains_key(WHOLE_PARAMETER) {
        if let Some(look) = &state.api_server {
            let roots = state
                .certificates
                .get()
                .map(|certificates| certificates.serving.web().roots);
            look.add_findings(roots, &mut health).await;
        }
        let digested = context.clone();
        let digest = tokio::task::spawn_blocking(move || configuration::digest(&digested)).await;
        health.configuration = digest.unwrap_or_default();
    }

    if let Some(commands) = state.roots.get() {
        certificates::roots(&commands.status(), now, &mut health);
    }

    if let Some(certificates) = state.certificates.get() {
        certificates.add_findings(now, &mut health);
        certificates::signers(&certificates.signers.reports(), now, &mut health);
    }

    quarantined(&context, &mut health);
    stopped(&context, &mut health);
    waiting(&state.rollouts.status.borrow(), &mut health);
    proxies::add_findings(&connections, now, &mut health);
    rejected(&state, &mut health);
    left_out(&faults, &remarks, &mut health);
    turned_away(&state.rejections, &mut health);

    // Last, so that the duration of the checks does not affect the clock comparison.
    health.now = Timestamp::now().to_string();
    reply::json(&parameters, &json!(health))
}

/// What Navarch waits for.
fn readiness(state: &AdminState, health: &mut Health) {
    let next = "kubectl logs -n istio-system deploy/istiod";
    if !state.push.is_synced() {
        let what = "the initial configuration is not complete; proxies receive no responses yet"
            .to_owned();
        health.add(Check::Ready, Level::Wrong, what, next);
    }
    for lack in state.readiness.missing_parts().lines() {
        let level = if state.readiness.is_ready() {
            Level::Note
        } else {
            Level::Wrong
        };
        health.add(Check::Ready, level, lack.to_owned(), next);
    }
}

/// Finds quarantined objects.
fn quarantined(context: &PushContext, health: &mut Health) {
    for (name, one) in context.quarantined.iter().take(MAX_FINDINGS_PER_CHECK) {
        let what = format!(
            "{name} is quarantined; the previous version is served: {}",
            one.message
        );
        let kind = name.kind.as_str().to_ascii_lowercase();
        let namespace = &name.name.namespace;
        let next = format!("kubectl edit {kind} -n {namespace} {}", name.name.name);
        health.add(Check::Quarantine, Level::Wrong, what, &next);
    }
    let next = "navarch request GET /debug/push_status";
    health.more(
        Check::Quarantine,
        context.quarantined.len(),
        "quarantined objects",
        next,
    );
}

/// Finds rollouts that were stopped.
fn stopped(context: &PushContext, health: &mut Health) {
    let all = context
        .rollouts
        .iter()
        .filter_map(|(name, rollout)| match &rollout.progress {
            RolloutProgress::Stopped(reason) => Some((name, reason)),
            RolloutProgress::Waiting | RolloutProgress::Stage { .. } => None,
        });

    for (name, reason) in all.clone().take(MAX_FINDINGS_PER_CHECK) {
        let what = format!(
            "the rollout of {name} was stopped; all proxies have the previous version: {reason}"
        );
        let kind = name.kind.as_str().to_ascii_lowercase();
        let namespace = &name.name.namespace;
        let next = format!("kubectl edit {kind} -n {namespace} {}", name.name.name);
        health.add(Check::Rollouts, Level::Wrong, what, &next);
    }

    health.more(
        Check::Rollouts,
        all.count(),
        "stopped rollouts",
        "navarch rollout status",
    );
}

/// Rollouts that wait for others.
fn waiting(rollouts: &Rollouts, health: &mut Health) {
    let all: Vec<_> = rollouts
        .rollouts
        .iter()
        .filter(|rollout| rollout.state == RolloutState::Waiting)
        .collect();
    let next = "navarch rollout status";

    for rollout in all.iter().take(MAX_FINDINGS_PER_CHECK) {
        let what = format!(
            "the rollout of {} has not begun: {}",
            rollout.object, rollout.reason
        );
        health.add(Check::Rollouts, Level::Note, what, next);
    }
    health.more(Check::Rollouts, all.len(), "waiting rollouts", next);
}

/// Finds objects and files that were rejected.
fn rejected(state: &AdminState, health: &mut Health) {
    let problems = state.problems.all();
    let all: Vec<_> = problems.values().flatten().collect();
    for problem in all.iter().take(MAX_FINDINGS_PER_CHECK) {
        let next = "navarch plan -f FILE, with the fixed object";
        health.add(
            Check::Input,
            Level::Wrong,
            format!("rejected or accepted with warnings: {problem}"),
            next,
        );
    }
    health.more(
        Check::Input,
        all.len(),
        "problems with objects",
        "navarch request GET /debug/push_status",
    );
}

/// Configuration that proxies do not get.
fn left_out(faults: &[Faulty], remarks: &[Remark], health: &mut Health) {
    for fault in faults.iter().take(MAX_FINDINGS_PER_CHECK) {
        let what = format!(
            "failed to compute {}; the last good value is in use: {}",
            fault.query, fault.message
        );
        let next = "report it with the output of navarch request GET /debug/push_status";
        health.add(Check::LeftOut, Level::Wrong, what, next);
    }

    let next = "navarch request GET /debug/push_status";

    for remark in remarks.iter().take(MAX_FINDINGS_PER_CHECK) {
        health.add(
            Check::LeftOut,
            Level::Note,
            format!("not sent to proxies: {}", remark.text),
            next,
        );
    }

    health.more(
        Check::LeftOut,
        remarks.len(),
        "parts of the configuration that are not sent to proxies",
        next,
    );
}

/// Clients that were rejected because of limits.
fn turned_away(rejections: &Rejections, health: &mut Health) {
    let all = rejections.all();
    let next = "navarch request GET /metrics, for navarch_rejected_total over time";
    for ((port, reason), count) in all.iter().take(MAX_FINDINGS_PER_CHECK) {
        let reason = reason.replace('_', " ");
        let what = format!("rejected at port {port} since the start: {count} ({reason})");
        health.add(Check::Limits, Level::Note, what, next);
    }
    health.more(
        Check::Limits,
        all.len(),
        "limits because of which clients were rejected",
        next,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_clients_are_reported_by_port_and_reason() {
        let rejections = Rejections::default();
        let mut health = Health::default();
        turned_away(&rejections, &mut health);
        assert_eq!(health.findings, []);
        rejections.count("secure-grpc", "too_many_streams", "a test");
        rejections.count("secure-grpc", "too_many_streams", "a test");
        turned_away(&rejections, &mut health);
        let what = "rejected at port secure-grpc since the start: 2 (too many streams)";
        assert_eq!(
            (health.findings.len(), &*health.findings[0].what),
            (1, what)
        );
        assert!(!health.is_wrong(), "limits are there to be met");
    }
}
