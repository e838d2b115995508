//! The changes whose propagation is measured. Each puts a new, unique text into a resource.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use crate::xds::resource_type::ResourceType;
use crate::xds::world::{self, Size};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// A service gets one more endpoint.
    Endpoint,
    /// A VirtualService sets another response header: one for a host at the gateway, if the mesh
    /// has any.
    VirtualService,
    /// A DestinationRule sets another SNI.
    DestinationRule,
    /// A VirtualService that is exported to a namespace without proxies.
    Unseen,
    /// A file is rewritten with the same content.
    Rewrite,
}

impl What {
    /// All kinds, in the order in which they are made.
    pub(crate) const ALL: [Self; 5] = [
        Self::Endpoint,
        Self::VirtualService,
        Self::DestinationRule,
        Self::Unseen,
        Self::Rewrite,
    ];
}

/// An edited object.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The object.
    pub(crate) value: Value,
    /// The types of resources that contain its text, and the text; `None` if it reaches no proxy.
    pub(crate) marker: Option<(Vec<ResourceType>, String)>,
}

/// The object of one change. Each turn gives another object.
pub(crate) fn object(size: &Size, what: What, turn: usize) -> Edit {
    // Service 7 has a VirtualService and a DestinationRule in all but the smallest meshes.
    let n = 7 % size.services.max(1);

    match what {
        What::Endpoint => {
            let ip = format!("10.250.{}.{}", turn / 200, 1 + turn % 200);
            Edit {
                value: world::slice(size, n, Some(&ip)),
                marker: Some((vec![ResourceType::Endpoints], ip)),
            }
        }
        What::VirtualService => {
            let header = format!("turn-{turn}-of-load");
            let value = match size.gateway_hosts {
                0 => world::virtual_service(size, n, &header),
                hosts => world::gateway_host(size, n % hosts, &header),
            };
            Edit {
                value,
                marker: Some((
                    vec![ResourceType::Routes, ResourceType::VirtualHosts],
                    header,
                )),
            }
        }
        What::DestinationRule => {
            let sni = format!("turn-{turn}.load.example");
            let value = world::destination_rule(size, n, &sni);
            Edit {
                value,
                marker: Some((vec![ResourceType::Clusters], sni)),
            }
        }
        What::Unseen => Edit {
            value: world::unseen(size, &format!("turn-{turn}")),
            marker: None,
        },
        What::Rewrite => Edit {
            value: world::slice(size, size.services.saturating_sub(1), None),
            marker: None,
        },
    }
}
