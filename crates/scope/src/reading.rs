//! One reading of a source of metrics: what it may claim, and what it has counted.
//!
//! The page of a pod contains the metrics of its application, which may write what it likes. Hence
//! a pod is believed only about its own workload: as the source of requests that its proxy has sent
//! (`reporter="source"`), and as the destination of those that it has received. Only hosts that the
//! registry has are calls, and numbers and lengths are bounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evidence::Counts;
use super::exposition::{self, Malformed, Series};
use super::moment::Moment;
use super::workload::WorkloadName;

/// HTTP and gRPC requests.
pub const REQUESTS: &str = "istio_requests_total";
/// TCP connections.
pub const CONNECTIONS: &str = "istio_tcp_connections_opened_total";
/// The seconds for which Envoy has counted.
pub const UPTIME: &str = "envoy_server_uptime";

/// The maximum number of different hosts of a workload in one reading.
pub(crate) const MAX_HOSTS: usize = 2000;
/// The maximum number of different destinations outside of the registry.
pub(crate) const MAX_OUTSIDE: usize = 50;
/// The maximum number of different clients.
pub(crate) const MAX_CLIENTS: usize = 1000;
/// The maximum number of different workloads.
const MAX_WORKLOADS: usize = 20_000;
/// The longest name of a host, in bytes.
const MAX_NAME: usize = 253;
/// The longest principal, in bytes. That of a service account has a trust domain, a namespace and a
/// name of up to 253 bytes.
const MAX_PRINCIPAL: usize = 1024;
/// Values above it are no counters: 2^53, up to which an `f64` has every integer.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// The label value for what is not known.
const UNKNOWN: &str = "unknown";
/// Envoy's clusters for destinations that are not in the registry, as `destination_service_name`
/// has them.
const NO_SERVICE: [&str; 3] = [
    "PassthroughCluster",
    "BlackHoleCluster",
    "AllowAnyDynamicDnsCluster",
];
/// Flags of responses that Envoy has made itself because it could not reach the destination.
const FAILURES: [&str; 10] = ["UH", "UF", "UO", "NR", "URX", "NC", "UT", "LH", "UC", "UR"];
/// The flag of requests that external authorization has denied.
const UNAUTHORIZED: &str = "UAEX";

/// What one source has counted of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seen {
    /// By host of the registry.
    pub calls: BTreeMap<String, Counts>,
    /// By what is not in the registry.
    pub outside: BTreeMap<String, Counts>,
    /// The sum of those that exceed `MAX_OUTSIDE`. It has no key in `outside`, as a destination may
    /// have any name.
    pub more_outside: Counts,
    /// By principal of the client; empty without one.
    pub clients: BTreeMap<String, Counts>,
    /// Whether hosts of the registry were left out because there are too many.
    pub is_truncated: bool,
    /// Whether clients were left out. Clients can cause this, so that it prevents policies alone.
    pub has_more_clients: bool,
}

/// One reading of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The name of the pod, or of the file: the same counters have the same name.
    pub instance: String,
    /// The time of the reading.
    pub read: Moment,
    /// The time from which the source has counted; `None` if unknown.
    pub since: Option<Moment>,
    /// Whether values are of a window of time that moves on, not counters.
    pub is_window: bool,
    /// By workload.
    pub workloads: BTreeMap<WorkloadName, Seen>,
    /// Lines that were not read.
    pub malformed: Malformed,
    /// The number of series about others, which a pod is not believed.
    pub foreign: usize,
}

/// Who vouches for the series.
#[derive(Clone, Copy, Debug)]
pub enum Claim<'a> {
    /// The page of a pod of this workload.
    OwnWorkload(&'a WorkloadName),
    /// The operator, who has named a file or a Prometheus server.
    Operator,
}

/// Reads series of one source.
pub struct Reader<'a> {
    claim: Claim<'a>,
    /// Whether a host is in the registry.
    is_host: &'a dyn Fn(&str) -> bool,
    uptime: Option<f64>,
    reading: Reading,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("claim", &self.claim)
            .field("reading", &self.reading)
            .finish_non_exhaustive()
    }
}

impl Reading {
    /// A reading without values.
    #[must_use]
    pub fn new(instance: &str, read: Moment) -> Self {
        Self {
            instance: instance.to_owned(),
            read,
            since: None,
            is_window: false,
            workloads: BTreeMap::new(),
            malformed: Malformed::default(),
            foreign: 0,
        }
    }
}

