//! Checks of proxies: rejected and unanswered responses, and versions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use navarch_answers::doctor::{Check, Health, Level, MAX_FINDINGS_PER_CHECK};
use navarch_base::printable::shell_word;
use navarch_xds::connections::{ConnectionInfo, TypeInfo};

/// Seconds after which an unanswered response is reported.
const SLOW_RESPONSE_SECONDS: f64 = 10.0;

pub(super) fn add_findings(connections: &[ConnectionInfo], now: Timestamp, health: &mut Health) {
    rejections(connections, health);
    unanswered(connections, now, health);
    let versions = connections.iter().map(|info| {
        let version = info
            .proxy
            .meta("ISTIO_VERSION")
            .filter(|version| !version.is_empty());
        (
            version.unwrap_or_else(|| "unknown".to_owned()),
            &*info.proxy.name,
        )
    });

    versions_of(versions, health);

    if connections.is_empty() {
        let what = "no proxy is connected".to_owned();
        health.add(
            Check::Proxies,
            Level::Note,
            what,
            "kubectl get pods -A -l service.istio.io/canonical-name",
        );
    }
}

/// The command that shows what was sent to a proxy, whose name is the client's word.
fn why_push(proxy: &str) -> String {
    format!("navarch why push {}", shell_word(proxy))
}

/// Finds proxies that reject responses.
fn rejections(connections: &[ConnectionInfo], health: &mut Health) {
    let mut messages: BTreeMap<(&str, String), Vec<&ConnectionInfo>> = BTreeMap::new();

    for info in connections {
        for watch in &info.types {
            if let Some(rejected) = &watch.rejected {
                messages
                    .entry((
                        watch.resource_type.short_name(),
                        rejected.message.to_string(),
                    ))
                    .or_default()
                    .push(info);
            }
        }
    }

    let different = messages.len();

    for ((resource_type, message), proxies) in messages.iter().take(MAX_FINDINGS_PER_CHECK) {
        let Some(first) = proxies.first() else {
            continue;
        };

        let what = match proxies.len() {
            1 => format!("{} rejects {resource_type}: {message}", first.proxy.name),
            all => format!(
                "{all} proxies reject {resource_type}, for example {}: {message}",
                first.proxy.name
            ),
        };

        health.add(
            Check::Nacks,
            Level::Wrong,
            what,
            &why_push(&first.proxy.name),
        );
    }

    health.more(
        Check::Nacks,
        different,
        "different errors of proxies",
        "navarch request GET /debug/syncz",
    );
}

/// Finds proxies that do not answer responses.
fn unanswered(connections: &[ConnectionInfo], now: Timestamp, health: &mut Health) {
    let waits = |watch: &TypeInfo| {
        let is_open = |nonce: &str| {
            watch
                .acked
                .as_ref()
                .is_none_or(|acked| &*acked.nonce != nonce)
        };
        let sent = watch.sent.as_ref().filter(|sent| is_open(&sent.nonce))?;
        (watch.rejected.is_none()).then(|| now.duration_since(sent.at).as_secs_f64())
    };

    let longest = |info: &ConnectionInfo| info.types.iter().filter_map(waits).fold(0.0, f64::max);
    let slow: Vec<_> = connections
        .iter()
        .map(|info| (info, longest(info)))
        .filter(|(_, wait)| *wait > SLOW_RESPONSE_SECONDS)
        .collect();
    let Some((first, seconds)) = slow.first() else {
        return;
    };

    let name = &first.proxy.name;
    let what = match slow.len() {
        1 => format!("{name} has not acknowledged a response for {seconds:.0} s"),
        all => format!("{all} proxies have not acknowledged a response, {name} for {seconds:.0} s"),
    };
    health.add(Check::Lag, Level::Wrong, what, &why_push(name));
}

/// Proxies of other versions than most, which were not restarted since an upgrade.
fn versions_of<'a>(all: impl Iterator<Item = (String, &'a str)>, health: &mut Health) {
    let mut by_version: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (version, proxy) in all {
        by_version.entry(version).or_default().push(proxy);
    }

    let usual = by_version
        .iter()
        .max_by_key(|(_, proxies)| proxies.len())
        .map(|(version, _)| version.clone());
    let Some(usual) = usual else { return };

    for (version, proxies) in by_version
        .iter()
        .filter(|(version, _)| **version != usual)
        .take(MAX_FINDINGS_PER_CHECK)
    {
        let Some(first) = proxies.first() else {
            continue;
        };
        let what = match proxies.len() {
            1 => format!("{first} has version {version}, most proxies have {usual}"),
            count => format!(
                "{count} proxies, for example {first}, have version {version}, most have {usual}"
            ),
        };

        let namespace = first
            .rsplit_once('.')
            .map_or("NAMESPACE", |(_, namespace)| namespace);
        health.add(
            Check::Versions,
            Level::Note,
            what,
            &format!("kubectl rollout restart deployment -n {namespace}"),
        );
    }

    health.more(
        Check::Versions,
        by_version.len().saturating_sub(1),
        "versions of proxies",
        "istioctl proxy-status",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_with_a_minority_version_are_reported() {
        let findings = |all: &[(&str, &str)]| {
            let mut health = Health::default();
            versions_of(
                all.iter()
                    .map(|(version, proxy)| ((*version).to_owned(), *proxy)),
                &mut health,
            );
            health
                .findings
                .into_iter()
                .map(|finding| (finding.level, finding.what, finding.next))
                .collect::<Vec<_>>()
        };

        assert_eq!(findings(&[]), []);
        assert_eq!(findings(&[("1.32.0", "a.shop"), ("1.32.0", "b.shop")]), []);
        let what = "old.bank has version 1.30.1, most proxies have 1.32.0".to_owned();
        let next = "kubectl rollout restart deployment -n bank".to_owned();
        let all = [
            ("1.32.0", "a.shop"),
            ("1.32.0", "b.shop"),
            ("1.30.1", "old.bank"),
        ];
        assert_eq!(findings(&all), [(Level::Note, what, next)]);
    }
}
