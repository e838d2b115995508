//! From files to objects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use navarch_api::decode::{Outcome, decode_value};
use navarch_api::mesh::IngressControllerMode;
use navarch_api::typed::Typed;
use navarch_api::yaml::{self, Schema};
use serde_json::{Map, Value, json};

use crate::context::Mesh;
use crate::kind::Kind;
use crate::resource::{Content, DocumentLines, Key, Resource, SourcePosition, Texts};

/// Kubernetes' own namespaces, which are not analyzed.
pub(crate) const IGNORED_NAMESPACES: [&str; 4] = [
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "local-path-storage",
];

/// Something that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The path as it was given.
    pub file: String,
    /// The line, from 1, near which it is.
    pub line: usize,
    /// The error.
    pub reason: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

/// A document of a file.
struct Source {
    file: Arc<str>,
    /// The line where it starts; `None` if the text has no meaningful lines.
    line: Option<usize>,
    lines: Arc<DocumentLines>,
}

impl Source {
    /// The place of an object in it.
    fn place(&self, prefix: String, line: Option<usize>) -> SourcePosition {
        SourcePosition {
            file: Arc::clone(&self.file),
            line,
            document: Arc::clone(&self.lines),
            prefix,
        }
    }
}

/// Collects objects. Later objects replace earlier ones of the same name.
#[derive(Debug, Default)]
pub struct Reader {
    /// The namespace of objects that name none; they stay without where it is empty.
    namespace: String,
    /// Whether kinds are read that come about in a cluster.
    with_runtime: bool,
    /// Decoded objects.
    objects: BTreeMap<Key, Arc<Resource>>,
    /// Errors.
    faults: Vec<Unreadable>,
}

impl Reader {
    /// A reader that puts objects without a namespace into `namespace`. With `with_runtime` it also
    /// reads Services, pods, namespaces, nodes and Secrets.
    #[must_use]
    pub fn new(namespace: &str, with_runtime: bool) -> Self {
        Self {
            namespace: namespace.to_owned(),
            with_runtime,
            ..Self::default()
        }
    }

    /// Reads the objects of a file.
    pub fn read(&mut self, file: &str, text: &str) {
        if file.ends_with(".json") {
            return self.read_json(file, text);
        }

        let name: Arc<str> = Arc::from(file);

        for document in yaml::documents(text) {
            let before = document.lines_before;

            match yaml::parse_last_wins(document.text, Schema::V1_1) {
                Ok(mut value) => {
                    let lines = Arc::new(DocumentLines::new(document.text, before));
                    let line = Some(before + first_line(document.text));
                    self.take(
                        &Source {
                            file: Arc::clone(&name),
                            line,
                            lines,
                        },
                        &mut value,
                    );
                }
                Err(error) => self.fault(file, before + error.line, error.reason),
            }
        }
    }

