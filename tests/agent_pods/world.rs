//! The mesh of the pods: an API server, the control plane, the objects, a resolver.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use navarch_testkit::client::{self, Reply};
use navarch_testkit::cluster::{Cluster, Writer};
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::net::Net;
use crate::pod::{Launch, PORT, Pod, PodConfig, PodInputs, PodKind};

/// Environment variables of the control plane.
pub(crate) type Variables<'a> = &'a [(&'a str, &'a str)];

/// Settings of a control plane of pods with sidecars.
pub(crate) const SIDECAR_VARIABLES: Variables<'_> = &[("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "1s")];

/// The last byte of the addresses of pods, by name.
const PODS: [(&str, u8); 3] = [("client", 11), ("web", 12), ("gateway", 13)];
/// A virtual machine.
pub(crate) const MACHINE: &str = "machine";
/// The last byte of all other addresses, by name: the machine, and the pods in ambient mode and of
/// a migration.
const OTHERS: [(&str, u8); 10] = [
    (MACHINE, 14),
    ("web-one", 15),
    ("web-two", 16),
    ("stranger", 17),
    ("way", 18),
    ("ztunnel", 19),
    ("waypoint", 20),
    ("caller", 21),
    ("intruder", 22),
    ("walker", 23),
];
/// The namespace of most pods.
pub(crate) const NAMESPACE: &str = "shop";
/// The pods of another namespace, and its name.
const CALLERS: [&str; 3] = ["caller", "intruder", "walker"];
pub(crate) const CALLERS_NAMESPACE: &str = "callers";
/// The address of the service `web`.
pub(crate) const SERVICE: &str = "10.96.7.7";
/// Timeout of each step of the control plane.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The mesh. Dropping it stops everything.
pub(crate) struct World {
    navarch: Option<Navarch>,
    /// Environment variables of the control plane.
    variables: Vec<(String, String)>,
    /// Of the certificates that ztunnel requests; a day if unset.
    pub(crate) lifetime: Option<Duration>,
    cluster: Cluster,
    writer: Writer,
    /// The root certificate in the namespaces' ConfigMaps.
    root: String,
    net: Net,
    folder: TempDir,
    _resolver: JoinSet<()>,
}

impl World {
    /// Starts the API server with the objects for pods with sidecars, and the control plane.
    pub(crate) async fn start() -> Result<Self> {
        Self::empty(SIDECAR_VARIABLES).await?.with_sidecars().await
    }

    /// Puts the objects for pods with sidecars, and starts the control plane.
    pub(crate) async fn with_sidecars(self) -> Result<Self> {
        for object in self.objects() {
            self.writer.put(&object).await?;
        }
        self.allow_open().await?;
        self.with_control_plane().await
    }

    /// Starts the API server; `variables` are for the control plane.
    pub(crate) async fn empty(variables: Variables<'_>) -> Result<Self> {
        let net = Net::new()?;
        let folder = tempfile::tempdir()?;

        // The pods' users need to traverse it.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;

        // The pods' users may not be allowed to read the build directory.
        let beside = |name: &str| Path::new(env!("CARGO_BIN_EXE_navarch")).with_file_name(name);
        let agent = beside("pilot-agent");
        let pod = beside("pod");
        for (package, program) in [("navarch-agent", &agent), ("navarch-testkit", &pod)] {
            ensure!(
                program.exists(),
                "{} is missing: cargo build -p {package} --bins",
                program.display()
            );
        }

        for (from, name) in [
            (agent, "pilot-agent"),
            (pod, "pod"),
            (navarch_testkit::envoy::program(), "envoy"),
        ] {
            // A link must not lead to another link in a directory that the pods' users cannot read.
            let from = std::fs::canonicalize(from)?;
            let to = folder.path().join(name);
            std::fs::hard_link(&from, &to).or_else(|_| std::fs::copy(&from, &to).map(drop))?;
        }

        let resolver = resolver(net.address(1)).await?;
        let cluster = Cluster::start().await?;
        cluster.apply_crds(Path::new(env!("CARGO_MANIFEST_DIR")))?;
        let writer = cluster.writer().await?;
        let navarch = None;
        let root = String::new();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = variables.iter().map(owned).collect();

        Ok(Self {
            navarch,
            variables,
            lifetime: None,
            cluster,
            writer,
            root,
            net,
            folder,
            _resolver: resolver,
        })
    }

