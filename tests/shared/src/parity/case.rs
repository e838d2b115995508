//! A parity case on disk: its objects, its proxies and istiod's responses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;
use serde_json::{Value, json};

pub struct Case {
    /// `<area>/<case>`.
    pub name: String,
    pub folder: PathBuf,
    /// The proxies that connect.
    pub proxies: Vec<CaseProxy>,
}

/// One row of `proxies.yaml`.
#[derive(Clone, Debug, Deserialize)]
pub struct CaseProxy {
    /// Name in `expect/`.
    pub name: String,
    #[serde(rename = "type")]
    kind: String,
    ip: String,
    pod: String,
    namespace: String,
    #[serde(default)]
    metadata: serde_json::Map<String, Value>,
    #[serde(default)]
    locality: String,
    /// The names that it subscribes to, by type.
    #[serde(default)]
    pub subscribe: BTreeMap<String, BTreeSet<String>>,
    /// The types that it subscribes to, if they differ from those of its kind of proxy.
    #[serde(default)]
    pub types: Vec<String>,
}

impl Case {
    /// All cases in a directory of areas, sorted. Each has an expectation: resources of some of its
    /// proxies, or, without proxies, the written objects.
    pub fn all(root: &Path) -> Vec<Self> {
        let mut cases = Vec::new();

        for area in folders(root) {
            for folder in folders(&area) {
                let name = format!("{}/{}", file_name(&area), file_name(&folder));
                let mut case = Self {
                    name,
                    folder,
                    proxies: Vec::new(),
                };
                if let Some(text) = case.file("proxies.yaml") {
                    let proxies = serde_saphyr::from_str(&text);
                    case.proxies = proxies
                        .unwrap_or_else(|error| panic!("{}: proxies.yaml: {error}", case.name));
                }
                case.check_expectations();
                cases.push(case);
            }
        }

        cases
    }

    /// Fails if a proxy has no expectations, if expectations have no proxy, or if the case has
    /// neither proxies nor written objects.
    fn check_expectations(&self) {
        let names: BTreeSet<&str> = self
            .proxies
            .iter()
            .map(|proxy| proxy.name.as_str())
            .collect();

        assert_eq!(
            names.len(),
            self.proxies.len(),
            "{}: two proxies have one name",
            self.name
        );

        let recorded: BTreeSet<String> = folders(&self.folder.join("expect"))
            .iter()
            .map(|path| file_name(path))
            .collect();
        let recorded: BTreeSet<&str> = recorded.iter().map(String::as_str).collect();
        assert_eq!(
            recorded, names,
            "{}: folders of expect/, and proxies of proxies.yaml",
            self.name
        );

        let is_written = ["expect/status.json", "expect/created.yaml"]
            .iter()
            .any(|name| self.file(name).is_some());
        assert!(
            !names.is_empty() || is_written,
            "{}: nothing is expected",
            self.name
        );
    }

    /// A file of the case, if it exists.
    pub fn file(&self, name: &str) -> Option<String> {
        let path = self.folder.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }

    /// The remote clusters of the case, sorted: each has a file `input.<cluster>.yaml`.
    pub fn remotes(&self) -> Vec<String> {
        let files = fs::read_dir(&self.folder).expect("the folder of a case can be listed");
        let files = files.map(|entry| entry.expect("a folder can be listed").path());
        let cluster = |path: PathBuf| {
            let name = file_name(&path);
            Some(
                name.strip_prefix("input.")?
                    .strip_suffix(".yaml")?
                    .to_owned(),
            )
        };
        let mut remotes: Vec<String> = files.filter_map(cluster).collect();
        remotes.sort();
        remotes
    }

    /// The environment variables of the case.
    pub fn env(&self) -> BTreeMap<String, String> {
        let text = self.file("env").unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// istiod's resources for a proxy, by type; types that were not recorded are absent. A proxy
    /// without any expectation would always pass, so it is an error.
    pub fn expected(&self, proxy: &CaseProxy) -> BTreeMap<String, Vec<Value>> {
        let folder = self.folder.join("expect").join(&proxy.name);
        let files =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let files = files.map(|entry| entry.expect("a folder can be listed").path());
        let json = files.filter(|path| path.extension().is_some_and(|ext| ext == "json"));
        let expected: BTreeMap<_, _> = json
            .map(|path| {
                let text = fs::read_to_string(&path).expect("a listed file can be read");
                let kind = path
                    .file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
                    .unwrap_or_default();
                (
                    kind,
                    serde_json::from_str(&text).expect("expectations are lists of resources"),
                )
            })
            .collect();

        assert!(
            !expected.is_empty(),
            "{}: nothing is expected",
            folder.display()
        );

        expected
    }
}

impl CaseProxy {
    /// The node id with which it connects.
    pub fn node_id(&self) -> String {
        let Self {
            kind,
            ip,
            pod,
            namespace,
            ..
        } = self;
        format!("{kind}~{ip}~{pod}.{namespace}~{namespace}.svc.cluster.local")
    }

    /// The metadata with which it connects: the defaults of every recorded case, overlaid by its
    /// own.
    pub fn metadata(&self) -> Value {
        let mut metadata = json!({
            "NAMESPACE": self.namespace,
            "CLUSTER_ID": "Kubernetes",
            "ISTIO_VERSION": "1.32.0",
            "MESH_ID": "cluster.local",
            "SERVICE_ACCOUNT": "default",
            "INSTANCE_IPS": self.ip,
            "INTERCEPTION_MODE": "REDIRECT",
            "NAME": self.pod,
        });
        if let Some(map) = metadata.as_object_mut() {
            map.extend(self.metadata.clone());
        }
        metadata
    }

    /// The identity as which it is authenticated.
    pub fn identity(&self) -> String {
        let account = self
            .metadata
            .get("SERVICE_ACCOUNT")
            .and_then(Value::as_str)
            .unwrap_or("default");
        format!("spiffe://cluster.local/ns/{}/sa/{account}", self.namespace)
    }

    /// `region/zone/subzone`.
    pub fn locality(&self) -> &str {
        &self.locality
    }

    /// Whether it is a proxyless gRPC application.
    pub fn is_grpc(&self) -> bool {
        self.metadata
            .get("GENERATOR")
            .is_some_and(|value| value == "grpc")
    }

    pub fn is_ztunnel(&self) -> bool {
        self.kind == "ztunnel"
    }

    /// Whether it subscribes to the DNS table.
    pub fn captures_dns(&self) -> bool {
        self.metadata
            .get("DNS_CAPTURE")
            .is_some_and(|value| value == "true")
    }
}

fn folders(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(root)
        .unwrap_or_else(|error| panic!("{}: {error}", root.display()))
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
