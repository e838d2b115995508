//! One Navarch reads its configuration from another, over xDS.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::process::Process;
use navarch_testkit::wait::until;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;

use crate::client::Proof;
use crate::server::{Server, node};

const NAVARCH: &str = env!("CARGO_BIN_EXE_navarch");
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const SERVICE_ENTRIES: &str = "networking.istio.io/v1/ServiceEntry";

/// A ServiceEntry with one endpoint.
pub(crate) fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{hosts: [{name}.example.com], location: MESH_EXTERNAL, resolution: STATIC,\n\
         ports: [{{number: {port}, name: http, protocol: HTTP}}], endpoints: [{{address: 192.0.2.7}}]}}\n---\n"
    )
}

/// The hosts and ports of all ServiceEntries of a control plane.
pub(crate) async fn hosts(http: SocketAddr) -> Result<Vec<String>> {
    let page = navarch_testkit::client::get(http, "localhost", "/debug/configz", &[])
        .await?
        .body;
    let all: Vec<Value> = serde_json::from_str(&page)?;
    let mut hosts: Vec<String> = all
        .iter()
        .filter(|object| object["kind"] == "ServiceEntry")
        .map(|object| {
            format!(
                "{}:{}",
                object["spec"]["hosts"][0].as_str().unwrap_or_default(),
                object["spec"]["ports"][0]["number"]
            )
        })
        .collect();
    hosts.sort();
    Ok(hosts)
}

/// Waits until a control plane has these ServiceEntries.
async fn has(navarch: &Navarch, expected: &[&str]) {
    let http = navarch.http;
    until(&format!("{expected:?}"), || async move {
        hosts(http).await.is_ok_and(|hosts| hosts == expected)
    })
    .await;
}

/// The mesh config of a control plane that reads from another.
fn mesh_config(folder: &Path, source: &str, tls: &Value) -> Result<String> {
    let file = folder.join("mesh-config.yaml");
    let config = json!({ "configSources": [{ "address": source, "tlsSettings": tls }] });
    std::fs::write(&file, config.to_string())?;
    Ok(format!("--mesh-config={}", file.display()))
}

