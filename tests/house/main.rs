//! Rules for the source code that the compiler cannot check: every file belongs to a module, and is
//! where its name says; modules of large crates depend on each other in one direction, files have a
//! maximum length, hashers have a key, files are read in one way, the version is stated in one
//! place, the chart warns of values without effect, commands print in one way, labels of metrics are
//! escaped, pages have the figures of the newest release and name tests that exist; which files a
//! new clone compiles; and the scripts of a release and of conformance reports.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot read the sources must fail"
)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use regex::Regex;

mod benchmarks;
mod chart_values;
mod conformance_report;
mod listed_tests;
mod metric_labels;
mod module_circles;
mod release_artefacts;
mod support;
mod terminal;

/// Maximum length of a file without its tests.
const MAX_LINES: usize = 700;

/// The path of a folder of this repository.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Every `.rs` file under `folder`, ordered by path.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The module path of a file under `root`: `["push", "view"]` for `push/view.rs`, empty for
/// `lib.rs` and `main.rs`.
fn module_path(root: &Path, file: &Path) -> Vec<String> {
    let name = file.strip_prefix(root).unwrap().with_extension("");
    let parts: Vec<_> = name
        .components()
        .map(|part| part.as_os_str().to_str().unwrap().to_owned())
        .collect();
    if parts == ["lib"] || parts == ["main"] {
        Vec::new()
    } else {
        parts
    }
}

/// `text` without its comments; works for source files whose strings contain no `//`.
fn code(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The lines of a source file before its tests.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair == ["#[cfg(test)]", "mod tests {"]);
    tests.unwrap_or(lines.len())
}

/// The folders of all crates' sources.
fn crate_sources() -> Vec<PathBuf> {
    let members = fs::read_dir(folder("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"));
    let mut roots: Vec<_> = ["src", "proto/src"]
        .map(folder)
        .into_iter()
        .chain(members)
        .collect();
    roots.sort();
    assert!(roots.len() > 10, "{roots:?}");
    roots
}

/// Every source file of Navarch except tests.
fn sources_without_tests() -> Vec<PathBuf> {
    let is_test =
        |part: &std::path::Component<'_>| part.as_os_str().to_string_lossy().starts_with("tests");
    let of_crate = |root: &PathBuf| {
        let files = sources(root).into_iter();
        let root = root.clone();
        files.filter(move |file| {
            !file
                .strip_prefix(&root)
                .unwrap()
                .components()
                .any(|part| is_test(&part))
        })
    };
    crate_sources().iter().flat_map(of_crate).collect()
}

#[test]
fn admin_and_server_do_not_depend_on_modules_that_wire_them() {
    // Between crates the compiler enforces this; these are modules of one crate.
    for (module, forbidden) in [
        ("admin", ["crate::server", "crate::cli", "navarch_agent"]),
        ("server", ["crate::cli", "navarch_agent", "super::cli"]),
    ] {
        for file in sources(&folder("src").join(module))
            .into_iter()
            .chain([folder("src").join(module).with_extension("rs")])
        {
            let code = code(&fs::read_to_string(&file).unwrap());
            for name in forbidden {
                assert!(!code.contains(name), "{} depends on {name}", file.display());
            }
        }
    }
}

#[test]
fn every_file_is_named_by_a_mod() {
    let mut orphans = Vec::new();

    for root in crate_sources() {
        for file in sources(&root) {
            let path = module_path(&root, &file);
            let Some((name, parents)) = path.split_last() else {
                continue;
            };
            let parent = match parents {
                [] => root.join("lib.rs"),
                parents => root.join(parents.join("/")).with_extension("rs"),
            };
            let declared = Regex::new(&format!(r"(?m)^\s*(pub(\([^)]*\))? )?mod {name};")).unwrap();
            let says = fs::read_to_string(&parent).unwrap_or_default();
            if name == "mod" || !declared.is_match(&says) {
                orphans.push(file);
            }
        }
    }

    assert_eq!(
        orphans,
        Vec::<PathBuf>::new(),
        "no `mod` names them (and no file is called mod.rs)"
    );
}

/// Files that name a module of another place by `#[path]`, each with the reason. What tests, benches
/// and fuzz targets share is in libraries: `navarch_testkit`, `navarch_tests`, `navarch_fuzz_targets`.
const BY_PATH: [&str; 1] = [
    // As a dependency of the build, the crate would be compiled a second time.
    "build.rs",
];

