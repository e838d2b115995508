//! The checks and their documentation.

/// A check. Each has a section in `docs/doctor.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Every control plane answers.
    Answer,
    /// The configuration has been read, and Navarch is ready.
    Ready,
    /// The API server answers, and serves supported versions of all kinds.
    Definitions,
    /// The control plane has the rights that it needs.
    Rights,
    /// Webhooks are registered, and the API server trusts their CA.
    Webhooks,
    /// No certificate expires soon.
    Certificates,
    /// All proxies trust all roots.
    Roots,
    /// Clocks agree.
    Clocks,
    /// Replicas are of one version, and have the same configuration and roots.
    Replicas,
    /// There are proxies.
    Proxies,
    /// All proxies have one version.
    Versions,
    /// Proxies accept their resources.
    Nacks,
    /// Proxies answer.
    Lag,
    /// Input is accepted.
    Input,
    /// No object is quarantined.
    Quarantine,
    /// No rollout was stopped.
    Rollouts,
    /// No configuration is ignored.
    LeftOut,
    /// No limit rejects clients.
    Limits,
}

impl Check {
    /// In the order of declaration. A test compares their anchors with the sections of
    /// `docs/doctor.md`.
    pub const ALL: [Self; 18] = [
        Self::Answer,
        Self::Ready,
        Self::Definitions,
        Self::Rights,
        Self::Webhooks,
        Self::Certificates,
        Self::Roots,
        Self::Clocks,
        Self::Replicas,
        Self::Proxies,
        Self::Versions,
        Self::Nacks,
        Self::Lag,
        Self::Input,
        Self::Quarantine,
        Self::Rollouts,
        Self::LeftOut,
        Self::Limits,
    ];

    /// The anchor of its section.
    #[must_use]
    pub fn anchor(self) -> &'static str {
        match self {
            Self::Answer => "no-answer",
            Self::Ready => "not-ready",
            Self::Definitions => "kinds-and-their-versions",
            Self::Rights => "rights",
            Self::Webhooks => "webhooks",
            Self::Certificates => "certificates",
            Self::Roots => "roots-that-proxies-lack",
            Self::Clocks => "clocks",
            Self::Replicas => "replicas-that-differ",
            Self::Proxies => "no-proxies",
            Self::Versions => "versions-of-proxies",
            Self::Nacks => "nacks",
            Self::Lag => "proxies-that-lag",
            Self::Input => "input-that-is-not-accepted",
            Self::Quarantine => "quarantined-objects",
            Self::Rollouts => "stopped-changes",
            Self::LeftOut => "what-is-left-out",
            Self::Limits => "limits",
        }
    }

    /// Its documentation.
    #[must_use]
    pub fn docs(self) -> String {
        format!("docs/doctor.md#{}", self.anchor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The anchor of a heading, as GitHub derives it from letters, spaces and hyphens.
    fn anchor(heading: &str) -> String {
        heading
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .replace(' ', "-")
    }

    #[test]
    fn every_check_has_a_section_and_every_section_is_of_a_check() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md"))
                .unwrap();
        let mut sections: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("## "))
            .map(anchor)
            .collect();
        let mut anchors: Vec<_> = Check::ALL.map(Check::anchor).into();
        sections.sort_unstable();
        anchors.sort_unstable();
        assert_eq!(sections, anchors);
    }
}
