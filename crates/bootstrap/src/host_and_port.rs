//! Addresses with a port.

/// Splits `host:port`; the host of `[host]:port` has no brackets. `None` if the format is
/// different.
#[must_use]
pub fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let bare = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let digits = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
    Some((bare, port.parse().ok().filter(|_| digits)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_split_for_names_and_ipv6() {
        assert_eq!(host_and_port("[::1]:80"), Some(("::1", 80)));
        assert_eq!(host_and_port("a.b:80"), Some(("a.b", 80)));
        for text in ["::1:80", "a", "a:", "a:b", "a:99999", "a:+1"] {
            assert_eq!(host_and_port(text), None, "{text}");
        }
    }
}
