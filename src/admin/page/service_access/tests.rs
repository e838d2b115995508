use navarch_api::istio::{AuthorizationFrom, AuthorizationOperation, AuthorizationTo};
use navarch_api::object::{NamespacedName, ObjectMeta};

use super::*;

fn policy(
    name: &str,
    action: AuthorizationAction,
    rules: Vec<AuthorizationRule>,
) -> Arc<Object<AuthorizationPolicy>> {
    Arc::new(Object {
        meta: ObjectMeta {
            key: NamespacedName::new("shop", name),
            ..ObjectMeta::default()
        },
        spec: AuthorizationPolicy {
            action,
            rules,
            ..AuthorizationPolicy::default()
        },
    })
}

fn from(source: AuthorizationSource) -> AuthorizationRule {
    AuthorizationRule {
        from: vec![AuthorizationFrom {
            source: Some(source),
        }],
        ..AuthorizationRule::default()
    }
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

fn set(all: &[&str]) -> BTreeSet<String> {
    texts(all).into_iter().collect()
}

fn callers(policies: &[Arc<Object<AuthorizationPolicy>>]) -> Callers {
    let mut callers = Callers::default();
    callers.add(policies.iter().collect::<Vec<_>>().iter());
    callers
}

#[test]
fn without_an_allow_policy_everything_not_denied_is_allowed() {
    assert_eq!(
        callers(&[]),
        Callers {
            anyone: true,
            ..Callers::default()
        }
    );

    let denies = policy(
        "no",
        AuthorizationAction::Deny,
        vec![AuthorizationRule::default()],
    );

    let asks = policy(
        "ask",
        AuthorizationAction::Custom,
        vec![AuthorizationRule::default()],
    );
    let matches_nothing = policy("idle", AuthorizationAction::Deny, Vec::new());
    let expected = Callers {
        anyone: true,
        denied_by: set(&["shop/no"]),
        asked_by: set(&["shop/ask"]),
        ..Callers::default()
    };

    assert_eq!(callers(&[denies, asks, matches_nothing]), expected);
}

#[test]
fn an_allow_policy_without_rules_denies_everything() {
    let nobody = policy("a", AuthorizationAction::Allow, Vec::new());
    let expected = Callers {
        nobody: true,
        allowed_by: set(&["shop/a"]),
        ..Callers::default()
    };
    assert_eq!(callers(std::slice::from_ref(&nobody)), expected);
    // Another one adds its own: what any of them allows is allowed.
    let namespaces = AuthorizationSource {
        namespaces: texts(&["web"]),
        ..AuthorizationSource::default()
    };
    let both = callers(&[
        nobody,
        policy("b", AuthorizationAction::Allow, vec![from(namespaces)]),
    ]);
    assert_eq!((both.nobody, both.namespaces), (false, set(&["web"])));
}

#[test]
fn a_source_is_printed_with_its_conditions() {
    let narrowed = AuthorizationSource {
        namespaces: texts(&["web"]),
        not_principals: texts(&["td/ns/web/sa/test"]),
        ..AuthorizationSource::default()
    };
    let plain = AuthorizationSource {
        principals: texts(&["td/ns/web/sa/front"]),
        ..AuthorizationSource::default()
    };

    let get = AuthorizationTo {
        operation: Some(AuthorizationOperation {
            methods: texts(&["GET"]),
            ..AuthorizationOperation::default()
        }),
    };

    let anybody_may_get = AuthorizationRule {
        to: vec![get],
        ..AuthorizationRule::default()
    };
    let rules = vec![from(narrowed), from(plain), anybody_may_get];
    let expected = Callers {
        accounts: set(&["td/ns/web/sa/front"]),
        others: set(&["web, with not td/ns/web/sa/test", "any caller"]),
        with_conditions: true,
        allowed_by: set(&["shop/a"]),
        ..Callers::default()
    };

    assert_eq!(
        callers(&[policy("a", AuthorizationAction::Allow, rules)]),
        expected
    );
}