#[test]
fn modules_are_where_their_mod_says() {
    let folders = [
        "benches",
        "crates",
        "fuzz/fuzz_targets",
        "fuzz/targets",
        "proto",
        "src",
        "testkit",
        "tests",
    ];
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|name| sources(&folder(name)))
        .collect();
    files.push(folder("build.rs"));

    let root = folder("");
    let by_path: Vec<String> = files
        .iter()
        .filter(|file| {
            let text = fs::read_to_string(file).unwrap();
            text.lines()
                .any(|line| line.trim_start().starts_with("#[path"))
        })
        .map(|file| file.strip_prefix(&root).unwrap().display().to_string())
        .filter(|file| !BY_PATH.contains(&file.as_str()))
        .collect();

    assert_eq!(by_path, Vec::<String>::new(), "they share code by #[path]");
}

#[test]
fn sources_are_within_the_limits_of_the_gauges() {
    let checked = Command::new(folder("scripts/gauges"))
        .arg("--check")
        .output()
        .unwrap();

    let places = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{places}");
}

#[test]
fn no_file_exceeds_the_maximum_length() {
    let roots = crate_sources()
        .into_iter()
        .chain(["tests", "benches", "testkit/src"].map(folder));
    let long: Vec<_> = roots
        .flat_map(|root| sources(&root))
        .filter(|file| !file.ends_with("tests.rs"))
        .map(|file| {
            (
                lines_without_tests(&fs::read_to_string(&file).unwrap()),
                file,
            )
        })
        .filter(|(lines, _)| *lines > MAX_LINES)
        .collect();
    assert_eq!(long, Vec::new(), "split at the concept");
}