    /// Reads JSON values one after the other. Line numbers are unknown there.
    fn read_json(&mut self, file: &str, text: &str) {
        let source = Source {
            file: Arc::from(file),
            line: None,
            lines: Arc::new(DocumentLines::new("", 0)),
        };
        for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            match value {
                Ok(mut value) => self.take(&source, &mut value),
                Err(error) => self.fault(file, error.line(), error.to_string()),
            }
        }
    }

    /// Adds the ingress gateway of an installation, which configuration files do not contain,
    /// unless mesh config turns it off or an object of its name was read.
    pub fn add_ingress_gateway(&mut self, mesh: &Mesh) {
        if mesh.config.ingress_controller_mode == IngressControllerMode::Off {
            return;
        }

        let name = &mesh.config.ingress_service;
        let namespace = &mesh.system_namespace;
        let port = |name: &str, number: u16, target: u16| json!({ "name": name, "port": number, "protocol": "TCP", "targetPort": target });
        let ports = [
            port("http2", 80, 80),
            port("https", 443, 443),
            port("tcp", 31400, 31400),
            port("tls", 15443, 15443),
        ];

        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": format!("{name}-dummypod"), "namespace": namespace, "labels": { "istio": "ingressgateway" } },
            "spec": { "containers": [{ "name": "istio-proxy" }] },
        });

        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "ports": ports, "selector": { "istio": "ingressgateway" } },
        });

        for mut object in [pod, service] {
            if let Ok(Some(resource)) = self.object(&mut object, None) {
                self.objects
                    .entry(resource.key())
                    .or_insert_with(|| Arc::new(resource));
            }
        }
    }

    /// Adds an object of a cluster, unless one that it is named like was read before.
    pub fn add(&mut self, resource: Arc<Resource>) {
        self.objects.entry(resource.key()).or_insert(resource);
    }

    /// The decoded objects and the errors.
    pub(crate) fn finish(self) -> (BTreeMap<Key, Arc<Resource>>, Vec<Unreadable>) {
        (self.objects, self.faults)
    }

    /// Errors.
    #[must_use]
    pub fn faults(&self) -> &[Unreadable] {
        &self.faults
    }

    /// Notes what cannot be read.
    fn fault(&mut self, file: &str, line: usize, reason: String) {
        self.faults.push(Unreadable {
            file: file.to_owned(),
            line,
            reason,
        });
    }

    /// Takes the objects of a document.
    fn take(&mut self, source: &Source, value: &mut Value) {
        if value.is_null() {
            return;
        }

        let is_list = value.get("kind").and_then(Value::as_str) == Some("List");
        let Some(items) = value
            .get_mut("items")
            .and_then(Value::as_array_mut)
            .filter(|_| is_list)
        else {
            return self.take_one(value, source.place(String::new(), source.line));
        };

        let lines = source.lines.of_items();

        for (index, item) in items.iter_mut().enumerate() {
            let line = source
                .line
                .map(|first| lines.get(&index).copied().unwrap_or(first));
            self.take_one(item, source.place(format!("items[{index}]."), line));
        }
    }

    /// Takes an object of a file.
    fn take_one(&mut self, value: &mut Value, place: SourcePosition) {
        let file = place.file.to_string();
        let line = place.line.unwrap_or(1);
        match self.object(value, Some(place)) {
            Ok(Some(resource)) => {
                self.objects.insert(resource.key(), Arc::new(resource));
            }
            Ok(None) => {}
            Err(reason) => self.fault(&file, line, reason),
        }
    }

    /// Reads an object; `None` if no analyzer uses its kind.
    fn object(
        &self,
        value: &mut Value,
        place: Option<SourcePosition>,
    ) -> Result<Option<Resource>, String> {
        let text = |field: &str| {
            value
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };

        let api_version = text("apiVersion");
        let name = text("kind");
        if api_version.is_empty() || name.is_empty() {
            return Err("has no apiVersion and kind, so it is no object".to_owned());
        }

        let Some(kind) = Kind::of(&api_version, &name) else {
            return Ok(None);
        };

        if place.is_some() && kind.is_of_runtime() && !self.with_runtime {
            return Ok(None);
        }

        let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else {
            return Err("metadata: is required".to_owned());
        };

        let namespace = self.set_namespace(kind, metadata);
        let name = metadata
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();

        let owner = if kind == Kind::Namespace {
            &name
        } else {
            &namespace
        };

        if IGNORED_NAMESPACES.contains(&owner.as_str()) {
            return Ok(None);
        }

        let labels = texts(metadata, "labels");
        let annotations = texts(metadata, "annotations");
        let status = take_status(kind, value);
        let content = content(kind, value)?;

        Ok(Some(Resource {
            kind,
            namespace,
            name,
            labels,
            annotations,
            status,
            content,
            place,
            cluster: None,
        }))
    }

    /// Writes the namespace that an object has into its metadata, and gives it.
    fn set_namespace(&self, kind: Kind, metadata: &mut Map<String, Value>) -> String {
        if kind.is_cluster_scoped() {
            metadata.remove("namespace");
            return String::new();
        }
        match metadata.get("namespace").and_then(Value::as_str) {
            Some(written) if !written.is_empty() => written.to_owned(),
            Some(_) | None => {
                if !self.namespace.is_empty() {
                    metadata.insert("namespace".to_owned(), self.namespace.clone().into());
                }
                self.namespace.clone()
            }
        }
    }
}

