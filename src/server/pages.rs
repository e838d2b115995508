//! The state of the admin pages, and their access rules.

mod rights;
mod unready;

use std::sync::Arc;

use super::Config;
use crate::admin::{
    self, AdminState, ApiServerHealth, DebugAccess, Exposition, ManagedClusters, Plans, Problems,
    QuarantineControl, Readiness, RolloutControl,
};
use navarch_net::rejections::Rejections;
use navarch_push::worker;
use navarch_security::authenticate::Authenticator;
use navarch_webhook::CurrentInjector;
use navarch_xds::Ads;

pub(super) use rights::look;
pub(super) use unready::report_unready;

/// The parts of the control plane that operators command, and the injector.
pub(super) struct Controls {
    pub(super) injector: CurrentInjector,
    pub(super) rollouts: RolloutControl,
    pub(super) quarantine: QuarantineControl,
}

/// The state of the pages.
pub(super) fn admin_state(
    config: &Config,
    (push, ads): (&worker::PushHandle, &Ads),
    controls: Controls,
    (problems, clusters, readiness, metrics): (Problems, ManagedClusters, Readiness, Exposition),
    (access, plans): (DebugAccess, Plans),
    (rejections, api_server): (Rejections, Option<ApiServerHealth>),
) -> AdminState {
    AdminState {
        push: push.clone(),
        connections: ads.connections(),
        problems,
        clusters,
        readiness,
        metrics: Arc::new(metrics),
        roots: Arc::default(),
        certificates: Arc::default(),
        rejections,
        api_server,
        rollouts: controls.rollouts,
        quarantine: controls.quarantine,
        access,
        build: config.build,
        pod: config.pod.clone(),
        injector: controls.injector,
        unsafe_pages: config.debug.harmful,
        profiles: config.debug.profiles,
        turns: admin::PlanLimit::default(),
        plans,
    }
}

/// Access rules of debug pages.
pub(super) fn debug_access(config: &Config, authenticator: &Arc<Authenticator>) -> DebugAccess {
    let operators =
        std::iter::once(&config.settings.system_namespace).chain(&config.security.debug_namespaces);
    let by_namespace = config.security.debug_by_namespace;
    DebugAccess {
        authenticator: authenticator.clone(),
        operators: operators.cloned().collect(),
        by_namespace,
    }
}
