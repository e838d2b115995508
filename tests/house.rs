//! The house rules that a compiler does not know: which room may know which, no file that nothing names, no file too long.

#![allow(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms under `src/`, and which others each may know. Both the arrows and their reasons are in ARCHITECTURE.md;
/// a new arrow is a change of the design, to be weighed there first.
const ARROWS: &[(&str, Knows)] = &[
    ("api", Knows::Only(&[])),
    ("net", Knows::Only(&["api"])),
    ("source", Knows::Only(&["api", "net"])),
    ("store", Knows::Only(&["api"])),
    ("registry", Knows::Only(&["api", "store"])),
    ("push", Knows::Only(&["api", "store", "registry"])),
    ("envoy", Knows::Only(&["api", "registry", "push"])),
    ("xds", Knows::Only(&["api", "net", "push", "security"])),
    ("walk", Knows::Only(&[])),
    ("security", Knows::Only(&["api", "net", "store"])),
    ("webhook", Knows::Only(&["api", "net", "security", "store"])),
    ("status", Knows::Only(&["api", "net", "store"])),
    ("admin", Knows::AllBut(&["cli", "server", "agent"])),
    ("agent", Knows::Only(&["api", "net", "security"])),
    ("server", Knows::AllBut(&["cli", "agent"])),
    ("cli", Knows::AllBut(&[])),
];

/// The longest that a file may be, its tests apart.
const MAX_LINES: usize = 500;

/// The rooms that a room may know besides itself.
enum Knows {
    /// These.
    Only(&'static [&'static str]),
    /// All others except these.
    AllBut(&'static [&'static str]),
}

impl Knows {
    /// Whether `room` is one of them.
    fn includes(&self, room: &str) -> bool {
        match self {
            Self::Only(rooms) => rooms.contains(&room),
            Self::AllBut(rooms) => !rooms.contains(&room),
        }
    }
}

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

/// The module path of a file under `root`: `["push", "view"]` for `push/view.rs`, nothing for `lib.rs` and `main.rs`.
fn module_path(root: &Path, file: &Path) -> Vec<String> {
    let name = file.strip_prefix(root).unwrap().with_extension("");
    let parts: Vec<_> = name.components().map(|part| part.as_os_str().to_str().unwrap().to_owned()).collect();
    if parts == ["lib"] || parts == ["main"] { Vec::new() } else { parts }
}

/// `text` without its comments, for a source file in which no string holds `//` and a path to a room.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The modules of the crate's root that `text`, the source of a module at depth `depth`, names by path.
fn named_at_root(text: &str, depth: usize) -> BTreeSet<String> {
    let start = Regex::new(r"\b(crate|navarch|super(?:\s*::\s*super)*)\s*::\s*(\{|\w+)").unwrap();
    let code = code(text);
    let mut named = BTreeSet::new();
    for found in start.captures_iter(&code) {
        let (from, first) = (found.get(1).unwrap().as_str(), found.get(2).unwrap());
        // An inline module adds a level that is not seen here, so a chain may also stop short of the root; what it
        // then names is not a room.
        if from.starts_with("super") && from.matches("super").count() < depth {
            continue;
        }
        if first.as_str() == "{" {
            named.extend(first_names(&code[first.end()..]));
        } else {
            named.insert(first.as_str().to_owned());
        }
    }
    named
}

/// The first name of each path in a group of `use`, of which `text` is what follows the brace.
fn first_names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut depth, mut name, mut complete) = (0_usize, String::new(), false);
    for sign in text.chars() {
        match sign {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.insert(std::mem::take(&mut name));
                complete = false;
            }
            _ if depth > 0 || complete => {}
            letter if letter.is_alphanumeric() || letter == '_' => name.push(letter),
            _ => complete = !name.is_empty(),
        }
    }
    names.insert(name);
    names.remove("");
    names
}

/// What one file knows that its room may not.
fn forbidden(path: &[String], text: &str) -> Vec<String> {
    let Some(own) = path.first() else { return Vec::new() };
    let Some((_, knows)) = ARROWS.iter().find(|(room, _)| room == own) else {
        return vec![format!("{own} is a room that ARROWS does not have")];
    };
    let file = path.join("/");
    named_at_root(text, path.len())
        .into_iter()
        .filter(|name| name != own && ARROWS.iter().any(|(room, _)| room == name) && !knows.includes(name))
        .map(|name| format!("{file} knows {name}"))
        .collect()
}

/// The lines of a source file before its tests.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| pair == ["#[cfg(test)]", "mod tests {"]);
    tests.unwrap_or(lines.len())
}

