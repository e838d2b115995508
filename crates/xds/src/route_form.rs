//! The form of a proxy's routes: tables with their virtual hosts inside, or virtual hosts that are
//! sent one by one (VHDS). It is settled when a stream starts, as `FINE_GRAINED_ROUTES` in the
//! proxy's metadata, so that resources remain functions of the mesh and the proxy.
//!
//! With `NAVARCH_FINE_GRAINED_ROUTES=auto`, an Envoy gets virtual hosts one by one if it starts while
//! a table of it is large, and keeps its form as long as it runs:
//!
//! ```text
//! ROUTES_HELD of its agent     the form
//! nothing ──┬─ a large table ─▶ one by one      the first stream of an Envoy
//!           └─ small ones ────▶ whole
//! virtual-hosts ──────────────▶ one by one      each later stream, to any replica
//! whole ──────────────────────▶ whole
//! ```
//!
//! - *Why it never changes in place*: Envoy puts a table without its virtual hosts in force as soon as
//!   it receives it (`RdsRouteConfigSubscription::onConfigUpdate`), and subscribes to its virtual
//!   hosts only then. Requests in between find no host: 404 at a gateway; at a sidecar they bypass
//!   their routes, or are blocked. No order of responses avoids that, as both forms of a virtual host
//!   cannot be in force at once: their domains would be duplicates. The listener of an Envoy that
//!   starts waits for both parts. Back to whole tables there is no gap, as one response has all.
//! - *Why no table flips near the limit*: a table that grows or shrinks changes the form for Envoys
//!   that start later. What an Envoy has is its agent's word, not this process's memory: a replica,
//!   or a restarted control plane, settles the same.
//! - *Who*: sidecars and gateways on delta streams, with Navarch's agent, which says what Envoy has;
//!   Envoy from 1.40 on, which ends the subscription of a table that is whole again (up to 1.39 it
//!   leaks it, and in 1.36 no virtual host arrives over ADS); with a verified identity, as the size is
//!   computed for the proxy.
//! - *Who can make tables large*: whoever adds hosts that others see. That changes the form for
//!   Envoys that start afterwards, not the meaning of their routes, and nothing for others.

use std::net::IpAddr;
use std::sync::Arc;

use navarch_api::settings::Settings;
use navarch_base::go_text::parse_bool;
use navarch_base::routes_held::{self, RoutesHeld};
use navarch_proto::envoy::config::core::v3::Node;
use navarch_push::proxy::{Proxy, ProxyKind};
use navarch_push::worker::{Ended, PushHandle};
use serde_json::Value;

use crate::node;

/// The metadata with the form: `true` is one by one. Where it is not set, the form is that of
/// [`Settings::fine_grained_routes`].
const FORM: &str = "FINE_GRAINED_ROUTES";
/// The first version of Envoy (major, minor) that gets virtual hosts one by one with `auto`.
const MIN_ENVOY: (u32, u32) = (1, 40);

/// The form of a proxy's routes, or what decides about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// That of the metadata, else of the settings.
    AsSet,
    Whole,
    OneByOne,
    /// One by one if a table is large.
    BySize,
}

/// Whether Envoy, by its version, takes virtual hosts one by one and back.
pub(crate) fn takes_virtual_hosts(node: &Node) -> bool {
    node::envoy_version(node).is_some_and(|version| version >= MIN_ENVOY)
}

/// Whether the virtual hosts of a proxy, whose form is settled, are sent one by one.
pub(crate) fn is_one_by_one(settings: &Settings, proxy: &Proxy) -> bool {
    let is_set = match proxy.meta(FORM) {
        Some(own) => parse_bool(&own).unwrap_or(false),
        None => settings.fine_grained_routes,
    };
    is_set && proxy.uses_delta
}

/// The proxy with the form of its routes in its metadata, where it is not the one of the settings.
///
/// # Errors
/// If the push thread has ended.
pub(crate) async fn settle(
    mut proxy: Proxy,
    takes_virtual_hosts: bool,
    address: Option<IpAddr>,
    push: &PushHandle,
) -> Result<Proxy, Ended> {
    let held = take_held(&mut proxy);
    let form = form_of(
        &push.context().mesh.settings,
        &proxy,
        held,
        takes_virtual_hosts,
    );
    let is_one_by_one = match form {
        Form::AsSet => return Ok(proxy),
        Form::Whole => false,
        Form::OneByOne => true,
        Form::BySize => {
            let asked = Arc::new(proxy.clone());
            if !push.has_large_routes(asked, address).await? {
                return Ok(proxy);
            }
            true
        }
    };

    if let Value::Object(metadata) = Arc::make_mut(&mut proxy.metadata) {
        metadata.insert(FORM.to_owned(), is_one_by_one.into());
    }
    Ok(proxy)
}

