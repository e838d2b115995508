//! A pod that runs as its injected spec demands, in place of a kubelet.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use navarch::webhook::inject::{InjectRequest, Injector};
use serde_json::{Value, json};

use crate::pod::{Launch, PORT, PodInputs};
use crate::world::World;
use crate::{LONG, REQUEST_MARKER, missing};

/// The pod before injection.
fn written(envoy: &std::path::Path) -> Value {
    let config = json!({
        "binaryPath": envoy,
        "concurrency": 1,
        "terminationDrainDuration": "5s",
        "proxyMetadata": { "ISTIO_META_DNS_CAPTURE": "true" },
    });

    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-1",
            "namespace": "shop",
            "labels": { "app": "web" },
            "annotations": { "proxy.istio.io/config": config.to_string() },
        },
        "spec": {
            "serviceAccountName": "web",
            "containers": [{
                "name": "app",
                "image": "app",
                "ports": [{ "containerPort": PORT }],
                "readinessProbe": { "httpGet": { "path": "/well", "port": PORT } },
            }],
        },
    })
}

/// The pod after injection.
fn injected(pod: &Value) -> Result<Value> {
    let injector = Injector::new(&crate::default::inputs(&json!({})))?;
    let request = InjectRequest {
        pod,
        namespace: "shop",
        namespace_annotations: None,
        parameters: &BTreeMap::new(),
    };
    let injection = injector.inject(&request)?;
    Ok(crate::default::patched(
        pod,
        injection.patch().context("the pod is injected")?,
    ))
}

/// A container of either list.
fn container<'a>(pod: &'a Value, name: &str) -> Result<&'a Value> {
    let lists = ["/spec/initContainers", "/spec/containers"];
    let mut all = lists
        .iter()
        .filter_map(|list| pod.pointer(list)?.as_array())
        .flatten();
    all.find(|container| container["name"] == name)
        .with_context(|| format!("no container {name}"))
}

/// A resource quantity as the downward API returns it with divisor 1.
fn quantity(text: &str) -> Result<String> {
    let split = text
        .find(|sign: char| !sign.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse()?;
    Ok(match unit {
        "" => number,
        "m" => number.div_ceil(1000),
        "Mi" => number << 20,
        "Gi" => number << 30,
        other => bail!("unknown unit {other} in a limit"),
    }
    .to_string())
}

fn environment(
    pod: &Value,
    container: &Value,
    inputs: &PodInputs,
) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();

    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().context("a name")?;
        let source = &variable["valueFrom"];
        let value = if let Some(path) = source["fieldRef"]["fieldPath"].as_str() {
            match path {
                "status.podIP" => inputs.ip.to_string(),
                "status.hostIP" => "192.0.2.1".to_owned(),
                "spec.nodeName" => "here".to_owned(),
                path => {
                    let pointer = format!("/{}", path.replace('.', "/"));
                    pod.pointer(&pointer)
                        .and_then(Value::as_str)
                        .with_context(|| path.to_owned())?
                        .to_owned()
                }
            }
        } else if let Some(resource) = source["resourceFieldRef"]["resource"].as_str() {
            let limit = resource.strip_prefix("limits.").context("a limit")?;
            quantity(
                container["resources"]["limits"][limit]
                    .as_str()
                    .context("a limit is set")?,
            )?
        } else {
            ensure!(source.is_null(), "{name}: {source}");
            variable["value"].as_str().unwrap_or_default().to_owned()
        };

        all.push((name.to_owned(), value));
    }

    Ok(all)
}

/// The arguments of a container, with `$(NAME)` expanded.
fn arguments(container: &Value, environment: &[(String, String)]) -> Vec<String> {
    let expand = |text: &str| {
        let known = environment.iter();
        known.fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("$({name})"), value)
        })
    };
    container["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(expand)
        .collect()
}

