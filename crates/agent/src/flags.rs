//! Command lines in the syntax of Go's pflag, so that those for pilot-agent and istio-iptables have
//! the same meaning here.
//!
//! `--name value`, `--name=value`, `-n value`, `-n=value` and `-nvalue`; a switch has a value only
//! after `=`. If a flag is repeated, the last value applies. `--` ends the flags.

use std::collections::{BTreeMap, VecDeque};

/// The declaration of a flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name after two dashes.
    pub name: &'static str,
    /// The letter after one dash.
    pub letter: Option<char>,
    /// The type of its value.
    pub value: FlagValue,
    /// The default value; may be empty.
    pub default: &'static str,
    /// What the flag does, in one line.
    pub help: &'static str,
}

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagValue {
    /// Any text.
    Text,
    /// A boolean: `--name` alone is `true`, any other value must follow after `=`.
    Switch,
}

/// How unknown flags are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFlags {
    /// An unknown flag is an error.
    Reject,
    /// Ignores the flag and the value that seems to belong to it, as pilot-agent does for older
    /// templates.
    PassOver,
}

/// A parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The values of the set flags, by name.
    pub flags: BTreeMap<&'static str, String>,
    /// The positional arguments, in order.
    pub words: Vec<String>,
    /// The unknown flags, which were ignored.
    pub unknown: Vec<String>,
}

/// Errors of parsing a command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No declared flag has this name or letter. Written with its dashes and without a value, such
    /// as `--other`.
    #[error("unknown flag: {0}")]
    Unknown(String),
    /// The value of a flag is missing.
    #[error("flag needs a value: {0}")]
    NoValue(String),
    /// The value has the wrong type.
    #[error("--{flag}={value:?} is not a valid {expected}")]
    Value {
        /// The declared name, without dashes.
        flag: &'static str,
        /// As written, before it was parsed.
        value: String,
        /// The expected type.
        expected: &'static str,
    },
}

impl Flag {
    /// A flag with a text value.
    #[must_use]
    pub const fn text(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self {
            name,
            letter: None,
            value: FlagValue::Text,
            default,
            help,
        }
    }

    /// A boolean flag, which is false by default.
    #[must_use]
    pub const fn switch(name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            letter: None,
            value: FlagValue::Switch,
            default: "",
            help,
        }
    }

    /// Adds the one-letter form of a flag.
    #[must_use]
    pub const fn letter(self, letter: char) -> Self {
        Self {
            letter: Some(letter),
            ..self
        }
    }
}

impl CommandLine {
    /// Parses `arguments` with these known flags.
    ///
    /// # Errors
    /// If the value of a flag is missing, or a flag is unknown and `unknown` rejects it.
    pub fn read(
        known: &[Flag],
        unknown: UnknownFlags,
        arguments: &[String],
    ) -> Result<Self, FlagError> {
        let mut line = Self::default();
        let mut rest: VecDeque<&str> = arguments.iter().map(String::as_str).collect();
        while let Some(word) = rest.pop_front() {
            if word == "--" {
                line.words.extend(rest.drain(..).map(str::to_owned));
            } else if let Some(long) = word.strip_prefix("--") {
                line.long(known, unknown, long, &mut rest)?;
            } else if word.len() > 1 && word.starts_with('-') {
                line.letters(known, unknown, word, &mut rest)?;
            } else {
                line.words.push(word.to_owned());
            }
        }
        Ok(line)
    }

