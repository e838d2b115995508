//! Whether the API server serves the kinds that are read.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use navarch_answers::doctor::{Check, Health, Level};
use navarch_source::ReadKind;

use super::MAX_CONCURRENT_REQUESTS;

/// Maximum number of named missing kinds.
const MAX_NAMED_KINDS: usize = 12;
/// The group whose kinds every installation has.
const ISTIO_GROUP: &str = "networking.istio.io";

/// Resources by group, then version.
pub(super) type Served = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The resources of the groups whose kinds are defined at run time.
pub(super) async fn served(client: &kube::Client, kinds: &[ReadKind]) -> kube::Result<Served> {
    let groups: BTreeSet<&str> = kinds
        .iter()
        .filter(|kind| kind.is_defined)
        .map(|kind| kind.group)
        .collect();

    let there = client.list_api_groups().await?.groups;

    // Collected first: a borrow of the response must not be held across an await.
    let versions: Vec<(String, String)> = there
        .iter()
        .filter(|group| groups.contains(group.name.as_str()))
        .flat_map(|group| {
            group
                .versions
                .iter()
                .map(|version| (group.name.clone(), version.version.clone()))
        })
        .collect();

    let one = |(group, version): (String, String)| async move {
        let listed = client
            .list_api_group_resources(&format!("{group}/{version}"))
            .await?;
        let names = listed
            .resources
            .into_iter()
            .map(|resource| resource.name)
            .collect::<BTreeSet<_>>();
        Ok::<_, kube::Error>((group, version, names))
    };

    let all: Vec<_> = stream::iter(versions)
        .map(one)
        .buffer_unordered(MAX_CONCURRENT_REQUESTS)
        .try_collect()
        .await?;
    let mut served = Served::new();
    for (group, version, names) in all {
        served.entry(group).or_default().insert(version, names);
    }

    Ok(served)
}

/// Missing kinds, and kinds without a supported version.
pub(super) fn check(kinds: &[ReadKind], served: &Served, health: &mut Health) {
    let mut missing: BTreeMap<bool, Vec<String>> = BTreeMap::new();

    for kind in kinds.iter().filter(|kind| kind.is_defined) {
        let versions = served.get(kind.group).into_iter().flatten();
        let there: Vec<&str> = versions
            .filter(|(_, resources)| resources.contains(&kind.resource))
            .map(|(version, _)| version.as_str())
            .collect();
        let name = format!("{}.{}", kind.resource, kind.group);

        if there.is_empty() {
            missing
                .entry(kind.group.ends_with(".istio.io"))
                .or_default()
                .push(name);
        } else if !there.iter().any(|version| kind.versions.contains(version)) {
            let there = there.join(", ");
            let read = kind.versions.join(", ");
            let what = format!(
                "{name} is only served as {there}, but Navarch reads {read}; its objects are not read"
            );
            health.add(
                Check::Definitions,
                Level::Wrong,
                what,
                &format!("kubectl get crd {name} -o yaml"),
            );
        }
    }

    let has_istio = served.contains_key(ISTIO_GROUP);

    for (is_istio, names) in missing {
        let more = names.len().saturating_sub(MAX_NAMED_KINDS);
        let mut listed = names
            .iter()
            .take(MAX_NAMED_KINDS)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");

        if more > 0 {
            listed.push_str(&format!(" and {more} more"));
        }

        let what =
            format!("CustomResourceDefinitions of kinds that are read are not installed: {listed}");
        let (level, next) = match (is_istio, has_istio) {
            (true, false) => (Level::Wrong, "navarch crds | kubectl apply -f -"),
            (true, true) => (Level::Note, "navarch crds | kubectl apply -f -"),
            (false, _) => (
                Level::Note,
                "kubectl get crd, and install them if they are needed",
            ),
        };

        health.add(Check::Definitions, level, what, next);
    }
}

#[cfg(test)]
mod tests {
    use navarch_api::object::Kind;
    use navarch_source::KubernetesScope;

    use super::*;

    fn kinds() -> Vec<ReadKind> {
        let all = KubernetesScope::default().read_kinds();
        let wanted = [
            Kind::VirtualService,
            Kind::EnvoyFilter,
            Kind::HttpRoute,
            Kind::Pod,
        ];
        all.into_iter()
            .filter(|kind| wanted.contains(&kind.kind))
            .collect()
    }

    fn served(all: &[(&str, &str, &str)]) -> Served {
        let mut served = Served::new();
        for (group, version, resource) in all {
            let versions = served.entry((*group).to_owned()).or_default();
            versions
                .entry((*version).to_owned())
                .or_default()
                .insert((*resource).to_owned());
        }
        served
    }

    fn found(all: &[(&str, &str, &str)]) -> Vec<(Level, String)> {
        let mut health = Health::default();
        check(&kinds(), &served(all), &mut health);
        health
            .findings
            .into_iter()
            .map(|finding| (finding.level, finding.what))
            .collect()
    }

    #[test]
    fn missing_kinds_and_unsupported_versions_are_reported() {
        let services = (ISTIO_GROUP, "v1", "virtualservices");
        let filters = (ISTIO_GROUP, "v1alpha3", "envoyfilters");
        let routes = ("gateway.networking.k8s.io", "v1", "httproutes");
        assert_eq!(found(&[services, filters, routes]), []);
        let what =
            "CustomResourceDefinitions of kinds that are read are not installed: httproutes.gateway.networking.k8s.io"
                .to_owned();
        assert_eq!(found(&[services, filters]), [(Level::Note, what)]);

        let what =
            "CustomResourceDefinitions of kinds that are read are not installed: envoyfilters.networking.istio.io"
                .to_owned();
        assert_eq!(found(&[services, routes]), [(Level::Note, what)]);
        let none = found(&[routes]);
        assert_eq!(
            (none.len(), none[0].0),
            (1, Level::Wrong),
            "an installation without Istio's kinds: {none:?}"
        );

        let newer = found(&[services, (ISTIO_GROUP, "v9", "envoyfilters"), routes]);
        let what = "envoyfilters.networking.istio.io is only served as v9, but Navarch reads v1alpha3; its objects are not read";
        assert_eq!(newer, [(Level::Wrong, what.to_owned())]);
    }
}