/// The files of a container: the contents of its volumes, at their mount paths.
fn files(
    pod: &Value,
    container: &Value,
    inputs: &PodInputs,
) -> Result<Vec<(String, Option<String>)>> {
    let mut files = Vec::new();

    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let path = mount["mountPath"]
            .as_str()
            .context("a path")?
            .trim_start_matches('/')
            .to_owned();
        let mut volumes = pod["spec"]["volumes"].as_array().context("volumes")?.iter();
        let volume = volumes
            .find(|volume| volume["name"] == mount["name"])
            .with_context(|| mount.to_string())?;

        files.push((path.clone(), None));

        for item in volume["downwardAPI"]["items"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let field = item["fieldRef"]["fieldPath"]
                .as_str()
                .context("a field")?
                .replace('.', "/");
            let map = pod
                .pointer(&format!("/{field}"))
                .and_then(Value::as_object)
                .context("a map")?;
            let lines = map.iter().map(|(key, value)| format!("{key}={value}\n"));
            files.push((
                format!("{path}/{}", item["path"].as_str().context("a path")?),
                Some(lines.collect()),
            ));
        }

        for source in volume["projected"]["sources"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let token = &source["serviceAccountToken"];
            ensure!(token["audience"] == "istio-ca", "{source}");
            files.push((
                format!("{path}/{}", token["path"].as_str().context("a path")?),
                Some(inputs.token.clone()),
            ));
        }

        match volume["configMap"]["name"].as_str() {
            Some("istio-ca-root-cert") => {
                files.push((format!("{path}/root-cert.pem"), Some(inputs.root.clone())))
            }
            Some(_) if volume["configMap"]["optional"] == true => {}
            Some(other) => bail!("unknown ConfigMap {other}"),
            None => {}
        }
    }

    Ok(files)
}

/// How to start the proxy of an injected pod.
pub(crate) fn launch(pod: &Value, inputs: PodInputs) -> Result<Launch> {
    let init = container(pod, "istio-init")?;
    let init_env = environment(pod, init, &inputs)?;
    ensure!(
        init["securityContext"]["runAsUser"] == 0,
        "capture needs root: {init}"
    );
    let proxy = container(pod, "istio-proxy")?;
    let env = environment(pod, proxy, &inputs)?;

    let id = |field: &str| {
        proxy["securityContext"][field]
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
    };

    Ok(Launch {
        capture: Some((arguments(init, &init_env), init_env)),
        args: arguments(proxy, &env),
        env,
        user: (
            id("runAsUser").context("a user")?,
            id("runAsGroup").context("a group")?,
        ),
        rights: &[],
        files: files(pod, proxy, &inputs)?,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_injected_pod_runs() -> Result<()> {
    if let Some(why) = missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }

    let mut world = World::start().await?;
    let pod = injected(&written(&world.envoy()))?;
    let client = world.pod("client", LONG).await?;
    let web = world.injected("web", &pod).await?;
    client.wait_ready().await?;
    web.wait_ready().await?;

    // The probe rewritten by injection reaches the application through the agent; the original path
    // is no longer reachable in plain text.
    let probe = &container(&pod, "app")?["readinessProbe"]["httpGet"];
    let port = probe["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .context("a port")?;
    let path = probe["path"].as_str().context("a path")?;
    ensure!((port, path) == (15020, "/app-health/app/readyz"), "{probe}");

    let answer = world.plain(web.ip, port, path).await?;
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(
        world.plain(web.ip, PORT, "/well").await.is_err(),
        "plain text is rejected"
    );

    // The pod uses mutual TLS as client and as server: the marker must not be visible on the wire.
    let sniffer = navarch_testkit::sniffer::Sniffer::start()?;
    let answer = client
        .get("web.shop", &format!("/open?{REQUEST_MARKER}"))
        .await?;
    let body = answer["body"].as_str().unwrap_or_default();
    ensure!(
        answer["status"] == 200 && body.contains("spiffe://cluster.local/ns/shop/sa/client"),
        "{answer}"
    );

    let seen = sniffer.stop(client.ip, web.ip, REQUEST_MARKER);
    ensure!(seen.frames > 0 && seen.clear == 0, "{seen:?}");

    // Its outbound requests are captured, the agent answers its DNS queries, and it has the
    // identity of its service account.
    let answer = web
        .app(&json!({"op": "resolve", "name": "api.outside.example"}))
        .await?;
    ensure!(answer["addresses"] == json!(["192.0.2.7"]), "{answer}");
    let answer = web.get("web.shop", "/open").await?;
    let body = answer["body"].as_str().unwrap_or_default();

    ensure!(
        answer["status"] == 200 && body.contains("spiffe://cluster.local/ns/shop/sa/web"),
        "{answer}"
    );
    ensure!(
        web.terminate(std::time::Duration::from_secs(15)).await?,
        "the agent exits on SIGTERM"
    );

    Ok(())
}
