//! Differences between replicas, and between their clocks and the caller's.

use jiff::{SignedDuration, Timestamp};

use super::{Check, Health, Level};

/// Clock difference below which there is no finding: larger than delays of network and scheduler.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);
/// Clock difference above which it is wrong: new tokens and certificates are not valid yet.
const TOO_FAR: SignedDuration = SignedDuration::from_secs(60);
/// Seconds for which the configurations of replicas may differ, as changes do not reach all at once.
pub const MAX_DIFFERENT_SECONDS: u64 = 5;

/// Adds a finding if the clock of another process differs from the local one. `window` is when the
/// request was sent and when the answer was received; `whose` names the other clock, `than` the
/// local one.
pub fn clock(
    health: &mut Health,
    timestamp: Timestamp,
    window: [Timestamp; 2],
    [whose, than]: [&str; 2],
    next: &str,
) {
    let [begin, end] = window;
    let ahead = timestamp.duration_since(end);
    let behind = begin.duration_since(timestamp);
    let (apart, way) = if ahead > behind {
        (ahead, "ahead of")
    } else {
        (behind, "behind")
    };

    if apart <= MAX_CLOCK_DIFFERENCE {
        return;
    }

    let level = if apart > TOO_FAR {
        Level::Wrong
    } else {
        Level::Note
    };

    let seconds = apart.as_secs();
    health.add(
        Check::Clocks,
        level,
        format!("the clock of {whose} is {seconds} s {way} {than}"),
        next,
    );
}

/// Whether all replicas that report a digest of their configuration have the same.
#[must_use]
pub fn same_configuration(all: &[(String, Health)]) -> bool {
    let mut digests = all
        .iter()
        .map(|(_, health)| &health.configuration)
        .filter(|digest| !digest.is_empty());
    let first = digests.next();
    digests.all(|digest| Some(digest) == first)
}

/// Adds a finding to each replica that differs from the first.
pub fn compare(all: &mut [(String, Health)]) {
    let Some(((first, model), others)) = all.split_first_mut() else {
        return;
    };

    for (_, health) in others {
        let differs = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
        if differs(&health.version, &model.version) {
            let what = format!(
                "its version is {}, that of {first} is {}",
                health.version, model.version
            );
            let next = "kubectl rollout status -n istio-system deploy/istiod";
            health.add(Check::Replicas, Level::Note, what, next);
        }

        if differs(&health.configuration, &model.configuration) {
            let what = format!(
                "its configuration has differed from that of {first} for more than {MAX_DIFFERENT_SECONDS} s"
            );
            health.add(
                Check::Replicas,
                Level::Wrong,
                what,
                "navarch request GET /debug/configz, on each of them",
            );
        }

        if differs(&health.roots.join(" "), &model.roots.join(" ")) {
            let what = format!("its trusted roots differ from those of {first}");
            health.add(
                Check::Replicas,
                Level::Wrong,
                what,
                "navarch ca status, with --address of each of them",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn clock_differences_exclude_the_duration_of_the_request() {
        let reported = |seconds| {
            let mut health = Health::default();
            clock(
                &mut health,
                moment(seconds),
                [moment(0), moment(8)],
                ["istiod-1", "this machine's"],
                "date",
            );
            health
                .findings
                .pop()
                .map(|finding| (finding.level, finding.what))
        };

        assert_eq!(
            (reported(-5), reported(0), reported(4), reported(13)),
            (None, None, None, None)
        );
        let ahead = "the clock of istiod-1 is 6 s ahead of this machine's".to_owned();
        assert_eq!(reported(14), Some((Level::Note, ahead)));
        let behind = "the clock of istiod-1 is 90 s behind this machine's".to_owned();
        assert_eq!(reported(-90), Some((Level::Wrong, behind)));
    }

    #[test]
    fn differences_between_replicas_are_reported() {
        let replica = |version: &str, configuration: &str, root: &str| Health {
            version: version.to_owned(),
            configuration: configuration.to_owned(),
            roots: vec![root.to_owned()],
            ..Health::default()
        };

        let mut alike = [
            ("a".to_owned(), replica("1", "c", "r")),
            ("b".to_owned(), replica("1", "c", "r")),
        ];
        compare(&mut alike);
        assert!(
            same_configuration(&alike)
                && alike.iter().all(|(_, health)| health.findings.is_empty())
        );

        let mut all = [
            ("a".to_owned(), replica("1", "c", "r")),
            ("b".to_owned(), replica("2", "c", "r")),
            ("c".to_owned(), replica("1", "d", "r")),
            ("d".to_owned(), replica("1", "c", "s")),
            ("old".to_owned(), replica("1", "", "r")),
        ];

        assert!(!same_configuration(&all));
        compare(&mut all);
        let found = all.each_ref().map(|(_, health)| {
            health
                .findings
                .iter()
                .map(|finding| finding.level)
                .collect::<Vec<_>>()
        });

        assert_eq!(
            found,
            [
                vec![],
                vec![Level::Note],
                vec![Level::Wrong],
                vec![Level::Wrong],
                vec![]
            ]
        );

        assert_eq!(
            all[1].1.findings[0].what,
            "its version is 2, that of a is 1"
        );
    }
}
