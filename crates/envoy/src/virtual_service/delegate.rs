//! Replaces routes that delegate by the routes of their delegates.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::index::DefaultExport;
use super::names::{Domain, NameContext};
use super::semantics::semantics_of;
use super::{MergedSpec, RouteSemantics};
use crate::config_objects;
use crate::export_to::{parse_export_to, resolve_export_to};
use navarch_api::istio::{HttpMatchRequest, HttpRoute, StringMatch, VirtualService};
use navarch_api::names::Namespace;
use navarch_api::object::{NamespacedName, Object};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ExportTo;

/// A VirtualService, completed and merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Merged {
    pub(super) name: NamespacedName,
}

impl Query for Merged {
    type Value = Option<MergedSpec>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let object = config_objects::virtual_service(view, &self.name)
            .filter(|object| !object.spec.hosts.is_empty())?;
        let semantics = semantics_of(&object);
        if semantics == RouteSemantics::Gateway {
            return Some(MergedSpec::Own(object));
        }
        let mut spec = completed(view, &object);
        if semantics == RouteSemantics::Istio
            && spec.http.iter().any(|route| route.delegate.is_some())
        {
            spec.http = spec
                .http
                .iter()
                .flat_map(|route| expanded(view, route, &self.name.namespace))
                .collect();
        }
        Some(MergedSpec::Completed(Arc::new(spec)))
    }
}

/// The spec with full names.
fn completed(view: &View<'_>, object: &Object<VirtualService>) -> VirtualService {
    let mut spec = object.spec.clone();
    NameContext {
        namespace: &object.meta.key.namespace,
        domain: &view.get(&Domain),
    }
    .complete(&mut spec);
    spec
}

/// A route, or the merged routes of its delegate: empty if the delegate is missing or not exported
/// to the delegating namespace.
fn expanded(view: &View<'_>, route: &HttpRoute, namespace: &Namespace) -> Vec<HttpRoute> {
    let Some(delegate) = &route.delegate else {
        return vec![route.clone()];
    };

    let home = if delegate.namespace.is_empty() {
        namespace.as_str()
    } else {
        &delegate.namespace
    };

    let name = NamespacedName::new(home, &delegate.name);
    let Some(object) = view
        .object::<VirtualService>(&name)
        .filter(|object| object.spec.hosts.is_empty())
    else {
        return Vec::new();
    };

    let declared = parse_export_to(&object.spec.export_to, &name.namespace);
    let visible = match resolve_export_to(&declared, &view.get(&DefaultExport), &name.namespace) {
        ExportTo::Public | ExportTo::Unset => true,
        ExportTo::Nobody => false,
        ExportTo::Namespaces(named) => named.binary_search(namespace).is_ok(),
    };
    if !visible {
        return Vec::new();
    }

    completed(view, object)
        .http
        .into_iter()
        .filter_map(|leaf| merge_route(route, leaf))
        .collect()
}

/// A delegate's route merged with the delegating one: the delegate's settings take precedence.
/// `None` if their matches exclude each other.
fn merge_route(root: &HttpRoute, mut leaf: HttpRoute) -> Option<HttpRoute> {
    leaf.matches = merge_matches(&root.matches, leaf.matches)?;
    leaf.name = joined(&root.name, leaf.name);

    inherit(&mut leaf.rewrite, &root.rewrite);
    inherit(&mut leaf.direct_response, &root.direct_response);
    inherit(&mut leaf.timeout, &root.timeout);
    inherit(&mut leaf.retries, &root.retries);
    inherit(&mut leaf.fault, &root.fault);
    inherit(&mut leaf.mirror, &root.mirror);
    inherit(&mut leaf.mirror_percent, &root.mirror_percent);
    inherit(&mut leaf.mirror_percentage, &root.mirror_percentage);
    inherit(&mut leaf.cors_policy, &root.cors_policy);
    inherit(&mut leaf.headers, &root.headers);

    if leaf.mirrors.is_empty() {
        leaf.mirrors.clone_from(&root.mirrors);
    }
    Some(leaf)
}

/// Copies a field if it is unset.
fn inherit<T: Clone>(own: &mut Option<T>, from: &Option<T>) {
    if own.is_none() {
        own.clone_from(from);
    }
}

/// `root-leaf`, or the one that is not empty.
fn joined(root: &str, leaf: String) -> String {
    match (root, leaf.as_str()) {
        (root, "") => root.to_owned(),
        ("", _) => leaf,
        (root, leaf) => format!("{root}-{leaf}"),
    }
}

/// All combinations of a match of the root and one of the leaf; `None` if a match of the leaf is
/// compatible with none.
fn merge_matches(
    root: &[HttpMatchRequest],
    leaf: Vec<HttpMatchRequest>,
) -> Option<Vec<HttpMatchRequest>> {
    if root.is_empty() {
        return Some(leaf);
    }

    if leaf.is_empty() {
        return Some(root.to_vec());
    }

    let mut merged = Vec::new();

    for leaf in &leaf {
        let before = merged.len();
        merged.extend(
            root.iter()
                .filter(|root| !conflict(root, leaf))
                .map(|root| merge_match(root, leaf)),
        );
        if merged.len() == before {
            return None;
        }
    }

    Some(merged)
}

