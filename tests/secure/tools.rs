//! Requests that Istio's tools, in particular istioctl, send to a control plane.

use anyhow::{Context, Result, ensure};
use navarch_proto::any::type_url;
use navarch_proto::envoy::admin::v3::{ClustersConfigDump, ListenersConfigDump};
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use navarch_proto::envoy::service::status::v3::{ClientConfig, ConfigStatus};
use navarch_testkit::client as web;
use navarch_testkit::wait::until;
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::json;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::client::{self, Proof};
use crate::server::Server;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// istiod's debug pages, except those that change something.
const PAGES: [&str; 25] = [
    "adsz",
    "ambientz",
    "authorizationz",
    "cachez",
    "cachez?sizes=true",
    "clusterz",
    "config_dump?proxyID=web-1.shop",
    "configz",
    "connections",
    "ecdsz?proxyID=web-1.shop",
    "edsz?proxyID=web-1.shop",
    "endpointShardz",
    "endpointz",
    "instancesz",
    "krtz",
    "mcsz",
    "mesh",
    "ndsz?proxyID=web-1.shop",
    "networkz",
    "push_status",
    "pushcontext",
    "registryz",
    "resourcesz",
    "sidecarz?proxyID=web-1.shop",
    "telemetryz?proxyID=web-1.shop",
];

/// Texts that pages contain, by page.
const SHOWN: [(&str, &str); 8] = [
    // Labels are those that selectors match, including the labels of the proxy's locality and
    // cluster.
    ("adsz", "\"topology.istio.io/cluster\":\"Kubernetes\""),
    ("edsz", "You must provide a proxyID in the query string"),
    (
        "edsz?proxyID=x",
        "Proxy not connected to this Pilot instance",
    ),
    ("nothing", "404 page not found"),
    ("sidecarz?proxyID=web-1", "\"name\":\"narrow\""),
    ("authorizationz", "\"nobody\""),
    ("telemetryz?proxyID=web-1", "\"disabled\":true"),
    ("clusterz", "\"syncStatus\":\"synced\""),
];

/// A mesh with content on every page.
pub(crate) const MESH: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
    apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
    spec: {clusterIP: 10.96.0.7, selector: {app: web}, ports: [{name: http, port: 80}]}\n---\n\
    apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: narrow, namespace: shop}\n\
    spec: {egress: [{hosts: ['./*']}]}\n---\n\
    apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: nobody, namespace: shop}\nspec: {}\n---\n\
    apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: all, namespace: shop}\n\
    spec: {accessLogging: [{disabled: true}]}\n";

/// A proxy whose stream stays open.
pub(crate) struct Connected {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: tonic::Streaming<DiscoveryResponse>,
}

impl Connected {
    /// Connects in plain text, subscribes to a type and acknowledges responses.
    pub(crate) async fn new(server: &Server, pod: &str) -> Result<Self> {
        let (requests, receiver) = mpsc::channel(8);
        let fields = [
            ("NAMESPACE", text("shop")),
            ("CLUSTER_ID", text("Kubernetes")),
            ("ISTIO_VERSION", text("1.32.0")),
            (
                "PROXY_CONFIG",
                Value {
                    kind: Some(Kind::StructValue(Struct::default())),
                },
            ),
        ];

        let metadata = Struct {
            fields: fields.map(|(key, value)| (key.to_owned(), value)).into(),
        };
        let id = format!("sidecar~10.0.0.1~{pod}.shop~shop.svc.cluster.local");
        let node = Some(Node {
            id,
            metadata: Some(metadata),
            ..Node::default()
        });

        requests
            .send(DiscoveryRequest {
                node,
                type_url: CDS.to_owned(),
                ..Default::default()
            })
            .await?;

        let mut service =
            AggregatedDiscoveryServiceClient::connect(format!("http://{}", server.plain())).await?;
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let responses = service
            .stream_aggregated_resources(stream)
            .await?
            .into_inner();
        let mut connected = Self {
            requests,
            responses,
        };
        connected.take().await?;

        connected
            .requests
            .send(DiscoveryRequest {
                type_url: LDS.to_owned(),
                ..Default::default()
            })
            .await?;

        connected.take().await?;
        Ok(connected)
    }

