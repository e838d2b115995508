//! Parity: for the same input, Navarch's resources equal istiod's, except for differences listed in
//! the ratchet file.
//!
//! `PARITY=<text>` runs the cases whose names contain the text and prints their differences.
//! `NAVARCH_PARITY_CASES=<dir>` runs the cases of another directory, without the ratchet;
//! `NAVARCH_PARITY_REPORT=<file>` writes the outcome as JSON. `NAVARCH_PARITY_GOT=<name>` writes
//! each response that differs into a directory of that name in its case. `PARITY_UPDATE=1` rewrites
//! the ratchet file. Deliberate differences are listed in `parity/deliberate.txt`, with reasons.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

mod ads;
mod caller;
mod canon;
mod cluster;
mod created;
mod environment;
mod forms;
mod grpc;
mod object_status;
mod run;
mod ztunnel;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use case::Case;
use deliberate::{REJECTED, REJECTED_HERE, deliberate, kind};
use navarch::push::resource::ResourceType;
use navarch_proto::json::Codec;
use navarch_shadow::comparison::compare as compare_answers;
use navarch_shadow::subscriptions::{self, ResourcesByType};
use navarch_testkit::skip;
use navarch_tests::parity::{case, deliberate, input};
use navarch_tests::shown;
use serde_json::{Value, json};

/// The differences by case, proxy and type. A case that could not run has the reason instead.
type Outcome = BTreeMap<String, Result<BTreeMap<String, BTreeMap<String, Vec<String>>>, String>>;

#[test]
fn resources_equal_istiods() {
    let foreign = std::env::var_os("NAVARCH_PARITY_CASES").map(PathBuf::from);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity");
    let root = foreign.clone().unwrap_or_else(|| here.join("cases"));
    let filter = std::env::var("PARITY").ok();
    let chosen = |case: &Case| {
        filter
            .as_ref()
            .is_none_or(|filter| case.name.contains(filter.as_str()))
    };

    let codec = Codec::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cases = Case::all(&root);
    let run = |case: &Case| (case.name.clone(), runtime.block_on(compare(case, &codec)));
    let outcome: Outcome = cases.iter().filter(|case| chosen(case)).map(run).collect();
    assert!(
        !outcome.is_empty(),
        "no case under {} has PARITY={filter:?} in its name",
        root.display()
    );

    print_table(&outcome);

    if let Some(file) = std::env::var_os("NAVARCH_PARITY_REPORT") {
        std::fs::write(
            file,
            serde_json::to_vec_pretty(&report(&outcome)).expect("JSON"),
        )
        .expect("the report is written");
    }

    if filter.is_some() {
        print_differences(&outcome);
    }

    if foreign.is_none() {
        let run = |line: &str| {
            let is_difference = ![REJECTED, REJECTED_HERE].contains(&kind(line));
            is_difference
                && line
                    .split_once(' ')
                    .is_some_and(|(case, _)| outcome.contains_key(case))
        };
        let different = lines(&outcome);
        let deliberate = deliberate(&different, run);
        let different = different.difference(&deliberate).cloned().collect();
        hold_ratchet(&here.join("ratchet.txt"), &different, run, filter.is_none());
    }
}

#[test]
fn route_tables_and_single_virtual_hosts_are_equivalent() {
    let cases = Case::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity/cases"));
    let apart = cases
        .iter()
        .map(|case| forms::check(case).unwrap_or_else(|error| panic!("{}: {error}", case.name)));
    let apart: usize = apart.sum();
    assert!(
        apart > 100,
        "only {apart} route configurations used on-demand virtual hosts"
    );
}

