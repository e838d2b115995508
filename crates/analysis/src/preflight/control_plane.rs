//! The control plane's release, its CA, its webhooks and its remote clusters.

use std::collections::BTreeSet;

use navarch_api::revision::{REVISION_LABEL, TAG_LABEL};
use serde_json::Value;

use super::Installation;
use super::objects::{
    INJECTION, SECRET, VALIDATION, annotation, items, keys, label, name, namespace, text, title,
};
use super::release::Minor;
use super::row::{Outcome, Row};
use crate::kind::Kind;

/// Annotations of objects that Helm manages.
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
/// Where the steps are.
const STEPS: &str = "docs/installation.md#replacing-istiod";
/// The Secrets with the CA: a plugged-in one, and the self-signed one.
const CA_SECRETS: [(&str, &str); 2] = [
    (
        "cacerts",
        "the plugged-in CA stays, and Navarch signs with it",
    ),
    (
        "istio-ca-secret",
        "the self-signed root stays, and Navarch signs with it",
    ),
];
/// Variables with which the CA is elsewhere, and the value with which it is not.
const CA_ELSEWHERE: [(&str, &str); 2] = [("EXTERNAL_CA", ""), ("ENABLE_CA_SERVER", "true")];
/// The label of Secrets with kubeconfigs of other clusters.
const REMOTE: &str = "istio/multiCluster";

/// The rows about the control plane.
pub(super) fn rows(installation: Installation<'_>, missing: &BTreeSet<Kind>) -> Vec<Row> {
    let mut rows = vec![release(installation), helm(installation)];
    if !missing.contains(&Kind::Secret) {
        rows.extend(certificates(installation));
    }
    rows.extend(webhooks(installation));
    rows.extend(remote_clusters(installation));
    rows
}

/// Whether the release of istiod is one that Navarch can replace.
fn release(installation: Installation<'_>) -> Row {
    let object = installation.title();
    let image = text(installation.container(), "/image");
    let Some(minor) = installation.release() else {
        let reason = format!("no release of Istio can be told from the image {image}");
        return Row::new(Outcome::Same, object, reason).at("image").then(
            "ask istiod for its release (istioctl version), and compare it with docs/support.md",
        );
    };

    let is_older = Minor::oldest().is_some_and(|oldest| minor < oldest);
    let is_newer = Minor::of_navarch().is_some_and(|known| minor > known);
    let row = |outcome, reason: String| Row::new(outcome, &object, reason).at("image");

    if is_older {
        let oldest = Minor::oldest().map(|oldest| oldest.to_string());
        let oldest = oldest.unwrap_or_default();
        let reason =
            format!("Istio {minor} is older than {oldest}, the oldest whose defaults Navarch has");
        return row(Outcome::DoFirst, reason).then(format!("upgrade istiod to {oldest} or newer"));
    }

    if is_newer {
        let known = Minor::of_navarch().map(|known| known.to_string());
        let reason = format!(
            "Istio {minor}: fields that {} does not have are ignored",
            known.unwrap_or_default()
        );
        return row(Outcome::NoEffect, reason)
            .then("use a newer release of Navarch, if there is one");
    }

    if minor.has_defaults() {
        let reason = format!("Istio {minor}: the values keep its defaults (compatibilityVersion)");
        return row(Outcome::Same, reason);
    }
    row(Outcome::Same, format!("Istio {minor} is supported"))
}

/// Whether Helm manages the control plane, so that its release can be upgraded.
fn helm(installation: Installation<'_>) -> Row {
    let object = installation.title();
    let namespace = installation.namespace();
    let chart = format!("deploy/charts/navarch --namespace {namespace} -f VALUES --skip-crds");

    match annotation(installation.deployment(), RELEASE_NAME) {
        "" => Row::new(
            Outcome::DoFirst,
            object,
            "no release of Helm manages it, and Helm does not take over objects of others",
        )
        .then(format!(
            "change only the image of this Deployment ({STEPS}), or have Helm adopt the objects: \
             helm upgrade --install --take-ownership istiod {chart}"
        )),
        release => Row::new(
            Outcome::Same,
            object,
            format!("names of objects and the selector of pods stay in Helm's release {release}"),
        )
        .then(format!("helm upgrade {release} {chart}")),
    }
}

/// Where the CA is. Of Secrets, only the names of entries are known.
fn certificates(installation: Installation<'_>) -> Vec<Row> {
    let rows: Vec<_> = CA_SECRETS
        .into_iter()
        .filter_map(|(wanted, reason)| {
            let mut secrets = installation.objects.of(SECRET);
            let secret = secrets
                .find(|one| namespace(one) == installation.namespace() && name(one) == wanted)?;
            let entries = entries(secret).join(", ");
            Some(Row::new(Outcome::Same, title(secret), reason).at(entries))
        })
        .collect();

    let variables = installation.process().variables;
    let is_elsewhere = CA_ELSEWHERE.into_iter().any(|(name, here)| {
        variables
            .get(name)
            .is_some_and(|value| !value.is_empty() && value != here)
    });
    if !rows.is_empty() || is_elsewhere {
        return rows;
    }

    let reason = "there is neither cacerts nor istio-ca-secret: Navarch would make a new root, \
                  which proxies of istiod do not trust";
    let row = Row::new(Outcome::DoFirst, installation.title(), reason).at("CA");
    vec![row.then(format!(
        "find where istiod keeps its root, and put it into the Secret cacerts in {}",
        installation.namespace()
    ))]
}

/// What calls the control plane for admission, and the tags that stand for its revision.
fn webhooks(installation: Installation<'_>) -> Vec<Row> {
    let of_revision = |object: &&Value| label(object, REVISION_LABEL) == installation.revision();
    let calls = [INJECTION, VALIDATION]
        .into_iter()
        .flat_map(|kind| installation.objects.of(kind));

    calls
        .filter(of_revision)
        .map(|configuration| {
            let object = title(configuration);
            let tag = label(configuration, TAG_LABEL);
            if !tag.is_empty() {
                let reason = format!(
                    "the tag {tag} goes on standing for {}",
                    installation.revision()
                );
                return Row::new(Outcome::Same, object, reason);
            }

            let mut urls = items(configuration, "/webhooks")
                .map(|webhook| text(webhook, "/clientConfig/url"))
                .filter(|url| !url.is_empty());
            match urls.next() {
                Some(url) => Row::new(
                    Outcome::Same,
                    object,
                    format!("API servers go on calling {url}, where Navarch must be reached"),
                ),
                None => Row::new(
                    Outcome::Same,
                    object,
                    "API servers go on calling it by the Service",
                ),
            }
        })
        .collect()
}

/// The names of a Secret's entries. A dump may have them as `stringData`.
fn entries(secret: &Value) -> Vec<String> {
    let fields = ["/data", "/stringData"];
    fields
        .into_iter()
        .flat_map(|field| keys(secret, field))
        .collect()
}

/// The other clusters that the control plane reads.
fn remote_clusters(installation: Installation<'_>) -> Vec<Row> {
    installation
        .objects
        .of(SECRET)
        .filter(|secret| label(secret, REMOTE) == "true")
        .map(|secret| {
            let reason = "Navarch reads the cluster of this kubeconfig, too";
            Row::new(Outcome::Same, title(secret), reason).at(entries(secret).join(", "))
        })
        .collect()
}
