//! Reads the objects of a cluster that say what an installation is. Of Secrets, only metadata.

use std::collections::BTreeSet;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use navarch_analysis::preflight::Objects;
use navarch_analysis::{Kind, live};
use navarch_kubernetes::InWords;
use serde_json::json;

use super::super::analyze::live::{ListedKind, MAX_CONCURRENT_LISTS, list};
use super::super::kubeconfig::ClusterClient;

/// The kinds that no analyzer reads.
const OTHERS: [ListedKind; 3] = [
    ListedKind {
        group: "apps",
        versions: &["v1"],
        kind: "DaemonSet",
        plural: "daemonsets",
        fields: None,
    },
    ListedKind {
        group: "autoscaling",
        versions: &["v2"],
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        fields: None,
    },
    ListedKind {
        group: "install.istio.io",
        versions: &["v1alpha1"],
        kind: "IstioOperator",
        plural: "istiooperators",
        fields: None,
    },
];

/// What could be seen of an installation.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) objects: Objects,
    /// The kinds that could not be read.
    pub(super) missing: BTreeSet<Kind>,
    /// Why something could not be read.
    pub(super) gaps: Vec<String>,
}

/// A kind to list.
struct Wanted<'a> {
    kind: Option<Kind>,
    listed: ListedKind,
    /// The only namespace in which it is listed.
    namespace: Option<&'a str>,
}

/// Reads the objects of a cluster whose control plane is in the namespace `system`.
///
/// # Errors
/// If the API server does not respond.
pub(super) async fn read(opened: &ClusterClient, system: &str) -> anyhow::Result<Look> {
    let mut look = Look {
        objects: Objects::default(),
        missing: BTreeSet::new(),
        gaps: Vec::new(),
    };
    let failed = || {
        format!(
            "{} does not respond: try kubectl get namespaces",
            opened.name
        )
    };

    let kinds = live::kinds().filter(|kind| *kind != Kind::Secret);
    let analyzed = kinds.map(|kind| Wanted {
        kind: Some(kind),
        listed: kind.into(),
        namespace: live::only_namespace(kind, system),
    });
    let others = OTHERS.into_iter().map(|listed| Wanted {
        kind: None,
        listed,
        namespace: None,
    });
    let lists = analyzed.chain(others).map(|wanted| {
        let client = opened.client.clone();
        async move {
            let listed = list(client, wanted.listed.clone(), wanted.namespace).await;
            (wanted, listed)
        }
    });

    let mut lists = stream::iter(lists).buffered(MAX_CONCURRENT_LISTS);
    while let Some((wanted, listed)) = lists.next().await {
        match listed {
            Ok(objects) => objects
                .into_iter()
                .for_each(|object| look.objects.add(object)),
            Err(error @ kube::Error::Api(_)) => {
                look.missing.extend(wanted.kind);
                look.note(&wanted.listed.name(), &error);
            }
            Err(error) => return Err(error).with_context(failed),
        }
    }

    match secrets(&opened.client, system).await {
        Ok(secrets) => secrets
            .into_iter()
            .for_each(|secret| look.objects.add(secret)),
        Err(error @ kube::Error::Api(_)) => {
            look.missing.insert(Kind::Secret);
            look.note("secrets", &error);
        }
        Err(error) => return Err(error).with_context(failed),
    }
    Ok(look)
}

impl Look {
    /// Notes that a kind could not be read.
    fn note(&mut self, kind: &str, error: &kube::Error) {
        let reason = InWords(error);
        self.gaps.push(format!(
            "failed to read {kind}, so nothing is said of them: {reason}. \
             Request the verb list for {kind}"
        ));
    }
}

/// Names and labels of the Secrets in a namespace; their contents are not requested.
async fn secrets(client: &kube::Client, namespace: &str) -> kube::Result<Vec<serde_json::Value>> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let listed = secrets.list_metadata(&ListParams::default()).await?;
    let object = |metadata: kube::api::ObjectMeta| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "labels": metadata.labels,
            },
        })
    };
    Ok(listed
        .items
        .into_iter()
        .map(|secret| object(secret.metadata))
        .collect())
}
