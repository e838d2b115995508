//! Known vulnerabilities of policies about paths, and of the forms in which paths reach them.
//! `docs/security-regressions.md` has the list.

use std::collections::BTreeMap;

use navarch::walk::policy::{Peer, TokenClaims, Verdict, Visitor, verdict};
use navarch::walk::{HttpRequest, Resources};
use navarch_proto::envoy::config::listener::v3::filter;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    PathWithEscapedSlashesAction, RouteSpecifier,
};
use prost::Message as _;

use crate::authorization::web;
use crate::past_policies::policy;
use crate::rbac;

#[test]
fn cve_2020_8595_queries_lead_around_no_exact_path() {
    let mesh = policy(
        "{action: DENY, rules: [{from: [{source: {notRequestPrincipals: ['*']}}], \
         to: [{operation: {paths: [/admin]}}]}]}",
    );
    let resources = mesh.sidecar("shop", "web");
    let inbound = resources
        .listeners
        .iter()
        .find(|listener| listener.name == "virtualInbound")
        .unwrap();
    let chains = rbac::chains_of_port(inbound, 8080);
    assert!(!chains.is_empty());

    for (path, is_denied) in [
        ("/admin", true),
        ("/admin?", true),
        ("/admin?page=1", true),
        ("/other?/admin", false),
    ] {
        let request = HttpRequest {
            method: "GET".to_owned(),
            host: "web".to_owned(),
            path: path.to_owned(),
            headers: BTreeMap::new(),
            claims: None,
        };
        let visitor = Visitor {
            peer: Peer::Nobody,
            source: None,
            remote: None,
            claims: TokenClaims::Absent,
            destination: ([10, 9, 9, 9].into(), 8080),
            http: Some(&request),
        };
        for chain in &chains {
            let verdict = verdict(chain, &visitor);
            let denied = matches!(verdict, Verdict::Denied(_));
            assert_eq!(denied, is_denied, "{path}: {verdict:?}");
        }
    }
}

/// The HTTP connection managers of a proxy that handle requests for services.
fn managers(resources: &Resources) -> Vec<HttpConnectionManager> {
    let mut managers = Vec::new();

    for listener in &resources.listeners {
        let chains = listener
            .filter_chains
            .iter()
            .chain(&listener.default_filter_chain);
        for one in chains.flat_map(|chain| &chain.filters) {
            if let Some(filter::ConfigType::TypedConfig(config)) = &one.config_type
                && config.type_url.ends_with(".HttpConnectionManager")
            {
                managers.push(HttpConnectionManager::decode(config.value.as_slice()).unwrap());
            }
        }
    }

    // The ends of tunnels have no filters for requests.
    managers.retain(|manager| {
        manager
            .http_filters
            .iter()
            .any(|filter| filter.name == "envoy.filters.http.cors")
    });
    managers
}

#[test]
fn cve_2021_31920_and_cve_2021_29492_every_connection_manager_normalizes_paths() {
    let keep = PathWithEscapedSlashesAction::KeepUnchanged;
    let unescape = PathWithEscapedSlashesAction::UnescapeAndForward;
    let gateway = "{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}";
    let bound = "{hosts: ['*'], gateways: [edge], http: [{route: [{destination: {host: web}}]}]}";

    for (config, merges, escaped) in [
        ("", false, keep),
        ("pathNormalization: {normalization: BASE}", false, keep),
        (
            "pathNormalization: {normalization: MERGE_SLASHES}",
            true,
            keep,
        ),
        (
            "pathNormalization: {normalization: DECODE_AND_MERGE_SLASHES}",
            true,
            unescape,
        ),
    ] {
        let mesh = web()
            .config(config)
            .rule("Gateway", "shop", "edge", gateway)
            .rule("VirtualService", "shop", "edge", bound);

        for (name, resources) in [
            ("sidecar", mesh.sidecar("shop", "web")),
            ("gateway", mesh.gateway()),
        ] {
            let managers = managers(&resources);
            assert!(!managers.is_empty(), "{name}");
            for manager in managers {
                let done = (
                    manager.normalize_path,
                    manager.merge_slashes,
                    manager.path_with_escaped_slashes_action(),
                );
                assert_eq!(
                    done,
                    (Some(true), merges, escaped),
                    "{name} {}: {config}",
                    manager.stat_prefix
                );
            }
        }
    }
}

/// By this setting the router takes `/admin;x=1` for `/admin`. Envoys before 1.36.10, 1.37.6, 1.38.4
/// and 1.39.1 then judge the path with its parameters, and route by what is before the first one.
#[test]
fn cve_2026_73511_and_cve_2026_73553_routes_and_policies_match_the_same_path() {
    let gateway = "{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}";
    let bound = "{hosts: ['*'], gateways: [edge], http: [{match: [{uri: {exact: /admin}}], route: [{destination: {host: web}}]}]}";
    let mesh = web().rule("Gateway", "shop", "edge", gateway).rule(
        "VirtualService",
        "shop",
        "edge",
        bound,
    );

    let mut tables = Vec::new();
    for kind in ["sidecar", "router"] {
        let served = mesh.routes_of(kind);
        assert!(!served.is_empty(), "{kind}");
        tables.extend(served.into_values());
    }

    let served = tables.len();
    for manager in managers(&mesh.sidecar("shop", "web")) {
        if let Some(RouteSpecifier::RouteConfig(inbound)) = manager.route_specifier {
            tables.push(inbound);
        }
    }
    assert!(tables.len() > served, "inbound listeners hold their routes");

    for table in tables {
        assert!(
            !table.ignore_path_parameters_in_path_matching,
            "{}",
            table.name
        );
    }
}
