//! A running Navarch with a TLS port, and requests to it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Result;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::Secret;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, Resource};
use navarch_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use navarch_proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use navarch_testkit::navarch::{Addresses, Navarch};
use prost::Message;
use prost_types::value::Kind;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::client::{self, Proof};
use crate::issuer::Issuer;

/// Two namespaces with a secret each.
pub const MESH: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: tls, namespace: shop}\n\
    stringData: {tls.crt: CERT, tls.key: KEY-OF-SHOP}\n---\n\
    apiVersion: v1\nkind: Secret\nmetadata: {name: tls, namespace: bank}\nstringData: {tls.crt: CERT, tls.key: KEY-OF-BANK}\n";

/// The address of its ports.
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A running Navarch.
pub struct Server {
    navarch: Navarch,
    /// Its TLS port.
    pub secure: SocketAddr,
    /// The webhook port.
    pub https: SocketAddr,
    /// The issuer of accepted tokens.
    pub issuer: Issuer,
    folder: TempDir,
    /// Environment variables in shell syntax.
    variables: String,
}

impl Server {
    /// Starts with an empty state and two secrets.
    pub async fn start() -> Result<Self> {
        Self::with_mesh(MESH).await
    }

    /// Starts with an empty state and a mesh.
    pub async fn with_mesh(mesh: &str) -> Result<Self> {
        Self::with_variables(mesh, "").await
    }

    /// Starts with an empty state, a mesh, and environment variables in shell syntax.
    pub async fn with_variables(mesh: &str, variables: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("mesh"))?;
        std::fs::write(folder.path().join("mesh/mesh.yaml"), mesh)?;
        Self::start_in(
            folder,
            Issuer::with_new_key(),
            variables.to_owned(),
            LOOPBACK,
            &[],
        )
        .await
    }

    /// Starts with an empty state, a mesh, and further arguments.
    pub async fn with_arguments(mesh: &str, arguments: &[String]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("mesh"))?;
        std::fs::write(folder.path().join("mesh/mesh.yaml"), mesh)?;
        Self::start_in(
            folder,
            Issuer::with_new_key(),
            String::new(),
            LOOPBACK,
            arguments,
        )
        .await
    }

    /// Starts with an empty state and two secrets, with its HTTP ports on this address.
    pub async fn at(web: IpAddr) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("mesh"))?;
        std::fs::write(folder.path().join("mesh/mesh.yaml"), MESH)?;
        Self::start_in(folder, Issuer::with_new_key(), String::new(), web, &[]).await
    }

    /// Starts in a directory with its mesh and possibly more. If it is no CA itself, the root of
    /// its certificate is in `ca.crt`.
    pub async fn start_in(
        folder: TempDir,
        issuer: Issuer,
        variables: String,
        web: IpAddr,
        further: &[String],
    ) -> Result<Self> {
        // The testkit does not set environment variables of the process, so a shell script does.
        let program = folder.path().join("navarch");
        let rule = issuer.rule();
        let script = format!(
            "#!/bin/sh\n{variables} JWT_RULE='{rule}' exec {} \"$@\"\n",
            crate::program().display()
        );
        std::fs::write(&program, script)?;

        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let state = folder.path().join("state");
        let mut args = vec![
            "--secure-grpc-addr=127.0.0.1:0".to_owned(),
            "--https-addr=127.0.0.1:0".to_owned(),
            format!("--state-dir={}", state.display()),
        ];
        args.extend(further.iter().cloned());

        let mesh = folder.path().join("mesh");
        let web = SocketAddr::new(web, 0);
        let at = Addresses {
            http: web,
            monitoring: web,
            ..Addresses::ANY
        };
        let navarch = Navarch::start_at(&program, &mesh, &args, &[], at).await?;
        let secure = navarch.secure();

        let https = navarch.https();
        Ok(Self {
            navarch,
            secure,
            https,
            issuer,
            folder,
            variables,
        })
    }

    /// Stops, and starts again with the same state.
    pub async fn restart(self) -> Result<Self> {
        let Self {
            navarch,
            issuer,
            folder,
            variables,
            ..
        } = self;
        navarch.stop().await?;
        Self::start_in(folder, issuer, variables, LOOPBACK, &[]).await
    }

    /// Replaces its mesh.
    pub fn write_mesh(&self, mesh: &str) -> Result<()> {
        let new = self.folder.path().join("new.yaml");
        std::fs::write(&new, mesh)?;
        Ok(std::fs::rename(
            new,
            self.folder.path().join("mesh/mesh.yaml"),
        )?)
    }

    /// A directory for files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn root(&self) -> String {
        let own = std::fs::read_to_string(self.folder.path().join("state/ca-cert.pem"));
        own.or_else(|_| std::fs::read_to_string(self.folder.path().join("ca.crt")))
            .unwrap()
    }

    /// Its log.
    pub fn output(&self) -> String {
        self.navarch.output()
    }

    pub fn pid(&self) -> u32 {
        self.navarch.pid()
    }

    /// The plain-text xDS port.
    pub fn plain(&self) -> SocketAddr {
        self.navarch.xds
    }

    /// The address of its debug API.
    pub fn http(&self) -> SocketAddr {
        self.navarch.http
    }

    pub async fn metrics(&self) -> Result<String> {
        Ok(
            navarch_testkit::client::get(self.navarch.monitoring, "navarch", "/metrics", &[])
                .await?
                .body,
        )
    }

    /// The plain HTTP ports.
    pub fn web(&self) -> [SocketAddr; 2] {
        [self.navarch.http, self.navarch.monitoring]
    }

    /// A page of its debug API.
    pub async fn page(&self, name: &str) -> Result<String> {
        self.navarch.page(&format!("/debug/{name}")).await
    }

    /// Requests a certificate.
    pub async fn certificate(
        &self,
        proof: &Proof,
        csr: &str,
        seconds: i64,
    ) -> Result<IstioCertificateResponse, Status> {
        let channel = client::channel(self.secure, &self.root(), proof);
        let request = IstioCertificateRequest {
            csr: csr.to_owned(),
            validity_duration: seconds,
            ..Default::default()
        };
        let mut service = IstioCertificateServiceClient::new(channel);
        service
            .create_certificate(client::signed(request, proof))
            .await
            .map(tonic::Response::into_inner)
    }

    /// A certificate for the same caller, to authenticate with instead of its token.
    pub async fn prove_by_certificate(&self, proof: &Proof) -> Result<Proof> {
        let key = KeyPair::generate()?;
        let csr = CertificateParams::default()
            .serialize_request(&key)?
            .pem()?;
        let mut chain = self.certificate(proof, &csr, 0).await?.cert_chain;
        chain.pop();
        Ok(Proof::Certificate(chain.concat(), key.serialize_pem()))
    }

    /// The secrets with these names that a proxy receives over TLS.
    pub async fn secrets(
        &self,
        proof: &Proof,
        namespace: &str,
        account: &str,
        names: &[&str],
    ) -> Result<Vec<Secret>, Status> {
        let channel = client::channel(self.secure, &self.root(), proof);
        Ok(secrets_of(
            subscribe(channel, proof, node(namespace, account), SECRETS, names).await?,
        ))
    }

    /// The same in plain text.
    pub async fn plain_secrets(
        &self,
        namespace: &str,
        account: &str,
        names: &[&str],
    ) -> Result<Vec<Secret>, Status> {
        Ok(secrets_of(
            self.plain_resources(node(namespace, account), SECRETS, names)
                .await?,
        ))
    }

    /// The resources of a type that a proxy receives over TLS.
    pub async fn resources(
        &self,
        proof: &Proof,
        node: Node,
        kind: &str,
        names: &[&str],
    ) -> Result<Vec<Resource>, Status> {
        let channel = client::channel(self.secure, &self.root(), proof);
        subscribe(channel, proof, node, kind, names).await
    }

    /// The same in plain text.
    pub async fn plain_resources(
        &self,
        node: Node,
        kind: &str,
        names: &[&str],
    ) -> Result<Vec<Resource>, Status> {
        let channel = Endpoint::from_shared(format!("http://{}", self.plain()))
            .unwrap()
            .connect_lazy();
        subscribe(channel, &Proof::Nothing, node, kind, names).await
    }
}

