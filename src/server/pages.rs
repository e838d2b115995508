//! The state of the admin pages, their access rules, and what else shows that state.

mod rights;
mod unready;

use std::sync::Arc;

use super::boot::Boot;
use super::parts::Parts;
use super::{Config, control};
use crate::admin::{self, AdminState, DebugAccess, DebugOverXds, Exposition};
use navarch_security::authenticate::Authenticator;

pub(super) use rights::look;

/// Creates the state of the pages, and starts what shows it besides HTTP: debug pages over xDS,
/// ControlZ, and Events about missing readiness. No part can register metrics afterwards.
pub(super) async fn start(config: &Config, parts: &Parts, boot: &mut Boot) -> AdminState {
    let state = admin_state(config, parts, boot);
    let over_xds = DebugOverXds::new(state.clone(), config.debug.on_http);
    parts.xds.ads.set_debug_pages(Arc::new(over_xds));

    control::start(config, &state, boot).await;
    unready::report_unready(config, parts.client.as_ref(), &state, boot);
    state
}

fn admin_state(config: &Config, parts: &Parts, boot: &mut Boot) -> AdminState {
    let xds = &parts.xds;
    AdminState {
        push: parts.engine.push.clone(),
        connections: xds.ads.connections(),
        problems: boot.problems.clone(),
        clusters: parts.clusters.clone(),
        readiness: boot.readiness.clone(),
        metrics: Arc::new(Exposition::new(boot.take_metrics())),
        roots: Arc::default(),
        certificates: Arc::default(),
        rejections: boot.rejections.clone(),
        api_server: parts.api_server.clone(),
        rollouts: xds.rollouts.clone(),
        quarantine: xds.quarantine.clone(),
        access: debug_access(config, &xds.authenticator),
        build: config.build,
        pod: config.pod.clone(),
        injector: parts.webhooks.injector(),
        unsafe_pages: config.debug.harmful,
        profiles: config.debug.profiles,
        turns: admin::PlanLimit::default(),
        plans: parts.plans.clone(),
    }
}

/// Access rules of debug pages.
fn debug_access(config: &Config, authenticator: &Arc<Authenticator>) -> DebugAccess {
    let operators =
        std::iter::once(&config.settings.system_namespace).chain(&config.security.debug_namespaces);
    let by_namespace = config.security.debug_by_namespace;
    DebugAccess {
        authenticator: authenticator.clone(),
        operators: operators.cloned().collect(),
        by_namespace,
    }
}
