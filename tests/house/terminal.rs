//! Commands print through `src/cli/output.rs`, which escapes what strangers have written.

use std::fs;

use regex::Regex;

use super::{code, folder, lines_without_tests, sources};

/// The files that may use the standard output and the standard error, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "src/cli/color.rs",
        "only whether the standard output is a terminal",
    ),
    (
        "src/cli/log.rs",
        "the targets of the log, whose lines `EscapedLines` escapes",
    ),
    (
        "src/cli/manual.rs",
        "shell completions, which consist of the program's own flags",
    ),
    ("src/cli/output.rs", "the functions that escape"),
    (
        "src/cli/progress.rs",
        "a line that is removed again, whose text is escaped",
    ),
];

/// The lines of a source file, except tests, that use the standard output or the standard error.
fn printing_lines(text: &str) -> Vec<String> {
    let printing = Regex::new(r"\be?print(ln)?!|\bstd(out|err)\(\)").unwrap();
    let code = code(text);
    code.lines()
        .take(lines_without_tests(text))
        .filter(|line| printing.is_match(line))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn commands_print_through_the_functions_that_escape() {
    let root = folder("");
    let mut wrong: Vec<(String, Vec<String>)> = Vec::new();
    let mut needed = Vec::new();

    for file in sources(&folder("src")) {
        let lines = printing_lines(&fs::read_to_string(&file).unwrap());
        if lines.is_empty() {
            continue;
        }
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        match EXCEPTIONS.iter().find(|(exception, _)| *exception == name) {
            Some((exception, _)) => needed.push(*exception),
            None => wrong.push((name, lines)),
        }
    }

    assert!(wrong.is_empty(), "use src/cli/output.rs: {wrong:#?}");
    let listed: Vec<_> = EXCEPTIONS.iter().map(|(file, _)| *file).collect();
    assert_eq!(needed, listed, "exceptions without a use");
}

#[test]
fn printing_is_recognized() {
    for text in [
        "println!(\"{body}\");",
        "eprint!(\"a\");",
        "writeln!(std::io::stderr(), \"a\")",
        "io::stdout().write_all(bytes)",
    ] {
        assert_eq!(printing_lines(text), [text]);
    }
    for text in [
        "// println!(\"a\");",
        "print(output, &text, &json)",
        "#[cfg(test)]\nmod tests {\n    println!(\"a\");\n}",
    ] {
        assert_eq!(printing_lines(text), Vec::<String>::new());
    }
}