/// The type URL of secrets.
pub const SECRETS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// A gateway of a namespace.
pub fn node(namespace: &str, account: &str) -> Node {
    let text = |text: &str| prost_types::Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let fields = [
        ("NAMESPACE", namespace),
        ("SERVICE_ACCOUNT", account),
        ("CLUSTER_ID", "Kubernetes"),
    ];
    let fields = fields
        .map(|(key, value)| (key.to_owned(), text(value)))
        .into();
    Node {
        id: format!("router~10.0.0.1~web-1.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(prost_types::Struct { fields }),
        ..Node::default()
    }
}

fn secrets_of(resources: Vec<Resource>) -> Vec<Secret> {
    let secrets = resources
        .into_iter()
        .filter_map(|resource| resource.resource);
    secrets
        .map(|any| Secret::decode(any.value.as_slice()).unwrap())
        .collect()
}

/// The first response to a subscription.
pub async fn subscribe(
    channel: Channel,
    proof: &Proof,
    node: Node,
    kind: &str,
    names: &[&str],
) -> Result<Vec<Resource>, Status> {
    let request = DeltaDiscoveryRequest {
        node: Some(node),
        type_url: kind.to_owned(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..DeltaDiscoveryRequest::default()
    };

    let (sender, requests) = tokio::sync::mpsc::channel(1);
    drop(sender.send(request).await);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut service = AggregatedDiscoveryServiceClient::new(channel);
    let answers = service
        .delta_aggregated_resources(client::signed(requests, proof))
        .await?;
    let answer = answers
        .into_inner()
        .message()
        .await?
        .ok_or_else(|| Status::cancelled("no answer"))?;

    Ok(answer.resources)
}
