//! Access rules: one row for every xDS type and every debug page. Anything without a row is denied.

use navarch_api::identity::{Caller, Identity};
use navarch_api::names::Namespace;

/// The interface of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// xDS, on 15010 without an identity, on 15012 with one.
    Xds,
    /// The debug API on 8080 and 15014.
    Debug,
}

/// The callers with access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Everyone, on every port: any client of the mesh sees this anyway.
    Anyone,
    /// Authenticated callers; the content depends on their namespace.
    Proved,
    /// Read-only callers on the same machine, and callers of the control plane's namespace or of a
    /// namespace that is allowed by name.
    Operator,
    /// As [`Rule::Operator`], and other callers for proxies of their own namespace.
    OperatorOrOwnNamespace,
    /// Authenticated callers of the root namespace: other control planes.
    RootNamespace,
}

struct Row {
    interface: Interface,
    /// The short name of a type, or the name of a page.
    what: &'static str,
    rule: Rule,
}

/// The row of an xDS type.
const fn xds(what: &'static str, rule: Rule) -> Row {
    Row {
        interface: Interface::Xds,
        what,
        rule,
    }
}

/// The row of a debug page.
const fn debug(what: &'static str, rule: Rule) -> Row {
    Row {
        interface: Interface::Debug,
        what,
        rule,
    }
}

const TABLE: [Row; 62] = [
    xds("cds", Rule::Anyone),
    xds("eds", Rule::Anyone),
    xds("lds", Rule::Anyone),
    xds("rds", Rule::Anyone),
    xds("vhds", Rule::Anyone),
    xds("sds", Rule::Proved),
    xds("ecds", Rule::Anyone),
    xds("nds", Rule::Anyone),
    xds("pcds", Rule::Anyone),
    // Agents apply it only from a control plane that they have verified, which then verifies them.
    xds("bds", Rule::Proved),
    xds("locality", Rule::Proved),
    xds("wds", Rule::Anyone),
    // Without ambient mode, it is requested by address only, and contains only data that endpoints
    // contain, too.
    xds("wlds", Rule::Anyone),
    xds("wads", Rule::Anyone),
    xds("mcp", Rule::RootNamespace),
    debug("adsz", Rule::Operator),
    debug("applied", Rule::Operator),
    debug("ambientz", Rule::Operator),
    debug("authorizationz", Rule::Operator),
    debug("ca", Rule::Operator),
    debug("cachez", Rule::Operator),
    debug("clusterz", Rule::Operator),
    debug("config_distribution", Rule::Operator),
    debug("config_dump", Rule::OperatorOrOwnNamespace),
    debug("configz", Rule::Operator),
    debug("connections", Rule::Operator),
    debug("doctor", Rule::Operator),
    debug("endpointShardz", Rule::Operator),
    debug("ecdsz", Rule::Operator),
    debug("edsz", Rule::OperatorOrOwnNamespace),
    debug("endpointz", Rule::Operator),
    debug("force_disconnect", Rule::Operator),
    debug("inject", Rule::Operator),
    debug("instancesz", Rule::Operator),
    debug("krtz", Rule::Operator),
    debug("list", Rule::Operator),
    debug("mcsz", Rule::Operator),
    debug("mesh", Rule::Operator),
    debug("plan", Rule::Operator),
    debug("ndsz", Rule::OperatorOrOwnNamespace),
    debug("networkz", Rule::Operator),
    debug("pprof", Rule::Operator),
    debug("push_status", Rule::Operator),
    debug("pushcontext", Rule::Operator),
    debug("quarantine", Rule::Operator),
    // Readiness itself is public; this restricts the names in the reasons.
    debug("ready", Rule::Operator),
    debug("registryz", Rule::Operator),
    debug("resourcesz", Rule::Operator),
    debug("rollout", Rule::Operator),
    debug("sidecarz", Rule::Operator),
    debug("syncz", Rule::Operator),
    debug("view/changes", Rule::Operator),
    debug("view/edges", Rule::Operator),
    debug("view/mesh", Rule::Operator),
    debug("view/objects", Rule::Operator),
    debug("view/proxies", Rule::Operator),
    debug("view/replicas", Rule::Operator),
    debug("view/resources", Rule::Operator),
    debug("why/not", Rule::Operator),
    debug("why/proxy", Rule::Operator),
    debug("why/push", Rule::Operator),
    debug("telemetryz", Rule::Operator),
];

