//! `discovery.v1.EndpointSlice`, with the field numbers of `binary/endpoint_slice.rs`.

use super::super::fields::{Fields, UnexpectedField, set_once, texts as texts_of};
use super::meta;
use crate::kubernetes::{
    AddressType, Endpoint, EndpointConditions, EndpointPort, EndpointSlice, SERVICE_NAME_LABEL,
    port_number,
};
use crate::names::PortName;
use crate::object::{NamespacedName, Object};
use crate::shared_texts::SharedTexts;

/// Reads a slice; returns its version, too.
pub(super) fn read(
    bytes: &[u8],
    texts: &mut SharedTexts,
) -> Result<(Object<EndpointSlice>, String), UnexpectedField> {
    let mut metadata = None;
    let mut address_type = "";
    let mut endpoints = Vec::new();
    let mut ports = Vec::new();

    for field in Fields(bytes) {
        match field? {
            (1, content) => set_once(&mut metadata, content.bytes()?)?,
            (2, content) => endpoints.push(content.bytes()?),
            (3, content) => ports.push(read_port(content.bytes()?, texts)?),
            (4, content) => address_type = content.text()?,
            _ => {}
        }
    }

    let metadata = meta::read(metadata.ok_or(UnexpectedField)?, texts)?;
    let address_type = AddressType::parse(address_type).map_err(|_| UnexpectedField)?;
    if address_type == AddressType::Fqdn {
        endpoints.clear();
    }

    let service = metadata
        .kept
        .labels
        .get(SERVICE_NAME_LABEL)
        .filter(|name| !name.is_empty())
        .cloned();

    let endpoints = endpoints
        .into_iter()
        .map(|endpoint| read_endpoint(endpoint, texts));
    let spec = EndpointSlice {
        address_type,
        service,
        endpoints: endpoints.collect::<Result<_, _>>()?,
        ports: ports.into(),
    };

    Ok((
        Object {
            meta: metadata.kept,
            spec,
        },
        metadata.version,
    ))
}

/// Reads a `discovery.v1.Endpoint`.
fn read_endpoint(bytes: &[u8], texts: &mut SharedTexts) -> Result<Endpoint, UnexpectedField> {
    let mut addresses = Vec::new();
    let mut conditions = None;
    let mut target = None;

    for field in Fields(bytes) {
        match field? {
            (1, content) => addresses.push(content.text()?),
            (2, content) => set_once(&mut conditions, content.bytes()?)?,
            (4, content) => set_once(&mut target, content.bytes()?)?,
            _ => {}
        }
    }

    let addresses = addresses
        .into_iter()
        .map(|address| address.parse().map_err(|_| UnexpectedField));
    Ok(Endpoint {
        addresses: addresses.collect::<Result<_, UnexpectedField>>()?,
        conditions: conditions
            .map(read_conditions)
            .transpose()?
            .unwrap_or_default(),
        pod: target
            .map(|target| read_target(target, texts))
            .transpose()?
            .flatten(),
    })
}

/// Reads `discovery.v1.EndpointConditions`.
fn read_conditions(bytes: &[u8]) -> Result<EndpointConditions, UnexpectedField> {
    let mut conditions = EndpointConditions::default();
    for field in Fields(bytes) {
        match field? {
            (1, content) => conditions.ready = Some(content.to_bool()?),
            (2, content) => conditions.serving = Some(content.to_bool()?),
            (3, content) => conditions.terminating = Some(content.to_bool()?),
            _ => {}
        }
    }
    Ok(conditions)
}

/// Reads a `v1.ObjectReference` if it references a pod.
fn read_target(
    bytes: &[u8],
    texts: &mut SharedTexts,
) -> Result<Option<NamespacedName>, UnexpectedField> {
    let [kind, namespace, name] = texts_of(bytes, [1, 2, 3])?;
    Ok((kind == "Pod").then(|| texts.pod(namespace, name)))
}

/// Reads a `discovery.v1.EndpointPort`.
fn read_port(bytes: &[u8], texts: &mut SharedTexts) -> Result<EndpointPort, UnexpectedField> {
    let mut name = "";
    let mut port = None;
    for field in Fields(bytes) {
        match field? {
            (1, content) => name = content.text()?,
            (3, content) => {
                port = Some(port_number(content.short()?, "").map_err(|_| UnexpectedField)?)
            }
            _ => {}
        }
    }
    Ok(EndpointPort {
        name: PortName::from(texts.text(name)),
        port,
    })
}
