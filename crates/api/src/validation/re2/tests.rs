//! Expressions that Go accepts, and those that it rejects.

use super::*;

#[track_caller]
fn assert_accepted(expressions: &[&str]) {
    for expression in expressions {
        assert_eq!(check(expression), Ok(()), "{expression}");
    }
}

#[track_caller]
fn assert_rejected(expressions: &[&str]) {
    for expression in expressions {
        assert!(check(expression).is_err(), "{expression}");
    }
}

#[test]
fn regexes_that_go_accepts_are_accepted() {
    assert_accepted(&["", "a", "a|b|", "(|a)*", "()", "(a)(b)", "a+(?:b)+", "é+"]);

    // Braces without a count are literals.
    assert_accepted(&["a{", "a{,2}", "{", "a{1", "a{01}", "/api/{id}"]);

    // Repetitions.
    assert_accepted(&[
        "a{2}?",
        "a*?",
        ".*?",
        "^*",
        "\\b+",
        "(x{10}){10}",
        "x{1000}",
        "(x{0}){1000}",
    ]);

    // Classes.
    assert_accepted(&[
        "[]a]",
        "[^]a]",
        "[a-]",
        "[-a]",
        "[a\\-z]",
        "[[:alpha:]_]",
        "[[:^alpha:]]",
        "[[a]",
        "[\\d\\pL\\p{Greek}]",
        "\\pN",
        "\\p{^Han}",
        "[é-ü]",
    ]);

    // Flags and names of groups.
    assert_accepted(&[
        "(?i)a", "(?i:a)", "(?P<n>a)", "(?<n>a)", "(?s-i:a)", "(?)", "a(?i)*",
    ]);

    // Escapes.
    assert_accepted(&[
        "\\Qa+b\\E+",
        "\\Qa",
        "\\x41",
        "\\x{1F600}",
        "\\07",
        "\\12",
        "\\.\\/\\_",
        "\\z",
    ]);
}

#[test]
fn nesting_is_bounded_on_a_small_stack() {
    let nested = |levels: usize, open: &str, close: &str| {
        check(&format!("{}a{}", open.repeat(levels), close.repeat(levels)))
            .map_err(|fault| fault.to_string())
    };
    let deep = move || {
        let too_deep = Err("the expression nests more than 1000 levels deep".to_owned());
        for close in [")", "){1}", ")*", "){0}"] {
            assert_eq!(nested(200_000, "(", close), too_deep, "{close}");
        }
        assert_eq!(nested(200_000, "(?:", "){1}"), too_deep);
        assert_eq!(nested(200_000, "(?P<n>", ")"), too_deep);
        assert_eq!(nested(400, "(", "){1}"), Ok(()));
        assert_eq!(nested(900, "(", ")"), Ok(()));
        // Groups that capture nothing are no level to Go either.
        assert_eq!(nested(200_000, "(?:", ")"), Ok(()));
    };

    std::thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(deep)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn the_time_for_an_expression_is_proportional_to_its_length() {
    // A parser that searched each of them to its end at each piece took a minute or more for a
    // megabyte.
    for piece in ["[[:a]", "\\d", "[a]", "\\pL", "(a)", "a{2}"] {
        let long = piece.repeat((1 << 20) / piece.len());
        assert_eq!(check(&long), Ok(()), "{piece}");
        assert!(crate::validation::re2_size::program_size(&long) > 0);
    }
    assert!(check(&format!("{}[[:foo:]]", "[[:a]".repeat(1000))).is_err());
}

#[test]
fn regexes_that_go_rejects_are_rejected() {
    // Repetitions of none, or of a repetition.
    assert_rejected(&[
        "*",
        "+a",
        "a**",
        "a*+",
        "a{2}{3}",
        "a*{2}",
        "a??+",
        "|*",
        "(*)",
        "{*}/{**}/x",
        "\\Q\\E*",
    ]);

    // Groups without their other end.
    assert_rejected(&["^(", "(", ")", "(a", "a)", "(a|b|"]);

    // Classes.
    assert_rejected(&["[a", "[", "[]", "[z-a]", "[[:foo:]]"]);

    // Escapes.
    assert_rejected(&[
        "\\",
        "a\\",
        "\\8",
        "\\1",
        "\\C",
        "\\q",
        "\\p",
        "\\p{Nope}",
        "\\pX",
        "\\x",
        "\\x4",
        "\\x{}",
        "\\x{110000}",
    ]);

    // Flags, names and assertions.
    assert_rejected(&[
        "(?a)",
        "(?i-)",
        "(?P<>a)",
        "(?P<a b>a)",
        "(?P<a",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?",
    ]);

    // Counts above the limit.
    assert_rejected(&[
        "x{1001}",
        "x{2,1}",
        "x{99999999999}",
        "((x{10}){10}){11}",
        "(x{100}){11}",
    ]);
}
