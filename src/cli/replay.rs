//! `navarch replay`: a record, played again.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::output::{Output, print, print_part, report};
use super::progress::Progress;
use navarch_record::{Broken, PlayedStep, Player, STACK, Segment, segments};

/// The exit code where the replay differs from the recording.
const DIFFERS_EXIT_CODE: u8 = 3;

/// Replay a recording of a control plane offline, and show what was pushed to which proxy and why
///
/// A recording is written by navarch discovery --record DIR. The output has all inputs, the pushes
/// that they caused, and which proxies acknowledged or rejected them. All pushes are computed again
/// and compared with the recording; the replay stops at the first difference.
///
/// Exit codes: 0 all pushes match the recording; 1 the recording or a part of it could not be read;
/// 2 the command line is wrong; 3 a push differs.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch replay /var/lib/navarch/record
  navarch replay record --until 2026-11-23T10:15:00Z
  navarch replay record -o json > pushes.json")]
pub(super) struct Replay {
    /// Directory of the recording
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Replay up to this time, such as 2026-11-23T10:15:00Z
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// Output format
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// The result of a replay.
#[derive(Debug, Default)]
struct ReplayResult {
    /// All steps, for JSON output.
    steps: Vec<PlayedStep>,
    broken: Vec<Broken>,
    pushes: usize,
    differs: bool,
}

impl Replay {
    /// Replays the recording, and prints the steps.
    ///
    /// # Errors
    /// If there is no recording, or printing fails.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let output = self.output;
        let play = move || self.play();
        let thread = std::thread::Builder::new()
            .name("replay".to_owned())
            .stack_size(STACK)
            .spawn(play)?;
        let Ok(played) = thread.join() else {
            bail!("panic while replaying the recording; see the log above")
        };

        let outcome = played?;
        let code = match outcome {
            ReplayResult { differs: true, .. } => DIFFERS_EXIT_CODE,
            ReplayResult { ref broken, .. } if broken.iter().any(|broken| !broken.is_torn) => 1,
            ReplayResult { .. } => 0,
        };
        let broken_parts: Vec<String> = outcome.broken.iter().map(ToString::to_string).collect();
        let same = if outcome.differs {
            "the last one differs from the recording"
        } else {
            "all match the recording"
        };

        let text = format!("replayed {} pushes, {same}\n", outcome.pushes);
        let all = match output {
            Output::Text => Value::Null,
            Output::Json => {
                json!({ "steps": outcome.steps, "pushes": outcome.pushes, "same": !outcome.differs, "broken": broken_parts })
            }
        };

        print(output, &text, &all)?;
        Ok(ExitCode::from(code))
    }

    /// Replays all segments; text output is printed progressively.
    fn play(&self) -> anyhow::Result<ReplayResult> {
        let all = segments(&self.dir)
            .with_context(|| format!("failed to read {}", self.dir.display()))?;
        let Some((last, _)) = all.last().cloned() else {
            bail!(
                "no recording in {}: expected files record-….jsonl, as written by navarch discovery --record",
                self.dir.display()
            )
        };

        let mut player = Player::new()?;
        let mut outcome = ReplayResult::default();

        // As text, progress is printed.
        let progress =
            (self.output == Output::Json).then(|| Progress::begin("replaying the recording"));

        for (at, (number, file)) in all.iter().enumerate() {
            if let Some(progress) = &progress {
                progress.set_text(format!(
                    "replaying {}, {} of {} files",
                    file.display(),
                    at + 1,
                    all.len()
                ));
            }
            let opened =
                Segment::open(file, *number == last).with_context(|| file.display().to_string());
            if !self.play_segment(opened?, file, &mut player, &mut outcome)? {
                break;
            }
        }

        Ok(outcome)
    }

    /// Replays one segment. Returns false if later segments must not be replayed.
    fn play_segment(
        &self,
        mut segment: Segment,
        file: &std::path::Path,
        player: &mut Player,
        outcome: &mut ReplayResult,
    ) -> anyhow::Result<bool> {
        loop {
            let line = match segment.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(true),
                Err(broken) => {
                    self.report_broken(broken, player, outcome);
                    return Ok(true);
                }
            };

            let step = match player.play(file, line.offset, line.line) {
                Ok(Some(step)) => step,
                Ok(None) => continue,
                Err(error) => {
                    let broken = segment.broken(line.offset, error.to_string());
                    self.report_broken(broken, player, outcome);
                    return Ok(true);
                }
            };

            if self.until.is_some_and(|until| step.at.0 > until) {
                return Ok(false);
            }

            outcome.pushes += step.pushes.len();
            outcome.differs = step.difference.is_some();

            match self.output {
                Output::Text => {
                    if !print_part(&step)? {
                        return Ok(false);
                    }
                }
                Output::Json => outcome.steps.push(step),
            }

            if outcome.differs {
                return Ok(false);
            }
        }
    }

    /// Reports a part that cannot be read.
    fn report_broken(&self, broken: Broken, player: &mut Player, outcome: &mut ReplayResult) {
        player.skip();
        let word = if broken.is_torn { "note" } else { "error" };
        report(&format!("{word}: {broken}"));
        outcome.broken.push(broken);
    }
}
