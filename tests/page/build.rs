//! The committed files of the dashboard equal a build of `web/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use navarch_testkit::skip::skip;

use crate::{packages, root};

/// The files in a directory, by path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in [
        "index.html",
        "assets/page.js",
        "assets/page.css",
        "assets/icon.svg",
    ] {
        all.insert(name.to_owned(), std::fs::read(folder.join(name)).unwrap());
    }
    let count = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    assert_eq!(
        (count(folder), count(&folder.join("assets"))),
        (2, 3),
        "there are no other files"
    );
    all
}

#[test]
fn the_committed_page_equals_a_build_of_its_sources() {
    if packages().is_none() {
        return skip(
            "scripts/web could not install the packages of web/: npm is missing, or its error",
        );
    }

    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(root().join("scripts/web"))
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let built = files(folder.path());
    let committed = files(&root().join("src/admin/page/dist"));

    for (name, bytes) in &built {
        assert!(
            committed[name] == *bytes,
            "{name} differs from a build of web/: run scripts/web and commit src/admin/page/dist"
        );
    }
}
