//! Modules of a crate depend on each other in one direction: the compiler enforces this between
//! crates only.
//!
//! A module is compared with its siblings, each together with all of its own modules, so a parent
//! that uses its children, which use the parent's types, is not a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module below the root of its crate: `["core", "sweep"]`.
type ModulePath = Vec<String>;

/// A dependency between two modules with the same parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dependency {
    /// The module that uses the other: `core::gates`.
    from: String,
    to: String,
}

/// A dependency that closes a circle and stays for now.
struct Exception {
    /// The module that uses the other.
    from: &'static str,
    to: &'static str,
    /// Why it stays.
    reason: &'static str,
}

/// The dependencies between siblings of a crate, with the files that cause them.
#[derive(Default)]
struct Dependencies(BTreeMap<Dependency, BTreeSet<PathBuf>>);

impl Dependencies {
    /// The dependencies of the crate whose sources are in this folder, tests excluded.
    fn read(root: &Path) -> Self {
        let mut modules = BTreeMap::new();
        add_module(root, &Vec::new(), &mut modules);

        let mut all = Self::default();
        for (module, source) in &modules {
            for used in source.paths(module) {
                let depth = (0..=used.len())
                    .rev()
                    .find(|depth| modules.contains_key(&used[..*depth]))
                    .unwrap_or_default();
                if let Some(dependency) = between_siblings(module, &used[..depth]) {
                    let files = all.0.entry(dependency).or_default();
                    files.insert(source.file.clone());
                }
            }
        }

        all
    }

    /// The dependencies that are part of a circle, each with a file that causes it; those in
    /// `exceptions` do not count.
    fn in_circles(&self, exceptions: &[Exception]) -> Vec<(Dependency, PathBuf)> {
        let counted: BTreeSet<&Dependency> = self
            .0
            .keys()
            .filter(|dependency| !exceptions.iter().any(|exception| exception.is(dependency)))
            .collect();

        let closes_circle =
            |dependency: &&&Dependency| reaches(&counted, &dependency.to, &dependency.from);
        counted
            .iter()
            .filter(closes_circle)
            .map(|dependency| {
                let files = &self.0[*dependency];
                let first = files
                    .first()
                    .expect("a dependency has a file that causes it");
                ((*dependency).clone(), first.clone())
            })
            .collect()
    }

    /// The exceptions without which there would be no circle either.
    fn unneeded<'a>(&self, exceptions: &'a [Exception]) -> Vec<&'a Exception> {
        let is_unneeded = |exception: &&Exception| {
            let others: BTreeSet<&Dependency> = self
                .0
                .keys()
                .filter(|dependency| {
                    exception.is(dependency) || !exceptions.iter().any(|other| other.is(dependency))
                })
                .collect();
            let exists = others.iter().any(|dependency| exception.is(dependency));
            !exists || !reaches(&others, exception.to, exception.from)
        };
        exceptions.iter().filter(is_unneeded).collect()
    }
}

impl Exception {
    fn is(&self, dependency: &Dependency) -> bool {
        dependency.from == self.from && dependency.to == self.to
    }
}

/// Whether one module uses another, directly or through others.
fn reaches(dependencies: &BTreeSet<&Dependency>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut todo = vec![from];
    while let Some(module) = todo.pop() {
        if module == to {
            return true;
        }
        for next in dependencies.iter().filter(|next| next.from == module) {
            if seen.insert(&next.to) {
                todo.push(&next.to);
            }
        }
    }
    false
}

/// The dependency between the ancestors, or selves, of two modules that are siblings; `None` if one
/// module contains the other.
fn between_siblings(from: &[String], to: &[String]) -> Option<Dependency> {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    Some(Dependency {
        from: from.get(..=common)?.join("::"),
        to: to.get(..=common)?.join("::"),
    })
}

/// A module's file, without tests and comments.
struct Source {
    file: PathBuf,
    code: String,
}

/// Reads a module and the modules that it declares, except those for tests.
fn add_module(root: &Path, module: &ModulePath, modules: &mut BTreeMap<ModulePath, Source>) {
    let inside = module
        .iter()
        .fold(root.to_owned(), |path, name| path.join(name));
    let file = match module.is_empty() {
        true => root.join("lib.rs"),
        false => inside.with_extension("rs"),
    };

    let text =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let source = Source {
        file,
        code: without_tests(&text),
    };

    let declared = source.code.lines().filter_map(|line| {
        let line = line.trim_start();
        let rest = ["pub(crate) mod ", "pub(super) mod ", "pub mod ", "mod "]
            .iter()
            .find_map(|prefix| line.strip_prefix(prefix))?;
        rest.strip_suffix(';').map(str::to_owned)
    });

    for name in declared {
        let child: ModulePath = module.iter().cloned().chain([name]).collect();
        add_module(root, &child, modules);
    }
    modules.insert(module.clone(), source);
}

/// The code without comments and without items for tests; for formatted files.
fn without_tests(text: &str) -> String {
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let mut kept = String::new();
    let mut lines = code.into_iter();

    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            skip_item(&mut lines);
        } else {
            kept.push_str(line);
            kept.push('\n');
        }
    }

    kept
}

/// Skips an item: to the closing brace under its first line, or to its semicolon.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>) {
    let mut end = None;
    for line in lines {
        let line = line.trim_end();
        let is_attribute = line.trim_start().starts_with("#[");
        match &end {
            Some(end) if line == end => return,
            Some(_) => {}
            None if is_attribute => {}
            None if line.ends_with('{') => {
                let indent = line.len() - line.trim_start().len();
                end = Some(format!("{}}}", &line[..indent]));
            }
            None if line.ends_with(';') || line.ends_with("{}") => return,
            None => {}
        }
    }
}

