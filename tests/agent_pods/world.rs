//! The mesh around the pods: the control plane, its objects, a resolver.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use navarch_testkit::client::{self, Reply};
use navarch_testkit::navarch::Navarch;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::app::PORT;
use crate::issuer::Issuer;
use crate::net::Net;
use crate::pod::{Pod, PodConfig};

/// The last parts of the addresses of pods, by name.
const PODS: [(&str, u8); 3] = [("client", 11), ("web", 12), ("gateway", 13)];
/// The last part of the address of the service `web`.
const SERVICE: u8 = 200;

/// The mesh. Everything ends with it.
pub(crate) struct World {
    navarch: Option<Navarch>,
    issuer: Issuer,
    net: Net,
    folder: TempDir,
    _resolver: JoinSet<()>,
}

impl World {
    /// Starts the control plane.
    pub(crate) async fn start() -> Result<Self> {
        let net = Net::new()?;
        let folder = tempfile::tempdir()?;
        // Pods' users walk through it.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        std::fs::create_dir(folder.path().join("mesh"))?;
        // Where they are built may be nobody else's to read.
        let agent = PathBuf::from(env!("CARGO_BIN_EXE_navarch"));
        for (from, name) in [(agent, "navarch-agent"), (navarch_testkit::envoy::program(), "envoy")] {
            // A link to a link would lead to where the pods' users may not go.
            let (from, to) = (std::fs::canonicalize(from)?, folder.path().join(name));
            std::fs::hard_link(&from, &to).or_else(|_| std::fs::copy(&from, &to).map(drop))?;
        }
        let resolver = resolver(net.address(1)).await?;
        let mut world = Self { navarch: None, issuer: Issuer::new(), net, folder, _resolver: resolver };
        world.write_mesh()?;
        world.allow_open()?;
        world.start_control_plane().await?;
        Ok(world)
    }

    /// Starts the control plane on the state that there is.
    async fn start_control_plane(&mut self) -> Result<()> {
        // The environment of a process is set by one that comes before it.
        let program = self.folder.path().join("navarch");
        let rule = self.issuer.rule();
        let script = format!("#!/bin/sh\nJWT_RULE='{rule}' exec {} \"$@\"\n", env!("CARGO_BIN_EXE_navarch"));
        std::fs::write(&program, script)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let secure = SocketAddr::from((self.net.address(1), 15012));
        let state = self.folder.path().join("state");
        let args = [format!("--secure-grpc-addr={secure}"), format!("--state-dir={}", state.display())];
        self.navarch = Some(Navarch::start(&program, &self.folder.path().join("mesh"), &args).await?);
        Ok(())
    }

    /// Ends the control plane, and starts it again after a while.
    pub(crate) async fn restart_control_plane(&mut self, away: Duration) -> Result<()> {
        self.navarch.take().context("it runs")?.stop().await?;
        tokio::time::sleep(away).await;
        self.start_control_plane().await
    }

    /// A pod with a sidecar.
    pub(crate) async fn sidecar(&mut self, name: &str) -> Result<Pod> {
        self.pod(name, "sidecar")
    }

    /// The gateway.
    pub(crate) async fn gateway(&mut self) -> Result<Pod> {
        self.pod("gateway", "router")
    }

