//! What is printed of a staged change, and of the state of pods.

use std::fmt;

use navarch_agent::upgrade::status::ProxyStatus;
use serde::{Serialize, Serializer};

/// The result of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PodState {
    /// It runs the requested program.
    Done,
    /// Its agent refused the program, and has not started it.
    Refused,
    /// The program was started and did not stay; the former one runs.
    Failed,
    /// There is no result yet.
    TimedOut,
    /// It cannot do it, and was not patched.
    Unable,
}

/// A pod and its result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PodResult {
    pub(super) pod: String,
    pub(super) state: PodState,
    /// The version that runs; empty if it is not known.
    pub(super) version: String,
    /// Why it is not done; empty otherwise.
    pub(super) reason: String,
}

/// A stage that was begun.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StageReport {
    pub(super) share: String,
    /// The number of pods, with those of the stages before.
    pub(super) pods: usize,
}

/// The result of a staged change.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangeReport {
    /// The value of the annotation; empty was removed.
    wanted: String,
    pub(super) stages: Vec<StageReport>,
    pub(super) pods: Vec<PodResult>,
    /// How many pods were not asked.
    pub(super) not_asked: usize,
    pub(super) is_stopped: bool,
    /// What to do next.
    next: Vec<String>,
}

impl ChangeReport {
    /// A change that has not begun.
    pub(super) fn new(wanted: &str) -> Self {
        Self {
            wanted: wanted.to_owned(),
            stages: Vec::new(),
            pods: Vec::new(),
            not_asked: 0,
            is_stopped: false,
            next: Vec::new(),
        }
    }

    /// The same, with what to do next about the pods of a target.
    pub(super) fn for_target(mut self, target: &str) -> Self {
        let is_upgrade = !self.wanted.is_empty();
        let mut next = Vec::new();
        if self.is_stopped {
            next.push(format!("navarch proxy status {target}"));
        }
        if is_upgrade && self.pods.iter().any(|pod| pod.state != PodState::Unable) {
            next.push(format!("navarch proxy downgrade {target}"));
        }
        self.next = next;
        self
    }

    fn count(&self, state: PodState) -> usize {
        self.pods.iter().filter(|pod| pod.state == state).count()
    }
}

impl fmt::Display for ChangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked_for = match self.wanted.as_str() {
            "" => "the Envoy of the image",
            wanted => wanted,
        };
        let total = self.pods.len() + self.not_asked;
        let done = self.count(PodState::Done);
        writeln!(f, "{done} of {total} pods run {asked_for}")?;

        let others = self.pods.iter().filter(|pod| pod.state != PodState::Done);
        for PodResult {
            pod, state, reason, ..
        } in others
        {
            let what = match state {
                PodState::Done => "done",
                PodState::Refused => "refused it",
                PodState::Failed => "went back to its former Envoy",
                PodState::TimedOut => "has no result yet",
                PodState::Unable => "was not patched",
            };
            writeln!(f, "  {pod} {what}: {reason}")?;
        }

        if self.is_stopped
            && let Some(stage) = self.stages.last()
        {
            let rest = self.not_asked;
            writeln!(
                f,
                "Stopped in the stage {}; {rest} pods were not asked.",
                stage.share
            )?;
            writeln!(
                f,
                "Pods that refused it, went back or were not asked serve with their former Envoy; see `navarch proxy status` for those without a result. An agent tries a refused program again when the annotation changes."
            )?;
        } else if !self.wanted.is_empty() {
            writeln!(
                f,
                "Pods that are created later have the Envoy of their image, until the annotation is in the workload's template."
            )?;
        }
        for command in &self.next {
            writeln!(f, "  {command}")?;
        }
        Ok(())
    }
}

/// The status of each pod, or why there is none.
#[derive(Clone, Debug)]
pub(super) struct StatusReport(pub(super) Vec<(String, Result<ProxyStatus, String>)>);

/// A member of the report in JSON: `proxy`, or the reason why there is none.
#[derive(Serialize)]
struct PodStatus<'a> {
    pod: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<&'a ProxyStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl Serialize for StatusReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(pod, status)| PodStatus {
            pod,
            proxy: status.as_ref().ok(),
            error: status.as_ref().err().map(String::as_str),
        }))
    }
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (pod, status) in &self.0 {
            let status = match status {
                Ok(status) => status,
                Err(error) => {
                    writeln!(f, "{pod}: {error}")?;
                    continue;
                }
            };

            let ProxyStatus {
                version,
                epoch,
                state,
                wanted,
                reason,
                errors,
                ..
            } = status;
            let state = format!("{state:?}").to_lowercase();
            write!(f, "{pod}: Envoy {version}, epoch {epoch}, {state}")?;
            if !status.enabled {
                write!(f, " (NAVARCH_PROXY_UPGRADE is not set)")?;
            }
            if !wanted.is_empty() {
                write!(f, ", asked for {wanted}")?;
            }
            if !errors.after.is_empty() {
                write!(f, ", errors {} (before {})", errors.after, errors.before)?;
            }
            if !reason.is_empty() {
                write!(f, ": {reason}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use navarch_agent::upgrade::status::ErrorShares;

    use super::*;

    fn result(pod: &str, state: PodState, reason: &str) -> PodResult {
        PodResult {
            pod: pod.to_owned(),
            state,
            version: String::new(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_stopped_change_says_who_failed_and_what_to_do() {
        let mut report = ChangeReport::new("/usr/local/bin/envoy-1.40");
        report.stages.push(StageReport {
            share: "5%".to_owned(),
            pods: 2,
        });
        report.pods = vec![
            result("web-0", PodState::Done, ""),
            result("web-1", PodState::Failed, "the new Envoy exited"),
        ];
        report.not_asked = 18;
        report.is_stopped = true;

        let text = report.for_target("shop/web").to_string();
        for part in [
            "1 of 20 pods run /usr/local/bin/envoy-1.40",
            "web-1 went back to its former Envoy: the new Envoy exited",
            "Stopped in the stage 5%; 18 pods were not asked.",
            "navarch proxy downgrade shop/web",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_was_not_patched_needs_no_way_back() {
        let mut report = ChangeReport::new("/usr/local/bin/envoy-1.40");
        report.pods = vec![result("web-0", PodState::Unable, "no agent")];
        report.is_stopped = true;
        let text = report.for_target("shop").to_string();
        assert!(!text.contains("downgrade"), "{text}");
    }

    #[test]
    fn each_pod_has_a_line_in_the_status() {
        let status = ProxyStatus {
            enabled: true,
            version: "1.39.3".to_owned(),
            epoch: 1,
            wanted: "/bin/envoy".to_owned(),
            ..ProxyStatus::default()
        };

        let judged = ProxyStatus {
            errors: ErrorShares {
                before: "1 % of 100 requests".to_owned(),
                after: "unknown: timed out after 10s".to_owned(),
            },
            ..status.clone()
        };
        let report = StatusReport(vec![
            ("a".to_owned(), Ok(status)),
            ("b".to_owned(), Err("no answer".to_owned())),
            ("c".to_owned(), Ok(judged)),
        ]);

        let text = report.to_string();
        assert_eq!(
            text,
            "a: Envoy 1.39.3, epoch 1, idle, asked for /bin/envoy\nb: no answer\n\
             c: Envoy 1.39.3, epoch 1, idle, asked for /bin/envoy, \
             errors unknown: timed out after 10s (before 1 % of 100 requests)\n"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json[1]["error"], "no answer");
    }
}