fn merge_match(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> HttpMatchRequest {
    let mut merged = leaf.clone();
    merged.name = joined(&root.name, merged.name);
    inherit(&mut merged.uri, &root.uri);
    inherit(&mut merged.scheme, &root.scheme);
    inherit(&mut merged.method, &root.method);
    inherit(&mut merged.authority, &root.authority);
    inherit_entries(&mut merged.headers, &root.headers);
    inherit_entries(&mut merged.without_headers, &root.without_headers);

    inherit_entries(&mut merged.query_params, &root.query_params);
    inherit_entries(&mut merged.source_labels, &root.source_labels);
    if merged.port == 0 {
        merged.port = root.port;
    }

    if merged.source_namespace.is_empty() {
        merged.source_namespace.clone_from(&root.source_namespace);
    }

    if merged.gateways.is_empty() {
        merged.gateways.clone_from(&root.gateways);
    }

    if merged.stat_prefix.is_empty() {
        merged.stat_prefix.clone_from(&root.stat_prefix);
    }

    merged
}

/// Copies entries whose keys are not set.
fn inherit_entries<T: Clone>(own: &mut BTreeMap<String, T>, from: &BTreeMap<String, T>) {
    for (key, value) in from {
        own.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

/// Whether a delegate's match does not narrow the delegating one.
fn conflict(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> bool {
    let texts = [
        (&root.uri, &leaf.uri),
        (&root.scheme, &leaf.scheme),
        (&root.method, &leaf.method),
        (&root.authority, &leaf.authority),
    ];

    texts
        .into_iter()
        .any(|(root, leaf)| text_conflict(root.as_ref(), leaf.as_ref()))
        || entries_conflict(&root.headers, &leaf.headers)
        || entries_conflict(&root.without_headers, &leaf.without_headers)
        || entries_conflict(&root.query_params, &leaf.query_params)
        || root.ignore_uri_case != leaf.ignore_uri_case
        || (root.port > 0 && leaf.port > 0 && root.port != leaf.port)
        || (!root.source_namespace.is_empty() && root.source_namespace != leaf.source_namespace)
        || leaf
            .source_labels
            .iter()
            .any(|(key, value)| root.source_labels.get(key).is_some_and(|own| own != value))
        || gateways_conflict(&root.gateways, &leaf.gateways)
}

/// Whether any entry of the leaf conflicts with the root's entry of the same key.
fn entries_conflict(
    root: &BTreeMap<String, StringMatch>,
    leaf: &BTreeMap<String, StringMatch>,
) -> bool {
    leaf.iter()
        .any(|(key, leaf)| text_conflict(root.get(key), Some(leaf)))
}

/// Whether the leaf has gateways that the root does not have.
fn gateways_conflict(root: &[String], leaf: &[String]) -> bool {
    !root.is_empty()
        && !leaf.is_empty()
        && (root.len() < leaf.len() || leaf.iter().any(|own| !root.contains(own)))
}

/// Whether the leaf's text match does not narrow the root's. Regular expressions narrow nothing and
/// cannot be narrowed; an empty match conflicts with any other.
fn text_conflict(root: Option<&StringMatch>, leaf: Option<&StringMatch>) -> bool {
    let (Some(root), Some(leaf)) = (root, leaf) else {
        return false;
    };
    if root.is_empty() || leaf.is_empty() {
        return true;
    }
    match (root, leaf) {
        (StringMatch::Exact(root), StringMatch::Exact(leaf)) => root != leaf,
        (StringMatch::Prefix(root), StringMatch::Prefix(leaf) | StringMatch::Exact(leaf)) => {
            !leaf.starts_with(root)
        }
        (StringMatch::Exact(_), StringMatch::Prefix(_))
        | (StringMatch::Regex(_) | StringMatch::Unset, _)
        | (_, StringMatch::Regex(_) | StringMatch::Unset) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> Option<StringMatch> {
        Some(StringMatch::Exact(text.to_owned()))
    }

    fn prefix(text: &str) -> Option<StringMatch> {
        Some(StringMatch::Prefix(text.to_owned()))
    }

    fn uri(uri: Option<StringMatch>) -> HttpMatchRequest {
        HttpMatchRequest {
            uri,
            ..HttpMatchRequest::default()
        }
    }

    #[test]
    fn a_leaf_may_narrow_but_not_leave_the_root() {
        for (root, leaf, expected) in [
            (prefix("/a"), prefix("/a/b"), false),
            (prefix("/a/b"), prefix("/a"), true),
            (prefix("/a"), exact("/a/b"), false),
            (exact("/a"), prefix("/a"), true),
            (exact("/a"), exact("/a"), false),
            (exact("/a"), None, false),
            (None, exact("/a"), false),
            (Some(StringMatch::Regex("/a.*".into())), exact("/ab"), true),
            (prefix("/a"), Some(StringMatch::Unset), true),
        ] {
            assert_eq!(
                text_conflict(root.as_ref(), leaf.as_ref()),
                expected,
                "{root:?} {leaf:?}"
            );
        }
    }

    #[test]
    fn a_leaf_whose_match_fits_no_root_match_drops_its_route() {
        let root = HttpRoute {
            matches: vec![uri(prefix("/a"))],
            name: "root".into(),
            ..HttpRoute::default()
        };
        let leaf = HttpRoute {
            matches: vec![uri(prefix("/b"))],
            ..HttpRoute::default()
        };
        assert_eq!(merge_route(&root, leaf), None);
    }

    #[test]
    fn every_fitting_pair_of_matches_is_kept_and_names_are_joined() {
        let root = HttpRoute {
            matches: vec![
                uri(prefix("/a")),
                HttpMatchRequest {
                    port: 80,
                    ..HttpMatchRequest::default()
                },
            ],
            name: "root".into(),
            ..HttpRoute::default()
        };

        let leaf = HttpRoute {
            matches: vec![uri(prefix("/a/b"))],
            name: "leaf".into(),
            ..HttpRoute::default()
        };
        let merged = merge_route(&root, leaf).unwrap();
        assert_eq!(merged.name, "root-leaf");
        let second = HttpMatchRequest {
            port: 80,
            ..uri(prefix("/a/b"))
        };
        assert_eq!(merged.matches, [uri(prefix("/a/b")), second]);
    }
}
