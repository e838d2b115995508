//! Both forms of routes are equivalent: on-demand virtual hosts, inserted into their route
//! configurations, equal the complete route configurations.

use std::collections::BTreeSet;
use std::sync::Arc;

use navarch::api::names::ResourceName;
use navarch::envoy::EnvoyTranslator;
use navarch::envoy::routes::with_hosts;
use navarch::push::engine::{Engine, Interest};
use navarch::push::mesh_state::MeshState;
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::ResourceType;
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use prost::Message;

use super::case::{Case, CaseProxy};
use super::input;
use super::shown::{Ignore, sorted};

/// Counts the route configurations of a case that use on-demand virtual hosts, and checks that each
/// is equivalent to the complete one.
pub(crate) fn check(case: &Case) -> Result<usize, String> {
    let (settings, changes) = input::read(case)?;
    let mut state = MeshState::new(settings);
    state.apply(changes);
    let mut engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
    let mut apart = 0;

    // gRPC applications do not support on-demand virtual hosts.
    for proxy in case.proxies.iter().filter(|proxy| !proxy.is_grpc()) {
        let Some(routes) = case.expected(proxy).remove("routes") else {
            continue;
        };

        let names = routes
            .iter()
            .filter_map(|routes| routes.get("name")?.as_str())
            .map(ResourceName::new)
            .collect();
        let whole = tables(&mut engine, proxy, &names, false)?;
        let joined = tables(&mut engine, proxy, &names, true)?;

        for (whole, joined) in whole.iter().zip(&joined) {
            apart += usize::from(joined.vhds.is_some());
            if sorted(whole) != sorted(joined) {
                return Err(format!(
                    "{} {}: {whole:#?}\nwith on-demand virtual hosts: {joined:#?}",
                    proxy.name, whole.name
                ));
            }
        }
    }

    Ok(apart)
}

/// The complete route configurations of a proxy, from one of the two forms.
fn tables(
    engine: &mut Engine,
    proxy: &CaseProxy,
    names: &BTreeSet<ResourceName>,
    fine_grained: bool,
) -> Result<Vec<RouteConfiguration>, String> {
    let mut metadata = proxy.metadata();
    metadata["FINE_GRAINED_ROUTES"] = fine_grained.into();
    let parsed = Proxy::parse(
        &proxy.node_id(),
        metadata,
        Locality::parse(proxy.locality()),
    );
    let parsed = Proxy {
        uses_delta: true,
        ..parsed.map_err(|error| error.to_string())?
    };
    let id = engine.connect(Arc::new(parsed), Arc::new(Ignore));

    let mut ask = |resource_type, wildcard| {
        engine.subscribe(
            id,
            resource_type,
            Interest {
                wildcard,
                names: Arc::new(names.clone()),
            },
        );
        engine
            .published(id, resource_type)
            .ok_or("no collection was computed")
    };

    let routes = ask(ResourceType::Route, false)?;
    let hosts = ask(ResourceType::VirtualHost, true)?;
    engine.disconnect(id);
    let whole = |routes: &Arc<navarch::push::resource::Resource>| {
        let hosts = hosts.resources.iter().map(|host| (&host.name, &host.body));
        RouteConfiguration::decode(with_hosts(&routes.name, &routes.body, hosts))
            .map_err(|error| error.to_string())
    };

    routes.resources.iter().map(whole).collect()
}
