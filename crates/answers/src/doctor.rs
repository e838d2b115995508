//! What is wrong with an installation, each with what to do next.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many findings of one sort are told.
pub const OF_ONE: usize = 5;

/// How a control plane is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Version of Navarch, as `navarch version` prints it.
    pub version: String,
    /// How many proxies are connected.
    pub proxies: usize,
    /// How many services it knows.
    pub services: usize,
    /// How many results it keeps.
    pub results: usize,
    /// What there is to say, the worst first.
    pub findings: Vec<Finding>,
}

/// One thing to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is.
    pub what: String,
    /// What to type next.
    pub next: String,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something does not work as it is written.
    Wrong,
    /// It may be meant.
    Note,
}

impl Health {
    /// Adds a finding; those that are wrong come first.
    pub fn add(&mut self, level: Level, what: String, next: &str) {
        let finding = Finding { level, what, next: next.to_owned() };
        let at = self.findings.iter().position(|other| other.level > level).unwrap_or(self.findings.len());
        self.findings.insert(at, finding);
    }

    /// Says how many more of a sort there are than are told.
    pub fn more(&mut self, all: usize, what: &str, next: &str) {
        let more = all.saturating_sub(OF_ONE);
        if more > 0 {
            self.add(Level::Note, format!("{more} more {what}"), next);
        }
    }

    /// Whether anything is wrong.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Level::Wrong)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Navarch {}: {} proxies, {} services", self.version, self.proxies, self.services)?;
        if self.findings.is_empty() {
            return writeln!(f, "  nothing is wrong");
        }
        for finding in &self.findings {
            let sign = match finding.level {
                Level::Wrong => "WRONG",
                Level::Note => "note ",
            };
            writeln!(f, "  {sign}  {}\n         next: {}", finding.what.replace('\n', " "), finding.next)?;
        }
        Ok(())
    }
}
