//! Helpers for tests of an engine that compare resources in both forms of routes.

use std::sync::Arc;

use navarch::push::engine::{PushCause, Sink};
use navarch::push::resource::{Collection, ResourceType};
use navarch_proto::envoy::config::route::v3::RouteConfiguration;

/// Discards pushes.
pub struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// A route configuration without the parts that differ between the two forms.
pub fn sorted(routes: &RouteConfiguration) -> RouteConfiguration {
    let mut routes = RouteConfiguration {
        vhds: None,
        ..routes.clone()
    };
    let prefix = format!("{}/", routes.name);
    for host in &mut routes.virtual_hosts {
        host.name = host
            .name
            .strip_prefix(&prefix)
            .unwrap_or(&host.name)
            .to_owned();
    }
    routes.virtual_hosts.sort_by(|a, b| a.name.cmp(&b.name));
    routes
}