#[test]
fn rooms_know_only_what_the_arrows_allow() {
    let root = folder("src");
    let found: Vec<_> = sources(&root)
        .iter()
        .flat_map(|file| forbidden(&module_path(&root, file), &fs::read_to_string(file).unwrap()))
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_file_is_named_by_a_mod() {
    let mut orphans = Vec::new();
    for root in ["src", "proto/src"].map(folder) {
        for file in sources(&root) {
            let path = module_path(&root, &file);
            let Some((name, parents)) = path.split_last() else { continue };
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
    assert_eq!(orphans, Vec::<PathBuf>::new(), "no `mod` names them (and no file is called mod.rs)");
}

#[test]
fn no_file_is_too_long_for_one_sitting() {
    let roots = ["src", "proto/src", "tests", "benches"].map(folder);
    let long: Vec<_> = roots
        .iter()
        .filter(|root| root.is_dir())
        .flat_map(|root| sources(root))
        .filter(|file| !file.ends_with("tests.rs"))
        .map(|file| (lines_without_tests(&fs::read_to_string(&file).unwrap()), file))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .collect();
    assert_eq!(long, Vec::new(), "split at the concept");
}

/// Lines of a source file, its tests apart, that name a hasher other than those of `api::hash` and std's `HashMap`, whose keys
/// are random.
fn hashers_without_a_key(text: &str) -> Vec<String> {
    let hashers =
        Regex::new(r"\b(ahash|rustc_hash|foldhash|fnv|fxhash|nohash\w*|siphasher|Fx\w*|DefaultHasher|BuildHasherDefault|with_hasher)\b|\bimpl\b.*\bHasher for\b")
            .unwrap();
    let code = code(text);
    let lines = code.lines().take(lines_without_tests(text));
    lines.filter(|line| hashers.is_match(line)).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn tables_are_hashed_with_a_random_key() {
    let own = folder("src/api/hash.rs");
    let is_test = |file: &Path| file.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
    let files = sources(&folder("src"))
        .into_iter()
        .filter(|file| *file != own && !file.strip_prefix(folder("src")).is_ok_and(is_test));
    let found: Vec<_> = files
        .flat_map(|file| {
            let lines = hashers_without_a_key(&fs::read_to_string(&file).unwrap());
            lines.into_iter().map(move |line| (file.clone(), line))
        })
        .collect();
    assert_eq!(found, Vec::new(), "take KeyedMap, KeyedSet or keyed_hash of api::hash, or a BTreeMap");
    for text in ["use rustc_hash::FxHashMap;", "let hasher = DefaultHasher::new();", "HashMap::with_hasher(x)"] {
        assert_eq!(hashers_without_a_key(text), [text]);
    }
}

/// Lines of a source file, its tests apart, that read a file by std or tokio.
fn plain_reads(text: &str) -> Vec<String> {
    let reads = Regex::new(r"\bfs::read(_to_string)?\b|\bFile::open\b").unwrap();
    let code = code(text);
    let lines = code.lines().take(lines_without_tests(text));
    lines.filter(|line| reads.is_match(line)).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn files_are_read_by_the_one_function_that_neither_blocks_nor_goes_on_for_ever() {
    // The function itself; a command's arguments, where a FIFO is meant; a folder, to write it to the disk.
    let allowed = ["src/api/regular_file.rs", "src/cli/inject.rs", "src/security/ca/root_store/folder.rs"].map(folder);
    let is_test = |file: &Path| file.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
    let files = sources(&folder("src"))
        .into_iter()
        .filter(|file| !allowed.contains(file) && !file.strip_prefix(folder("src")).is_ok_and(is_test));
    let found: Vec<_> = files
        .flat_map(|file| {
            let lines = plain_reads(&fs::read_to_string(&file).unwrap());
            lines.into_iter().map(move |line| (file.clone(), line))
        })
        .collect();
    assert_eq!(found, Vec::new(), "take api::regular_file");
    for text in
        ["std::fs::read(path)", "let text = fs::read_to_string(path)?;", "tokio::fs::read(path).await", "File::open(x)"]
    {
        assert_eq!(plain_reads(text), [text]);
    }
}

#[test]
fn every_regression_in_the_docs_has_a_test_that_exists() {
    let text = fs::read_to_string(folder("docs/security-regressions.md")).unwrap();
    let quoted = Regex::new("`([^`]+)`").unwrap();
    let is_file = |text: &str| Path::new(text).extension().is_some_and(|extension| extension == "rs");
    let mut wrong = Vec::new();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---") && !line.starts_with("| fault"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for row in &rows {
        let tests = row.last().unwrap();
        let (mut file, mut found) = (None, 0);
        for name in quoted.captures_iter(tests).map(|found| found.get(1).unwrap().as_str()) {
            if is_file(name) {
                file = fs::read_to_string(folder(name)).ok();
            } else if file.as_ref().is_some_and(|text| text.contains(&format!("fn {name}("))) {
                found += 1;
            } else {
                wrong.push(format!("{}: there is no {name}", row[0]));
            }
        }
        if found == 0 && !tests.starts_with("not applicable: ") {
            wrong.push(format!("{}: no test", row[0]));
        }
    }
    assert!(rows.len() > 30, "{} rows", rows.len());
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_forbidden_arrow_is_seen_in_every_form() {
    let path = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    for text in [
        "use crate::store::Store;",
        "use crate::{api::Port, store::Store};",
        "use crate::{\n    api::{Host, Port},\n    store,\n};",
        "fn f(store: &crate::store::Store) {}",
        "use super::super::store::Store;",
        "pub(crate) use crate::store as s;",
    ] {
        assert_eq!(forbidden(&path("envoy/clusters"), text), ["envoy/clusters knows store"], "{text}");
    }
    for text in ["use crate::{api::Port, push::{View, store}};", "/// [`crate::store::Store`]", "use super::store::X;"]
    {
        assert_eq!(forbidden(&path("envoy/clusters"), text), Vec::<String>::new(), "{text}");
    }
}