impl Source {
    /// All paths in the code that begin with `crate`, `self` or `super`, from the crate's root.
    fn paths(&self, module: &[String]) -> Vec<ModulePath> {
        let words = words(&self.code);
        let mut paths = Vec::new();
        for at in 0..words.len() {
            let is_start = matches!(words[at], "crate" | "self" | "super")
                && words.get(at + 1) == Some(&"::")
                && (at == 0 || words[at - 1] != "::");
            if is_start {
                expand(&words, at, &Vec::new(), &mut paths);
            }
        }

        paths
            .into_iter()
            .map(|path| from_root(module, &path))
            .collect()
    }
}

/// A path of the code as one from the crate's root.
fn from_root(module: &[String], path: &[String]) -> ModulePath {
    let mut absolute = module.to_vec();
    for word in path {
        match word.as_str() {
            "crate" => absolute.clear(),
            "self" => {}
            "super" => _ = absolute.pop(),
            name => absolute.push(name.to_owned()),
        }
    }
    absolute
}

/// The names, `::`, braces and commas of the code; other characters are single words.
fn words(code: &str) -> Vec<&str> {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if is_name(first) => rest
                .find(|character| !is_name(character))
                .unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (word, others) = rest.split_at(length);
        words.push(word);
        rest = others.trim_start();
    }
    words
}

/// Adds the paths of the tree that begins at a word, and returns the position behind it.
fn expand(words: &[&str], mut at: usize, before: &[String], paths: &mut Vec<ModulePath>) -> usize {
    let mut path = before.to_vec();
    loop {
        match words.get(at) {
            Some(&"{") => {
                at += 1;

                while words.get(at).is_some_and(|word| *word != "}") {
                    at = expand(words, at, &path, paths);
                    while words
                        .get(at)
                        .is_some_and(|word| !matches!(*word, "," | "}"))
                    {
                        at += 1;
                    }
                    at += usize::from(words.get(at) == Some(&","));
                }
                return at + 1;
            }

            Some(word) if word.starts_with(|first: char| first.is_alphabetic() || first == '_') => {
                path.push((*word).to_owned());
                at += 1;
            }
            Some(_) | None => break,
        }

        if words.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }

    paths.push(path);
    at
}

/// The crates without circles, each with its exceptions: a module, the one that it uses, and why.
const CRATES: [(&str, &str); 3] = [
    ("engine", QUERY_AND_VIEW),
    ("push", QUERY_AND_VIEW),
    ("envoy", ""),
];

const QUERY_AND_VIEW: &str = "
query -> view
    a query is computed through a view, which looks queries up
";

/// Reads a list of exceptions: a line with the modules, and one with the reason.
fn exceptions(list: &'static str) -> Vec<Exception> {
    let lines: Vec<&str> = list.lines().filter(|line| !line.is_empty()).collect();
    let pairs = lines.chunks(2);
    pairs
        .map(|pair| {
            let [dependency, reason] = pair else {
                panic!("no reason for {pair:?}");
            };
            let (from, to) = dependency
                .split_once(" -> ")
                .expect("a module uses another");
            Exception {
                from,
                to,
                reason: reason.trim(),
            }
        })
        .collect()
}

#[test]
fn modules_depend_on_each_other_in_one_direction() {
    for (name, list) in CRATES {
        let exceptions = exceptions(list);
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("crates")
            .join(name)
            .join("src");
        let dependencies = Dependencies::read(&root);

        let circles: Vec<String> = dependencies
            .in_circles(&exceptions)
            .into_iter()
            .map(|(dependency, file)| {
                format!(
                    "{} -> {} ({})",
                    dependency.from,
                    dependency.to,
                    file.display()
                )
            })
            .collect();
        assert!(
            circles.is_empty(),
            "modules of {name} are in a circle: move what one needs to where both may use it\n{}",
            circles.join("\n")
        );

        let unneeded: Vec<String> = dependencies
            .unneeded(&exceptions)
            .into_iter()
            .map(|one| format!("{} -> {}: {}", one.from, one.to, one.reason))
            .collect();
        assert!(
            unneeded.is_empty(),
            "no circle of {name} needs these exceptions any more: remove them\n{}",
            unneeded.join("\n")
        );
    }
}

#[test]
fn a_circle_is_found_and_a_parent_with_its_children_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write(
        "lib.rs",
        "mod a;\nmod b;\npub mod c;\n#[cfg(test)]\nmod tests;\n",
    );
    write(
        "a.rs",
        "mod part;\nuse part::Part;\nuse super::{b::{B, more}, c};\n",
    );
    write("a/part.rs", "use super::A;\n// use crate::c::C;\n");
    write("b.rs", "fn f() -> crate::c::C {}\n");
    write(
        "c.rs",
        "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
    );

    let circles = |exceptions: &[Exception]| -> Vec<String> {
        Dependencies::read(folder.path())
            .in_circles(exceptions)
            .into_iter()
            .map(|(dependency, _)| format!("{} -> {}", dependency.from, dependency.to))
            .collect()
    };
    assert_eq!(circles(&[]), [""; 0]);

    write(
        "c.rs",
        "pub(super) use self::x;\nfn f(a: &super::a::part::Part) {}\n",
    );
    assert_eq!(circles(&[]), ["a -> b", "a -> c", "b -> c", "c -> a"]);

    let exceptions = exceptions("c -> a\n a test\nb -> a\n there is no such");
    assert_eq!(circles(&exceptions), [""; 0]);
    let dependencies = Dependencies::read(folder.path());
    let unneeded = dependencies.unneeded(&exceptions);
    assert_eq!(
        unneeded.iter().map(|one| one.from).collect::<Vec<_>>(),
        ["b"]
    );
}
