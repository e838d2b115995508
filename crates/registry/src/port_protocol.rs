//! The protocol of a port of a Kubernetes Service (Istio's `pkg/config/kube/conversion.go`).

use super::protocol::Protocol;
use navarch_api::kubernetes::{Protocol as Transport, ServicePort};

/// Ports of server-first protocols: sniffing would break them, so they are opaque unless declared.
const SERVER_FIRST_PORTS: [u16; 4] = [25, 53, 3306, 27017];

/// The protocol of a Kubernetes port: `appProtocol`, else the prefix of its name, else the default
/// for its number.
#[must_use]
pub fn protocol_of_port(port: &ServicePort) -> Protocol {
    if port.protocol == Transport::Udp {
        return Protocol::Udp;
    }
    let declared = match port.app_protocol.as_deref() {
        Some("kubernetes.io/h2c") => return Protocol::Http2,
        Some("kubernetes.io/ws") => return Protocol::Http,
        Some("kubernetes.io/wss") => return Protocol::Https,
        Some(name) => name,
        None => port.name.as_str(),
    };
    let protocol = protocol_of_prefix(declared);
    if protocol.is_unsupported() && SERVER_FIRST_PORTS.contains(&port.port) {
        Protocol::Tcp
    } else {
        protocol
    }
}

/// The protocol of a name's prefix: the part before the first hyphen, except for `grpc-web`.
fn protocol_of_prefix(name: &str) -> Protocol {
    let grpc_web = Protocol::GrpcWeb.as_str();
    if name
        .get(..grpc_web.len())
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(grpc_web))
    {
        return Protocol::GrpcWeb;
    }
    Protocol::parse(name.split_once('-').map_or(name, |(prefix, _)| prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::kubernetes::TargetPort;
    use navarch_api::names::PortName;

    fn port(name: &str, number: u16, app_protocol: Option<&str>) -> ServicePort {
        ServicePort {
            name: PortName::new(name),
            port: number,
            protocol: Transport::Tcp,
            app_protocol: app_protocol.map(Into::into),
            target: TargetPort::Number(number),
            node_port: None,
        }
    }

    #[test]
    fn the_port_name_prefix_sets_the_protocol() {
        for (name, expected) in [
            ("http", Protocol::Http),
            ("http-web", Protocol::Http),
            ("HTTP2-x", Protocol::Http2),
            ("grpc-web", Protocol::GrpcWeb),
            ("GRPC-Web-a", Protocol::GrpcWeb),
            ("grpc-api", Protocol::Grpc),
            ("tcp-db", Protocol::Tcp),
            ("web", Protocol::Unsupported),
            ("", Protocol::Unsupported),
        ] {
            assert_eq!(protocol_of_port(&port(name, 80, None)), expected, "{name}");
        }
    }

    #[test]
    fn app_protocol_outweighs_the_name() {
        for (declared, expected) in [
            ("kubernetes.io/h2c", Protocol::Http2),
            ("kubernetes.io/ws", Protocol::Http),
            ("kubernetes.io/wss", Protocol::Https),
            ("https", Protocol::Https),
            ("example.com/own", Protocol::Unsupported),
        ] {
            assert_eq!(
                protocol_of_port(&port("tcp-x", 80, Some(declared))),
                expected,
                "{declared}"
            );
        }
    }

    #[test]
    fn servers_that_speak_first_are_not_sniffed() {
        assert_eq!(protocol_of_port(&port("db", 3306, None)), Protocol::Tcp);
        assert_eq!(
            protocol_of_port(&port("http-db", 3306, None)),
            Protocol::Http
        );
        assert_eq!(
            protocol_of_port(&ServicePort {
                protocol: Transport::Udp,
                ..port("http", 53, None)
            }),
            Protocol::Udp
        );
    }
}