    /// Subscribes to routes and rejects the response.
    pub(crate) async fn reject_routes(&mut self) -> Result<()> {
        const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
        let request = DiscoveryRequest {
            type_url: RDS.to_owned(),
            resource_names: vec!["80".to_owned()],
            ..DiscoveryRequest::default()
        };
        self.requests.send(request.clone()).await?;
        let response_nonce = self
            .responses
            .message()
            .await?
            .context("the stream ended")?
            .nonce;

        let error_detail = Some(navarch_proto::google::rpc::Status {
            code: 13,
            message: "no".to_owned(),
            ..Default::default()
        });

        Ok(self
            .requests
            .send(DiscoveryRequest {
                response_nonce,
                error_detail,
                ..request
            })
            .await?)
    }

    /// Receives a response and acknowledges it.
    async fn take(&mut self) -> Result<DiscoveryResponse> {
        let response = self
            .responses
            .message()
            .await?
            .context("the stream ended")?;
        let type_url = response.type_url.clone();
        let response_nonce = response.nonce.clone();
        let version_info = response.version_info.clone();
        let answer = DiscoveryRequest {
            type_url,
            response_nonce,
            version_info,
            ..Default::default()
        };
        self.requests.send(answer).await?;
        Ok(response)
    }
}

fn text(text: &str) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    }
}

/// The node of istioctl.
fn tool(namespace: &str, account: &str) -> Node {
    let fields = [
        ("GENERATOR", "event"),
        ("NAMESPACE", namespace),
        ("SERVICE_ACCOUNT", account),
    ];
    Node {
        id: format!("sidecar~10.0.0.9~test-1.{namespace}~{namespace}.svc.cluster.local"),
        metadata: Some(Struct {
            fields: fields
                .map(|(key, value)| (key.to_owned(), text(value)))
                .into(),
        }),
        ..Node::default()
    }
}

/// Sends one request over TLS as istioctl does.
async fn ask(
    server: &Server,
    proof: &Proof,
    node: Node,
    type_url: &str,
    names: &[&str],
) -> Result<DiscoveryResponse, Status> {
    let request = DiscoveryRequest {
        node: Some(node),
        type_url: type_url.to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        response_nonce: "made up".to_owned(),
        ..DiscoveryRequest::default()
    };

    let (sender, requests) = mpsc::channel(1);
    drop(sender.send(request).await);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let channel = client::channel(server.secure, &server.root(), proof);
    let mut service =
        AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(64 << 20);
    let responses = service
        .stream_aggregated_resources(client::signed(requests, proof))
        .await?;

    responses
        .into_inner()
        .message()
        .await?
        .ok_or_else(|| Status::cancelled("no answer"))
}

