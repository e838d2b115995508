//! Colors of text output: on a terminal, unless NO_COLOR is set; never in a pipe or a file.

use std::io::IsTerminal as _;

use super::environment::variable;

/// Words at the start of an output line, after spaces, and their colors.
const COLORED_PREFIXES: &[(&str, Color)] = &[
    ("WRONG", Color::Red),
    ("note ", Color::Yellow),
    ("nothing is wrong", Color::Green),
    ("Do first (", Color::Red),
    ("No effect in Navarch (", Color::Yellow),
    ("Nothing must be done first.", Color::Green),
    ("error:", Color::Red),
    ("warning:", Color::Yellow),
    ("quarantined:", Color::Red),
    ("rejected  ", Color::Red),
    ("pending  ", Color::Yellow),
    ("It fails:", Color::Red),
    ("No problem found in the configuration.", Color::Green),
    ("Envoy would reject", Color::Red),
    ("Not sent to proxies", Color::Yellow),
];
/// A word that is red at any position.
const RED_WORD: &str = "REJECTED";
/// The indentation of lines of a diff.
const DIFF_INDENT: &str = "      ";

/// A color of terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Color {
    /// Errors and removals.
    Red,
    /// Success and additions.
    Green,
    /// Warnings.
    Yellow,
}

/// Whether colors are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colors(bool);

impl Colors {
    /// The setting for the standard output; a flag takes precedence.
    pub(super) fn of_stdout(requested: Option<bool>) -> Self {
        Self(requested.unwrap_or_else(|| {
            is_enabled(
                std::io::stdout().is_terminal(),
                variable("NO_COLOR"),
                variable("TERM"),
            )
        }))
    }

    pub(super) fn paint(self, color: Color, text: &str) -> String {
        let code = match color {
            Color::Red => "1;31",
            Color::Green => "32",
            Color::Yellow => "33",
        };
        if self.0 {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Colors an output: status words, and lines of diffs.
    pub(super) fn answer(self, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        text.split_inclusive('\n')
            .map(|line| self.line(line))
            .collect()
    }

    fn line(self, line: &str) -> String {
        let changed =
            line.strip_prefix(DIFF_INDENT)
                .and_then(|rest| match rest.chars().next()? {
                    '-' => Some(Color::Red),
                    '+' => Some(Color::Green),
                    _ => None,
                });

        if let Some(color) = changed {
            let (text, end) = line.split_at(line.trim_end_matches('\n').len());
            return format!("{}{end}", self.paint(color, text));
        }

        let text = line.trim_start();
        let (blank, _) = line.split_at(line.len() - text.len());
        let known = COLORED_PREFIXES
            .iter()
            .find_map(|(word, color)| Some((text.strip_prefix(word)?, word, color)));
        match known {
            Some((rest, word, color)) => format!("{blank}{}{rest}", self.paint(*color, word)),
            None => line.replace(RED_WORD, &self.paint(Color::Red, RED_WORD)),
        }
    }
}

/// Whether colors are enabled according to <https://no-color.org>: on a terminal that supports
/// them, unless NO_COLOR is set.
fn is_enabled(is_terminal: bool, no_color: Option<String>, term: Option<String>) -> bool {
    is_terminal
        && no_color.is_none_or(|value| value.is_empty())
        && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_used_only_on_terminals_that_support_them() {
        let text = |text: &str| Some(text.to_owned());
        assert!(is_enabled(true, None, None) && is_enabled(true, text(""), text("xterm")));
        assert!(!is_enabled(false, None, None), "a pipe");
        assert!(!is_enabled(true, text("1"), None) && !is_enabled(true, None, text("dumb")));
    }

    #[test]
    fn only_status_words_are_colored() {
        let colors = Colors(true);
        assert_eq!(
            colors.answer("  WRONG  x WRONG\n"),
            "  \u{1b}[1;31mWRONG\u{1b}[0m  x WRONG\n"
        );
        assert_eq!(
            colors.answer("      +  weight: 50\nrest"),
            "\u{1b}[32m      +  weight: 50\u{1b}[0m\nrest"
        );

        assert_eq!(
            colors.answer("  + cds x (1 proxies)\n"),
            "  + cds x (1 proxies)\n"
        );
        assert_eq!(
            colors.answer("a: REJECTED\n"),
            "a: \u{1b}[1;31mREJECTED\u{1b}[0m\n"
        );

        let text = "  WRONG  x\n      - y\n";
        assert_eq!(Colors(false).answer(text), text);
    }
}
