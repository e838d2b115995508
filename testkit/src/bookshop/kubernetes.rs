//! The sample mesh as a Kubernetes API server takes it.
//!
//! The sample's addresses are loopback ones, which an API server refuses in EndpointSlices. Here every backend has a port of
//! its own at an address of the machine, and services have addresses of the test cluster's range.

#![allow(clippy::indexing_slicing, reason = "looking into JSON that is not as the sample has it gives null")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::BACKENDS;
use crate::backend::Backend;

/// The port of the first backend.
const FIRST_PORT: u16 = 18100;

/// An address of this machine that is not its loopback's.
///
/// # Errors
/// When it has none.
pub fn machine_address() -> Result<IpAddr> {
    // No packet is sent: connecting a UDP socket only looks up the way.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).context("this machine has no network address")?;
    Ok(socket.local_addr()?.ip())
}

/// Where a backend of the sample listens: `127.0.10.x` becomes a port of `machine`.
fn backend_address(machine: IpAddr, last: u8) -> SocketAddr {
    SocketAddr::new(machine, FIRST_PORT + u16::from(last))
}

/// Starts the sample's backends at an address of the machine.
///
/// # Errors
/// When a port is taken.
pub async fn backends(machine: IpAddr) -> Result<Vec<Backend>> {
    let mut backends = Vec::new();
    for (name, last) in BACKENDS {
        backends.push(Backend::start(name, backend_address(machine, last)).await?);
    }
    Ok(backends)
}

/// All objects of the sample in the checkout at `root`, in an order in which they can be made.
///
/// # Errors
/// When a file cannot be read.
pub fn objects(root: &Path, machine: IpAddr) -> Result<Vec<Value>> {
    let mut files: Vec<_> = std::fs::read_dir(root.join("deploy/samples/bookshop"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    let mut objects = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file.path())?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("cannot read {}", file.path().display()))?;
        objects.extend(documents.into_iter().filter(|object| !object.is_null()));
    }
    let mut objects: Vec<Value> = objects.into_iter().flat_map(|object| convert(object, machine)).collect();
    objects.sort_by_key(|object| object["kind"] != "Namespace");
    Ok(objects)
}

/// One object of the sample as an API server takes it.
fn convert(object: Value, machine: IpAddr) -> Vec<Value> {
    match object["kind"].as_str() {
        Some("EndpointSlice") => slices(&object, machine),
        // Its addresses are endpoints and services, and it is the only kind in which any may stand.
        Some("ServiceEntry") => {
            let mut object = object;
            for endpoint in object["spec"]["endpoints"].as_array_mut().into_iter().flatten() {
                let to = backend_address(machine, last_byte(&endpoint["address"]));
                endpoint["address"] = json!(to.ip().to_string());
                endpoint["ports"] = json!({"http": to.port()});
            }
            vec![object]
        }
        Some("Service") => {
            let mut object = object;
            let last = last_byte(&object["spec"]["clusterIP"]);
            object["spec"]["clusterIP"] = json!(format!("10.96.10.{last}"));
            vec![object]
        }
        _ => vec![object],
    }
}

/// A slice for each endpoint of a slice, as each has a port of its own.
fn slices(slice: &Value, machine: IpAddr) -> Vec<Value> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let one = |(index, endpoint): (usize, &Value)| {
        let to = backend_address(machine, last_byte(&endpoint["addresses"][0]));
        let (mut slice, mut endpoint) = (slice.clone(), endpoint.clone());
        endpoint["addresses"] = json!([to.ip().to_string()]);
        slice["metadata"]["name"] =
            json!(format!("{}-{index}", slice["metadata"]["name"].as_str().unwrap_or_default()));
        slice["endpoints"] = json!([endpoint]);
        slice["ports"] = json!([{"name": "http", "port": to.port(), "protocol": "TCP"}]);
        slice
    };
    endpoints.enumerate().map(one).collect()
}

/// The last byte of an address of the sample.
fn last_byte(address: &Value) -> u8 {
    let address = address.as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
    address.map_or(0, |address| address.octets()[3])
}
