//! Findings about an installation, each with the next step.

mod certificate;
mod check;
mod differ;

use std::fmt;

use navarch_base::printable::escape;
use serde::{Deserialize, Serialize};

pub use certificate::CertificateEnd;
pub use check::Check;
pub use differ::{MAX_DIFFERENT_SECONDS, clock, compare, same_configuration};

/// Maximum number of findings of one check.
pub const MAX_FINDINGS_PER_CHECK: usize = 5;

/// The health of a control plane. Fields that older releases do not send are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Version of Navarch, as `navarch version` prints it.
    pub version: String,
    /// Proxies that are connected to this replica.
    pub proxies: usize,
    /// Services of the registry, one for each host and namespace.
    pub services: usize,
    /// The number of cached results.
    pub results: usize,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// Its clock at the time of the report, in RFC 3339.
    #[serde(default)]
    pub now: String,
    /// The certificates that the mesh depends on, with their expiry.
    #[serde(default)]
    pub certificates: Vec<CertificateEnd>,
    /// The SHA-256 of each trusted root, sorted; none without a CA.
    #[serde(default)]
    pub roots: Vec<String>,
    /// A digest of all configuration in force; empty if not requested.
    #[serde(default)]
    pub configuration: String,
}

/// What one check of `navarch doctor` has found, and the command that leads on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The description.
    pub what: String,
    /// The next command.
    pub next: String,
    /// The explanation: a section of a page in docs/.
    #[serde(default)]
    pub docs: String,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something does not work as configured.
    Wrong,
    /// It may be intended.
    Note,
}

impl Finding {
    /// `docs` becomes the section of `check` in `docs/doctor.md`.
    #[must_use]
    pub fn of(check: Check, level: Level, what: String, next: &str) -> Self {
        Self {
            level,
            what,
            next: next.to_owned(),
            docs: check.docs(),
        }
    }
}

impl Health {
    /// Adds a finding; those that are wrong come first.
    pub fn add(&mut self, check: Check, level: Level, what: String, next: &str) {
        let at = self
            .findings
            .iter()
            .position(|other| other.level > level)
            .unwrap_or(self.findings.len());
        self.findings
            .insert(at, Finding::of(check, level, what, next));
    }

    /// Adds the number of omitted findings.
    pub fn more(&mut self, check: Check, all: usize, what: &str, next: &str) {
        let more = all.saturating_sub(MAX_FINDINGS_PER_CHECK);
        if more > 0 {
            self.add(check, Level::Note, format!("{more} more {what}"), next);
        }
    }

    /// Whether anything is wrong.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.level == Level::Wrong)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.level {
            Level::Wrong => "WRONG",
            Level::Note => "note ",
        };
        writeln!(
            f,
            "  {sign}  {}\n         next: {}",
            escape(&self.what),
            escape(&self.next)
        )?;
        if self.docs.is_empty() {
            Ok(())
        } else {
            writeln!(f, "         see:  {}", escape(&self.docs))
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Navarch {}: {} proxies, {} services",
            escape(&self.version),
            self.proxies,
            self.services
        )?;
        self.certificates
            .iter()
            .try_for_each(|finding| writeln!(f, "  {}", escape(&finding.to_string())))?;
        if self.findings.is_empty() {
            return writeln!(f, "  nothing is wrong");
        }
        self.findings.iter().try_for_each(|finding| finding.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_findings_of_a_check_are_counted() {
        let mut health = Health::default();
        health.more(Check::Input, MAX_FINDINGS_PER_CHECK, "things", "next");
        assert_eq!(health.findings, []);
        health.more(Check::Input, MAX_FINDINGS_PER_CHECK + 3, "things", "next");
        let Finding {
            level, what, next, ..
        } = &health.findings[0];
        assert_eq!(
            (*level, what.as_str(), next.as_str()),
            (Level::Note, "3 more things", "next")
        );
    }

    #[test]
    fn texts_of_a_finding_add_no_lines() {
        let what = "web\n  WRONG  forged\u{1b}[2J".to_owned();
        let finding = Finding::of(Check::Input, Level::Note, what, "a\nb");
        let text = finding.to_string();
        assert!(
            text.starts_with("  note   web\\n  WRONG  forged\\u{1b}[2J\n         next: a\\nb\n"),
            "{text}"
        );
    }

    #[test]
    fn health_of_an_older_replica_is_decoded() {
        let old = r#"{"version":"0.1.0","proxies":3,"services":5,"results":9,
            "findings":[{"level":"wrong","what":"it is","next":"mend it"}]}"#;
        let health: Health = serde_json::from_str(old).unwrap();
        let text = "Navarch 0.1.0: 3 proxies, 5 services\n  WRONG  it is\n         next: mend it\n";
        assert_eq!(
            (health.is_wrong(), health.to_string().as_str()),
            (true, text)
        );
    }
}