/// Takes what the agent says from the metadata: it differs from stream to stream, and is not a
/// property of the proxy.
fn take_held(proxy: &mut Proxy) -> Option<RoutesHeld> {
    let said = proxy.meta(routes_held::NODE_KEY)?;
    if let Value::Object(metadata) = Arc::make_mut(&mut proxy.metadata) {
        metadata.remove(routes_held::NODE_KEY);
    }
    RoutesHeld::parse(&said)
}

/// What decides about the form of a proxy's routes.
fn form_of(
    settings: &Settings,
    proxy: &Proxy,
    held: Option<RoutesHeld>,
    takes_virtual_hosts: bool,
) -> Form {
    let is_kind = matches!(proxy.kind, ProxyKind::Sidecar | ProxyKind::Router);
    let is_envoy = proxy.meta("GENERATOR").is_none_or(|name| name.is_empty());
    if !is_kind || !is_envoy || !proxy.uses_delta || proxy.meta(FORM).is_some() {
        return Form::AsSet;
    }

    let is_for_all = settings.fine_grained_routes;
    let is_by_size = settings.fine_grained_routes_min_hosts.is_some();
    match held {
        // It was started before virtual hosts were enabled for all.
        Some(RoutesHeld::Whole) if is_for_all => Form::Whole,
        Some(RoutesHeld::VirtualHosts) if is_by_size => Form::OneByOne,
        Some(RoutesHeld::Nothing)
            if is_by_size && !is_for_all && takes_virtual_hosts && proxy.identity.is_some() =>
        {
            Form::BySize
        }
        None | Some(_) => Form::AsSet,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use navarch_api::identity::Identity;
    use navarch_api::names::ResourceName;
    use navarch_proto::envoy::config::core::v3::BuildVersion;
    use navarch_proto::envoy::config::core::v3::node::UserAgentVersionType;
    use navarch_proto::envoy::r#type::v3::SemanticVersion;
    use navarch_push::proxy::Locality;
    use navarch_push::resource::ResourceType;
    use navarch_push::view::{Translator, View};
    use navarch_push::worker::{self, Debounce};
    use serde_json::json;

    use super::*;

    const NOTHING: Option<RoutesHeld> = Some(RoutesHeld::Nothing);

    /// Proxies with `LARGE` in their metadata have large routes.
    struct Toy;

    impl Translator for Toy {
        fn names(&self, _: ResourceType, _: &View<'_>) -> Vec<ResourceName> {
            Vec::new()
        }

        fn resource(&self, _: ResourceType, _: &ResourceName, _: &View<'_>) -> Option<Bytes> {
            None
        }

        fn has_large_routes(&self, view: &View<'_>) -> bool {
            view.proxy().meta("LARGE").is_some()
        }
    }

    fn proxy(kind: &str, metadata: Value) -> Proxy {
        let id = format!("{kind}~10.1.2.3~web-1.shop~shop.svc.cluster.local");
        let mut proxy = Proxy::parse(&id, metadata, Locality::default()).unwrap();
        proxy.uses_delta = true;
        proxy.identity = Identity::parse("spiffe://cluster.local/ns/shop/sa/web").ok();
        proxy
    }

    fn sidecar() -> Proxy {
        proxy("sidecar", json!({}))
    }

    fn settings(is_for_all: bool, min_hosts: Option<u32>) -> Settings {
        Settings {
            fine_grained_routes: is_for_all,
            fine_grained_routes_min_hosts: min_hosts,
            ..Settings::default()
        }
    }

    #[test]
    fn an_envoy_keeps_the_form_that_it_has() {
        let auto = settings(false, Some(1000));
        let all = settings(true, None);
        let none = settings(false, None);

        for (settings, held, expected) in [
            (&auto, Some(RoutesHeld::Whole), Form::AsSet),
            (&auto, Some(RoutesHeld::VirtualHosts), Form::OneByOne),
            (&auto, NOTHING, Form::BySize),
            (&auto, None, Form::AsSet),
            (&all, Some(RoutesHeld::Whole), Form::Whole),
            (&all, Some(RoutesHeld::VirtualHosts), Form::AsSet),
            (&all, NOTHING, Form::AsSet),
            (&none, Some(RoutesHeld::Whole), Form::AsSet),
            // One response replaces its virtual hosts by whole tables.
            (&none, Some(RoutesHeld::VirtualHosts), Form::AsSet),
            (&none, NOTHING, Form::AsSet),
        ] {
            assert_eq!(
                form_of(settings, &sidecar(), held, true),
                expected,
                "{held:?}"
            );
        }
    }

    #[test]
    fn only_proxies_that_are_known_to_take_virtual_hosts_are_asked_for_their_size() {
        let auto = settings(false, Some(1000));
        let form = |proxy: &Proxy| form_of(&auto, proxy, NOTHING, true);
        assert_eq!(form(&sidecar()), Form::BySize);
        assert_eq!(form(&proxy("router", json!({}))), Form::BySize);
        assert_eq!(form_of(&auto, &sidecar(), NOTHING, false), Form::AsSet);

        let on_plaintext = Proxy {
            identity: None,
            ..sidecar()
        };
        let in_whole_states = Proxy {
            uses_delta: false,
            ..sidecar()
        };
        for other in [
            on_plaintext,
            in_whole_states,
            proxy("waypoint", json!({})),
            proxy("ztunnel", json!({})),
            proxy("sidecar", json!({ "GENERATOR": "grpc" })),
            proxy("sidecar", json!({ FORM: "false" })),
        ] {
            assert_eq!(form(&other), Form::AsSet, "{other:?}");
        }
    }

    #[tokio::test]
    async fn the_form_is_settled_in_the_metadata_of_the_proxy() {
        let (push, _) =
            worker::start(Settings::default(), Debounce::default(), Arc::new(Toy)).unwrap();
        push.full_sync().await.unwrap();

        for (said, settled) in [
            (json!({ "ROUTES_HELD": "nothing" }), json!({})),
            (
                json!({ "ROUTES_HELD": "nothing", "LARGE": "1" }),
                json!({ "LARGE": "1", FORM: true }),
            ),
            (
                json!({ "ROUTES_HELD": "whole", "LARGE": "1" }),
                json!({ "LARGE": "1" }),
            ),
            (
                json!({ "ROUTES_HELD": "virtual-hosts" }),
                json!({ FORM: true }),
            ),
            (json!({ "LARGE": "1" }), json!({ "LARGE": "1" })),
        ] {
            let found = settle(proxy("sidecar", said.clone()), true, None, &push)
                .await
                .unwrap();
            assert_eq!(*found.metadata, settled, "{said}");
        }
    }

    #[test]
    fn what_the_agent_says_is_not_part_of_the_proxy() {
        let mut said = proxy(
            "sidecar",
            json!({ "ROUTES_HELD": "virtual-hosts", "A": "b" }),
        );
        assert_eq!(take_held(&mut said), Some(RoutesHeld::VirtualHosts));
        assert_eq!(*said.metadata, json!({ "A": "b" }));

        let mut unknown = proxy("sidecar", json!({ "ROUTES_HELD": "a later form" }));
        assert_eq!(take_held(&mut unknown), None);
        assert_eq!(*unknown.metadata, json!({}));
    }

    #[test]
    fn envoy_from_1_40_on_takes_virtual_hosts() {
        let node = |name: &str, major_number, minor_number| {
            let version = SemanticVersion {
                major_number,
                minor_number,
                patch: 0,
            };
            let build = BuildVersion {
                version: Some(version),
                ..BuildVersion::default()
            };
            Node {
                user_agent_name: name.to_owned(),
                user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(build)),
                ..Node::default()
            }
        };

        assert!(takes_virtual_hosts(&node("envoy", 1, 40)));
        assert!(takes_virtual_hosts(&node("envoy", 2, 0)));
        assert!(!takes_virtual_hosts(&node("envoy", 1, 39)));
        assert!(!takes_virtual_hosts(&node("other", 1, 40)));
        assert!(!takes_virtual_hosts(&Node::default()));
    }
}
