//! Every message with a case of its own: files under `cases/`, each with the lines that are to be
//! found in it.
//!
//! ```text
//! # analyzers: names of those to run; all without such a line
//! # mesh: a line of mesh config
//! # networks: a line of the networks of the mesh
//! # cluster: a remote cluster, which contains the objects that follow
//! # > a message, file and line left out of it
//! ```

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use navarch_api::crds;
use navarch_api::mesh::MeshNetworks;
use navarch_api::yaml::{self, Schema};
use serde_json::{Value, json};

use crate::analyzer::{self, analyze};
use crate::{Context, Filter, Incremental, Kind, Mesh, Reader, Resource, Suppression, messages};

/// A file with its expected messages.
struct Case {
    name: String,
    text: String,
}

impl Case {
    /// All cases.
    fn all() -> Vec<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
        let files = std::fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().path());
        let read = |path: std::path::PathBuf| Self {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&path).unwrap(),
        };
        files.map(read).collect()
    }

    fn lines(&self, mark: &str) -> Vec<&str> {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix(mark))
            .collect()
    }

    /// The objects in the file.
    fn context(&self) -> Context {
        let mut mesh = Mesh::default();
        mesh.config = mesh
            .config
            .apply(&self.lines("# mesh: ").join("\n"))
            .unwrap()
            .value;
        mesh.networks = MeshNetworks::parse(&self.lines("# networks: ").join("\n"))
            .unwrap()
            .value;

        let mut reader = Reader::new("default", true);
        let (own, remotes) = self
            .text
            .split_once("# cluster: ")
            .unwrap_or((&self.text, ""));
        reader.read("f.yaml", own);
        assert_eq!(reader.faults(), [], "{}", self.name);

        for part in remotes.split("# cluster: ").filter(|part| !part.is_empty()) {
            let (cluster, text) = part.split_once('\n').unwrap();
            for document in yaml::documents(text) {
                let value = yaml::parse_last_wins(document.text, Schema::V1_1).unwrap();
                let word = |field: &str| value[field].as_str().unwrap();
                let kind = Kind::of(word("apiVersion"), word("kind")).unwrap();
                reader.add(Arc::new(Resource::of_cluster(
                    kind,
                    Some(Arc::from(cluster)),
                    value,
                )));
            }
        }

        Context::new(reader, mesh, BTreeSet::new())
    }

    /// The messages about the file.
    fn found(&self) -> Vec<String> {
        let context = self.context();
        let names: Vec<_> = self
            .lines("# analyzers: ")
            .iter()
            .flat_map(|list| list.split(", "))
            .map(str::to_owned)
            .collect();
        let known = |name: &String| crate::analyzer::all().any(|analyzer| analyzer.name == name);
        assert!(names.iter().all(known), "{}: {names:?}", self.name);
        analyze(&context, &names, &Filter::default())
            .messages
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

/// A message without its file and line.
fn without_place(message: &str) -> String {
    match message.split_once(" f.yaml:") {
        Some((before, after)) => format!(
            "{before}{}",
            after.trim_start_matches(|sign: char| sign.is_ascii_digit())
        ),
        None => message.to_owned(),
    }
}

#[test]
fn every_case_has_its_expected_messages() {
    let mut codes = BTreeSet::new();
    let mut faults = String::new();

    for case in Case::all() {
        let found: Vec<_> = case
            .found()
            .iter()
            .map(|message| without_place(message))
            .collect();

        if found != case.lines("# > ") {
            faults.push_str(&format!(
                "{} has the messages\n# > {}\n",
                case.name,
                found.join("\n# > ")
            ));
        }

        codes.extend(
            found.iter().filter_map(|message| {
                Some(message.split_once('[')?.1.split_once(']')?.0.to_owned())
            }),
        );
    }

    assert!(faults.is_empty(), "{faults}");
    let all: BTreeSet<_> = messages::ALL
        .iter()
        .map(|message| message.code.to_owned())
        .collect();
    let missing: Vec<_> = all.difference(&codes).collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
}

/// The messages of a text, in the namespace `default`.
fn messages_of(text: &str, has_runtime: bool, filter: &Filter) -> Vec<String> {
    let mut reader = Reader::new("default", has_runtime);
    reader.read("a.yaml", text);
    let missing = if has_runtime {
        BTreeSet::new()
    } else {
        Kind::of_runtime().collect()
    };
    let context = Context::new(reader, Mesh::default(), missing);
    analyze(&context, &[], filter)
        .messages
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// A VirtualService with two gateways that do not exist.
const LOST: &str = "# a comment
---

apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: lost
spec:
  hosts: [a.com]
  gateways:
  - mesh
  - one
  - other/two
  http:
  - route: [{ destination: { host: nowhere } }]
";

#[test]
fn messages_have_the_line_of_the_field() {
    let found = messages_of(LOST, false, &Filter::default());
    let gateway = |level: &str, line: usize, words: &str| {
        format!("{level} (VirtualService default/lost a.yaml:{line}) {words}")
    };
    let hosts = |gateway: &str| {
        format!(
            "one or more host [a.com] defined in VirtualService default/lost not found in Gateway {gateway}."
        )
    };

    assert_eq!(
        found,
        [
            gateway(
                "Error [IST0101]",
                12,
                "Referenced gateway not found: \"one\""
            ),
            gateway(
                "Error [IST0101]",
                13,
                "Referenced gateway not found: \"other/two\""
            ),
            gateway("Warning [IST0132]", 12, &hosts("default/one")),
            gateway("Warning [IST0132]", 13, &hosts("other/two")),
        ]
    );

    // An object in a list is reported with its own line.
    let sidecar = "apiVersion: networking.istio.io/v1\n  kind: Sidecar\n  metadata: {name: s}\n  spec: {outboundTrafficPolicy: {egressProxy: {host: a}}}";
    let list = format!("kind: List\napiVersion: v1\nitems:\n- {sidecar}\n- {sidecar}\n");
    let found = messages_of(
        &list.replacen("{name: s}", "{name: t}", 1),
        false,
        &Filter::default(),
    );

    let places: Vec<_> = found
        .iter()
        .filter(|message| message.contains("IST0002"))
        .map(|message| message.split(')').next().unwrap())
        .collect();

    assert_eq!(
        places,
        [
            "Warning [IST0002] (Sidecar default/s a.yaml:8",
            "Warning [IST0002] (Sidecar default/t a.yaml:4"
        ]
    );

    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}",
        LOST.split("---\n\n")
            .last()
            .unwrap()
            .trim_end()
            .replace('\n', "\n  ")
    );

    assert_eq!(
        messages_of(&list, false, &Filter::default())[0],
        gateway(
            "Error [IST0101]",
            12,
            "Referenced gateway not found: \"one\""
        )
    );
}

