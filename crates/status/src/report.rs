//! A replica's report of the progress of objects among its proxies, as ConfigMaps.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::distribution::Progresses;
use super::reconciled::Progress;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_base::state_format::{self, FormatError, KEY};

/// The label of the ConfigMaps, which istiod used for its distribution reports.
pub(super) const LABEL: &str = "internal.istio.io/distribution-report";
/// The key of the replica's name, which may be longer than a label.
pub(super) const REPORTER: &str = "reporter";
/// The key of the lines.
pub(super) const LINES: &str = "distribution-report";
/// The key of the report's time: a report that was not renewed is ignored.
pub(super) const RENEWED: &str = "renewed";
/// The format of the ConfigMaps.
const FORMAT: u32 = 1;
/// Maximum size of one ConfigMap, well below the API server's limit.
const MAX_BYTES: usize = 512 << 10;

/// The progress of objects among the proxies of one replica, without those that reach no proxy.
pub(super) type Report = BTreeMap<ObjectRef, Progress>;

/// The texts of a report, each for a separate ConfigMap. There is at least one.
pub(super) fn write(report: &BTreeMap<ObjectRef, Progress>) -> Vec<String> {
    let mut parts = vec![String::new()];

    for (object, progress) in report.iter().filter(|(_, progress)| progress.reached > 0) {
        let Progress {
            generation,
            reached,
            current,
        } = progress;
        let mut line = String::new();

        // Writing to a `String` cannot fail.
        let _ = writeln!(
            line,
            "{} {} {} {generation} {reached} {current}",
            object.kind, object.name.namespace, object.name.name
        );
        match parts
            .last_mut()
            .filter(|part| part.len() + line.len() <= MAX_BYTES)
        {
            Some(part) => part.push_str(&line),
            None => parts.push(line),
        }
    }

    parts
}

/// The entries of the ConfigMap with a text.
pub(super) fn data(lines: &str, reporter: &str, renewed: String) -> BTreeMap<String, String> {
    BTreeMap::from([
        (KEY.to_owned(), FORMAT.to_string()),
        (LINES.to_owned(), lines.to_owned()),
        (REPORTER.to_owned(), reporter.to_owned()),
        (RENEWED.to_owned(), renewed),
    ])
}

/// Reads the entries of a ConfigMap.
///
/// # Errors
/// If a later release wrote them.
pub(super) fn read_data(data: &BTreeMap<String, String>) -> Result<Report, FormatError> {
    state_format::check_text(data.get(KEY).map(String::as_str), FORMAT)?;
    Ok(data.get(LINES).map(|lines| read(lines)).unwrap_or_default())
}

/// Parses a text. Unknown lines, such as those of later versions, are ignored.
fn read(text: &str) -> Report {
    text.lines().filter_map(line).collect()
}

/// Reads a line.
fn line(line: &str) -> Option<(ObjectRef, Progress)> {
    let mut parts = line.split(' ');
    let kind = parts.next()?;
    let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind)?;
    let name = NamespacedName::new(parts.next()?, parts.next()?);
    let progress = Progress {
        generation: parts.next()?.parse().ok()?,
        reached: parts.next()?.parse().ok()?,
        current: parts.next()?.parse().ok()?,
    };
    Some((ObjectRef { kind, name }, progress))
}

/// The sum of this replica's progress and the others' reports. This replica determines the objects
/// and their generations.
pub(super) fn sum<'a>(
    own: &Progresses,
    others: impl Iterator<Item = &'a Report>,
) -> BTreeMap<ObjectRef, Progress> {
    let mut sum = (**own).clone();
    for report in others {
        for (object, theirs) in report {
            let Some(ours) = sum.get_mut(object) else {
                continue;
            };
            ours.reached += theirs.reached;
            // A report of another generation counts proxies of that generation.
            if theirs.generation == ours.generation {
                ours.current += theirs.current.min(theirs.reached);
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef {
            kind: Kind::VirtualService,
            name: NamespacedName::new("shop", name),
        }
    }

    fn progress(generation: i64, reached: usize, current: usize) -> Progress {
        Progress {
            generation,
            reached,
            current,
        }
    }

    #[test]
    fn reports_are_split_into_several_configmaps() {
        let none = write(&BTreeMap::from([(object("a"), progress(1, 0, 0))]));
        assert_eq!(none, [""], "who reaches nobody is not told of");
        let many: Report = (0..20_000)
            .map(|n| (object(&format!("service-{n:05}")), progress(3, 7, 5)))
            .collect();
        let parts = write(&many);
        assert!(parts.len() > 1 && parts.iter().all(|part| part.len() <= MAX_BYTES));
        let back: Report = parts.iter().flat_map(|part| read(part)).collect();
        assert_eq!(back, many);
        assert!(read("VirtualService shop\nNews a b 1 2 3\nGateway a b x 2 3\n").is_empty());
    }

    #[test]
    fn a_report_has_the_committed_form() {
        let committed = include_str!("../../../tests/corpora/state/distribution-report.1.json");
        let committed: BTreeMap<String, String> = serde_json::from_str(committed).unwrap();
        let report = Report::from([
            (object("reviews"), progress(3, 7, 5)),
            (object("web"), progress(1, 2, 2)),
        ]);

        let lines = write(&report).remove(0);
        let written = data(&lines, "istiod-1", "2026-11-23T10:15:00Z".to_owned());
        assert_eq!(written, committed);
        assert_eq!(read_data(&committed), Ok(report));

        let mut later = committed;
        later.insert(KEY.to_owned(), "2".to_owned());
        assert!(read_data(&later).is_err_and(|error| error.is_newer()));
    }

    #[test]
    fn shares_are_summed_and_older_generations_are_not_current() {
        let own = Arc::new(BTreeMap::from([
            (object("a"), progress(2, 3, 2)),
            (object("b"), progress(1, 0, 0)),
        ]));
        let same = Report::from([
            (object("a"), progress(2, 4, 4)),
            (object("gone"), progress(1, 9, 9)),
        ]);

        let behind = Report::from([
            (object("a"), progress(1, 5, 5)),
            (object("b"), progress(1, 1, 1)),
        ]);
        let sum = sum(&own, [&same, &behind].into_iter());
        assert_eq!(
            sum,
            BTreeMap::from([
                (object("a"), progress(2, 12, 6)),
                (object("b"), progress(1, 1, 1))
            ])
        );
    }
}