    /// Parses a flag with two dashes, and its value from the next argument if it has none after
    /// `=`.
    fn long(
        &mut self,
        known: &[Flag],
        unknown: UnknownFlags,
        long: &str,
        rest: &mut VecDeque<&str>,
    ) -> Result<(), FlagError> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        match known.iter().find(|flag| flag.name == name) {
            Some(flag) => self.set_flag(*flag, value, rest),
            None if unknown == UnknownFlags::Reject => Err(FlagError::Unknown(format!("--{name}"))),
            None => {
                self.unknown.push(format!("--{name}"));
                skip_value(value, rest);
                Ok(())
            }
        }
    }

    /// Parses the flags after one dash: switches, and possibly one flag with a value at the end.
    fn letters(
        &mut self,
        known: &[Flag],
        unknown: UnknownFlags,
        word: &str,
        rest: &mut VecDeque<&str>,
    ) -> Result<(), FlagError> {
        let mut letters = word.chars();
        letters.next();

        while let Some(letter) = letters.next() {
            let after = letters.as_str();
            let Some(flag) = known.iter().find(|flag| flag.letter == Some(letter)) else {
                if unknown == UnknownFlags::Reject {
                    return Err(FlagError::Unknown(format!("-{letter}")));
                }
                self.unknown.push(format!("-{letter}"));
                skip_value(Some(after).filter(|after| !after.is_empty()), rest);
                return Ok(());
            };

            let value = after.strip_prefix('=');
            if flag.value == FlagValue::Switch && value.is_none() {
                self.set_flag(*flag, None, rest)?;
                continue;
            }

            return self.set_flag(
                *flag,
                value.or(Some(after).filter(|after| !after.is_empty())),
                rest,
            );
        }

        Ok(())
    }

    /// Stores the value of a known flag.
    fn set_flag(
        &mut self,
        flag: Flag,
        value: Option<&str>,
        rest: &mut VecDeque<&str>,
    ) -> Result<(), FlagError> {
        let value = match (flag.value, value) {
            (_, Some(value)) => value,
            (FlagValue::Switch, None) => "true",
            (FlagValue::Text, None) => rest
                .pop_front()
                .ok_or_else(|| FlagError::NoValue(format!("--{}", flag.name)))?,
        };
        self.flags.insert(flag.name, value.to_owned());
        Ok(())
    }

    /// The value of a flag, parsed with `parse`; `None` if the flag is not set.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn parsed<T>(
        &self,
        flag: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, FlagError> {
        let Some(value) = self.flags.get(flag) else {
            return Ok(None);
        };
        parse(value).map(Some).ok_or_else(|| FlagError::Value {
            flag,
            value: value.clone(),
            expected,
        })
    }
}

/// Skips the value of an unknown flag if it is a separate argument.
fn skip_value(value: Option<&str>, rest: &mut VecDeque<&str>) {
    if value.is_none() && rest.front().is_some_and(|next| !next.starts_with('-')) {
        rest.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Flag] = &[
        Flag::text("port", "", "").letter('p'),
        Flag::switch("dry-run", "").letter('n'),
    ];

    fn read(unknown: UnknownFlags, line: &str) -> Result<CommandLine, FlagError> {
        let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
        CommandLine::read(KNOWN, unknown, &arguments)
    }

    #[test]
    fn every_spelling_of_a_flag_value_is_accepted() {
        for line in [
            "-p 1 x",
            "-p1 x",
            "-p=1 x",
            "--port 1 x",
            "--port=1 x",
            "-np1 x",
            "--port=0 -p1 -- x",
        ] {
            let line = read(UnknownFlags::Reject, line).unwrap();
            assert_eq!(line.flags["port"], "1");
            assert_eq!(line.words, ["x"]);
        }
        assert_eq!(
            read(UnknownFlags::Reject, "--dry-run=false").unwrap().flags["dry-run"],
            "false"
        );
    }

    #[test]
    fn unknown_flags_are_rejected_or_ignored_with_their_value() {
        assert_eq!(
            read(UnknownFlags::Reject, "--other 1"),
            Err(FlagError::Unknown("--other".to_owned()))
        );
        let line = read(
            UnknownFlags::PassOver,
            "proxy --other 1 -z --old=2 sidecar -p 3",
        )
        .unwrap();
        assert_eq!(line.words, ["proxy", "sidecar"]);
        assert_eq!(line.flags["port"], "3");
        assert_eq!(
            read(UnknownFlags::Reject, "-p"),
            Err(FlagError::NoValue("--port".to_owned()))
        );
    }
}
