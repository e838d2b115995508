//! Hosts and outcomes of walks as text.

use navarch_walk::{Outcome, Share, Upstream, Walk};

/// The host and port that a client requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authority<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
}

/// A host as a workload of a namespace would write it: a service of the same namespace by name,
/// others by name and namespace.
pub(super) fn short(host: &str, namespace: &str) -> String {
    let mut labels = host.split('.');
    match (labels.next(), labels.next(), labels.next()) {
        (Some(name), Some(of), Some("svc")) if of == namespace => name.to_owned(),
        (Some(name), Some(of), Some("svc")) => format!("{name}.{of}"),
        _ => host.to_owned(),
    }
}

/// Port, subset and host from the name of a service's cluster, for clients or at a waypoint.
pub(super) fn service_of(cluster: &str) -> Option<(u16, &str, &str)> {
    let mut parts = cluster.split('|');
    match (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) {
        (Some("outbound"), Some(port), Some(subset), Some(host), None) => {
            Some((port.parse().ok()?, subset, host))
        }
        (Some("inbound-vip"), Some(port), Some(transport), Some(host), None) => {
            let subset = transport.split_once('/').map_or("", |(_, subset)| subset);
            Some((port.parse().ok()?, subset, host))
        }
        _ => None,
    }
}

/// The step with the destination of a request that a proxy forwards, or why it does not forward it.
pub(super) fn forwarding(walk: &Walk, called: Authority<'_>, namespace: &str) -> String {
    let end = outcome(walk, called, namespace);
    match walk.outcome {
        Outcome::Forwarded(_) => format!("it is forwarded to {end}"),
        Outcome::Closed(_)
        | Outcome::NotFound
        | Outcome::Redirected { .. }
        | Outcome::Answered(_) => {
            format!("it is not forwarded: {end}")
        }
    }
}

/// The outcome of a walk for a client in a namespace that requested `called`.
pub(super) fn outcome(walk: &Walk, called: Authority<'_>, namespace: &str) -> String {
    match &walk.outcome {
        Outcome::Closed(reason) => format!("closed: {reason}"),
        Outcome::NotFound => "404: no route".to_owned(),
        Outcome::Redirected { status, location } => format!("{status} to {location}"),
        Outcome::Answered(status) => format!("{status} by the proxy itself"),
        Outcome::Forwarded(shares) => {
            let total: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
            let used = shares.iter().filter(|share| share.weight > 0 || total == 0);
            let words: Vec<String> = used
                .map(|one| share(one, total, called, namespace))
                .collect();
            if words.is_empty() {
                "nowhere".to_owned()
            } else {
                words.join(", ")
            }
        }
    }
}

fn share(share: &Share, total: u64, called: Authority<'_>, namespace: &str) -> String {
    let percent = |weight: u64| {
        let tenths = (weight * 1000 + total / 2)
            .checked_div(total)
            .unwrap_or(1000);
        if tenths.is_multiple_of(10) {
            format!("{} %", tenths / 10)
        } else {
            format!("{}.{} %", tenths / 10, tenths % 10)
        }
    };

    let lack = match &share.upstream {
        Upstream::NoCluster => " (503: the cluster does not exist)",
        Upstream::Endpoints(endpoints) if endpoints.is_empty() => " (503: no endpoints)",
        Upstream::Endpoints(_) | Upstream::Original(_) | Upstream::Named(_) => "",
    };

    let name = match service_of(&share.cluster) {
        Some((of, subset, to)) if to == called.host && of == called.port && !subset.is_empty() => {
            subset.to_owned()
        }
        Some((of, subset, to)) => {
            let port_text = if of == called.port {
                String::new()
            } else {
                format!(":{of}")
            };

            let subset = if subset.is_empty() {
                String::new()
            } else {
                format!(" {subset}")
            };

            format!("{}{port_text}{subset}", short(to, namespace))
        }
        None => match (&*share.cluster, &share.upstream) {
            ("BlackHoleCluster", _) => "nowhere (BlackHoleCluster)".to_owned(),
            ("PassthroughCluster", Upstream::Original(address)) => {
                format!("the requested address {address} (PassthroughCluster)")
            }
            (cluster, _) => cluster.to_owned(),
        },
    };

    format!("{name} {}{lack}", percent(u64::from(share.weight)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_walk::{Endpoint, Transport};

    #[test]
    fn clusters_of_services_are_known_by_their_names() {
        assert_eq!(
            service_of("outbound|80|v1|a.example"),
            Some((80, "v1", "a.example"))
        );
        assert_eq!(
            service_of("inbound-vip|80|http/v1|a.example"),
            Some((80, "v1", "a.example"))
        );
        assert_eq!(
            service_of("inbound-vip|80|tcp|a.example"),
            Some((80, "", "a.example"))
        );
        assert_eq!(
            (service_of("PassthroughCluster"), service_of("inbound|80||")),
            (None, None)
        );
    }

    #[test]
    fn traffic_shares_are_printed_in_percent() {
        let transport = Transport::Plain;
        let address = "10.0.0.1:80".to_owned();
        let endpoint = Endpoint {
            address,
            waypoint: None,
            priority: 0,
            weight: 1,
            transport,
        };

        let share = |cluster: &str, weight, endpoints| Share {
            cluster: cluster.to_owned(),
            weight,
            upstream: Upstream::Endpoints(endpoints),
            transport,
        };

        let walk = Walk {
            listener: String::new(),
            chain: String::new(),
            route: None,
            outcome: Outcome::Forwarded(vec![
                share(
                    "outbound|80|v1|reviews.shop.svc.cluster.local",
                    2,
                    vec![endpoint.clone()],
                ),
                share(
                    "outbound|80|v2|reviews.shop.svc.cluster.local",
                    1,
                    Vec::new(),
                ),
                share(
                    "outbound|81||ratings.bank.svc.cluster.local",
                    0,
                    vec![endpoint],
                ),
            ]),
        };

        let called = Authority {
            host: "reviews.shop.svc.cluster.local",
            port: 80,
        };
        let words = outcome(&walk, called, "shop");
        assert_eq!(words, "v1 66.7 %, v2 33.3 % (503: no endpoints)");
    }
}
