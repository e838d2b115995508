//! Configuration that validation accepts and Envoy would reject: Navarch omits that part and
//! reports its object, and Envoy accepts the rest.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::mesh::MeshConfig;
use navarch::api::settings::Settings;
use navarch::api::validation::validate_any;
use navarch::push::mesh_state::Change;
use navarch::push::proxy::{Locality, Proxy};
use navarch_proto::json::Codec;
use serde_json::json;

use super::ONE_AT_A_TIME;
use super::accepts::{Feeder, Snapshot, all_of};

/// The base mesh, and the cases.
///
/// A case begins with `# case: <name>`; a line `# remark: <text>` is a part of the expected remark,
/// or `none`. A line `# mesh:` is a line of mesh config.
const CASES: &str = include_str!("testdata/hostile.yaml");

/// One case.
struct Hostile {
    name: String,
    remarks: Vec<String>,
    mesh: String,
    yaml: String,
}

fn cases() -> (String, Vec<Hostile>) {
    let mut parts = CASES.split("# case: ");
    let base = parts.next().unwrap_or_default().to_owned();
    let read = |part: &str| {
        let lines = |start: &str| {
            part.lines()
                .filter_map(|line| line.strip_prefix(start))
                .collect::<Vec<_>>()
        };
        Hostile {
            name: part.lines().next().unwrap_or_default().to_owned(),
            remarks: lines("# remark: ").into_iter().map(str::to_owned).collect(),
            mesh: lines("# mesh: ").join("\n"),
            yaml: part.lines().skip(1).collect::<Vec<_>>().join("\n"),
        }
    };
    (base, parts.map(read).collect())
}

/// The objects of a case as changes. All must be valid for istiod, or it would not store them.
fn state(base: &str, case: &Hostile) -> Result<Vec<Change>> {
    let mesh = MeshConfig::istio_defaults().apply(&case.mesh)?.value;
    let mut changes = vec![Change::Mesh(Arc::new(mesh))];

    for decoded in decode_documents(&format!("{base}\n---\n{}", case.yaml), Format::Yaml) {
        match decoded.outcome {
            Outcome::Read {
                object,
                unknown_fields,
            } => {
                ensure!(
                    unknown_fields.is_empty(),
                    "unknown fields: {unknown_fields:?}"
                );
                let verdict = validate_any(&object);
                ensure!(verdict.is_valid(), "not valid: {:?}", verdict.errors);
                changes.push(Change::Put(object));
            }
            Outcome::Ignored => {}
            Outcome::Rejected(error) => anyhow::bail!("{error}"),
        }
    }

    Ok(changes)
}

fn proxy(kind: &str, extensions: &Arc<BTreeSet<Arc<str>>>) -> Result<Proxy> {
    // The gateway serves no traffic here, so it can have the ports of its Gateways.
    let ip = if kind == "router" {
        "10.1.0.9"
    } else {
        "10.1.0.1"
    };
    let metadata = json!({
        "NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": ip,
        "LABELS": { "app": "a", "istio": kind },
    });
    let node = format!("{kind}~{ip}~a-0.default~default.svc.cluster.local");
    let mut proxy = Proxy::parse(&node, metadata, Locality::default())?;
    proxy.extensions = Some(extensions.clone());
    Ok(proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_that_envoy_would_reject_is_omitted_and_reported() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let (mut feeder, envoy) = Feeder::with_envoy().await?;
    let extensions = feeder.extensions().await?;
    let codec = Codec::new();
    let (base, cases) = cases();
    let mut wrong = Vec::new();
    let mut counted = envoy.stats().await?.rejected();

    for case in &cases {
        let changes = match state(&base, case) {
            Ok(changes) => changes,
            Err(error) => {
                wrong.push(format!("{}: {error:#}", case.name));
                continue;
            }
        };

        let mut reported = BTreeSet::new();

        for kind in ["sidecar", "router"] {
            let (snapshot, remarks) = all_of(
                Settings::default(),
                changes.clone(),
                proxy(kind, &extensions)?,
                &codec,
            )?;

            reported.extend(remarks);
            let nacks = feeder
                .feed(snapshot)
                .await
                .with_context(|| format!("{} {kind}", case.name))?;
            let nacks: Vec<&str> = nacks
                .iter()
                .map(|text| text.rsplit("\n}\n").next().unwrap_or(text))
                .collect();

            let count = envoy.stats().await?.rejected();
            if !nacks.is_empty() || count > counted {
                wrong.push(format!("{} {kind}: Envoy rejects it: {nacks:?}", case.name));
            }

            counted = count;
            feeder.feed(Snapshot::new()).await?;
        }

        let is_reported = |wanted: &&String| {
            reported
                .iter()
                .any(|remark| remark.contains(wanted.as_str()))
        };

        let unreported: Vec<&String> = case
            .remarks
            .iter()
            .filter(|wanted| !is_reported(wanted))
            .collect();

        if !unreported.is_empty() {
            wrong.push(format!(
                "{}: missing remarks: {unreported:?}; remarks: {reported:?}",
                case.name
            ));
        }
    }

    feeder.end();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
