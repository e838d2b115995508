use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_api::names::{ClusterId, Namespace, NetworkId};
use navarch_api::testing::object;
use navarch_push::cluster_ref::ClusterRef;

use super::*;
use crate::mesh::Selection;
use crate::site::Site;

/// The translation of a policy with this spec in a namespace.
fn converted(namespace: &str, spec: &str) -> Option<Authorization> {
    let yaml = format!(
        "{{ apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{ name: p, namespace: {namespace} }}, spec: {spec} }}"
    );
    let AnyObject::AuthorizationPolicy(policy) = object(&yaml) else {
        panic!("{yaml}")
    };
    convert(&policy, &mesh())
}

fn mesh() -> Mesh {
    let cluster = ClusterId::new("c");
    let network = NetworkId::default();
    Mesh {
        is_ambient: true,
        site: Arc::new(Site {
            cluster_ref: ClusterRef::Config,
            cluster,
            network,
            gateway: None,
        }),
        cluster: ClusterId::new("c"),
        root_namespace: Namespace::new("istio-system"),
        trust_domain: Arc::from("cluster.local"),
        network: NetworkId::default(),
        selection: Selection {
            entries_select_pods: true,
            services_select_entries: true,
        },
        dry_run: false,
        auto_allow_waypoints: false,
    }
}

#[test]
fn the_scope_follows_from_selector_and_namespace() {
    let scope = |namespace, spec| converted(namespace, spec).map(|policy| policy.scope());
    assert_eq!(scope("shop", "{}"), Some(Scope::Namespace));
    assert_eq!(scope("istio-system", "{}"), Some(Scope::Global));
    assert_eq!(
        scope("istio-system", "{ selector: { matchLabels: { a: b } } }"),
        Some(Scope::WorkloadSelector)
    );
    assert_eq!(
        scope("shop", "{ targetRefs: [{ kind: Service, name: web }] }"),
        None,
        "for a waypoint"
    );
    assert_eq!(scope("shop", "{ action: AUDIT }"), None);
}

#[test]
fn http_rules_are_omitted_from_allow_and_widened_in_deny() {
    let groups = |spec: &str| converted("shop", spec).unwrap().groups;
    let rules = "rules: [{ to: [{ operation: { methods: [GET], ports: ['80'] } }] }, { to: [{ operation: { ports: ['81'] } }] }]";
    assert_eq!(
        groups(&format!("{{ {rules} }}")).len(),
        1,
        "an ALLOW rule that cannot be enforced is omitted"
    );
    let denied = groups(&format!("{{ action: DENY, {rules} }}"));
    let ports: Vec<u32> = denied
        .iter()
        .flat_map(|group| group.rules[0].matches[0].destination_ports.clone())
        .collect();
    assert_eq!(ports, [80, 81], "a DENY rule keeps its other conditions");
    let condition = "rules: [{ when: [{ key: 'request.headers[x]', values: [a] }] }]";
    assert!(groups(&format!("{{ {condition} }}")).is_empty());
    let blind = groups(&format!("{{ action: DENY, {condition} }}"));
    assert_eq!(blind[0].rules[0].matches, [Match::default()]);
}

#[test]
fn an_empty_rule_matches_all_clients() {
    assert_eq!(
        converted("shop", "{ rules: [{}] }").unwrap().groups,
        [Group::default()]
    );
    assert!(
        converted("shop", "{}").unwrap().groups.is_empty(),
        "a policy without rules matches no client"
    );
}

#[test]
fn values_are_read_as_ztunnel_compares_them() {
    let kinds: Vec<MatchType> = texts(&["*".into(), "*a".into(), "a*".into(), "a".into()])
        .into_iter()
        .filter_map(|one| one.match_type)
        .collect();
    let [suffix, prefix, exact] =
        [MatchType::Suffix, MatchType::Prefix, MatchType::Exact].map(|kind| kind("a".to_owned()));
    assert_eq!(kinds, [MatchType::Presence(()), suffix, prefix, exact]);
    let accounts = accounts(&["web".into(), "bank/teller".into()], "shop");
    let accounts: Vec<(&str, &str)> = accounts
        .iter()
        .map(|one| (&*one.namespace, &*one.service_account))
        .collect();
    assert_eq!(accounts, [("shop", "web"), ("bank", "teller")]);

    assert_eq!(
        ports(&["80".into(), "+80".into(), "65536".into(), "x".into()]),
        [80]
    );
    let lengths: Vec<u32> = addresses(&[
        "10.0.0.1".into(),
        "10.0.0.0/8".into(),
        "fd00::/16".into(),
        "x".into(),
    ])
    .iter()
    .map(|one| one.length)
    .collect();
    assert_eq!(lengths, [32, 8, 16]);
}