/// Lines of a source file, except tests, that name a hasher other than those of `tables::hash` and
/// std's `HashMap`, whose keys are random.
fn hashers_without_a_key(text: &str) -> Vec<String> {
    let hashers =
        Regex::new(r"\b(ahash|rustc_hash|foldhash|fnv|fxhash|nohash\w*|siphasher|Fx\w*|DefaultHasher|BuildHasherDefault|with_hasher)\b|\bimpl\b.*\bHasher for\b")
            .unwrap();
    let code = code(text);
    let lines = code.lines().take(lines_without_tests(text));
    lines
        .filter(|line| hashers.is_match(line))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn tables_are_hashed_with_a_random_key() {
    let own = folder("crates/tables/src/hash.rs");
    let files = sources_without_tests()
        .into_iter()
        .filter(|file| *file != own);
    let found: Vec<_> = files
        .flat_map(|file| {
            let lines = hashers_without_a_key(&fs::read_to_string(&file).unwrap());
            lines.into_iter().map(move |line| (file.clone(), line))
        })
        .collect();

    assert_eq!(
        found,
        Vec::new(),
        "take KeyedMap, KeyedSet or keyed_hash of tables::hash, or a BTreeMap"
    );

    for text in [
        "use rustc_hash::FxHashMap;",
        "let hasher = DefaultHasher::new();",
        "HashMap::with_hasher(x)",
    ] {
        assert_eq!(hashers_without_a_key(text), [text]);
    }
}

/// Lines of a source file, except tests, that read a file by std or tokio.
fn plain_reads(text: &str) -> Vec<String> {
    let reads = Regex::new(r"\bfs::read(_to_string)?\b|\bFile::open\b").unwrap();
    let code = code(text);
    let lines = code.lines().take(lines_without_tests(text));
    lines
        .filter(|line| reads.is_match(line))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn files_are_only_read_through_regular_file() {
    // Exceptions: the function itself; a command's arguments, which may be a FIFO; a directory, to
    // sync it to disk; the symbols of the running program, which are beside it and too large to
    // read whole.
    let allowed = [
        "crates/base/src/regular_file.rs",
        "crates/profile/src/symbols.rs",
        "src/cli/reading.rs",
        "crates/security/src/ca/root_store/folder.rs",
    ]
    .map(folder);

    let files = sources_without_tests()
        .into_iter()
        .filter(|file| !allowed.contains(file));
    let found: Vec<_> = files
        .flat_map(|file| {
            let lines = plain_reads(&fs::read_to_string(&file).unwrap());
            lines.into_iter().map(move |line| (file.clone(), line))
        })
        .collect();

    assert_eq!(found, Vec::new(), "take navarch_base::regular_file");

    for text in [
        "std::fs::read(path)",
        "let text = fs::read_to_string(path)?;",
        "tokio::fs::read(path).await",
        "File::open(x)",
    ] {
        assert_eq!(plain_reads(text), [text]);
    }
}

/// The version in `[workspace.package]`, which every crate inherits.
fn workspace_version() -> String {
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    let (_, package) = manifest.split_once("[workspace.package]\n").unwrap();
    let package = package.split("\n[").next().unwrap();
    let version = Regex::new(r#"(?m)^version = "([^"]+)"$"#).unwrap();
    version.captures(package).unwrap()[1].to_owned()
}

#[test]
fn every_version_is_that_of_the_workspace() {
    // What a file calls the version of this release, as the first group of a pattern.
    let places = [
        (
            "Cargo.lock",
            r#"name = "navarch[\w-]*"\nversion = "([^"]+)""#,
        ),
        ("deploy/charts/base/Chart.yaml", r"(?m)^version: (.+)$"),
        ("deploy/charts/base/Chart.yaml", r"(?m)^appVersion: (.+)$"),
        ("deploy/charts/gateway/Chart.yaml", r"(?m)^version: (.+)$"),
        (
            "deploy/charts/gateway/Chart.yaml",
            r"(?m)^appVersion: (.+)$",
        ),
        ("deploy/charts/navarch/Chart.yaml", r"(?m)^version: (.+)$"),
        (
            "deploy/charts/navarch/Chart.yaml",
            r"(?m)^appVersion: (.+)$",
        ),
        ("deploy/charts/navarch/values.yaml", r"(?m)^    tag: (.+)$"),
        (
            "deploy/navarch.yaml",
            r#"app\.kubernetes\.io/version: "([^"]+)""#,
        ),
        (
            "deploy/navarch.yaml",
            r#"image: "ghcr\.io/navarch/navarch:([^"]+)""#,
        ),
        ("deploy/navarch.yaml", r#""tag": "([^"]+)""#),
        ("docs/doctor.md", r"Navarch (\d[\w.-]*):"),
        ("docs/record.md", r"of navarch (\d[\w.-]*) begins"),
    ];
    let version = workspace_version();
    let mut wrong = Vec::new();

    for (file, pattern) in places {
        let text = fs::read_to_string(folder(file)).unwrap();
        let pattern = Regex::new(pattern).unwrap();
        let stated: Vec<_> = pattern
            .captures_iter(&text)
            .map(|found| found[1].to_owned())
            .collect();
        if stated.is_empty() || stated.iter().any(|other| *other != version) {
            wrong.push(format!("{file}: {pattern}: {stated:?}"));
        }
    }

    for root in crate_sources() {
        let manifest = root.with_file_name("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        if !text.lines().any(|line| line == "version.workspace = true") {
            wrong.push(format!("{}: a version of its own", manifest.display()));
        }
    }

    assert_eq!(wrong, Vec::<String>::new(), "the version is {version}");

    // A tag of this name is the version of its build, and Istio's tools read `MAJOR.MINOR` of it.
    let form = Regex::new(r"^\d+\.\d+\.\d+(-[0-9a-z.]+)?$").unwrap();
    assert!(form.is_match(&version), "{version}");
}

#[test]
fn files_of_a_new_clone_have_the_times_of_those_that_were_compiled() {
    let work = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program)
            .args(arguments)
            .current_dir(work.path())
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{program} {arguments:?}");
    };

    let restore = || {
        run(
            folder("scripts/source-times").to_str().unwrap(),
            &[target.path().to_str().unwrap()],
        )
    };

    let time = |name: &str| {
        fs::metadata(work.path().join(name))
            .unwrap()
            .modified()
            .unwrap()
    };

    // Each clone writes all files, some hours after the previous one.
    let mut hours = 1;
    let mut clone = |contents: [&str; 2]| {
        let now = UNIX_EPOCH + Duration::from_hours(hours);
        for (name, content) in ["src/same.rs", "src/other.rs"].into_iter().zip(contents) {
            fs::write(work.path().join(name), content).unwrap();
            File::options()
                .write(true)
                .open(work.path().join(name))
                .unwrap()
                .set_modified(now)
                .unwrap();
        }
        hours += 1;
        now
    };

    run("git", &["init", "-q"]);
    fs::create_dir(work.path().join("src")).unwrap();
    let first = clone(["a", "b"]);
    run("git", &["add", "src"]);
    restore();
    assert_eq!((time("src/same.rs"), time("src/other.rs")), (first, first));
    let second = clone(["a", "c"]);
    restore();

    assert_eq!((time("src/same.rs"), time("src/other.rs")), (first, second));
    let third = clone(["a", "b"]);
    restore();
    assert_eq!(
        (time("src/same.rs"), time("src/other.rs")),
        (first, third),
        "returning to earlier content is also a change"
    );
}