    /// Starts the control plane, and waits until it has published its root in the namespace.
    pub(crate) async fn with_control_plane(mut self) -> Result<Self> {
        self.start_control_plane().await?;
        self.root = self.published_root().await?;
        Ok(self)
    }

    /// Starts the control plane with the API server.
    async fn start_control_plane(&mut self) -> Result<()> {
        let secure = format!(
            "--secure-grpc-addr={}",
            SocketAddr::from((self.net.address(1), 15012))
        );
        let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
        let kubeconfig = self.cluster.admin_kubeconfig();
        let mut environment = vec![("POD_NAMESPACE", "istio-system")];
        environment.extend(
            self.variables
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        self.navarch = Some(
            Navarch::start_on_kubernetes(program, &kubeconfig, &[&secure], &environment).await?,
        );
        Ok(())
    }

    /// The root of the mesh in the ConfigMap of the pods' namespace.
    async fn published_root(&self) -> Result<String> {
        let end = Instant::now() + TIMEOUT;

        loop {
            let found = self
                .writer
                .get("/api/v1/namespaces/shop/configmaps/istio-ca-root-cert")
                .await;
            match found
                .as_ref()
                .map(|object| object["data"]["root-cert.pem"].as_str())
            {
                Ok(Some(root)) => return Ok(root.to_owned()),
                Ok(None) | Err(_) => ensure!(
                    Instant::now() < end,
                    "the root was not published: {found:?}"
                ),
            }

            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops the control plane, and starts it again after a while.
    pub(crate) async fn restart_control_plane(&mut self, away: Duration) -> Result<()> {
        self.navarch.take().context("it runs")?.stop().await?;
        tokio::time::sleep(away).await;
        self.start_control_plane().await
    }

    /// Starts a pod of the mesh.
    pub(crate) async fn pod(&mut self, name: &str, kind: PodKind) -> Result<Pod> {
        let token = self.pods_token(name).await?;
        self.start_pod(name, token, |inputs| {
            Ok(Launch::by_hand(name, kind, inputs))
        })
    }

    /// Starts a pod with a sidecar whose agent also writes its certificate to the folder
    /// `etc/certs`.
    pub(crate) async fn pod_with_files(&mut self, name: &str, kind: PodKind) -> Result<Pod> {
        let token = self.pods_token(name).await?;
        self.start_pod(name, token, |inputs| {
            let mut launch = Launch::by_hand(name, kind, inputs);
            let files = "./etc/certs".to_owned();
            launch.env.push(("OUTPUT_CERTS".to_owned(), files));
            launch.files.push(("etc/certs".to_owned(), None));
            Ok(launch)
        })
    }

    /// Starts a machine outside of the cluster, with a token of its service account.
    pub(crate) async fn machine(
        &mut self,
        launch: impl FnOnce(PodInputs) -> Result<Launch>,
    ) -> Result<Pod> {
        let inputs = self.machine_inputs().await?;
        self.start_pod(MACHINE, inputs.token, launch)
    }

    /// What a machine outside of the cluster has of it, with a token of its service account.
    pub(crate) async fn machine_inputs(&self) -> Result<PodInputs> {
        let token = self.token("shop", MACHINE, json!({})).await?;
        self.inputs(MACHINE, token)
    }

    fn inputs(&self, name: &str, token: String) -> Result<PodInputs> {
        Ok(PodInputs {
            namespace: namespace_of(name),
            ip: self.address(name)?,
            envoy: self.envoy(),
            token,
            root: self.root.clone(),
        })
    }

    /// The writer of objects.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The API server.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The root of the mesh.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The directory of the pods' programs and files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address of a pod.
    pub(crate) fn address(&self, name: &str) -> Result<Ipv4Addr> {
        let (_, last) = PODS
            .iter()
            .chain(&OTHERS)
            .find(|(pod, _)| *pod == name)
            .context("the mesh has no such pod")?;
        Ok(self.net.address(*last))
    }

    /// Creates the network namespace of a pod, with its resolver and hosts.
    pub(crate) fn space(&mut self, name: &str) -> Result<String> {
        let [.., last] = self.address(name)?.octets();
        let hosts = format!("{} istiod.istio-system.svc\n", self.net.address(1));
        let resolver = format!(
            "nameserver {}\nsearch shop.svc.cluster.local svc.cluster.local\n",
            self.net.address(1)
        );
        self.net.namespace(name, last, &hosts, &resolver)
    }

    /// Starts a pod of the mesh as its injected spec demands.
    pub(crate) async fn injected(&mut self, name: &str, pod: &Value) -> Result<Pod> {
        let token = self.pods_token(name).await?;
        self.start_pod(name, token, |inputs| crate::injected::launch(pod, inputs))
    }

    /// The path of Envoy for pods.
    pub(crate) fn envoy(&self) -> PathBuf {
        self.folder.path().join("envoy")
    }

    fn start_pod(
        &mut self,
        name: &str,
        token: String,
        launch: impl FnOnce(PodInputs) -> Result<Launch>,
    ) -> Result<Pod> {
        let space = self.space(name)?;
        let folder: PathBuf = self.folder.path().join(name);
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("space"), &space)?;
        let ip = self.address(name)?;
        let launch = launch(self.inputs(name, token)?)?;
        Pod::start(PodConfig {
            space,
            name,
            ip,
            folder,
            programs: self.folder.path(),
            launch,
        })
    }

    /// A token as the kubelet mounts it: issued by the API server for the pod's account and the CA,
    /// bound to the pod.
    async fn pods_token(&self, name: &str) -> Result<String> {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": format!("{name}-1")});
        let spec = json!({"boundObjectRef": bound});
        self.token(namespace_of(name), name, spec).await
    }

    /// A token of a service account for the CA.
    pub(crate) async fn token(
        &self,
        namespace: &str,
        account: &str,
        mut spec: Value,
    ) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        spec["audiences"] = json!(["istio-ca"]);
        spec["expirationSeconds"] = json!(3600);
        let ask =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let answer = self
            .cluster
            .call("POST", &path, "application/json", &ask)
            .await?;
        Ok(answer["status"]["token"]
            .as_str()
            .context("a token")?
            .to_owned())
    }

    /// A plain-text request from outside of the mesh.
    pub(crate) async fn plain(&self, ip: Ipv4Addr, port: u16, path: &str) -> Result<Reply> {
        client::get(
            SocketAddr::new(IpAddr::V4(ip), port),
            "shop.example",
            path,
            &[],
        )
        .await
    }

    /// The address of the control plane's debug pages.
    pub(crate) fn monitoring(&self) -> Result<SocketAddr> {
        let navarch = self.navarch.as_ref().context("the control plane runs")?;
        Ok(navarch.monitoring)
    }

    /// The state of the control plane's CA and of the signers.
    pub(crate) async fn authorities(&self) -> Result<Value> {
        let navarch = self.navarch.as_ref().context("the control plane runs")?;
        Ok(serde_json::from_str(&navarch.page("/debug/ca").await?)?)
    }

    /// The output of the control plane.
    pub(crate) fn output(&self) -> String {
        self.navarch
            .as_ref()
            .map(Navarch::output)
            .unwrap_or_default()
    }

    /// Allows all clients to request `/open` of `web`.
    pub(crate) async fn allow_open(&self) -> Result<()> {
        self.write_policy("/open").await
    }

    /// Denies `/open` to all clients.
    pub(crate) async fn forbid_open(&self) -> Result<()> {
        self.write_policy("/closed").await
    }

    /// Writes the AuthorizationPolicy of `web`.
    async fn write_policy(&self, open: &str) -> Result<()> {
        let rules = json!([
            {"to": [{"operation": {"paths": [open]}}]},
            {"from": [{"source": {"principals": ["cluster.local/ns/shop/sa/gateway"]}}]},
        ]);
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "rules": rules});
        self.writer
            .put(&object(
                "security.istio.io/v1",
                "AuthorizationPolicy",
                "shop",
                "web",
                "spec",
                spec,
            ))
            .await
    }

    /// The objects that stay the same.
    fn objects(&self) -> Vec<Value> {
        let mut all = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
            object(
                "security.istio.io/v1",
                "PeerAuthentication",
                "istio-system",
                "default",
                "spec",
                json!({"mtls": {"mode": "STRICT"}}),
            ),
        ];

        for (name, last) in PODS {
            let ip = self.net.address(last);
            all.push(
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "shop"}}),
            );
            let labels = json!({"app": name, "security.istio.io/tlsMode": "istio"});
            all.push(pod("shop", name, name, ip, &json!({"labels": labels})));
        }

        let networking =
            |kind, name, spec| object("networking.istio.io/v1", kind, "shop", name, "spec", spec);
        let web = self.net.address(PODS[1].1);
        let host = "web.shop.svc.cluster.local";

        all.extend([
            service(),
            endpoint_slice("web", PORT, &[("web", web)]),
            // Connections are not reused, so each uses the current certificate.
            networking(
                "DestinationRule",
                "web",
                json!({"host": host,
                "trafficPolicy": {"connectionPool": {"http": {"maxRequestsPerConnection": 3}}}}),
            ),
            networking(
                "Gateway",
                "door",
                json!({"selector": {"app": "gateway"}, "servers": [
                {"port": {"number": PORT, "name": "http", "protocol": "HTTP"}, "hosts": ["shop.example"]}]}),
            ),
            networking(
                "VirtualService",
                "door",
                json!({"hosts": ["shop.example"], "gateways": ["door"], "http": [
                {"route": [{"destination": {"host": host, "port": {"number": PORT}}}]}]}),
            ),
        ]);

        all
    }
}

