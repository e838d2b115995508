//! Pages with tables of tests name only tests that exist.

use std::fs;
use std::path::Path;

use regex::Regex;

use super::folder;

/// The rows of the tables of a page, as the texts of their columns; `title` is the first column of
/// the heading.
fn rows(page: &str, title: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(folder(page)).unwrap();
    let heading = format!("| {title} |");
    let is_row = |line: &&str| {
        line.starts_with("| ") && !line.starts_with("| ---") && !line.starts_with(&heading)
    };
    let columns = |line: &str| {
        let columns = line.trim_matches('|').split(" | ");
        columns.map(|text| text.trim().to_owned()).collect()
    };
    text.lines().filter(is_row).map(columns).collect()
}

/// The texts of a column that are in backquotes.
fn quoted(column: &str) -> Vec<String> {
    let quoted = Regex::new("`([^`]+)`").unwrap();
    let found = quoted.captures_iter(column);
    found.map(|found| found[1].to_owned()).collect()
}

/// The number of tests that a column lists, each behind its file, and what does not exist.
fn listed(column: &str) -> (usize, Vec<String>) {
    let is_file = |text: &str| {
        Path::new(text)
            .extension()
            .is_some_and(|extension| extension == "rs")
    };
    let mut file = None;
    let mut found = 0;
    let mut missing = Vec::new();

    for name in quoted(column) {
        if is_file(&name) {
            file = fs::read_to_string(folder(&name)).ok();
        } else if file
            .as_ref()
            .is_some_and(|text: &String| text.contains(&format!("fn {name}(")))
        {
            found += 1;
        } else {
            missing.push(name);
        }
    }
    (found, missing)
}

#[test]
fn every_regression_in_the_docs_has_a_test_that_exists() {
    let rows = rows("docs/security-regressions.md", "fault");
    let mut wrong = Vec::new();

    for row in &rows {
        let tests = row.last().unwrap();
        let (found, missing) = listed(tests);
        for name in missing {
            wrong.push(format!("{}: there is no {name}", row[0]));
        }
        if found == 0 && !tests.starts_with("not applicable: ") {
            wrong.push(format!("{}: no test", row[0]));
        }
    }

    assert!(rows.len() > 30, "{} rows", rows.len());
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_system_of_the_reference_documents_has_files_and_tests_that_exist() {
    let rows = rows("docs/reference-documents.md", "document");
    let mut wrong = Vec::new();

    for row in &rows {
        let [_, system, files, _, tests] = row.as_slice() else {
            panic!("another number of columns: {row:?}");
        };

        let files = quoted(files);
        if files.is_empty() {
            wrong.push(format!("{system}: no file"));
        }
        for path in files {
            if !folder(&path).exists() {
                wrong.push(format!("{system}: there is no {path}"));
            }
        }

        let (found, missing) = listed(tests);
        for name in missing {
            wrong.push(format!("{system}: there is no {name}"));
        }
        if found == 0 {
            wrong.push(format!("{system}: no test"));
        }
    }

    assert!(rows.len() > 80, "{} rows", rows.len());
    assert_eq!(wrong, Vec::<String>::new());
}