impl Seen {
    /// Adds calls to a destination.
    fn add(&mut self, kind: Kind, key: &str, counts: Counts) {
        let (map, limit, length) = match kind {
            Kind::Call => (&mut self.calls, MAX_HOSTS, MAX_NAME),
            Kind::Outside => (&mut self.outside, MAX_OUTSIDE, MAX_NAME),
            Kind::Client => (&mut self.clients, MAX_CLIENTS, MAX_PRINCIPAL),
        };
        if let Some(known) = map.get_mut(key) {
            known.add(counts);
            return;
        }
        if map.len() < limit && key.len() <= length {
            map.insert(key.to_owned(), counts);
            return;
        }

        match kind {
            // What is outside gets no host of a Sidecar: its sum is enough.
            Kind::Outside => self.more_outside.add(counts),
            Kind::Call => self.is_truncated = true,
            Kind::Client => self.has_more_clients = true,
        }
    }
}

/// What a series counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Call,
    Outside,
    Client,
}

impl<'a> Reader<'a> {
    /// A reader of one source. `reading` has its name and time.
    #[must_use]
    pub fn new(reading: Reading, claim: Claim<'a>, is_host: &'a dyn Fn(&str) -> bool) -> Self {
        Self {
            claim,
            is_host,
            uptime: None,
            reading,
        }
    }

    /// Reads an exposition.
    pub fn read(&mut self, text: &str) {
        let wanted = [REQUESTS, CONNECTIONS, UPTIME];
        let malformed = exposition::read(text, &wanted, |series| self.take(&series));
        self.reading.malformed = malformed;
    }

    /// Ends the reading.
    #[must_use]
    pub fn finish(mut self) -> Reading {
        if let Some(uptime) = self.uptime {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "`as` saturates, and the value is below 2^53"
            )]
            let since = self.reading.read.before(uptime.min(MAX_COUNT) as i64);
            self.reading.since = self.reading.since.max(Some(since));
        }
        if let Claim::OwnWorkload(own) = self.claim {
            // A pod without traffic was read, too.
            self.reading.workloads.entry(own.clone()).or_default();
        }
        self.reading
    }

    /// Adds one series.
    pub fn take(&mut self, series: &Series) {
        if series.metric == UPTIME {
            // Of several proxies in a file the youngest counts.
            let uptime = self
                .uptime
                .map_or(series.value, |known| known.min(series.value));
            self.uptime = Some(uptime);
            return;
        }

        let reporter = series.label("reporter");
        if !matches!(reporter, "source" | "destination") {
            // A waypoint counts requests of others.
            return;
        }
        let named = WorkloadName {
            namespace: series
                .label(&format!("{reporter}_workload_namespace"))
                .to_owned(),
            name: series.label(&format!("{reporter}_workload")).to_owned(),
        };

        let Some(workload) = self.believed(named) else {
            self.reading.foreign += 1;
            return;
        };

        let counts = counts(series);
        if reporter == "destination" {
            let principal = known(series.label("source_principal"));
            self.add(workload, Kind::Client, principal, counts);
            return;
        }
        let (kind, key) = self.destination(series);
        self.add(workload, kind, key, counts);
    }

    /// The workload that a series is about, if the source may claim it.
    fn believed(&self, named: WorkloadName) -> Option<WorkloadName> {
        let is_named = !known(&named.namespace).is_empty() && !known(&named.name).is_empty();
        match self.claim {
            Claim::OwnWorkload(own) => (!is_named || named == *own).then(|| own.clone()),
            Claim::Operator => {
                // An application may have written the series: its names are parts of texts and keys.
                (is_named && named.is_valid()).then_some(named)
            }
        }
    }

    /// What a request was sent to.
    fn destination<'s>(&self, series: &'s Series) -> (Kind, &'s str) {
        let cluster = series.label("destination_service_name");
        if NO_SERVICE.contains(&cluster) {
            return (Kind::Outside, cluster);
        }

        match known(series.label("destination_service")) {
            "" => (Kind::Outside, UNKNOWN),
            host if (self.is_host)(host) => (Kind::Call, host),
            other => (Kind::Outside, other),
        }
    }

    fn add(&mut self, workload: WorkloadName, kind: Kind, key: &str, counts: Counts) {
        let workloads = &mut self.reading.workloads;
        if workloads.len() >= MAX_WORKLOADS && !workloads.contains_key(&workload) {
            return;
        }
        workloads
            .entry(workload)
            .or_default()
            .add(kind, key, counts);
    }
}