/// The namespace of a pod.
fn namespace_of(pod: &str) -> &'static str {
    if CALLERS.contains(&pod) {
        CALLERS_NAMESPACE
    } else {
        NAMESPACE
    }
}

/// The service `web`.
pub(crate) fn service() -> Value {
    let ports = json!([{"name": "http", "port": PORT, "targetPort": PORT}]);
    let spec = json!({"clusterIP": SERVICE, "clusterIPs": [SERVICE], "selector": {"app": "web"}, "ports": ports});
    object("v1", "Service", "shop", "web", "spec", spec)
}

/// A ready pod of a service account, by namespace and name, with further metadata.
pub(crate) fn pod(
    namespace: &str,
    name: &str,
    account: &str,
    ip: Ipv4Addr,
    metadata: &Value,
) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"serviceAccountName": account, "nodeName": "here", "containers": [{"name": "app", "image": "app"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                   "conditions": [{"type": "Ready", "status": "True"}]},
    });
    pod["metadata"]["name"] = json!(format!("{name}-1"));
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// The EndpointSlice of a service with a port: pods by name and address.
pub(crate) fn endpoint_slice(service: &str, port: u16, pods: &[(&str, Ipv4Addr)]) -> Value {
    let endpoint = |(name, ip): &(&str, Ipv4Addr)| {
        let pod = json!({"kind": "Pod", "name": format!("{name}-1"), "namespace": "shop"});
        json!({"addresses": [ip], "conditions": {"ready": true}, "targetRef": pod})
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-1"), "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

pub(crate) fn object(
    version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
    field: &str,
    value: Value,
) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, field: value})
}

/// A DNS resolver for the world outside, with a single name.
async fn resolver(ip: Ipv4Addr) -> Result<JoinSet<()>> {
    let socket = UdpSocket::bind((ip, 53)).await?;
    ensure!(socket.local_addr()?.port() == 53, "DNS uses port 53");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut buffer = vec![0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let Ok(query) = Message::from_vec(&buffer[..length]) else {
                continue;
            };

            let mut reply = Message::response(query.metadata.id, OpCode::Query);
            reply.metadata.recursion_desired = true;
            reply.metadata.recursion_available = true;
            reply.queries.clone_from(&query.queries);

            if let Some(question) = query.queries.first() {
                if question.name().to_ascii() == "api.outside.example." {
                    if question.query_type() == RecordType::A {
                        let data = RData::A(A(Ipv4Addr::new(192, 0, 2, 7)));
                        reply.add_answer(Record::from_rdata(question.name().clone(), 5, data));
                    }
                } else {
                    reply.metadata.response_code = hickory_proto::op::ResponseCode::NXDomain;
                }
            }

            drop(socket.send_to(&reply.to_vec().unwrap(), peer).await);
        }
    });

    Ok(tasks)
}
