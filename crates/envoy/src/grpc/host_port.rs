//! Parsing and formatting of `host:port` as in Go (`net.SplitHostPort`, `net.JoinHostPort`).

/// Host and port, without the brackets of an IPv6 address; `None` if there is no port, or more than
/// one.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let is_plain = |part: &str| !part.contains(['[', ']']);
    (is_plain(host) && is_plain(port)).then_some((host, port))
}

/// `host:port`, with an IPv6 address in brackets.
pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_a_port_round_trips() {
        for (text, expected) in [
            ("echo.shop:80", Some(("echo.shop", "80"))),
            ("[::]:17070", Some(("::", "17070"))),
            ("[fe80::1%eth0]:1", Some(("fe80::1%eth0", "1"))),
            (":80", Some(("", "80"))),
            ("echo:", Some(("echo", ""))),
            ("echo", None),
            ("::1", None),
            ("[::1]", None),
            ("[::1]80", None),
            ("[::1:80", None),
            ("a]:80", None),
            ("a:[80", None),
            ("", None),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }

        assert_eq!(
            (join("::", 80), join("echo", 80)),
            ("[::]:80".to_owned(), "echo:80".to_owned())
        );
    }
}
