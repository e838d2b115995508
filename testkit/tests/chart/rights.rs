//! The rights in this project's chart compared with those in Istio's chart of istiod: Navarch works
//! with either.
//!
//! tests/status/deploy.rs shows with an API server's audit log that Navarch needs no more than this
//! project's chart grants. So if those rights are within Istio's, Navarch works with Istio's chart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use navarch_testkit::helm::Helm;
use navarch_testkit::{envoy, skip};
use serde_json::{Value, json};

use super::{chart, objects};

/// Rights that only this project's chart grants. Without them Navarch logs one line, and does not
/// write these objects.
const OPTIONAL: [&str; 2] = [
    "create events.k8s.io/events",
    "patch gateway.networking.x-k8s.io/xbackends/status",
];

/// One right: a verb on a resource, in all namespaces or in one, on all objects or on one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    verb: String,
    group: String,
    /// A resource, with its subresource after a slash.
    resource: String,
    /// Empty for all objects.
    name: String,
}

impl Right {
    /// Whether another right, which may have `*`, includes this one.
    fn is_within(&self, other: &Self) -> bool {
        let fits = |own: &str, other: &str| other == "*" || own == other;
        fits(&self.verb, &other.verb)
            && fits(&self.group, &other.group)
            && fits(&self.resource, &other.resource)
            && (other.name.is_empty() || self.name == other.name)
    }

    /// As in [`OPTIONAL`].
    fn text(&self) -> String {
        let name = if self.name.is_empty() {
            String::new()
        } else {
            format!(" {}", self.name)
        };
        format!("{} {}/{}{name}", self.verb, self.group, self.resource)
    }
}

