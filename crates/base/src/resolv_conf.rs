//! `/etc/resolv.conf`: the resolvers, and the search domains.

use std::net::{IpAddr, SocketAddr};

/// The port of resolvers.
const PORT: u16 = 53;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// Addresses of `nameserver` lines in order, with port 53; lines without a valid address are
    /// skipped.
    pub resolvers: Vec<SocketAddr>,
    /// The search domains, in order, without dots at the ends.
    pub search: Vec<String>,
}

impl ResolvConf {
    /// Reads the text of the file. Unknown lines are skipped, as by the C library.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut conf = Self::default();

        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    // The scope of a link-local address is dropped: it is specific to the machine,
                    // and rarely written here.
                    let address = words.next().and_then(|word| word.split('%').next());
                    let ip = address.and_then(|word| word.parse::<IpAddr>().ok());
                    conf.resolvers
                        .extend(ip.map(|ip| SocketAddr::new(ip, PORT)));
                }
                Some("search") => conf.search = words.map(domain).collect(),
                Some("domain") => conf.search = words.take(1).map(domain).collect(),
                Some(_) | None => {}
            }
        }

        conf
    }
}

/// A domain without dots at the ends.
fn domain(word: &str) -> String {
    word.trim_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_and_the_last_search_list_count() {
        let conf = ResolvConf::parse(
            "# made by hand\nnameserver 10.0.0.10\nnameserver fe80::1%eth0 ; second\nnameserver nonsense\n\
             domain a.example\nsearch shop.svc.cluster.local SVC.cluster.local.\noptions ndots:5\n",
        );
        assert_eq!(
            conf.resolvers,
            [
                "10.0.0.10:53".parse().unwrap(),
                "[fe80::1]:53".parse().unwrap()
            ]
        );
        assert_eq!(conf.search, ["shop.svc.cluster.local", "svc.cluster.local"]);
        assert_eq!(ResolvConf::parse(""), ResolvConf::default());
    }
}