impl Resource {
    /// An object that an API server sent. One that cannot be decoded keeps its name alone, and is
    /// reported by the analyzer of its kind's rules.
    #[must_use]
    pub fn of_cluster(kind: Kind, cluster: Option<Arc<str>>, mut value: Value) -> Self {
        let none = Map::new();
        let metadata = value
            .get("metadata")
            .and_then(Value::as_object)
            .unwrap_or(&none);
        let text = |field: &str| {
            metadata
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };

        let namespace = text("namespace");
        let name = text("name");
        let labels = texts(metadata, "labels");
        let annotations = texts(metadata, "annotations");
        let status = take_status(kind, &mut value);
        if kind == Kind::CustomResourceDefinition {
            forget_schemas(&mut value);
        }

        let content = content(kind, &value).unwrap_or_else(Content::Unreadable);
        Self {
            kind,
            namespace,
            name,
            labels,
            annotations,
            status,
            content,
            place: None,
            cluster,
        }
    }
}

/// Removes the schemas of a definition: they are most of it, and not used.
fn forget_schemas(definition: &mut Value) {
    let versions = definition
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for version in versions.filter_map(Value::as_object_mut) {
        version.remove("schema");
    }
}

/// The status of an object, which is taken out of it where its kind is read as Kubernetes has it:
/// what others wrote into a status need not be whole for what users wrote to be read.
fn take_status(kind: Kind, value: &mut Value) -> Value {
    if kind.is_istio() {
        return value.get("status").cloned().unwrap_or_default();
    }
    value
        .as_object_mut()
        .and_then(|members| members.remove("status"))
        .unwrap_or_default()
}

/// The content of an object.
fn content(kind: Kind, value: &Value) -> Result<Content, String> {
    /// Reads an object of Kubernetes' own JSON.
    fn kubernetes<T: for<'de> k8s_openapi::serde::Deserialize<'de>>(
        value: &Value,
    ) -> Result<Box<T>, String> {
        Typed::from_json(value)
            .map(|typed| Box::new(typed.value))
            .map_err(|error| error.to_string())
    }

    Ok(match kind {
        Kind::Pod => Content::Pod(kubernetes(value)?),
        Kind::Secret => Content::Secret(kubernetes(value)?),
        Kind::Service => Content::Service(kubernetes(value)?),
        Kind::ConfigMap => Content::ConfigMap(kubernetes(value)?),
        Kind::Deployment => Content::Deployment(kubernetes(value)?),
        Kind::MutatingWebhookConfiguration => Content::Mutating(kubernetes(value)?),
        Kind::ValidatingWebhookConfiguration => Content::Validating(kubernetes(value)?),
        Kind::CustomResourceDefinition => Content::Definition(kubernetes(value)?),
        Kind::AuthorizationPolicy
        | Kind::DestinationRule
        | Kind::EnvoyFilter
        | Kind::Gateway
        | Kind::PeerAuthentication
        | Kind::ProxyConfig
        | Kind::RequestAuthentication
        | Kind::ServiceEntry
        | Kind::Sidecar
        | Kind::Telemetry
        | Kind::TrafficExtension
        | Kind::VirtualService
        | Kind::WasmPlugin
        | Kind::WorkloadEntry
        | Kind::WorkloadGroup => match decode_value(value).1 {
            Outcome::Read { object, .. } => Content::Istio(object),
            Outcome::Rejected(error) => return Err(error.to_string()),
            Outcome::Ignored => return Err(format!("apiVersion: is none of {}", kind.as_str())),
        },
        Kind::Namespace
        | Kind::Node
        | Kind::KubernetesGateway
        | Kind::HttpRoute
        | Kind::GrpcRoute
        | Kind::MeshNetworks => Content::Plain(value.get("spec").cloned().unwrap_or_default()),
    })
}

fn texts(metadata: &Map<String, Value>, field: &str) -> Texts {
    let members = metadata
        .get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    members
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// The first line of a document, from 1, that holds something.
fn first_line(text: &str) -> usize {
    1 + text
        .lines()
        .take_while(|line| line.trim().is_empty())
        .count()
}