/// A control plane of another version subscribes to kinds that are not supported here, and
/// continues with the others.
async fn unserved_kinds_are_empty(source: &Server, operator: &Proof) -> Result<()> {
    let mut other_version = node("istio-system", "istiod");
    let api = prost_types::Value {
        kind: Some(prost_types::value::Kind::StringValue("api".to_owned())),
    };
    other_version
        .metadata
        .get_or_insert_default()
        .fields
        .insert("GENERATOR".to_owned(), api);

    for url in [
        "core/v1alpha1/MeshConfig",
        "gateway.networking.k8s.io/v1/HTTPRoute",
        "example.com/v1/Widget",
    ] {
        let all = source
            .resources(operator, other_version.clone(), url, &[])
            .await?;
        ensure!(all.is_empty(), "{url}: {all:?}");
    }

    Ok(())
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn a_control_plane_of_the_root_namespace_reads_configuration_by_its_certificate() -> Result<()>
{
    let source = Server::with_mesh(&[service("a", 80), service("b", 81)].concat()).await?;
    let operator = Proof::Token(
        source
            .issuer
            .token(json!({ "sub": "system:serviceaccount:istio-system:istiod" })),
    );
    let Proof::Certificate(chain, key) = source.prove_by_certificate(&operator).await? else {
        panic!("a certificate")
    };

    let folder = TempDir::new()?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("chain.pem"), &chain)?;
    std::fs::write(file("key.pem"), &key)?;
    let tls = json!({
        "mode": "MUTUAL", "clientCertificate": file("chain.pem"), "privateKey": file("key.pem"),
        "caCertificates": source.root(), "sni": "istiod.istio-system.svc",
        "subjectAltNames": ["istiod.istio-system.svc"],
    });

    let args = [
        mesh_config(folder.path(), &format!("xds://{}", source.secure), &tls)?,
        "--registries=".to_owned(),
    ];
    let reader =
        Navarch::start_with_args_at(Path::new(NAVARCH), &args, &[], Addresses::ANY).await?;
    ensure!(
        hosts(reader.http).await? == ["a.example.com:80", "b.example.com:81"],
        "{}",
        reader.output()
    );

    source.write_mesh(&[service("b", 82), service("c", 80)].concat())?;
    has(&reader, &["b.example.com:82", "c.example.com:80"]).await;
    let proxies =
        tonic::transport::Endpoint::from_shared(format!("http://{}", reader.xds))?.connect_lazy();
    let clusters =
        crate::server::subscribe(proxies, &Proof::Nothing, node("shop", "web"), CDS, &[]).await?;
    let names: Vec<_> = clusters
        .iter()
        .map(|cluster| cluster.name.as_str())
        .collect();

    ensure!(
        names.contains(&"outbound|82||b.example.com")
            && names.contains(&"outbound|80||c.example.com"),
        "{names:?}"
    );
    let metrics = reader.metrics().await?;
    ensure!(
        metrics.contains("navarch_config_source_connected{source=\"xds://"),
        "{metrics}"
    );

    ensure!(reader.stop().await?, "it exits by itself");

    // Other clients are rejected.
    let ask = |proof: Proof, namespace: &'static str| {
        let source = &source;
        async move {
            source
                .resources(&proof, node(namespace, "istiod"), SERVICE_ENTRIES, &[])
                .await
        }
    };

    unserved_kinds_are_empty(&source, &operator).await?;
    let shop = Proof::Token(
        source
            .issuer
            .token(json!({ "sub": "system:serviceaccount:shop:istiod" })),
    );
    let all = ask(operator.clone(), "istio-system").await?;
    let names: Vec<_> = all.iter().map(|resource| resource.name.as_str()).collect();
    ensure!(names == ["shop/b", "shop/c"], "{names:?}");

    ensure!(
        ask(shop, "shop").await.err().map(|status| status.code()) == Some(Code::PermissionDenied)
    );
    let plain = source
        .plain_resources(node("istio-system", "istiod"), SERVICE_ENTRIES, &[])
        .await;
    ensure!(plain.err().map(|status| status.code()) == Some(Code::Unauthenticated));

    // A server whose certificate has another issuer is rejected with a reason.
    let other = Server::start().await?;
    let mut wrong = tls.clone();
    wrong["caCertificates"] = json!(other.root());

    for (tls, reason) in [
        (wrong, "invalid peer certificate"),
        (
            json!({ "mode": "ISTIO_MUTUAL" }),
            "mode ISTIO_MUTUAL is not supported for configSources",
        ),
        (
            json!({ "mode": "SIMPLE", "caCertificates": source.root(), "sni": "istiod.istio-system.svc" }),
            "Unauthenticated",
        ),
    ] {
        let mut args = vec![
            "discovery".to_owned(),
            mesh_config(folder.path(), &format!("xds://{}", source.secure), &tls)?,
        ];
        args.extend(
            [
                "--registries=",
                "--secure-grpc-addr=",
                "--https-addr=",
                "--ctrlz_address=",
            ]
            .map(str::to_owned),
        );
        args.extend(
            ["grpc", "http", "monitoring"].map(|port| format!("--{port}-addr=127.0.0.1:0")),
        );
        let unready = Process::start(
            "navarch",
            Path::new(NAVARCH),
            &args,
            &folder.path().join("unready.log"),
        )?;
        until(reason, || async { unready.output().contains(reason) }).await;
    }

    Ok(())
}

#[tokio::test]
async fn configuration_of_a_source_stays_in_use_while_it_is_unavailable() -> Result<()> {
    let folder = TempDir::new()?;
    let mesh = folder.path().join("mesh");
    std::fs::create_dir(&mesh)?;
    std::fs::write(
        mesh.join("mesh.yaml"),
        [service("a", 80), service("b", 81)].concat(),
    )?;
    let at = Addresses::free()?;

    let open = [("ENABLE_XDS_API_GENERATOR_AUTH", "false")];
    let start = || Navarch::start_at(Path::new(NAVARCH), &mesh, &[], &open, at);
    let source = start().await?;
    let args = [format!("--config-source=xds://{}", at.xds)];
    let reader =
        Navarch::start_with_args_at(Path::new(NAVARCH), &args, &[], Addresses::ANY).await?;
    has(&reader, &["a.example.com:80", "b.example.com:81"]).await;

    source.kill()?;
    until("the reader reports the outage", || async {
        let metrics = reader.metrics().await.unwrap_or_default();
        metrics.lines().any(|line| {
            line.starts_with("navarch_config_source_connected{") && line.ends_with(" 0")
        })
    })
    .await;
    ensure!(
        hosts(reader.http).await? == ["a.example.com:80", "b.example.com:81"],
        "the last configuration stays"
    );
    ensure!(reader.is_ready().await, "and it is still ready");
    drop(source);

    std::fs::write(
        mesh.join("mesh.yaml"),
        [service("b", 81), service("c", 80)].concat(),
    )?;
    let source = start().await.context("the source restarts")?;
    has(&reader, &["b.example.com:81", "c.example.com:80"]).await;
    ensure!(source.stop().await? && reader.stop().await?);

    Ok(())
}
