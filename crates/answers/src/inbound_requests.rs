//! The inbound connections that are walked to find the effect of a change: requests to a workload,
//! and TCP connections to a gateway.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use navarch_push::resource::ResourceType;
use navarch_walk::{Connection, Entry, Tls};

use super::inbound::mesh_alpn;
use super::ingress::targets;
use super::labelled_request::{LabelledRequest, MAX_HOSTS, ProxyInput, port_of};
use super::plan::workload_of;
use super::received::{chains, manager_of};
use super::route_example::Example;
use super::wording::short;

/// The inbound listener of sidecars.
const INBOUND: &str = "virtualInbound";

impl ProxyInput<'_> {
    /// Requests to the workload of a sidecar, over mutual TLS and in plain text.
    pub(super) fn of_arrivals(&self) -> Vec<LabelledRequest> {
        let listeners = self.steps.get(&ResourceType::Listener);
        let changed = listeners.and_then(|step| {
            step.resources
                .iter()
                .find(|(name, _)| name.as_str() == INBOUND)
        });

        // A new listener belongs to a new proxy.
        if !changed.is_some_and(|(_, [before, after])| before.is_some() && after.is_some()) {
            return Vec::new();
        }

        let workload = workload_of(self.client, self.contexts[1]);
        let workload = workload.rsplit('/').next().unwrap_or_default();
        let ip = self.client.address();

        let mut requests = Vec::new();
        for target in targets(self.contexts[1], &self.client.proxy)
            .iter()
            .take(MAX_HOSTS)
        {
            let host = target.service.key.hostname.as_str();
            let port = target.port.port;
            let destination = SocketAddr::new(ip, target.target_port);

            let bare = Connection {
                entry: Entry::Inbound,
                destination,
                source: None,
                tls: None,
                http: None,
            };

            let is_http = target.port.protocol.is_http_or_sniffed();
            let alpn_filter = self.contexts[1].mesh.settings.alpn_filter;
            let mutual = Connection {
                tls: Some(Tls {
                    sni: String::new(),
                    alpn: mesh_alpn(is_http && alpn_filter),
                }),
                ..bare.clone()
            };

            for (connection, how) in [(mutual, ""), (bare, " in plain text")] {
                let request = if is_http {
                    self.request(host, port, Example::default(), connection)
                } else {
                    let label = format!(
                        "TCP {}:{port}",
                        short(host, self.client.proxy.namespace.as_str())
                    );
                    LabelledRequest {
                        label,
                        host: host.to_owned(),
                        port,
                        connection,
                        is_own: false,
                    }
                };

                // With mutual TLS of the mesh the client itself sends HTTP, not HTTPS.
                let label = request.label.replacen(" https ", " ", 1);
                requests.push(LabelledRequest {
                    label: format!("{label}{how} at {workload}"),
                    is_own: false,
                    ..request
                });
            }
        }

        requests
    }

    /// TCP connections to a gateway, which it forwards without parsing.
    pub(super) fn of_streams(&self) -> Vec<LabelledRequest> {
        let Some(step) = self.steps.get(&ResourceType::Listener) else {
            return Vec::new();
        };

        let ip = self.client.address();

        let mut requested: BTreeSet<(u16, Option<String>)> = BTreeSet::new();

        for listener in self
            .resources
            .iter()
            .flat_map(|resources| &resources.listeners)
        {
            let is_touched = step
                .resources
                .keys()
                .any(|name| name.as_str() == listener.name);
            let Some(port) = port_of(listener).filter(|_| is_touched) else {
                continue;
            };
            for chain in chains(listener).filter(|chain| manager_of(chain).is_none()) {
                let names = chain
                    .filter_chain_match
                    .as_ref()
                    .map(|wanted| wanted.server_names.as_slice());
                match names.unwrap_or_default() {
                    [] => {
                        _ = requested
                            .insert((port, chain.transport_socket.as_ref().map(|_| String::new())))
                    }
                    names => requested.extend(names.iter().map(|name| (port, Some(name.clone())))),
                }
            }
        }

        let ask = |(port, name): (u16, Option<String>)| {
            let destination = SocketAddr::new(ip, port);
            let sni = name.map(|name| name.replacen('*', "any", 1));
            let label = match sni.as_deref() {
                None => format!("TCP :{port}"),
                Some(sni) => format!("TLS {sni}:{port}"),
            };
            let host = sni.clone().unwrap_or_default();
            let tls = sni.map(|sni| Tls {
                sni,
                alpn: Vec::new(),
            });

            let connection = Connection {
                entry: Entry::Direct,
                destination,
                source: None,
                tls,
                http: None,
            };

            LabelledRequest {
                label,
                host,
                port,
                connection,
                is_own: true,
            }
        };

        requested.into_iter().take(MAX_HOSTS).map(ask).collect()
    }
}