    /// A pod.
    fn pod(&mut self, name: &str, kind: &str) -> Result<Pod> {
        let last = PODS.iter().find(|(pod, _)| *pod == name).context("a pod of the mesh")?.1;
        let hosts = format!("{} istiod.istio-system.svc\n", self.net.address(1));
        let resolver = format!("nameserver {}\nsearch shop.svc.cluster.local svc.cluster.local\n", self.net.address(1));
        let space = self.net.namespace(name, last, &hosts, &resolver)?;
        let folder: PathBuf = self.folder.path().join(name);
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("space"), &space)?;
        let subject = format!("system:serviceaccount:shop:{name}");
        Pod::start(PodConfig {
            space,
            name,
            kind,
            ip: self.net.address(last),
            folder,
            programs: self.folder.path(),
            token: self.issuer.token(json!({"sub": subject})),
            root: std::fs::read_to_string(self.folder.path().join("state/ca-cert.pem"))?,
        })
    }

    /// A request from outside of the mesh.
    pub(crate) async fn plain(&self, ip: Ipv4Addr, port: u16, path: &str) -> Result<Reply> {
        client::get(SocketAddr::new(IpAddr::V4(ip), port), "shop.example", path, &[]).await
    }

    /// Lets everybody ask `web` for `/open`.
    pub(crate) fn allow_open(&self) -> Result<()> {
        self.write_policy("/open")
    }

    /// Lets nobody ask for it.
    pub(crate) fn forbid_open(&self) -> Result<()> {
        self.write_policy("/closed")
    }

    /// The policy of `web`.
    fn write_policy(&self, open: &str) -> Result<()> {
        let policy = format!(
            "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
             metadata: {{name: web, namespace: shop}}\nspec:\n  selector: {{matchLabels: {{app: web}}}}\n  rules:\n\
             \x20 - to: [{{operation: {{paths: [\"{open}\"]}}}}]\n\
             \x20 - from: [{{source: {{principals: [cluster.local/ns/shop/sa/gateway]}}}}]\n"
        );
        let new = self.folder.path().join("policy.new");
        std::fs::write(&new, policy)?;
        Ok(std::fs::rename(new, self.folder.path().join("mesh/policy.yaml"))?)
    }

    /// The objects that do not change.
    fn write_mesh(&self) -> Result<()> {
        let mut mesh = String::from(
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
             apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
             metadata: {name: default, namespace: istio-system}\nspec: {mtls: {mode: STRICT}}\n---\n\
             apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\n\
             spec: {host: web.shop.svc.cluster.local, trafficPolicy: {connectionPool: {http: \
             {maxRequestsPerConnection: 3}}}}\n",
        );
        for (name, last) in PODS {
            let ip = self.net.address(last);
            mesh.push_str(&format!(
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}-1, namespace: shop, labels: {{app: {name}, \
                 security.istio.io/tlsMode: istio}}}}\n\
                 spec: {{serviceAccountName: {name}, nodeName: here, containers: [{{name: app, image: app}}]}}\n\
                 status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], \
                 conditions: [{{type: Ready, status: \"True\"}}]}}\n"
            ));
        }
        let (service, web) = (self.net.address(SERVICE), self.net.address(PODS[1].1));
        mesh.push_str(&format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{clusterIP: {service}, clusterIPs: [{service}], selector: {{app: web}}, \
             ports: [{{name: http, port: {PORT}, targetPort: {PORT}}}]}}\n\
             ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: web-1, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: {PORT}, protocol: TCP}}]\n\
             endpoints: [{{addresses: [{web}], conditions: {{ready: true}}, \
             targetRef: {{kind: Pod, name: web-1, namespace: shop}}}}]\n\
             ---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: door, namespace: shop}}\n\
             spec: {{selector: {{app: gateway}}, servers: [{{port: {{number: {PORT}, name: http, protocol: HTTP}}, \
             hosts: [shop.example]}}]}}\n\
             ---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: door, namespace: shop}}\n\
             spec: {{hosts: [shop.example], gateways: [door], http: [{{route: [{{destination: \
             {{host: web.shop.svc.cluster.local, port: {{number: {PORT}}}}}}}]}}]}}\n"
        ));
        Ok(std::fs::write(self.folder.path().join("mesh/mesh.yaml"), mesh)?)
    }
}

/// The resolver of the world outside: it knows one name.
async fn resolver(ip: Ipv4Addr) -> Result<JoinSet<()>> {
    let socket = UdpSocket::bind((ip, 53)).await?;
    ensure!(socket.local_addr()?.port() == 53, "the port of resolvers");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut buffer = vec![0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let Ok(query) = Message::from_vec(&buffer[..length]) else { continue };
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
