//! The changes whose way to the proxies is timed. Each leaves a text in a resource that no earlier
//! one left.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use crate::kind::Kind;
use crate::world::{self, Size};

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// A service gets one more endpoint.
    Endpoint,
    /// A VirtualService sets another header: of a host at the gateway, where there are any.
    VirtualService,
    /// A DestinationRule sends another SNI.
    DestinationRule,
    /// A VirtualService that no proxy sees.
    Unseen,
    /// A file is written anew as it was.
    Rewrite,
}

impl What {
    /// All, in the order in which they are made.
    pub(crate) const ALL: [Self; 5] = [
        Self::Endpoint,
        Self::VirtualService,
        Self::DestinationRule,
        Self::Unseen,
        Self::Rewrite,
    ];
}

/// An object to be written.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The object.
    pub(crate) value: Value,
    /// Where its text is to be looked for, and the text; nowhere if it reaches nobody.
    pub(crate) marker: Option<(Vec<Kind>, String)>,
}

/// The object of one change. Two turns are never alike.
pub(crate) fn object(size: &Size, what: What, turn: usize) -> Edit {
    // Service 7 is one that has a VirtualService and a DestinationRule in all but the smallest
    // meshes.
    let n = 7 % size.services.max(1);

    match what {
        What::Endpoint => {
            let ip = format!("10.250.{}.{}", turn / 200, 1 + turn % 200);
            Edit {
                value: world::slice(size, n, Some(&ip)),
                marker: Some((vec![Kind::Endpoints], ip)),
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
                marker: Some((vec![Kind::Routes, Kind::VirtualHosts], header)),
            }
        }
        What::DestinationRule => {
            let sni = format!("turn-{turn}.load.example");
            let value = world::destination_rule(size, n, &sni);
            Edit {
                value,
                marker: Some((vec![Kind::Clusters], sni)),
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