/// The value of a label; empty if it is not known.
fn known(value: &str) -> &str {
    if value == UNKNOWN { "" } else { value }
}

/// What the value of a series counts.
fn counts(series: &Series) -> Counts {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and at most 2^53"
    )]
    let count = series.value.min(MAX_COUNT).round() as u64;
    let code = series.label("response_code");
    let has_flag = |wanted: &[&str]| {
        let mut flags = series.label("response_flags").split(',');
        flags.any(|flag| wanted.contains(&flag))
    };

    let is_denied = code == "403" || has_flag(&[UNAUTHORIZED]);
    let is_failed = !is_denied && (code == "0" || code.starts_with('5') || has_flag(&FAILURES));
    let is_request = series.metric == REQUESTS;
    let only = |holds: bool| if holds { count } else { 0 };
    Counts {
        requests: only(is_request),
        connections: only(!is_request),
        failed: only(is_failed),
        denied: only(is_denied),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = r#"source_workload="web",source_workload_namespace="shop""#;

    fn moment() -> Moment {
        serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap()
    }

    /// The reading of a page of a pod of `shop/web`; hosts of the registry end with `.local`.
    fn of_pod(text: &str) -> Reading {
        let own = WorkloadName::new("shop", "web");
        let is_host = |host: &str| host.ends_with(".local");
        let reading = Reading::new("web-1", moment());
        let mut reader = Reader::new(reading, Claim::OwnWorkload(&own), &is_host);
        reader.read(text);
        reader.finish()
    }

    fn seen(reading: &Reading) -> &Seen {
        &reading.workloads[&WorkloadName::new("shop", "web")]
    }

    #[test]
    fn calls_are_counted_by_host_with_failed_and_denied_ones() {
        let reading = of_pod(&format!(
            r#"
istio_requests_total{{reporter="source",{OWN},destination_service="a.local",response_code="200",response_flags="-"}} 7
istio_requests_total{{reporter="source",{OWN},destination_service="a.local",response_code="503",response_flags="UH"}} 2
istio_requests_total{{reporter="source",{OWN},destination_service="a.local",response_code="403",response_flags="-"}} 1
istio_requests_total{{reporter="source",{OWN},destination_service="a.local",response_code="500",response_flags="UAEX"}} 1
istio_tcp_connections_opened_total{{reporter="source",{OWN},destination_service="db.local",response_flags="-"}} 3
istio_tcp_connections_opened_total{{reporter="source",{OWN},destination_service="db.local",response_flags="UF,URX"}} 1
envoy_server_uptime{{}} 3600
"#
        ));
        let calls = &seen(&reading).calls;

        let expected = Counts {
            requests: 11,
            connections: 0,
            failed: 2,
            denied: 2,
        };
        assert_eq!(calls["a.local"], expected);

        let expected = Counts {
            connections: 4,
            failed: 1,
            ..Counts::default()
        };
        assert_eq!(calls["db.local"], expected);

        assert_eq!(reading.since, Some(moment().before(3600)));
    }

    #[test]
    fn a_pod_is_believed_only_about_its_own_workload() {
        let reading = of_pod(
            r#"
istio_requests_total{reporter="source",source_workload="bank",source_workload_namespace="shop",destination_service="a.local"} 7
istio_requests_total{reporter="source",source_workload="web",source_workload_namespace="bank",destination_service="a.local"} 7
istio_requests_total{reporter="destination",destination_workload="bank",destination_workload_namespace="shop",source_principal="spiffe://x/ns/a/sa/b"} 7
istio_requests_total{reporter="waypoint",source_workload="web",source_workload_namespace="shop",destination_service="a.local"} 7
istio_requests_total{source_workload="web",source_workload_namespace="shop",destination_service="a.local"} 7
istio_requests_total{reporter="source",source_workload="unknown",source_workload_namespace="unknown",destination_service="b.local"} 1
"#,
        );
        assert_eq!(reading.foreign, 3);
        assert_eq!(reading.workloads.len(), 1);
        let hosts: Vec<&String> = seen(&reading).calls.keys().collect();
        assert_eq!(hosts, ["b.local"], "it is the pod's own page");
        assert!(seen(&reading).clients.is_empty());
    }

    #[test]
    fn only_hosts_of_the_registry_are_calls() {
        let text = |service: &str, name: &str| {
            format!(
                "istio_requests_total{{reporter=\"source\",{OWN},destination_service=\"{service}\",\
                 destination_service_name=\"{name}\"}} 1\n"
            )
        };
        let reading = of_pod(&format!(
            "{}{}{}{}{}",
            text("evil.example", "PassthroughCluster"),
            text("a.local", "BlackHoleCluster"),
            text("unknown", "unknown"),
            text("other.example", "other"),
            text("reviews.shop.global.local", "reviews"),
        ));
        let hosts: Vec<&String> = seen(&reading).calls.keys().collect();
        assert_eq!(hosts, ["reviews.shop.global.local"]);
        let outside: Vec<&String> = seen(&reading).outside.keys().collect();
        let expected = [
            "BlackHoleCluster",
            "PassthroughCluster",
            "other.example",
            "unknown",
        ];
        assert_eq!(outside, expected);
    }

    #[test]
    fn what_a_pod_can_name_is_bounded() {
        let mut text = String::new();
        for at in 0..MAX_HOSTS + 10 {
            text.push_str(&format!(
                "istio_requests_total{{reporter=\"source\",{OWN},destination_service=\"h{at}.local\"}} 1\n"
            ));
            text.push_str(&format!(
                "istio_requests_total{{reporter=\"source\",{OWN},destination_service=\"h{at}.example\"}} 1\n"
            ));
        }
        let reading = of_pod(&text);
        let seen = seen(&reading);
        assert_eq!(seen.calls.len(), MAX_HOSTS);
        assert!(seen.is_truncated);
        assert_eq!(seen.outside.len(), MAX_OUTSIDE);
        let more = u64::try_from(MAX_HOSTS + 10 - MAX_OUTSIDE).unwrap();
        assert_eq!(seen.more_outside.requests, more);
    }

    #[test]
    fn clients_cannot_spoil_a_sidecar() {
        let mut text = String::new();
        let account = "a".repeat(253);
        for at in 0..=MAX_CLIENTS {
            text.push_str(&format!(
                "istio_requests_total{{reporter=\"destination\",destination_workload=\"web\",\
                 destination_workload_namespace=\"shop\",\
                 source_principal=\"spiffe://cluster.local/ns/n{at}/sa/{account}\"}} 1\n"
            ));
        }
        let reading = of_pod(&text);
        let seen = seen(&reading);
        assert_eq!(seen.clients.len(), MAX_CLIENTS);
        assert!(seen.has_more_clients);
        assert!(!seen.is_truncated);
    }

    #[test]
    fn a_file_of_the_operator_may_have_several_workloads() {
        let is_host = |host: &str| host.ends_with(".local");
        let reading = Reading::new("metrics.txt", moment());
        let mut reader = Reader::new(reading, Claim::Operator, &is_host);
        reader.read(
            r#"
istio_requests_total{reporter="source",source_workload="web",source_workload_namespace="shop",destination_service="a.local"} 7
istio_requests_total{reporter="source",source_workload="ingress",source_workload_namespace="istio-system",destination_service="a.local"} 7
istio_requests_total{reporter="source",source_workload="unknown",source_workload_namespace="unknown",destination_service="a.local"} 7
istio_requests_total{reporter="source",source_workload="web",source_workload_namespace="shop/a",destination_service="a.local"} 7
istio_requests_total{reporter="source",source_workload="web\nkind: Forged",source_workload_namespace="shop",destination_service="a.local"} 7
istio_requests_total{reporter="destination",destination_workload="a",destination_workload_namespace="shop",source_principal="spiffe://d/ns/shop/sa/web"} 7
istio_requests_total{reporter="source",source_workload="web
envoy_server_uptime{} 60
envoy_server_uptime{} 30
"#,
        );
        let reading = reader.finish();
        let names: Vec<String> = reading.workloads.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["istio-system/ingress", "shop/a", "shop/web"]);
        let clients = &reading.workloads[&WorkloadName::new("shop", "a")].clients;
        assert_eq!(clients["spiffe://d/ns/shop/sa/web"].requests, 7);
        assert_eq!(reading.malformed.first[0].number, 8);
        assert_eq!(reading.since, Some(moment().before(30)), "the youngest");
    }
}
