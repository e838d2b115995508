//! The JSON of debug pages has istiod's members, for a mesh with content on every page.

use anyhow::{Context, Result, ensure};
use navarch_testkit::client as web;
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use crate::server::Server;
use crate::tools::Connected;

/// A Service with rules, a ServiceEntry, Telemetries at each level, and objects from which others
/// are generated.
const MESH: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
    apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
    spec: {clusterIP: 10.96.0.7, type: NodePort, selector: {app: web}, ports: [{name: http, port: 80}]}\n---\n\
    apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: entry, namespace: shop}\n\
    spec: {hosts: [a.example], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}\n---\n\
    apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: first, namespace: shop}\n\
    spec: {host: web, exportTo: ['*'], subsets: [{name: one}], trafficPolicy: {loadBalancer: {simple: RANDOM}}}\n---\n\
    apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: second, namespace: shop}\n\
    spec: {host: web, exportTo: ['*'], subsets: [{name: one}, {name: two}]}\n---\n\
    apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: mesh, namespace: istio-system}\n\
    spec: {tracing: [{randomSamplingPercentage: 0}]}\n---\n\
    apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: all, namespace: shop}\n\
    spec: {accessLogging: [{disabled: false}]}\n---\n\
    apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: gate, namespace: shop}\n\
    spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}\n---\n\
    apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: route, namespace: shop}\n\
    spec: {parentRefs: [{name: gate}], hostnames: [b.example], rules: [{backendRefs: [{name: web, port: 80}]}]}\n---\n\
    apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
    metadata: {name: far, namespace: shop, labels: {topology.istio.io/network: far}}\n\
    spec: {gatewayClassName: istio-remote, addresses: [{type: IPAddress, value: 192.0.2.1}], \
    listeners: [{name: hbone, port: 15008, protocol: HBONE}]}\n";

async fn page(server: &Server, name: &str) -> Result<Value> {
    let reply = web::get(server.http(), "localhost", &format!("/debug/{name}"), &[]).await?;
    ensure!(reply.status == 200, "{name}: {reply:?}");
    serde_json::from_str(&reply.body).with_context(|| format!("{name}: {}", reply.body))
}

#[tokio::test]
async fn debug_pages_have_istiods_members_for_services_and_rules() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let _proxy = Connected::new(&server, "web-1").await?;

    let services = page(&server, "registryz").await?;
    let of_host = |host: &str| {
        services
            .as_array()
            .into_iter()
            .flatten()
            .find(|service| service["hostname"] == host)
    };

    let web = of_host("web.shop.svc.cluster.local").context("the Service")?;
    ensure!(
        web["Attributes"]["Type"] == "NodePort" && web["Attributes"]["ObjectName"] == "",
        "{web}"
    );
    ensure!(
        web["creationTime"].is_string() && web.get("serviceAccounts").is_none(),
        "{web}"
    );

    let entry = of_host("a.example").context("the ServiceEntry")?;
    ensure!(
        entry["Attributes"]["ObjectName"] == "entry" && entry["Attributes"]["Labels"].is_null(),
        "{entry}"
    );

    let scope = page(&server, "sidecarz?proxyID=web-1").await?;
    ensure!(
        scope["version"]
            .as_str()
            .is_some_and(|version| !version.is_empty()),
        "{scope}"
    );

    let rules = &scope["destinationRules"]["web.shop.svc.cluster.local"];
    ensure!(rules[0]["exportTo"] == json!({ "*": {} }), "{rules}");
    let from = json!([{ "Namespace": "shop", "Name": "first" }, { "Namespace": "shop", "Name": "second" }]);
    ensure!(rules[0]["from"] == from, "{rules}");
    let spec = json!({
        "host": "web.shop.svc.cluster.local", "exportTo": ["*"], "subsets": [{ "name": "one" }, { "name": "two" }],
        "trafficPolicy": { "loadBalancer": { "simple": "RANDOM" } },
    });

    ensure!(
        rules[0]["rule"]["Spec"] == spec && rules[0]["rule"]["type"]["kind"] == "DestinationRule",
        "{rules}"
    );

    // Both DestinationRules have a subset of the same name.
    let counted = async || {
        let status = page(&server, "push_status").await.unwrap();
        status["pilot_destrule_subsets"] == json!({ "web.shop.svc.cluster.local": {} })
    };
    until("the rules are counted", counted).await;

    let dump = page(&server, "config_dump?proxyID=web-1").await?;
    let version = |kind: &str| {
        let mut sections = dump["configs"].as_array().into_iter().flatten();
        let section = sections.find(|section| {
            section["@type"]
                .as_str()
                .is_some_and(|url| url.ends_with(kind))
        });
        section
            .and_then(|section| section["versionInfo"].as_str())
            .map(str::to_owned)
    };

    ensure!(
        version("ClustersConfigDump").is_some() && version("ListenersConfigDump").is_some(),
        "{dump}"
    );

    Ok(())
}

#[tokio::test]
async fn debug_pages_show_all_configuration_and_leave_zeros_out() -> Result<()> {
    let server = Server::with_mesh(MESH).await?;
    let _proxy = Connected::new(&server, "web-1").await?;

    let objects = page(&server, "configz").await?;
    let objects: Vec<&Value> = objects.as_array().into_iter().flatten().collect();
    let names = |kind: &str| -> Vec<&str> {
        let of_kind = objects.iter().filter(|object| object["kind"] == kind);
        of_kind
            .filter_map(|object| object["metadata"]["name"].as_str())
            .collect()
    };

    let gateways = ["gate~istio-autogenerated-k8s-gateway~http", "far", "gate"];
    ensure!(names("Gateway") == gateways, "{:?}", names("Gateway"));
    ensure!(
        names("HTTPRoute") == ["route"] && names("VirtualService").len() == 1,
        "{:?}",
        names("VirtualService")
    );
    let entry = objects
        .iter()
        .find(|object| object["kind"] == "ServiceEntry")
        .context("the ServiceEntry")?;

    let port = json!({ "number": 80, "name": "http", "protocol": "HTTP" });
    ensure!(
        entry["spec"] == json!({ "hosts": ["a.example"], "resolution": "DNS", "ports": [port] }),
        "{entry}"
    );

    // Explicit zeros and `false` are present.
    let shown = page(&server, "telemetryz?proxyID=web-1").await?;
    let name = |namespace: &str, name: &str| json!({ "Namespace": namespace, "Name": name });
    let none = name("", "");
    let keys = ["Root", "Proxy", "Namespace", "Workload"].map(|key| &shown[key]);
    ensure!(
        keys == [
            &name("istio-system", "mesh"),
            &name("shop", "all"),
            &none,
            &none
        ],
        "{shown}"
    );

    ensure!(
        shown["Tracing"] == json!([{ "randomSamplingPercentage": 0 }]),
        "{shown}"
    );
    ensure!(
        shown["Logging"][0]["Logging"] == json!([{ "disabled": false }]),
        "{shown}"
    );

    let mesh = page(&server, "mesh").await?;
    ensure!(
        mesh["enableAutoMtls"] == true && mesh["protocolDetectionTimeout"] == "0s",
        "{mesh}"
    );
    ensure!(
        mesh.get("accessLogFile").is_none() && mesh.get("proxyHttpPort").is_none(),
        "{mesh}"
    );

    let gateways = page(&server, "networkz").await?;
    ensure!(
        gateways[0]["ServiceAccount"] == name("shop", "far-istio-remote"),
        "{gateways}"
    );
    ensure!(
        page(&server, "mcsz").await?.is_null(),
        "no service is exported"
    );

    Ok(())
}
