//! Command lines as Go's pflag reads them, so that those written for pilot-agent and istio-iptables mean the same here.
//!
//! `--name value`, `--name=value`, `-n value`, `-n=value` and `-nvalue`; a switch takes a value only after `=`. Of a flag
//! that is given twice the last counts. `--` ends the flags.

use std::collections::{BTreeMap, VecDeque};

/// A flag that a command line may have.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name after two dashes.
    pub name: &'static str,
    /// The letter after one dash.
    pub letter: Option<char>,
    /// What its value is.
    pub value: FlagValue,
    /// The default value; empty if there is none.
    pub default: &'static str,
    /// What the flag does, in one line.
    pub help: &'static str,
}

/// What kind of value a flag has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagValue {
    /// Any text.
    Text,
    /// On or off.
    Switch,
}

/// What to do about a flag that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFlags {
    /// Refuse the command line.
    Refuse,
    /// Pass over the flag and the value that seems to belong to it, as pilot-agent does for older templates.
    PassOver,
}

/// A command line that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The values of the flags that were given, by name.
    pub flags: BTreeMap<&'static str, String>,
    /// What is no flag, in order.
    pub words: Vec<String>,
    /// The unknown flags, which were ignored.
    pub unknown: Vec<String>,
}

/// Why a command line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// There is no such flag.
    #[error("unknown flag: {0}")]
    Unknown(String),
    /// The command line ends where a value should be.
    #[error("flag needs a value: {0}")]
    NoValue(String),
    /// The value is of the wrong kind.
    #[error("--{flag}={value:?} is not a valid {expected}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl Flag {
    /// A flag with a text.
    #[must_use]
    pub const fn text(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self { name, letter: None, value: FlagValue::Text, default, help }
    }

    /// A flag that is on or off, and off where it is not given.
    #[must_use]
    pub const fn switch(name: &'static str, help: &'static str) -> Self {
        Self { name, letter: None, value: FlagValue::Switch, default: "", help }
    }

    /// The same flag, which has a letter too.
    #[must_use]
    pub const fn letter(self, letter: char) -> Self {
        Self { letter: Some(letter), ..self }
    }
}

impl CommandLine {
    /// Reads `arguments` by the list of known flags.
    ///
    /// # Errors
    /// When a flag lacks its value, or is not known and that matters.
    pub fn read(known: &[Flag], unknown: UnknownFlags, arguments: &[String]) -> Result<Self, FlagError> {
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

    /// Takes a flag with two dashes, and its value from the words that follow where it has none of its own.
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
            Some(flag) => self.take(*flag, value, rest),
            None if unknown == UnknownFlags::Refuse => Err(FlagError::Unknown(format!("--{name}"))),
            None => {
                self.unknown.push(format!("--{name}"));
                pass_over(value, rest);
                Ok(())
            }
        }
    }

    /// Takes the flags behind one dash: switches, and at the end perhaps one with a value.
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
                if unknown == UnknownFlags::Refuse {
                    return Err(FlagError::Unknown(format!("-{letter}")));
                }
                self.unknown.push(format!("-{letter}"));
                pass_over(Some(after).filter(|after| !after.is_empty()), rest);
                return Ok(());
            };
            let value = after.strip_prefix('=');
            if flag.value == FlagValue::Switch && value.is_none() {
                self.take(*flag, None, rest)?;
                continue;
            }
            return self.take(*flag, value.or(Some(after).filter(|after| !after.is_empty())), rest);
        }
        Ok(())
    }

    /// Takes a flag that is known.
    fn take(&mut self, flag: Flag, value: Option<&str>, rest: &mut VecDeque<&str>) -> Result<(), FlagError> {
        let value = match (flag.value, value) {
            (_, Some(value)) => value,
            (FlagValue::Switch, None) => "true",
            (FlagValue::Text, None) => {
                rest.pop_front().ok_or_else(|| FlagError::NoValue(format!("--{}", flag.name)))?
            }
        };
        self.flags.insert(flag.name, value.to_owned());
        Ok(())
    }

    /// What `parse` makes of a flag's value; `None` where the flag is not given.
    ///
    /// # Errors
    /// When the value is not what it should be.
    pub fn parsed<T>(
        &self,
        flag: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, FlagError> {
        let Some(value) = self.flags.get(flag) else { return Ok(None) };
        parse(value).map(Some).ok_or_else(|| FlagError::Value { flag, value: value.clone(), expected })
    }
}

/// Drops the value of an unknown flag where it stands as a word of its own.
fn pass_over(value: Option<&str>, rest: &mut VecDeque<&str>) {
    if value.is_none() && rest.front().is_some_and(|next| !next.starts_with('-')) {
        rest.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Flag] = &[Flag::text("port", "", "").letter('p'), Flag::switch("dry-run", "").letter('n')];

    fn read(unknown: UnknownFlags, line: &str) -> Result<CommandLine, FlagError> {
        let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
        CommandLine::read(KNOWN, unknown, &arguments)
    }

    #[test]
    fn every_spelling_of_a_value_is_taken() {
        for line in ["-p 1 x", "-p1 x", "-p=1 x", "--port 1 x", "--port=1 x", "-np1 x", "--port=0 -p1 -- x"] {
            let line = read(UnknownFlags::Refuse, line).unwrap();
            assert_eq!(line.flags["port"], "1");
            assert_eq!(line.words, ["x"]);
        }
        assert_eq!(read(UnknownFlags::Refuse, "--dry-run=false").unwrap().flags["dry-run"], "false");
    }

    #[test]
    fn unknown_flags_are_refused_or_passed_over_with_their_value() {
        assert_eq!(read(UnknownFlags::Refuse, "--other 1"), Err(FlagError::Unknown("--other".to_owned())));
        let line = read(UnknownFlags::PassOver, "proxy --other 1 -z --old=2 sidecar -p 3").unwrap();
        assert_eq!(line.words, ["proxy", "sidecar"]);
        assert_eq!(line.flags["port"], "3");
        assert_eq!(read(UnknownFlags::Refuse, "-p"), Err(FlagError::NoValue("--port".to_owned())));
    }
}
