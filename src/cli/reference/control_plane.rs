//! The control plane's environment variables by topic, as the page has them.

use super::super::control_plane_variables as variables;
use super::table::Section;

/// All variables, by topic.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "Itself and its cluster",
        rows: variables::CLUSTER,
    },
    Section {
        title: "Certificates and who may connect",
        rows: variables::SECURITY,
    },
    Section {
        title: "Connections, streams and pushes",
        rows: variables::STREAMS,
    },
    Section {
        title: "Traces of changes",
        rows: variables::TRACES,
    },
    Section {
        title: "Services and endpoints",
        rows: variables::SERVICES,
    },
    Section {
        title: "Configuration of Envoy",
        rows: variables::ENVOY,
    },
    Section {
        title: "Gateways and the Gateway API",
        rows: variables::GATEWAYS,
    },
    Section {
        title: "Ambient mode",
        rows: variables::AMBIENT,
    },
    Section {
        title: "Injection, webhooks and what is written to the cluster",
        rows: variables::WRITING,
    },
];