#[test]
fn istiods_resources_are_valid_for_envoy() {
    let cases = Case::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity/cases"));
    let codec = Codec::new();
    let mut faults = Vec::new();

    // Resources of proxyless gRPC applications are not for Envoy.
    let proxies = cases
        .iter()
        .flat_map(|case| case.proxies.iter().map(move |proxy| (case, proxy)));
    for (case, proxy) in proxies.filter(|(_, proxy)| !proxy.is_grpc()) {
        for resource in case.expected(proxy).into_values().flatten() {
            let Ok(any) = codec.any_from_json(&resource) else {
                continue;
            };
            let fault = navarch::envoy::constraints::check_bytes(&any.type_url, &any.value);
            let line = format!("{} {} {REJECTED}", case.name, proxy.name);
            faults.extend(fault.err().map(|fault| (line, fault.to_string())));
        }
    }

    let rejected = faults.iter().map(|(line, _)| line.clone()).collect();
    let known = deliberate(&rejected, |line| kind(line) == REJECTED);
    faults.retain(|(line, _)| !known.contains(line));
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The cases whose deliberate differences `navarch shadow` recognizes by the resources, with the
/// type that differs and the id of the difference.
const RECOGNIZED: [(&str, ResourceType, &str); 3] = [
    (
        "virtualservice/redirects",
        ResourceType::Route,
        "route-without-action",
    ),
    (
        "serviceentry/dynamic-dns",
        ResourceType::Cluster,
        "dynamic-names-unchecked",
    ),
    (
        "envoyfilter/http-filters",
        ResourceType::Listener,
        "filter-after-router",
    ),
];

#[test]
fn deliberate_differences_are_recognized_and_nothing_else_with_them() {
    let cases = Case::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity/cases"));
    let codec = Codec::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");

    for (name, resource_type, id) in RECOGNIZED {
        let case = cases.iter().find(|case| case.name == name);
        let case = case.unwrap_or_else(|| panic!("no case {name}"));
        let answers = runtime.block_on(run::run(case, &codec)).unwrap();

        for proxy in &case.proxies {
            let plural = subscriptions::plural(resource_type);
            let istiod = case.expected(proxy).remove(plural).unwrap_or_default();
            let navarch = answers[&proxy.name]
                .get(plural)
                .cloned()
                .unwrap_or_default();
            let found = compare_answers(
                &ResourcesByType::from([(resource_type, istiod)]),
                &ResourcesByType::from([(resource_type, navarch)]),
            );
            assert!(!found.is_empty(), "{name} {}", proxy.name);
            for one in &found {
                let documented = one.documented.map(|documented| documented.id);
                assert_eq!(documented, Some(id), "{name}: {}", one.difference);
            }
        }
    }
}

/// Every fifth case, in the order of names, also runs with an API server.
const SHARE: usize = 5;

/// Content that excludes a case: kinds without a CRD, addresses outside the server's ranges, and a
/// label that it rejects.
const UNDEFINED: [&str; 3] = [
    "gateway.networking.k8s.io/",
    "fd00:96::",
    "tunnel: none,http",
];

#[test]
fn resources_are_the_same_with_an_api_server() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity");
    let filter = std::env::var("PARITY").ok();
    let mut all = Case::all(&here.join("cases"));
    all.retain(|case| {
        case.file("input.yaml")
            .is_some_and(|input| !UNDEFINED.iter().any(|part| input.contains(part)))
    });

    // The test has one API server.
    all.retain(|case| case.remotes().is_empty());
    let share: Vec<&Case> = match &filter {
        Some(filter) => all
            .iter()
            .filter(|case| case.name.contains(filter.as_str()))
            .collect(),
        None => all.iter().step_by(SHARE).collect(),
    };

    if share.is_empty() {
        // The filtered cases need an API server with other CRDs.
        let why = "no case that one API server has the definitions for";
        assert!(filter.is_some(), "{why}");
        return skip::skip(&format!("PARITY={filter:?} names {why}"));
    }

    let codec = Codec::new();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let cluster = cluster::Server::start().await.unwrap();
        let mut different = Vec::new();

        for case in &share {
            // The responses with the same case read from files, whether or not they equal istiod's.
            let by_files = run::run(case, &codec).await.unwrap();
            let by_cluster = match cluster.run(case, &codec).await {
                Ok(answers) => answers,
                Err(error) => {
                    different.push(format!("{}: {error}", case.name));
                    continue;
                }
            };

            for (proxy, types) in &by_files {
                for (resource_type, expected) in types {
                    let got = by_cluster[proxy]
                        .get(resource_type)
                        .map_or(&[][..], Vec::as_slice);
                    let differences = canon::diff(expected, got);
                    if !differences.is_empty() {
                        different.push(format!(
                            "{} {proxy} {resource_type}:\n  {}",
                            case.name,
                            differences.join("\n  ")
                        ));
                    }
                }
            }
        }

        assert!(different.is_empty(), "{}", different.join("\n"));
        println!(
            "{} cases have the same result with an API server",
            share.len()
        );
    });
}

/// Stands for the proxy where objects are compared.
const OBJECTS: &str = "objects";

async fn compare(
    case: &Case,
    codec: &Codec,
) -> Result<BTreeMap<String, BTreeMap<String, Vec<String>>>, String> {
    let answers = run::run(case, codec).await?;
    let mut by_proxy = BTreeMap::new();

    for proxy in &case.proxies {
        let got = answers.get(&proxy.name).ok_or("no answers")?;
        let by_type = case
            .expected(proxy)
            .into_iter()
            .map(|(resource_type, expected)| {
                let actual = got.get(&resource_type).map_or(&[][..], Vec::as_slice);
                let differences = canon::diff(&expected, actual);
                if !differences.is_empty() {
                    keep_answer(case, &proxy.name, &resource_type, actual);
                }
                (resource_type, differences)
            });
        by_proxy.insert(proxy.name.clone(), by_type.collect());
    }

    if let Some(differences) = object_status::differences(case).await? {
        by_proxy.insert(
            OBJECTS.to_owned(),
            BTreeMap::from([("status".to_owned(), differences)]),
        );
    }

    if let Some(differences) = created::compare(case) {
        let objects: &mut BTreeMap<_, _> = by_proxy.entry(OBJECTS.to_owned()).or_default();
        objects.insert("created".to_owned(), differences?);
    }

    Ok(by_proxy)
}

