//! `v1.Service`, with the field numbers of `binary/service.rs`. The general decoder decodes
//! Services with load balancers.

use super::super::fields::{Content, Fields, UnexpectedField, messages, set_once};
use super::meta::{self, entry};
use crate::field_error::FieldError;
use crate::kubernetes::{
    ClusterIps, IpFamilies, Protocol, Service, ServicePort, ServiceType, SessionAffinity,
    TargetPort, TrafficDistribution, TrafficPolicy, port_number,
};
use crate::names::PortName;
use crate::object::Object;
use crate::shared_texts::SharedTexts;

/// Reads a Service; returns its version, too.
pub(super) fn read(
    bytes: &[u8],
    texts: &mut SharedTexts,
) -> Result<(Object<Service>, String), UnexpectedField> {
    let [metadata, spec, status] = messages(bytes, [1, 2, 3])?;
    status.map_or(Ok(()), reject_load_balancers)?;
    let metadata = meta::read(metadata.ok_or(UnexpectedField)?, texts)?;
    let spec = read_spec(spec.ok_or(UnexpectedField)?, texts)?;
    Ok((
        Object {
            meta: metadata.kept,
            spec,
        },
        metadata.version,
    ))
}

/// Objects that violate a rule are left to the general decoder.
fn unexpected(_: FieldError) -> UnexpectedField {
    UnexpectedField
}

/// A non-empty text; Kubernetes encodes empty texts.
fn non_empty(content: Content<'_>) -> Result<Option<&str>, UnexpectedField> {
    content
        .text()
        .map(|text| Some(text).filter(|text| !text.is_empty()))
}

/// Rejects a `v1.ServiceStatus` with load balancer ingresses.
fn reject_load_balancers(status: &[u8]) -> Result<(), UnexpectedField> {
    for field in Fields(status) {
        if let (1, content) = field? {
            for field in Fields(content.bytes()?) {
                if let (1, _) = field? {
                    return Err(UnexpectedField);
                }
            }
        }
    }
    Ok(())
}

/// Reads `v1.ServiceSpec`.
fn read_spec(bytes: &[u8], texts: &mut SharedTexts) -> Result<Service, UnexpectedField> {
    let mut ports = Vec::new();
    let mut selector = Vec::new();
    let mut external_ips = Vec::new();
    let mut cluster_ips = Vec::new();
    let mut families = Vec::new();
    let mut cluster_ip = None;
    let mut kind = None;
    let mut affinity = None;
    let mut external_name = None;
    let mut distribution = None;
    let mut internal = None;
    let mut external = None;
    let mut publish_not_ready_addresses = false;

    for field in Fields(bytes) {
        match field? {
            (1, content) => ports.push(read_port(content.bytes()?, texts)?),
            (2, content) => selector.push(entry(content.bytes()?)?),
            (3, content) => cluster_ip = non_empty(content)?,
            (4, content) => kind = non_empty(content)?,
            (5, content) => external_ips.push(content.text()?),
            (7, content) => affinity = non_empty(content)?,
            (10, content) => external_name = non_empty(content)?,
            (11, content) => external = non_empty(content)?,
            (13, content) => publish_not_ready_addresses = content.to_bool()?,
            (18, content) => cluster_ips.push(content.text()?.to_owned()),
            (19, content) => families.push(content.text()?),
            (22, content) => internal = non_empty(content)?,
            (23, content) => distribution = non_empty(content)?,
            _ => {}
        }
    }

    let owned = |text: Option<&str>| text.map(str::to_owned);
    let external_ips = external_ips
        .into_iter()
        .map(|ip| ip.parse().map_err(|_| UnexpectedField));

    Ok(Service {
        service_type: ServiceType::from_wire(kind, owned(external_name)).map_err(unexpected)?,
        cluster_ips: ClusterIps::from_wire(owned(cluster_ip), Some(cluster_ips))
            .map_err(unexpected)?,
        ip_families: IpFamilies::parse(families),
        ports: ports.into(),
        selector: texts.map(selector),
        external_ips: external_ips.collect::<Result<_, UnexpectedField>>()?,
        publish_not_ready_addresses,
        internal_traffic_policy: TrafficPolicy::parse(internal, "").map_err(unexpected)?,
        external_traffic_policy: TrafficPolicy::parse(external, "").map_err(unexpected)?,
        traffic_distribution: distribution.and_then(TrafficDistribution::parse),
        session_affinity: SessionAffinity::parse(affinity).map_err(unexpected)?,
        load_balancer: Box::default(),
    })
}

/// Reads a `v1.ServicePort`.
fn read_port(bytes: &[u8], texts: &mut SharedTexts) -> Result<ServicePort, UnexpectedField> {
    let mut name = "";
    let mut protocol = None;
    let mut port = 0;
    let mut target = None;
    let mut node_port = 0;
    let mut app_protocol = None;

    for field in Fields(bytes) {
        match field? {
            (1, content) => name = content.text()?,
            (2, content) => protocol = non_empty(content)?,
            (3, content) => port = content.short()?,
            (4, content) => set_once(&mut target, content.bytes()?)?,
            (5, content) => node_port = content.short()?,
            (6, content) => app_protocol = non_empty(content)?,
            _ => {}
        }
    }

    let port = port_number(port, "").map_err(unexpected)?;
    Ok(ServicePort {
        name: PortName::from(texts.text(name)),
        port,
        protocol: Protocol::parse(protocol).map_err(unexpected)?,
        app_protocol: app_protocol.map(|text| texts.text(text)),
        target: target.map_or(Ok(TargetPort::Number(port)), |target| {
            read_target(target, port, texts)
        })?,
        node_port: (node_port != 0)
            .then(|| port_number(node_port, "").map_err(unexpected))
            .transpose()?,
    })
}

/// Decodes an `intstr.IntOrString`; an unset one means the port itself.
fn read_target(
    bytes: &[u8],
    port: u16,
    texts: &mut SharedTexts,
) -> Result<TargetPort, UnexpectedField> {
    let mut kind = 0;
    let mut number = 0;
    let mut name = "";

    for field in Fields(bytes) {
        match field? {
            (1, content) => kind = content.signed()?,
            (2, content) => number = content.short()?,
            (3, content) => name = content.text()?,
            _ => {}
        }
    }

    match (kind, number, name) {
        (0, 0, _) => Ok(TargetPort::Number(port)),
        (0, number, _) => port_number(number, "")
            .map(TargetPort::Number)
            .map_err(unexpected),
        (_, _, "") => Ok(TargetPort::Number(port)),
        (_, _, name) => Ok(TargetPort::Name(PortName::from(texts.text(name)))),
    }
}
