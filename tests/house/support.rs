//! The pages for operators and maintainers agree with the sources: supported versions, and what is
//! updated.

use std::collections::BTreeSet;
use std::fs;

use regex::Regex;

use super::folder;

/// What a file calls a version, as the first group of a pattern.
fn versions(file: &str, pattern: &str) -> Vec<String> {
    let text = fs::read_to_string(folder(file)).unwrap();
    let found: Vec<String> = Regex::new(pattern)
        .unwrap()
        .captures_iter(&text)
        .map(|found| found[1].to_owned())
        .collect();
    assert!(!found.is_empty(), "{file} has no {pattern}");
    found
}

#[test]
fn supported_versions_are_those_that_are_tested() {
    let page = fs::read_to_string(folder("docs/support.md")).unwrap();
    let mut expected = Vec::new();

    // A version, and how the page states it.
    for (file, pattern, before, after) in [
        (
            "tests/kube/go.mod",
            r"k8s\.io/kubernetes v(\d+\.\d+)",
            "| Kubernetes | ",
            " |",
        ),
        (
            "deploy/charts/navarch/Chart.yaml",
            r#"kubeVersion: ">=(\d+\.\d+)"#,
            " | ",
            " and newer; the chart rejects older ones |",
        ),
        (
            "crates/base/src/version.rs",
            r#"ISTIO_VERSION: &str = "(\d+\.\d+)"#,
            "| Istio's API and behaviour | ",
            " |",
        ),
        (
            "tests/conformance/go.mod",
            r"sigs\.k8s\.io/gateway-api v(\d+\.\d+)",
            "| Gateway API | ",
            " |",
        ),
        (
            "scripts/envoy",
            r"(?m)^envoy_version=(\d+\.\d+)",
            "| Envoy, unmodified, with Navarch's agent | ",
            " |",
        ),
    ] {
        let version = versions(file, pattern).remove(0);
        expected.push(format!("{before}{version}{after}"));
    }

    let compatible = versions(
        "deploy/charts/navarch/files/profiles.yaml",
        r#"(?m)^  "(1\.\d+)":"#,
    );
    let [first, .., last] = &compatible[..] else {
        panic!("{compatible:?}")
    };
    expected.push(format!("| {first} to {last} | the same |"));

    let missing: Vec<_> = expected
        .iter()
        .filter(|text| !page.contains(*text))
        .collect();
    assert_eq!(missing, Vec::<&String>::new(), "docs/support.md lacks them");
}

#[test]
fn pages_name_the_istiod_that_is_compared() {
    let commit = r"istio\.io/istio v0\.0\.0-\d+-(\w{12})";
    let commit = versions("tests/istiod/go.mod", commit).remove(0);
    for page in ["README.md", "docs/parity.md"] {
        let text = fs::read_to_string(folder(page)).unwrap();
        assert!(text.contains(&commit), "{page} does not name {commit}");
    }
}

#[test]
fn every_go_module_is_updated() {
    let root = folder("");
    let mut modules = BTreeSet::new();
    let mut folders = vec![folder("tests")];
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == "go.mod" {
                let module = path.strip_prefix(&root).unwrap();
                modules.insert(format!("/{}", module.display()));
            }
        }
    }

    let listed = versions(".github/dependabot.yml", r"(?m)^      - (/tests/\S+)$");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), modules);
}
