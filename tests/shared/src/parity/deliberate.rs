//! `deliberate.txt`: deliberate differences from istiod, and resources of both that Envoy rejects,
//! each with its reason.

use std::collections::BTreeSet;
use std::path::Path;

/// Stands for the type where Envoy rejects istiod's resources.
pub const REJECTED: &str = "rejected-by-envoy";

/// Stands for the type where the Envoy on the test machine rejects Navarch's resources.
pub const REJECTED_HERE: &str = "rejected-by-envoy-here";

/// The listed lines `<case> <proxy> <type>` that `concerned` selects. A line that is not in
/// `different` fails the test.
pub fn deliberate(
    different: &BTreeSet<String>,
    concerned: impl Fn(&str) -> bool,
) -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../parity/deliberate.txt");
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let listed: BTreeSet<String> = lines
        .map(|line| {
            line.split_once(" : ")
                .unwrap_or_else(|| panic!("{}: no reason in {line:?}", file.display()))
        })
        .map(|(difference, _)| difference.trim().to_owned())
        .filter(|difference| concerned(difference))
        .collect();

    let equal: Vec<&String> = listed.difference(different).collect();
    assert!(
        equal.is_empty(),
        "equal now, remove it from {}: {equal:#?}",
        file.display()
    );

    listed
}

/// The type in a line `<case> <proxy> <type>`.
pub fn kind(line: &str) -> &str {
    line.rsplit(' ').next().unwrap_or_default()
}