/// Writes a response that differs into its case, if `NAVARCH_PARITY_GOT` is set.
fn keep_answer(case: &Case, proxy: &str, resource_type: &str, answer: &[Value]) {
    let Some(name) = std::env::var_os("NAVARCH_PARITY_GOT") else {
        return;
    };
    let folder = case.folder.join(name).join(proxy);
    std::fs::create_dir_all(&folder).expect("the directory in the case is created");
    let resources: Vec<Value> = canon::resources(answer).into_values().collect();
    let text = serde_json::to_vec_pretty(&resources).expect("JSON");
    std::fs::write(folder.join(format!("{resource_type}.json")), text)
        .expect("the response is written");
}

/// One line per difference for the ratchet: `<case> <proxy> <type>`, or `<case> error`.
fn lines(outcome: &Outcome) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (case, result) in outcome {
        match result {
            Err(_) => _ = lines.insert(format!("{case} error")),
            Ok(proxies) => {
                for (proxy, types) in proxies {
                    let different = types
                        .iter()
                        .filter(|(_, differences)| !differences.is_empty());
                    lines.extend(
                        different
                            .map(|(resource_type, _)| format!("{case} {proxy} {resource_type}")),
                    );
                }
            }
        }
    }
    lines
}

fn hold_ratchet(file: &Path, different: &BTreeSet<String>, run: impl Fn(&str) -> bool, all: bool) {
    if all && std::env::var_os("PARITY_UPDATE").is_some() {
        let text: String = different.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(file, text).expect("the ratchet file is written");
        return;
    }

    let text = std::fs::read_to_string(file).unwrap_or_default();
    let listed: BTreeSet<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#') && run(line))
        .map(str::to_owned)
        .collect();

    let worse: Vec<&String> = different.difference(&listed).collect();
    let better: Vec<&String> = listed.difference(different).collect();
    assert!(
        worse.is_empty(),
        "differs from istiod and is not listed in {}: {worse:#?}",
        file.display()
    );

    assert!(
        better.is_empty(),
        "equal now, take it out of {}: {better:#?}",
        file.display()
    );
}

fn print_table(outcome: &Outcome) {
    let mut by_area: BTreeMap<&str, (usize, usize, BTreeMap<&str, (usize, usize)>)> =
        BTreeMap::new();

    for (case, result) in outcome {
        let area = case.split('/').next().unwrap_or_default();
        let row = by_area.entry(area).or_default();
        row.1 += 1;
        let Ok(proxies) = result else { continue };
        row.0 += usize::from(
            proxies
                .values()
                .flat_map(BTreeMap::values)
                .all(Vec::is_empty),
        );

        for (resource_type, differences) in proxies.values().flatten() {
            let cell = row.2.entry(resource_type).or_default();
            cell.0 += usize::from(differences.is_empty());
            cell.1 += 1;
        }
    }

    let mut table = format!("{:<16} {:>9}   equal of all, by type\n", "area", "cases");

    for (area, (equal, all, types)) in by_area {
        let cells: Vec<String> = types
            .iter()
            .map(|(resource_type, (equal, all))| format!("{resource_type} {equal}/{all}"))
            .collect();
        table += &format!(
            "{area:<16} {:>9}   {}\n",
            format!("{equal}/{all}"),
            cells.join("  ")
        );
    }

    // Written directly to stderr, as the test harness hides the output of tests that pass.
    std::io::stderr().write_all(table.as_bytes()).unwrap();
}

fn print_differences(outcome: &Outcome) {
    for (case, result) in outcome {
        match result {
            Err(error) => println!("{case}: cannot run: {error}"),
            Ok(proxies) => {
                for (proxy, types) in proxies {
                    for (resource_type, differences) in types
                        .iter()
                        .filter(|(_, differences)| !differences.is_empty())
                    {
                        println!(
                            "{case} {proxy} {resource_type}:\n  {}",
                            differences.join("\n  ")
                        );
                    }
                }
            }
        }
    }
}

fn report(outcome: &Outcome) -> Value {
    let cases = outcome.iter().map(|(case, result)| {
        let value = match result {
            Err(error) => json!({ "error": error }),
            Ok(proxies) => Value::Object(
                proxies
                    .iter()
                    .map(|(proxy, types)| (proxy.clone(), report_types(types)))
                    .collect(),
            ),
        };
        (case.clone(), value)
    });
    Value::Object(cases.collect())
}

fn report_types(types: &BTreeMap<String, Vec<String>>) -> Value {
    let types = types.iter().map(|(resource_type, differences)| {
        (
            resource_type.clone(),
            json!({ "equal": differences.is_empty(), "differences": differences }),
        )
    });
    Value::Object(types.collect())
}
