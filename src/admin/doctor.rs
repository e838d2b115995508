//! `/debug/doctor`: what is wrong, each with what to do next.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use serde_json::json;

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::doctor::{Health, Level};
use navarch_push::engine::{Faulty, Remark};
use navarch_push::rollout::RolloutProgress;
use navarch_push::worker::Inspect;
use navarch_xds::connections::{ConnectionInfo, TypeInfo};

/// How many findings of one sort are told.
const OF_ONE: usize = navarch_answers::doctor::OF_ONE;
/// Seconds that a proxy may leave a response unanswered before that is told.
const SLOW: f64 = 10.0;

/// What is wrong.
pub(super) async fn doctor(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let looked = state.push.inspect(|inspect: &Inspect<'_>| {
        (inspect.engine.faults(), inspect.engine.remarks(), inspect.engine.sizes().results)
    });
    let Ok((faults, remarks, results)) = looked.await else { return reply::ended() };
    let context = state.push.context();
    let connections = state.connections.list();
    let mut health = Health {
        version: state.build.version.to_owned(),
        proxies: connections.len(),
        services: context.directory.services.len(),
        results,
        findings: Vec::new(),
    };
    readiness(&state, &mut health);
    quarantined(&context, &mut health);
    stopped(&context, &mut health);
    refused(&connections, &mut health);
    rejected(&state, &mut health);
    left_out(&faults, &remarks, &mut health);
    if connections.is_empty() {
        let what = "no proxy is connected".to_owned();
        health.add(Level::Note, what, "kubectl get pods -A -l service.istio.io/canonical-name");
    }
    reply::json(&parameters, &json!(health))
}

/// What Navarch waits for.
fn readiness(state: &AdminState, health: &mut Health) {
    if !state.push.is_synced() {
        let what = "the first reading of the configuration is not complete: proxies are not answered".to_owned();
        health.add(Level::Wrong, what, "kubectl logs -n istio-system deploy/istiod");
    }
    for lack in state.readiness.lacks().lines() {
        let level = if state.readiness.is_ready() { Level::Note } else { Level::Wrong };
        health.add(level, lack.to_owned(), "kubectl logs -n istio-system deploy/istiod");
    }
    let roots = state.roots.get().map(|orders| json!(*orders.status()));
    if let Some(problem) = roots.as_ref().and_then(|status| status.get("problem")?.as_str()) {
        health.add(Level::Wrong, format!("the roots of the mesh: {problem}"), "navarch ca status");
    }
}

/// Objects that are out of force.
fn quarantined(context: &navarch_push::context::PushContext, health: &mut Health) {
    for (name, one) in context.quarantined.iter().take(OF_ONE) {
        let what = format!("{name} is quarantined; proxies said: {}", one.said);
        let (kind, namespace) = (name.kind.as_str().to_ascii_lowercase(), &name.name.namespace);
        health.add(Level::Wrong, what, &format!("kubectl edit {kind} -n {namespace} {}", name.name.name));
    }
    health.more(context.quarantined.len(), "quarantined objects", "navarch request GET /debug/push_status");
}

/// Changes that were stopped on their way to proxies.
fn stopped(context: &navarch_push::context::PushContext, health: &mut Health) {
    let all = context.rollouts.iter().filter_map(|(name, rollout)| match &rollout.progress {
        RolloutProgress::Stopped(reason) => Some((name, reason)),
        RolloutProgress::Waiting | RolloutProgress::Stage { .. } => None,
    });
    for (name, reason) in all.clone().take(OF_ONE) {
        let what = format!("a change of {name} was stopped on its way, all proxies have the version before: {reason}");
        let (kind, namespace) = (name.kind.as_str().to_ascii_lowercase(), &name.name.namespace);
        health.add(Level::Wrong, what, &format!("kubectl edit {kind} -n {namespace} {}", name.name.name));
    }
    health.more(all.count(), "changes that were stopped", "navarch rollout status");
}

/// What proxies refuse or leave unanswered.
fn refused(connections: &[ConnectionInfo], health: &mut Health) {
    let mut said: BTreeMap<(&str, String), Vec<&ConnectionInfo>> = BTreeMap::new();
    let mut slow: Vec<(&ConnectionInfo, f64)> = Vec::new();
    let now = Timestamp::now();
    for info in connections {
        let waits = |watch: &TypeInfo| {
            let sent = watch
                .sent
                .as_ref()
                .filter(|sent| watch.acked.as_ref().is_none_or(|acked| acked.nonce != sent.nonce))?;
            (watch.rejected.is_none()).then(|| now.duration_since(sent.at).as_secs_f64())
        };
        for watch in &info.types {
            if let Some(rejected) = &watch.rejected {
                said.entry((watch.kind.short_name(), rejected.message.to_string())).or_default().push(info);
            }
        }
        let longest = info.types.iter().filter_map(waits).fold(0.0, f64::max);
        if longest > SLOW {
            slow.push((info, longest));
        }
    }
    let kinds = said.len();
    for ((kind, message), proxies) in said.iter().take(OF_ONE) {
        let Some(first) = proxies.first() else { continue };
        let what = match proxies.len() {
            1 => format!("{} refuses {kind}: {message}", first.proxy.name),
            all => format!("{all} proxies refuse {kind}, {} among them: {message}", first.proxy.name),
        };
        health.add(Level::Wrong, what, &format!("navarch why push {}", first.proxy.name));
    }
    health.more(kinds, "sorts of refusals", "navarch request GET /debug/syncz");
    if let Some((first, seconds)) = slow.first() {
        let what = match slow.len() {
            1 => format!("{} leaves what it was sent unanswered since {seconds:.0} s", first.proxy.name),
            all => {
                format!("{all} proxies leave what they were sent unanswered, {} since {seconds:.0} s", first.proxy.name)
            }
        };
        health.add(Level::Wrong, what, &format!("navarch why push {}", first.proxy.name));
    }
}

/// Input that cannot be accepted.
fn rejected(state: &AdminState, health: &mut Health) {
    let problems = state.problems.all();
    let all: Vec<_> = problems.values().flatten().collect();
    for problem in all.iter().take(OF_ONE) {
        health.add(
            Level::Wrong,
            format!("not accepted or in doubt: {problem}"),
            "navarch plan -f FILE, with the mended object",
        );
    }
    health.more(all.len(), "problems of the input", "navarch request GET /debug/push_status");
}

/// What proxies do not get.
fn left_out(faults: &[Faulty], remarks: &[Remark], health: &mut Health) {
    for fault in faults.iter().take(OF_ONE) {
        let what = format!("{} stands at its last good value: {}", fault.query, fault.message);
        health.add(Level::Wrong, what, "report it with what navarch request GET /debug/push_status says");
    }
    for remark in remarks.iter().take(OF_ONE) {
        health.add(Level::Note, format!("left out: {}", remark.text), "navarch request GET /debug/push_status");
    }
    health.more(remarks.len(), "things left out", "navarch request GET /debug/push_status");
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_answers::doctor::Finding;

    #[test]
    fn more_than_a_few_of_one_sort_are_told_by_number() {
        let mut health = Health::default();
        health.more(OF_ONE, "things", "next");
        assert_eq!(health.findings, []);
        health.more(OF_ONE + 3, "things", "next");
        let Finding { level, what, next } = &health.findings[0];
        assert_eq!((*level, what.as_str(), next.as_str()), (Level::Note, "3 more things", "next"));
    }
}