#[test]
fn gateways_that_only_a_match_names_are_reported() {
    let text = "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: vs, namespace: default}
spec:
  gateways: [good]
  hosts: [foo.bar]
  http:
  - match: [{gateways: [bad-gateway]}, {gateways: [default/good]}]
    route: [{destination: {host: something, port: {number: 1234}}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: good, namespace: default}
spec: {selector: {istio: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"*\"]}]}
";
    let found = messages_of(text, false, &Filter::default());
    let of =
        |code: &str| -> Vec<&String> { found.iter().filter(|one| one.contains(code)).collect() };

    assert_eq!(of("IST0101").len(), 1, "{found:?}");
    assert!(of("IST0101")[0].ends_with("Referenced gateway not found: \"bad-gateway\""));
    assert_eq!(of("IST0133").len(), 1, "{found:?}");
    assert!(
        of("IST0133")[0].contains("a.yaml:8)")
            && of("IST0133")[0].contains("is not among the gateways of this VirtualService"),
        "{found:?}"
    );
}

#[test]
fn a_host_that_one_of_two_gateways_has_is_found() {
    let gateway = |name: &str, host: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: {name}, namespace: web}}\n\
             spec: {{selector: {{istio: gw}}, servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [\"{host}\"]}}]}}\n---\n"
        )
    };
    let service = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: both, namespace: web}\n\
        spec: {hosts: [site.corp.test], gateways: [public, private], http: [{route: [{destination: {host: site}}]}]}\n";
    let count = |host: &str| {
        let text = gateway("public", "other.test") + &gateway("private", host) + service;
        let found = messages_of(&text, false, &Filter::default());
        found.iter().filter(|one| one.contains("IST0132")).count()
    };

    assert_eq!(count("*.corp.test"), 0);
    assert_eq!(count("*.other.test"), 2, "no Gateway has the host");
}

#[test]
fn missing_objects_are_reported_only_with_complete_files() {
    let destination = "Referenced host not found: \"nowhere\"";
    let has = |has_runtime| {
        messages_of(LOST, has_runtime, &Filter::default())
            .iter()
            .any(|message| message.ends_with(destination))
    };
    assert!(has(true) && !has(false));
}

#[test]
fn suppressed_messages_are_omitted() {
    let count = |filter: &Filter| messages_of(LOST, false, filter).len();
    let unwanted = |text: &str| Filter {
        suppressions: vec![text.parse().unwrap()],
        ..Filter::default()
    };
    assert_eq!(count(&unwanted("IST0101=VirtualService default/*")), 2);
    assert_eq!(count(&unwanted("IST0101=Gateway *")), 4);
    assert_eq!(
        count(&Filter {
            namespace: "other".to_owned(),
            ..Filter::default()
        }),
        0
    );

    assert!("IST0101".parse::<Suppression>().is_err());

    for (codes, left) in [("IST0132", 2), ("IST0101,IST0132", 0), ("*", 0)] {
        let annotated = LOST.replace(
            "  name: lost",
            &format!(
                "  name: lost\n  annotations: {{ galley.istio.io/analyze-suppress: \"{codes}\" }}"
            ),
        );
        assert_eq!(
            messages_of(&annotated, false, &Filter::default()).len(),
            left,
            "{codes}"
        );
    }
}

#[test]
fn unreadable_documents_are_reported_and_the_rest_is_analyzed() {
    let text = "a: [\n---\nkind: x\n---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec: {servers: 3}\n---\napiVersion: a/v1\nkind: B\n";
    let mut reader = Reader::new("default", false);
    reader.read("a.yaml", &format!("{text}---\n{LOST}"));
    let lines: Vec<_> = reader.faults().iter().map(|fault| fault.line).collect();
    assert_eq!(
        (lines.len(), &lines[1..]),
        (3, &[3, 5][..]),
        "{:?}",
        reader.faults()
    );
    assert_eq!(reader.finish().0.len(), 1);
}

#[test]
fn analyzers_read_only_the_kinds_that_they_declare() {
    for case in Case::all() {
        let context = case.context();
        for analyzer in analyzer::all() {
            analyzer.run_on(&context);
            let read_kinds = context.take_read_kinds();
            let unnamed: Vec<_> = read_kinds
                .iter()
                .filter(|kind| !analyzer.inputs.contains(kind))
                .collect();
            assert!(
                unnamed.is_empty(),
                "{} reads {unnamed:?} in {}",
                analyzer.name,
                case.name
            );
        }
    }
}

#[test]
fn kinds_have_the_plural_names_of_their_definitions() {
    for defined in crds::kinds() {
        let kind = Kind::ALL
            .iter()
            .find(|kind| kind.as_str() == defined.kind && kind.group() == defined.group);
        assert_eq!(kind.unwrap().plural(), defined.plural);
    }
}

fn of_cluster(objects: &[Value]) -> Context {
    let mut reader = Reader::default();
    for object in objects {
        let kind = Kind::of(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        )
        .unwrap();
        reader.add(Arc::new(Resource::of_cluster(kind, None, object.clone())));
    }
    Context::new(reader, Mesh::default(), BTreeSet::new())
}

#[test]
fn messages_follow_changes_and_unchanged_analyzers_do_not_run_again() {
    let named = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": kind,
            "metadata": { "name": "a", "namespace": "shop" },
            "spec": spec,
        })
    };

    let gateway = named(
        "Gateway",
        json!({ "servers": [{ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": ["a.com"] }] }),
    );
    let service = named(
        "VirtualService",
        json!({ "hosts": ["a.com"], "gateways": ["a"], "http": [{ "redirect": { "uri": "/b" } }] }),
    );

    let broken = named("DestinationRule", json!({ "host": 3 }));
    let codes = |found: &Incremental| {
        let messages = found.messages();
        let of_others = messages
            .iter()
            .filter(|message| message.resource.kind != Kind::Gateway);
        let codes = of_others
            .map(|message| message.kind.code)
            .filter(|code| ["IST0101", "IST0106"].contains(code));
        codes.collect::<Vec<_>>()
    };

    let mut found = Incremental::default();
    found.update(
        &of_cluster(&[service.clone(), broken.clone()]),
        &BTreeSet::new(),
    );
    assert_eq!(
        codes(&found),
        ["IST0101", "IST0106"],
        "a missing gateway, an unreadable object"
    );

    // The set of changed kinds lacks Gateway, so the analyzer does not run and its old finding
    // stays.
    let mended = of_cluster(&[service, gateway]);
    found.update(&mended, &BTreeSet::from([Kind::DestinationRule]));
    assert_eq!(codes(&found), ["IST0101"]);
    found.update(&mended, &BTreeSet::from([Kind::Gateway]));
    assert_eq!(codes(&found), [""; 0]);
}

#[test]
fn files_override_cluster_objects_and_messages_name_the_cluster() {
    let service = |cluster: Option<&str>, port: u16| {
        let value = json!({ "metadata": { "name": "a", "namespace": "default" }, "spec": { "ports": [{ "port": port }] } });
        Arc::new(Resource::of_cluster(
            Kind::Service,
            cluster.map(Arc::from),
            value,
        ))
    };

    let mut reader = Reader::new("default", true);
    reader.read(
        "a.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1}]}\n",
    );
    for (cluster, port) in [(None, 2), (Some("west"), 3), (Some("east"), 1)] {
        reader.add(service(cluster, port));
    }

    let context = Context::new(reader, Mesh::default(), BTreeSet::new());
    let ports: Vec<_> = context
        .specs::<k8s_openapi::api::core::v1::Service>()
        .map(|(resource, service)| {
            (
                resource.cluster_name(),
                service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port,
            )
        })
        .collect();

    assert_eq!(ports, [("default", 1), ("east", 1), ("west", 3)]);
    assert!(
        context
            .find(Kind::Service, "default", "a")
            .unwrap()
            .cluster
            .is_none()
    );

    let names = ["services.MultiClusterServiceAnalyzer".to_owned()];
    let found = analyze(&context, &names, &Filter::default()).messages;
    assert_eq!(
        found
            .into_iter()
            .map(|message| message.with_cluster().to_string())
            .collect::<Vec<_>>(),
        [
            "Warning [IST0170] [cluster-default] (Service default/a a.yaml:1) The service a in namespace \"default\" is inconsistent across \
          clusters [\"default\" \"west\"], which can lead to undefined behaviors. The inconsistent behaviors are: service ports are \
          inconsistent."
        ]
    );
}