/// A token of a service account.
pub(crate) fn token(server: &Server, account: &str) -> Proof {
    Proof::Token(
        server
            .issuer
            .token(json!({ "sub": format!("system:serviceaccount:{account}") })),
    )
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn istioctl_debug_requests_are_served_over_xds() -> Result<()> {
    let server = Server::with_variables(MESH, "POD_NAME=istiod-1").await?;
    let mut proxy = Connected::new(&server, "web-1").await?;
    let operator = token(&server, "istio-system:default");
    let node = || tool("istio-system", "default");

    // proxy-status and version: the tool itself is not listed as a proxy.
    let synced = async || {
        let answer = ask(&server, &operator, node(), "istio.io/debug/syncz", &[])
            .await
            .unwrap();
        let states = answer.resources.iter().map(|any| {
            assert_eq!(any.type_url, type_url::<ClientConfig>());
            let config = ClientConfig::decode(any.value.as_slice()).unwrap();
            let states = config
                .generic_xds_configs
                .iter()
                .map(|one| (one.type_url.clone(), one.config_status()));
            (
                config.node.unwrap_or_default().id,
                states.collect::<Vec<_>>(),
            )
        });

        states.collect::<Vec<_>>()
            == [(
                "web-1.shop".to_owned(),
                [CDS, LDS]
                    .map(|url| (url.to_owned(), ConfigStatus::Synced))
                    .to_vec(),
            )]
    };

    until("the proxy is in sync", synced).await;
    let answer = ask(&server, &operator, node(), "istio.io/debug/syncz", &[]).await?;
    ensure!(!answer.version_info.is_empty() && !answer.nonce.is_empty());
    let who: serde_json::Value = serde_json::from_str(
        &answer
            .control_plane
            .context("the response has no control plane")?
            .identifier,
    )?;
    ensure!(
        who["Component"] == "istiod"
            && who["ID"] == "istiod-1"
            && who["Info"]["version"].is_string(),
        "{who}"
    );

    // proxy-status of one proxy: the resources it was sent, in Envoy's sections.
    let dump = ask(
        &server,
        &operator,
        node(),
        "istio.io/debug/config_dump",
        &["web-1.shop"],
    )
    .await?;
    let urls: Vec<&str> = dump
        .resources
        .iter()
        .map(|any| any.type_url.rsplit('.').next().unwrap_or_default())
        .collect();

    let sections = [
        "Bootstrap",
        "Clusters",
        "Listeners",
        "ScopedRoutes",
        "Routes",
        "Secrets",
        "Ecds",
    ];

    ensure!(
        urls == sections.map(|name| format!("{name}ConfigDump")),
        "{urls:?}"
    );
    let section = |url: String| {
        dump.resources
            .iter()
            .find(|any| any.type_url == url)
            .unwrap()
            .value
            .as_slice()
    };

    let clusters = ClustersConfigDump::decode(section(type_url::<ClustersConfigDump>()))?;
    ensure!(!clusters.dynamic_active_clusters.is_empty());
    let listeners = ListenersConfigDump::decode(section(type_url::<ListenersConfigDump>()))?;
    ensure!(
        listeners
            .dynamic_listeners
            .iter()
            .any(|one| one.name == "virtualOutbound")
    );

    let nobody = ask(
        &server,
        &operator,
        node(),
        "istio.io/debug/config_dump",
        &["db-1.bank"],
    )
    .await?;
    ensure!(nobody.resources.is_empty());

    // internal-debug: every page, with the texts that the tool looks for.
    let page = async |name: &str| {
        let answer = ask(&server, &operator, node(), "istio.io/debug", &[name]).await?;
        ensure!(
            answer.resources.len() == 1 && answer.resources[0].type_url == "istio.io/debug",
            "{name}"
        );
        // By this, `--all` distinguishes replicas.
        let who = answer
            .control_plane
            .as_ref()
            .map(|who| who.identifier.contains("\"istiod-1\""));
        ensure!(who == Some(true), "{name}: {:?}", answer.control_plane);
        Ok(String::from_utf8(answer.resources[0].value.clone())?)
    };

    for name in PAGES {
        let shown = page(name).await?;
        ensure!(
            serde_json::from_str::<serde_json::Value>(&shown).is_ok(),
            "{name}: {shown}"
        );
        // The same as over HTTP.
        let fetched = web::get(server.http(), "localhost", &format!("/debug/{name}"), &[]).await?;
        ensure!(fetched.status == 200, "{name}: {fetched:?}");
    }

    let list: Vec<String> = serde_json::from_str(&page("list").await?)?;

    for name in PAGES.map(|page| page.split('?').next().unwrap_or_default()) {
        ensure!(
            list.iter().any(|listed| listed == name),
            "{name} is not in {list:?}"
        );
    }

    for (name, text) in SHOWN {
        let got = page(name).await?;
        ensure!(got.contains(text), "{name}: {got}");
    }

    // The page that pushes all configuration again.
    ensure!(page("adsz?push=true").await?.starts_with("Pushed to "));
    ensure!(proxy.take().await?.type_url == CDS && proxy.take().await?.type_url == LDS);
    ensure!(page("cachez?clear=true").await? == "Cache cleared\n");

    Ok(())
}

#[tokio::test]
async fn debug_data_requires_authentication_and_other_namespaces_an_operator() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let _proxy = Connected::new(&server, "web-1").await?;
    let shop = token(&server, "shop:web");
    let bank = token(&server, "bank:db");
    let dump = "config_dump?proxyID=web-1";
    let own = ask(
        &server,
        &shop,
        tool("shop", "web"),
        "istio.io/debug",
        &[dump],
    )
    .await?;
    ensure!(String::from_utf8_lossy(&own.resources[0].value).contains("virtualOutbound"));
    let foreign = ask(
        &server,
        &bank,
        tool("bank", "db"),
        "istio.io/debug",
        &[dump],
    )
    .await?;
    ensure!(String::from_utf8_lossy(&foreign.resources[0].value).contains("Proxy not connected"));
    let denied = ask(
        &server,
        &bank,
        tool("bank", "db"),
        "istio.io/debug",
        &["syncz"],
    )
    .await
    .unwrap_err();
    ensure!(denied.code() == Code::PermissionDenied, "{denied:?}");

    for url in ["istio.io/debug/syncz", "istio.io/connections"] {
        let seen = ask(&server, &bank, tool("bank", "db"), url, &[]).await?;
        ensure!(seen.resources.is_empty(), "{url}");
        let seen = ask(&server, &shop, tool("shop", "web"), url, &[]).await?;
        ensure!(seen.resources.len() == 1, "{url}");
    }

    let dumped = ask(
        &server,
        &bank,
        tool("bank", "db"),
        "istio.io/debug/config_dump",
        &["web-1.shop"],
    )
    .await?;
    ensure!(dumped.resources.is_empty());

    // Plain-text clients have no identity.
    for url in [
        "istio.io/debug",
        "istio.io/debug/syncz",
        "istio.io/debug/config_dump",
        "istio.io/connections",
    ] {
        let rejected = server
            .plain_resources(tool("istio-system", "default"), url, &["list"])
            .await
            .unwrap_err();
        ensure!(
            rejected.code() == Code::Unauthenticated,
            "{url}: {rejected:?}"
        );
    }

    Ok(())
}

