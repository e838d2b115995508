//! The ports of a Gateway's Service.

use std::collections::BTreeSet;

use navarch_api::gateway_api::Listener;
use navarch_webhook::inject::GatewayPort;

/// The name of the agent's port for readiness.
const STATUS_NAME: &str = "status-port";
const STATUS_PORT: i32 = 15021;
/// Maximum length of a port name.
const MAX_NAME: usize = 63;

/// The ports of listeners: each once, named after the first listener with the port. A listener
/// without a port is skipped, as the API server would reject the whole Service.
pub(super) fn ports<'a>(
    listeners: impl IntoIterator<Item = &'a Listener>,
    quic: bool,
) -> Vec<GatewayPort> {
    let port = |name: String, port, protocol, app_protocol: &str| GatewayPort {
        name,
        port,
        protocol,
        app_protocol: app_protocol.to_owned(),
    };

    let mut ports = vec![port(STATUS_NAME.to_owned(), STATUS_PORT, "TCP", "tcp")];
    let mut names = BTreeSet::from([STATUS_NAME.to_owned()]);
    let mut numbers = BTreeSet::new();

    for (at, listener) in listeners.into_iter().enumerate() {
        if listener.port <= 0 || !numbers.insert(listener.port) {
            continue;
        }

        let app_protocol = listener.protocol.to_lowercase();
        let mut name = cut(&listener.name.replace('.', "-"), MAX_NAME).to_owned();
        if name.is_empty() {
            name = format!("{app_protocol}-{at}");
        }

        let name = unique(&name, listener.port, &mut names);
        ports.push(port(name.clone(), listener.port, "TCP", &app_protocol));

        if quic && app_protocol == "https" {
            let name = unique(&format!("{name}-quic"), listener.port, &mut names);
            ports.push(port(name, listener.port, "UDP", &app_protocol));
        }
    }

    ports
}

/// Truncates a text to a maximum number of bytes.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// A unique port name: the names of two listeners may differ only in dots, or after 63 characters.
fn unique(name: &str, port: i32, names: &mut BTreeSet<String>) -> String {
    let mut candidate = cut(name, MAX_NAME).to_owned();
    let mut suffix = format!("-{port}");
    while !names.insert(candidate.clone()) {
        candidate = format!(
            "{}{suffix}",
            cut(name, MAX_NAME.saturating_sub(suffix.len()))
        );
        suffix.push('x');
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Listeners of names, ports and protocols.
    fn listeners(of: &[(&str, i32, &str)]) -> Vec<Listener> {
        let listener = |(name, port, protocol): &(&str, i32, &str)| {
            serde_json::from_value(
                serde_json::json!({ "name": name, "port": port, "protocol": protocol }),
            )
            .unwrap()
        };
        of.iter().map(listener).collect()
    }

    /// Names, numbers and protocols.
    fn made(of: &[(&str, i32, &str)], quic: bool) -> Vec<(String, i32, &'static str)> {
        ports(&listeners(of), quic)
            .into_iter()
            .skip(1)
            .map(|port| (port.name, port.port, port.protocol))
            .collect()
    }

    #[test]
    fn ports_are_unique_and_have_unique_names() {
        let long = "a".repeat(70);
        let of = [
            ("a.b", 80, "HTTP"),
            ("again", 80, "HTTP"),
            ("a-b", 81, "HTTP"),
            ("status-port", 82, "TCP"),
            (&long, 83, "TLS"),
            (&format!("{long}b"), 84, "TLS"),
            ("none", 0, "TCP"),
        ];

        let name = |text: &str| text.to_owned();
        let expected = [
            (name("a-b"), 80, "TCP"),
            (name("a-b-81"), 81, "TCP"),
            (name("status-port-82"), 82, "TCP"),
            (name(&long[..63]), 83, "TCP"),
            (format!("{}-84", &long[..60]), 84, "TCP"),
        ];

        assert_eq!(made(&of, false), expected);
        let quic = [(name("web"), 443, "TCP"), (name("web-quic"), 443, "UDP")];
        assert_eq!(made(&[("web", 443, "HTTPS")], true), quic);
    }
}
