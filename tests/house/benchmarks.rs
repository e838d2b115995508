//! The figures of each release, and the pages that are made of them.

use std::fs;
use std::process::Command;

use regex::Regex;

use super::{folder, workspace_version};

/// A version; a pre-release comes before its release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    numbers: Vec<u64>,
    is_release: bool,
    text: String,
}

impl Version {
    fn parse(text: &str) -> Self {
        let (numbers, _) = text.split_once('-').unwrap_or((text, ""));
        Self {
            numbers: numbers
                .split('.')
                .map(|number| number.parse().unwrap())
                .collect(),
            is_release: numbers == text,
            text: text.to_owned(),
        }
    }
}

/// The versions with figures, the oldest first.
fn measured() -> Vec<Version> {
    let mut versions: Vec<Version> = fs::read_dir(folder("benches/history"))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(figures["version"], name.as_str(), "{}", path.display());
            Version::parse(&name)
        })
        .collect();
    versions.sort();
    versions
}

/// The released versions: those that have a heading with a date, except that of the workspace, as
/// long as it has no tag, because it is being prepared.
fn released() -> Vec<String> {
    let changes = fs::read_to_string(folder("CHANGELOG.md")).unwrap();
    let heading = Regex::new(r"(?m)^## (\d+\.\d+\.\d+\S*) \(").unwrap();
    let prepared = Some(workspace_version()).filter(|version| !has_tag(version));
    heading
        .captures_iter(&changes)
        .map(|found| found[1].to_owned())
        .filter(|version| prepared.as_ref() != Some(version))
        .collect()
}

/// Whether a version has a tag. Sources without a repository have none.
fn has_tag(version: &str) -> bool {
    let tags = Command::new("git")
        .args(["tag", "--list", version])
        .current_dir(folder(""))
        .output();
    tags.is_ok_and(|tags| !tags.stdout.is_empty())
}

#[test]
fn a_released_version_has_figures_and_none_is_newer_than_the_workspace() {
    let measured = measured();
    let newest = measured.last().expect("benches/history has a file");
    assert!(
        *newest <= Version::parse(&workspace_version()),
        "{newest:?} is newer than the version of the workspace"
    );

    // Before a version is released, the newest figures may be of an earlier one.
    let missing: Vec<_> = released()
        .into_iter()
        .filter(|version| measured.iter().all(|kept| kept.text != *version))
        .collect();
    assert_eq!(missing, Vec::<String>::new(), "run make bench-release");
}

#[test]
fn figures_in_the_pages_are_those_of_the_newest_release() {
    let checked = Command::new(folder("scripts/bench-release"))
        .arg("--check")
        .output()
        .unwrap();

    let differences = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{differences}");
}

#[test]
fn exponents_of_growth_are_those_of_known_laws() {
    let checked = Command::new(folder("scripts/bench-growth"))
        .arg("--check")
        .output()
        .unwrap();

    let difference = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{difference}");
}

#[test]
fn versions_are_ordered_as_semver_orders_them() {
    let mut versions = ["1.0.0", "0.10.0", "1.0.0-rc.1", "0.9.0"].map(Version::parse);
    versions.sort();
    let texts = versions.map(|version| version.text);
    assert_eq!(texts, ["0.9.0", "0.10.0", "1.0.0-rc.1", "1.0.0"]);
}