/// The words of a rule's list; one empty word without a list.
fn words(rule: &Value, list: &str) -> Vec<String> {
    let Some(words) = rule[list].as_array() else {
        return vec![String::new()];
    };
    words
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

/// The rights of roles whose kind is given, from rendered manifests.
fn rights(objects: &BTreeMap<String, Value>, kind: &str) -> BTreeSet<Right> {
    let roles = objects
        .iter()
        .filter(|(name, _)| name.split(' ').next() == Some(kind))
        .filter(|(name, _)| !name.contains("reader"));

    let mut rights = BTreeSet::new();
    for rule in roles.flat_map(|(_, role)| role["rules"].as_array().unwrap()) {
        for verb in words(rule, "verbs") {
            for group in words(rule, "apiGroups") {
                for resource in words(rule, "resources") {
                    rights.extend(words(rule, "resourceNames").into_iter().map(|name| Right {
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name,
                    }));
                }
            }
        }
    }
    rights
}

/// Istio's chart of istiod; `None` if it has not been fetched.
fn chart_of_istiod() -> Option<PathBuf> {
    let chart = envoy::program().parent()?.with_file_name("istio-chart");
    if chart.join("Chart.yaml").is_file() {
        return Some(chart);
    }
    skip::skip("Istio's chart is missing: run `make tools` (scripts/istio-chart)");
    None
}

/// The rights that a chart grants: in all namespaces, and in its own.
fn given(helm: &Helm, chart: &Path, settings: &Value) -> [BTreeSet<Right>; 2] {
    let rendered = objects(
        &helm
            .template(chart, "it", "istio-system", settings)
            .unwrap(),
    );
    let everywhere = rights(&rendered, "ClusterRole");
    let own = rights(&rendered, "Role");
    assert!(!everywhere.is_empty() && !own.is_empty());
    [everywhere, own]
}

#[test]
fn all_rights_but_optional_ones_are_within_those_of_istios_chart() {
    let Some(istiod) = chart_of_istiod() else {
        return;
    };
    let helm = Helm::find().unwrap();

    // Settings that grant istiod more rights. Without each of them, Navarch must need fewer rights,
    // too.
    let settings = [
        json!({}),
        json!({"revision": "canary"}),
        json!({"env": {"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API"}, "global": {"certSigners": ["clusterissuers.cert-manager.io/istio"]}}),
        json!({"global": {"pilotCertProvider": "k8s.io/example.com/signer"}}),
        json!({"taint": {"enabled": true}}),
        json!({"env": {"ENABLE_CLUSTER_TRUST_BUNDLE_API": true}}),
        json!({"env": {"MCS_API_GROUP": "multicluster.example.com"}}),
    ];

    let mut optional = BTreeSet::new();
    for mut settings in settings {
        // Statuses of analysis are written only with this setting, for which Istio's chart grants
        // the right.
        settings["global"]["istiod"]["enableAnalysis"] = json!(true);
        let [of_istiod, of_istiod_at_home] = given(&helm, &istiod, &settings);
        let [own, own_at_home] = given(&helm, &chart("navarch"), &settings);

        let missing = |right: &&Right, given: &[&BTreeSet<Right>]| {
            given
                .iter()
                .all(|set| set.iter().all(|other| !right.is_within(other)))
        };
        let everywhere = own.iter().filter(|right| missing(right, &[&of_istiod]));
        let at_home = own_at_home
            .iter()
            .filter(|right| missing(right, &[&of_istiod, &of_istiod_at_home]));
        let beyond: BTreeSet<String> = everywhere.chain(at_home).map(Right::text).collect();

        let unexpected: Vec<_> = beyond
            .iter()
            .filter(|right| !OPTIONAL.contains(&right.as_str()))
            .collect();
        assert!(
            unexpected.is_empty(),
            "with {settings} Istio's chart lacks {unexpected:?}"
        );
        optional.extend(beyond);
    }
    assert_eq!(optional, OPTIONAL.map(str::to_owned).into());
}

#[test]
fn without_its_controller_nothing_that_gateways_consist_of_can_be_written() {
    let helm = Helm::find().unwrap();
    let switched = |is_on: &str| {
        let settings = json!({"env": {"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": is_on}});
        let [everywhere, own] = given(&helm, &chart("navarch"), &settings);
        everywhere
            .iter()
            .chain(&own)
            .filter(|right| matches!(&*right.verb, "create" | "patch" | "update"))
            .map(|right| right.resource.clone())
            .collect::<BTreeSet<_>>()
    };

    let objects = [
        "deployments",
        "horizontalpodautoscalers",
        "poddisruptionbudgets",
        "serviceaccounts",
        "services",
    ];
    let with = switched("true");
    let without = switched("false");
    for resource in objects {
        assert!(with.contains(resource), "{resource}: {with:?}");
        assert!(!without.contains(resource), "{resource}: {without:?}");
    }
}

#[test]
fn rights_for_cert_manager_are_granted_only_where_it_signs() {
    let helm = Helm::find().unwrap();
    let requests = |settings: Value| {
        let [everywhere, own] = given(&helm, &chart("navarch"), &settings);
        let is_csr = |right: &&Right| right.group == "certificates.k8s.io";
        assert_eq!(everywhere.iter().filter(is_csr).count(), 0, "{settings}");
        let own = own.iter().filter(|right| right.group == "cert-manager.io");
        own.map(Right::text).collect::<BTreeSet<_>>()
    };

    assert_eq!(requests(json!({})), BTreeSet::new());
    let spire = json!({"env": {"EXTERNAL_CA": "NAVARCH_RA_SPIRE"}});
    assert_eq!(requests(spire), BTreeSet::new());

    let wanted = ["create", "delete", "list", "watch"]
        .map(|verb| format!("{verb} cert-manager.io/certificaterequests"));
    for env in [
        json!({"EXTERNAL_CA": "NAVARCH_RA_CERT_MANAGER"}),
        json!({"NAVARCH_NAMESPACE_SIGNERS": "shop=NAVARCH_RA_CERT_MANAGER"}),
    ] {
        assert_eq!(requests(json!({"env": env})), wanted.clone().into());
    }
}
