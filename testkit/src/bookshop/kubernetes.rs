//! The sample mesh in a form that a Kubernetes API server accepts.
//!
//! The sample has loopback addresses, which an API server rejects in EndpointSlices. Here the first
//! pod of each service has an address of the machine and its own port; further pods, for which the
//! machine has no address, become WorkloadEntries, whose addresses are not restricted. Services
//! have addresses of the test cluster's range.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON that differs from the sample gives null"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{BACKEND_PORT, BACKENDS};
use crate::backend::Backend;

/// The port of the first backend.
const FIRST_PORT: u16 = 18100;

/// An address of this machine other than loopback.
///
/// # Errors
/// If the machine has none.
pub fn machine_address() -> Result<IpAddr> {
    // No packet is sent: connecting a UDP socket only looks up the route.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket
        .connect((Ipv4Addr::new(198, 51, 100, 1), 9))
        .context("this machine has no network address")?;
    Ok(socket.local_addr()?.ip())
}

/// The address of a backend of the sample: `127.0.10.x` becomes a port of `machine`.
fn backend_address(machine: IpAddr, last: u8) -> SocketAddr {
    SocketAddr::new(machine, FIRST_PORT + u16::from(last))
}

/// All ports of the sample.
#[must_use]
pub fn ports() -> Vec<u16> {
    let own = BACKENDS.map(|(_, last)| FIRST_PORT + u16::from(last));
    own.into_iter().chain(super::PORTS).collect()
}

/// Starts the sample's backends at an address of the machine and at those of the sample.
///
/// # Errors
/// If a port is in use.
pub async fn backends(machine: IpAddr) -> Result<Vec<Backend>> {
    let mut backends = Vec::new();
    for (name, last) in BACKENDS {
        backends.push(Backend::start(name, backend_address(machine, last)).await?);
        backends.push(
            Backend::start(name, SocketAddr::from(([127, 0, 10, last], BACKEND_PORT))).await?,
        );
    }
    Ok(backends)
}

/// All objects of the sample in the checkout at `root`, in the order of their dependencies.
///
/// # Errors
/// If a file cannot be read.
pub fn objects(root: &Path, machine: IpAddr) -> Result<Vec<Value>> {
    let objects = super::read(root)?;
    let pods: Vec<Value> = objects
        .iter()
        .filter(|object| object["kind"] == "Pod")
        .cloned()
        .collect();
    let mut objects: Vec<Value> = objects
        .into_iter()
        .flat_map(|object| convert(object, machine, &pods))
        .collect();

    // The pods of WorkloadEntries.
    let entries: Vec<Value> = objects
        .iter()
        .filter(|object| object["kind"] == "WorkloadEntry")
        .cloned()
        .collect();
    objects.retain(|object| {
        let stands_for = |entry: &Value| entry["metadata"]["name"] == object["metadata"]["name"];
        object["kind"] != "Pod" || !entries.iter().any(stands_for)
    });

    objects.sort_by_key(|object| object["kind"] != "Namespace");
    Ok(objects)
}

/// Converts one object of the sample for an API server.
fn convert(mut object: Value, machine: IpAddr, pods: &[Value]) -> Vec<Value> {
    match object["kind"].as_str() {
        Some("EndpointSlice") => return slice(object, machine, pods),
        Some("Service") => {
            let last = last_byte(&object["spec"]["clusterIP"]);
            object["spec"]["clusterIP"] = json!(format!("10.96.10.{last}"));
        }
        _ => {}
    }
    vec![object]
}

/// A slice with its first endpoint, and WorkloadEntries for the others.
fn slice(mut slice: Value, machine: IpAddr, pods: &[Value]) -> Vec<Value> {
    let mut endpoints = slice["endpoints"]
        .as_array()
        .cloned()
        .unwrap_or_default()
        .into_iter();
    let Some(mut first) = endpoints.next() else {
        return vec![slice];
    };

    let to = backend_address(machine, last_byte(&first["addresses"][0]));
    first["addresses"] = json!([to.ip().to_string()]);
    slice["endpoints"] = json!([first]);
    slice["ports"] = json!([{"name": "http", "port": to.port(), "protocol": "TCP"}]);
    let entry = |endpoint: Value| {
        let name = &endpoint["targetRef"]["name"];
        let pod = pods
            .iter()
            .find(|pod| pod["metadata"]["name"] == *name)
            .cloned()
            .unwrap_or_default();

        json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "WorkloadEntry",
            "metadata": {"name": name, "namespace": slice["metadata"]["namespace"], "labels": pod["metadata"]["labels"]},
            "spec": {
                "address": endpoint["addresses"][0],
                "labels": pod["metadata"]["labels"],
                "serviceAccount": pod["spec"]["serviceAccountName"],
            },
        })
    };

    let entries: Vec<Value> = endpoints.map(entry).collect();
    std::iter::once(slice).chain(entries).collect()
}

/// The last byte of an address of the sample.
fn last_byte(address: &Value) -> u8 {
    let address = address
        .as_str()
        .and_then(|text| text.parse::<Ipv4Addr>().ok());
    address.map_or(0, |address| address.octets()[3])
}
