//! `v1.Pod`, with the field numbers of `binary/pod.rs`.

use std::sync::Arc;

use super::super::fields::{Content, Fields, UnexpectedField, messages, texts as texts_of};
use super::meta;
use crate::kubernetes::{
    ContainerPort, DEFAULT_SERVICE_ACCOUNT, Pod, PodDns, PodPhase, Protocol, port_number,
};
use crate::names::{PortName, ServiceAccount};
use crate::object::Object;
use crate::shared_texts::SharedTexts;
use navarch_base::ip_list::IpList;

/// Reads a pod; returns its version, too.
pub(super) fn read(
    bytes: &[u8],
    texts: &mut SharedTexts,
) -> Result<(Object<Pod>, String), UnexpectedField> {
    let [metadata, spec, status] = messages(bytes, [1, 2, 3])?;
    let mut metadata = meta::read(metadata.ok_or(UnexpectedField)?, texts)?;
    texts.share_pod(&mut metadata.kept.key);
    let mut pod = Pod {
        service_account: ServiceAccount::default(),
        node: None,
        host_network: false,
        dns: None,
        name_is_generated: metadata.is_generated,
        ports: Arc::default(),
        phase: PodPhase::default(),
        ready: false,
        pod_ips: IpList::default(),
    };

    read_spec(&mut pod, spec.unwrap_or_default(), texts)?;
    read_status(&mut pod, status.unwrap_or_default())?;
    Ok((
        Object {
            meta: metadata.kept,
            spec: pod,
        },
        metadata.version,
    ))
}

/// Reads `v1.PodSpec`.
fn read_spec(pod: &mut Pod, bytes: &[u8], texts: &mut SharedTexts) -> Result<(), UnexpectedField> {
    let mut account = "";
    let mut former_account = "";
    let mut hostname = None;
    let mut subdomain = None;
    let mut ports = Vec::new();
    let mut ports_of_sidecars = Vec::new();

    for field in Fields(bytes) {
        match field? {
            (2, content) => _ = read_container(content, texts, &mut ports)?,
            (20, content) => {
                let before = ports_of_sidecars.len();
                if read_container(content, texts, &mut ports_of_sidecars)? != "Always" {
                    ports_of_sidecars.truncate(before);
                }
            }
            (8, content) => account = content.text()?,
            (9, content) => former_account = content.text()?,
            (10, content) => {
                pod.node = Some(texts.text(content.text()?)).filter(|node| !node.is_empty())
            }
            (11, content) => pod.host_network = content.to_bool()?,
            (16, content) => {
                hostname = Some(content.text()?)
                    .filter(|name| !name.is_empty())
                    .map(Into::into)
            }
            (17, content) => {
                subdomain = Some(texts.text(content.text()?)).filter(|name| !name.is_empty())
            }
            _ => {}
        }
    }

    let account = [account, former_account]
        .into_iter()
        .find(|account| !account.is_empty());
    pod.service_account =
        ServiceAccount::from(texts.text(account.unwrap_or(DEFAULT_SERVICE_ACCOUNT)));
    ports.append(&mut ports_of_sidecars);
    pod.ports = texts.ports(ports);
    pod.dns = PodDns::new(hostname, subdomain);

    Ok(())
}

/// Reads the ports of a `v1.Container`; returns its `restartPolicy`.
fn read_container<'a>(
    content: Content<'a>,
    texts: &mut SharedTexts,
    ports: &mut Vec<ContainerPort>,
) -> Result<&'a str, UnexpectedField> {
    let mut restart_policy = "";
    for field in Fields(content.bytes()?) {
        match field? {
            (6, content) => ports.push(read_port(content.bytes()?, texts)?),
            (24, content) => restart_policy = content.text()?,
            _ => {}
        }
    }
    Ok(restart_policy)
}

/// Reads a `v1.ContainerPort`.
fn read_port(bytes: &[u8], texts: &mut SharedTexts) -> Result<ContainerPort, UnexpectedField> {
    let mut name = "";
    let mut number = 0;
    let mut protocol = "";
    for field in Fields(bytes) {
        match field? {
            (1, content) => name = content.text()?,
            (3, content) => number = content.short()?,
            (4, content) => protocol = content.text()?,
            _ => {}
        }
    }
    Ok(ContainerPort {
        name: PortName::from(texts.text(name)),
        port: port_number(number, "").map_err(|_| UnexpectedField)?,
        protocol: Protocol::parse(Some(protocol)).map_err(|_| UnexpectedField)?,
    })
}

/// Reads `v1.PodStatus`.
fn read_status(pod: &mut Pod, bytes: &[u8]) -> Result<(), UnexpectedField> {
    let mut ip = "";
    let mut ips = Vec::new();

    for field in Fields(bytes) {
        match field? {
            (1, content) => {
                pod.phase = PodPhase::parse(Some(content.text()?)).map_err(|_| UnexpectedField)?
            }
            (2, content) => pod.ready |= is_ready(content.bytes()?)?,
            (6, content) => ip = content.text()?,
            (12, content) => ips.extend(texts_of(content.bytes()?, [1])?),
            _ => {}
        }
    }

    if ips.is_empty() {
        ips.push(ip);
    }

    let ips = ips.into_iter().filter(|ip| !ip.is_empty());
    pod.pod_ips = ips
        .map(|ip| ip.parse().map_err(|_| UnexpectedField))
        .collect::<Result<_, UnexpectedField>>()?;

    Ok(())
}

/// Whether a `v1.PodCondition` marks the pod as ready.
fn is_ready(bytes: &[u8]) -> Result<bool, UnexpectedField> {
    let [kind, status] = messages(bytes, [1, 2])?;
    Ok(kind == Some(b"Ready") && status == Some(b"True"))
}