#[tokio::test]
async fn rights_and_harmful_pages_are_configurable() -> Result<()> {
    let variables = "ENABLE_DEBUG_ENDPOINT_AUTH=false UNSAFE_ENABLE_ADMIN_ENDPOINTS=true";
    let server = Server::with_variables(MESH, variables).await?;
    let mut proxy = Connected::new(&server, "web-1").await?;

    let bank = token(&server, "bank:db");
    let seen = ask(
        &server,
        &bank,
        tool("bank", "db"),
        "istio.io/debug/syncz",
        &[],
    )
    .await?;
    ensure!(
        seen.resources.len() == 1,
        "every authenticated client may read everything"
    );

    let page = "force_disconnect?proxyID=web-1.shop";
    let done = ask(
        &server,
        &bank,
        tool("bank", "db"),
        "istio.io/debug",
        &[page],
    )
    .await?;
    ensure!(done.resources[0].value == b"OK");

    ensure!(proxy.take().await.is_err(), "its stream has ended");
    Ok(())
}

#[tokio::test]
async fn the_http_port_serves_the_paths_of_istioctl() -> Result<()> {
    let server = Server::start().await?;
    let [http, monitoring] = server.web();
    let moved = web::get(monitoring, "localhost", "//version", &[]).await?;
    ensure!(
        moved.status == 301 && place(&moved) == "/version",
        "{moved:?}"
    );
    let version = web::get(monitoring, "localhost", "/version", &[])
        .await?
        .body;

    ensure!(
        version.split('-').count() >= 3 && !version.ends_with('\n'),
        "{version:?}"
    );
    let moved = web::get(http, "localhost", "/debug//clusterz?a=b", &[]).await?;
    ensure!(
        moved.status == 301 && place(&moved) == "/debug/clusterz?a=b",
        "{moved:?}"
    );

    let none = web::get(http, "localhost", "/debug/nothing", &[]).await?;
    ensure!(
        none.status == 404 && none.body == "404 page not found\n",
        "{none:?}"
    );
    ensure!(
        web::get(http, "localhost", "/debug/pprof/cmdline", &[])
            .await?
            .body
            .contains("\0discovery\0")
    );

    let profile = web::get(http, "localhost", "/debug/pprof/goroutine", &[]).await?;
    ensure!(
        profile.status == 501 && profile.body.contains("not written in Go"),
        "{profile:?}"
    );
    let disconnect = web::get(http, "localhost", "/debug/force_disconnect?proxyID=x", &[]).await?;
    ensure!(
        disconnect.status == 404 && disconnect.body.contains("404 page"),
        "the page does not exist by default"
    );

    Ok(())
}

/// The location of a redirect.
fn place(reply: &web::Reply) -> &str {
    reply
        .headers
        .get("location")
        .and_then(|place| place.to_str().ok())
        .unwrap_or_default()
}