/// The rule for a type or page; `None` if there is none.
#[must_use]
pub fn rule(interface: Interface, what: &str) -> Option<Rule> {
    TABLE
        .iter()
        .find(|row| row.interface == interface && row.what == what)
        .map(|row| row.rule)
}

/// Whether a caller, authenticated or not, may subscribe to a type at all.
#[must_use]
pub fn may_subscribe(short_name: &str, identity: Option<&Identity>, root_namespace: &str) -> bool {
    match rule(Interface::Xds, short_name) {
        Some(Rule::Anyone) => true,
        Some(Rule::Proved) => identity.is_some(),
        Some(Rule::RootNamespace) => {
            identity.is_some_and(|identity| *identity.namespace.as_str() == *root_namespace)
        }
        Some(Rule::Operator | Rule::OperatorOrOwnNamespace) | None => false,
    }
}

/// What a caller may see of a debug page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// All.
    Everything,
    /// Data about proxies of these namespaces.
    Namespaces(Vec<Namespace>),
    /// The caller is denied, in HTTP with status 403.
    Nothing,
}

/// What a remote caller may see of a debug page; `operators` are the namespaces that may see
/// everything.
#[must_use]
pub fn visibility(page: &str, caller: &Caller, operators: &[Namespace]) -> Visibility {
    let mut namespaces: Vec<Namespace> = caller
        .identities
        .iter()
        .map(|one| one.namespace.clone())
        .collect();
    namespaces.dedup();

    match rule(Interface::Debug, page) {
        Some(Rule::Anyone) => Visibility::Everything,
        Some(Rule::Operator | Rule::OperatorOrOwnNamespace | Rule::Proved)
            if namespaces
                .iter()
                .any(|namespace| operators.contains(namespace)) =>
        {
            Visibility::Everything
        }
        Some(Rule::OperatorOrOwnNamespace) => Visibility::Namespaces(namespaces),
        Some(Rule::Operator | Rule::Proved | Rule::RootNamespace) | None => Visibility::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_bootstraps_need_authentication_and_unknown_kinds_are_denied() {
        let [web, other] = ["shop", "istio-system"]
            .map(|of| Identity::parse(&format!("spiffe://td/ns/{of}/sa/a")).unwrap());
        let may = |what: &str, identity| may_subscribe(what, identity, "istio-system");
        assert!(may("cds", None) && may("sds", Some(&web)) && !may("sds", None));
        for what in ["bds", "locality"] {
            assert!(may(what, Some(&web)) && !may(what, None), "{what}");
        }
        assert!(may("mcp", Some(&other)) && !may("mcp", Some(&web)) && !may("mcp", None));
        assert!(!may("xyz", Some(&other)));
    }

    #[test]
    fn workloads_see_their_own_namespace_and_operators_everything() {
        let caller = |namespace: &str| {
            let text = format!("spiffe://td/ns/{namespace}/sa/web");
            Caller {
                identities: vec![Identity::parse(&text).unwrap()],
                ..Caller::default()
            }
        };

        let operators = [Namespace::new("istio-system")];
        let shop = Visibility::Namespaces(vec![Namespace::new("shop")]);
        assert_eq!(visibility("config_dump", &caller("shop"), &operators), shop);
        assert_eq!(
            visibility("syncz", &caller("shop"), &operators),
            Visibility::Nothing
        );
        assert_eq!(
            visibility("syncz", &caller("istio-system"), &operators),
            Visibility::Everything
        );

        assert_eq!(
            visibility("unknown", &caller("istio-system"), &operators),
            Visibility::Nothing
        );
        assert_eq!(
            visibility("config_dump", &Caller::default(), &operators),
            Visibility::Namespaces(Vec::new())
        );
    }
}
