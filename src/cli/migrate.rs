//! `navarch migrate`: the move of namespaces from sidecars to ambient mode, in steps.

mod planning;
mod record;
mod status;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use navarch_base::printable::escape;
use navarch_migration::{Plan, edit_lines};
use tokio::runtime::Runtime;

use super::mesh::{Mesh, MeshFlags};
use super::output::{Output, print, report};
use record::{RECORD, Record};
use status::Status;

/// The exit code if something is refused.
const REFUSED_EXIT_CODE: u8 = 1;
/// The exit code if the mesh could not be read, or an edit failed.
const FAILED_EXIT_CODE: u8 = 2;

/// Move namespaces from sidecars to ambient mode, one step at a time
///
/// A plan has the steps: a waypoint if one is needed, the policies bound to it by targetRefs, the
/// policies of pods accept what has passed it, the labels for it and for ambient mode, a restart of
/// each workload without sidecars, injection off. For each step, the requests that policies and
/// routes tell apart are followed through the mesh before and after it; a step is refused if one of
/// them would get another verdict or another destination. What no verdict takes into account is
/// named, and what sidecars do without a counterpart in ambient mode is named per workload.
///
/// apply does the next step, by the rights of the kubeconfig's user, and records it with the
/// previous values in the ConfigMap navarch-migration of the namespace; undo shows the edits that
/// restore them, and does them with --yes. Nothing else is written, and the control plane is not
/// involved.
///
/// Exit codes: 0 done, or nothing is refused; 1 something is refused, undo has only shown its edits,
/// or status found edits of others or a step that was begun; 2 the command line is wrong, the mesh
/// could not be read, or an edit failed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch migrate plan shop bank                   the steps, and what each changes
  navarch migrate plan shop --from dump/ -o json   files that `kubectl get -o yaml` has written
  navarch migrate apply shop --next
  navarch migrate status shop
  navarch migrate undo shop                        the edits that undo the last step
  navarch migrate undo shop --yes")]
pub(super) struct Migrate {
    /// What to do
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    flags: MeshFlags,
    /// Output format
    #[arg(
        short = 'o',
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text"
    )]
    output: Output,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show the steps, and what each changes for which requests; nothing is changed
    Plan {
        /// Namespaces to move, one after the other
        #[arg(required = true, value_name = "NAMESPACE")]
        namespaces: Vec<String>,
        /// File or directory with the objects as YAML or JSON, or - for the standard input, instead
        /// of a cluster
        #[arg(long, alias = "config-dir", value_name = "PATH")]
        from: Option<PathBuf>,
    },
    /// Do the next step of a namespace
    Apply {
        /// Namespace that moves
        namespace: String,
        /// Do the next step, whatever its number
        #[arg(long)]
        next: bool,
        /// Number of the step to do, as status shows it: only the next one can be done
        #[arg(long, value_name = "NUMBER", conflicts_with = "next")]
        step: Option<usize>,
        /// Do the step although something that requests depend on is not judged
        #[arg(long)]
        accept_unjudged: bool,
        /// Record the plan as it is now, although it differs from the recorded one
        #[arg(long)]
        replan: bool,
    },
    /// Show the steps that were done, edits of others since, and which pods still have sidecars
    Status {
        /// Namespace that moves
        namespace: String,
    },
    /// Undo the last step of a namespace, from the recorded values
    Undo {
        /// Namespace that moves
        namespace: String,
        /// Do the edits that undo it; without this flag they are only shown
        #[arg(long)]
        yes: bool,
        /// Undo it although its objects were edited since; not objects to delete, nor rules of
        /// policies
        #[arg(long)]
        force: bool,
    },
}

/// How a step is done.
#[derive(Clone, Copy, Debug)]
struct ApplyOptions {
    /// The number that it must have.
    step: Option<usize>,
    accepts_unjudged: bool,
    replans: bool,
}

/// How a step is undone.
#[derive(Clone, Copy, Debug)]
struct UndoOptions {
    /// Whether the edits are not only shown.
    does_it: bool,
    /// Whether edits of others do not matter.
    forces: bool,
}

impl Migrate {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// Never: a failure is printed, and has its own exit code.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let code = self.migrate().unwrap_or_else(|error| {
            report(&format!("Error: {error:?}"));
            FAILED_EXIT_CODE
        });
        Ok(ExitCode::from(code))
    }

    fn migrate(&self) -> anyhow::Result<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;

        match &self.command {
            Command::Plan { namespaces, from } => {
                let mesh = match from {
                    Some(path) => Mesh::of_files(path, &self.flags)?,
                    None => runtime.block_on(Mesh::of_cluster(&self.flags))?,
                };
                let plan = mesh.plan(namespaces)?;
                print(self.output, &plan, &plan)?;
                Ok(exit_code(plan.is_refused()))
            }
            Command::Apply {
                namespace,
                next,
                step,
                accept_unjudged,
                replan,
            } => {
                if !next && step.is_none() {
                    bail!("set --next, or --step with the number of the next step");
                }
                let options = ApplyOptions {
                    step: *step,
                    accepts_unjudged: *accept_unjudged,
                    replans: *replan,
                };
                self.apply(&runtime, namespace, options)
            }
            Command::Status { namespace } => {
                let mesh = runtime.block_on(Mesh::of_cluster(&self.flags))?;
                let record = runtime.block_on(mesh.record(namespace))?;
                let status = Status::of(&mesh, namespace, record.state.as_ref());
                print(self.output, &status, &status)?;
                Ok(exit_code(status.needs_attention()))
            }
            Command::Undo {
                namespace,
                yes,
                force,
            } => {
                let options = UndoOptions {
                    does_it: *yes,
                    forces: *force,
                };
                self.undo(&runtime, namespace, options)
            }
        }
    }

    /// Does the next step.
    fn apply(
        &self,
        runtime: &Runtime,
        namespace: &str,
        options: ApplyOptions,
    ) -> anyhow::Result<u8> {
        let mesh = runtime.block_on(Mesh::of_cluster(&self.flags))?;
        let mut record = runtime.block_on(mesh.record(namespace))?;
        if record.begun().is_some() {
            return self.finish(runtime, &mesh, record, options);
        }

        let plan = mesh.plan(&[namespace.to_owned()])?;
        if let Some(reason) = record.refusal(&plan, options) {
            return self.refuse(&plan, &reason);
        }
        let Some(planned) = plan.steps.first() else {
            return self.done(&format!("Namespace {namespace} has no step left."));
        };

        let number = record.next_number();
        runtime.block_on(mesh.begin(&mut record, &plan, planned))?;
        runtime.block_on(mesh.finish(&mut record))?;
        self.done(&format!(
            "Step {number} is done: {}\nSee navarch migrate status {namespace}; undo it with \
             navarch migrate undo {namespace} --yes.",
            escape(&planned.step.title)
        ))
    }

    /// Finishes the step that was begun.
    fn finish(
        &self,
        runtime: &Runtime,
        mesh: &Mesh,
        mut record: Record,
        options: ApplyOptions,
    ) -> anyhow::Result<u8> {
        let begun = record.begun().context("no step was begun")?;
        let title = escape(&begun.title).into_owned();
        if begun.unfinished(&mesh.objects).next().is_some() {
            let plan = mesh.plan(std::slice::from_ref(&record.namespace))?;
            if let Some(reason) = record.refusal_to_finish(&plan, &mesh.objects, options) {
                return self.refuse(&plan, &reason);
            }
        }
        runtime.block_on(mesh.finish(&mut record))?;
        self.done(&format!("Finished: {title}"))
    }

    /// Undoes the last step, or shows what that would do.
    fn undo(&self, runtime: &Runtime, namespace: &str, options: UndoOptions) -> anyhow::Result<u8> {
        let mesh = runtime.block_on(Mesh::of_cluster(&self.flags))?;
        let mut record = runtime.block_on(mesh.record(namespace))?;
        let Some(step) = record.last() else {
            bail!("no step of namespace {namespace} is recorded: there is nothing to undo");
        };

        let title = escape(&step.title).into_owned();
        let foreign = step.against_reverting(&mesh.objects, namespace);
        if !foreign.is_empty() {
            let advice = format!(
                "If somebody else has written the record, delete ConfigMap {namespace}/{RECORD}, \
                 and plan again."
            );
            report(&refusal_to_undo(&title, &foreign, &advice));
            return Ok(REFUSED_EXIT_CODE);
        }
        let reasons = mesh.against_undoing(namespace, step);
        if !reasons.is_empty() && !options.forces {
            let advice = "--force undoes it all the same.";
            report(&refusal_to_undo(&title, &reasons, advice));
            return Ok(REFUSED_EXIT_CODE);
        }

        let edits = edit_lines(&step.undo, &step.edits);
        if !options.does_it {
            let text = format!("To undo: {title}\n  {}\n", edits.join("\n  "));
            let json = serde_json::json!({ "title": title, "edits": step.undo });
            print(self.output, &text, &json)?;
            report(&"Nothing is done without --yes.");
            return Ok(REFUSED_EXIT_CODE);
        }
        report(&edits.join("\n"));
        runtime.block_on(mesh.undo(&mut record))?;
        self.done(&format!("Undone: {title}"))
    }

    /// Prints why a step is not done.
    fn refuse(&self, plan: &Plan, reason: &str) -> anyhow::Result<u8> {
        print(self.output, plan, plan)?;
        // It may contain texts of the record.
        report(&format!("Refused: {}", escape(reason)));
        Ok(REFUSED_EXIT_CODE)
    }

    /// Prints what was done.
    fn done(&self, text: &str) -> anyhow::Result<u8> {
        let json = serde_json::json!({ "result": text });
        print(self.output, &format!("{text}\n"), &json)?;
        Ok(0)
    }
}

/// Why a step is not undone, and what to do. The title is escaped.
fn refusal_to_undo(title: &str, reasons: &[String], advice: &str) -> String {
    let reasons: Vec<_> = reasons.iter().map(|reason| escape(reason)).collect();
    format!(
        "Refused to undo: {title}\n  {}\n{advice}",
        reasons.join("\n  ")
    )
}

/// The exit code of a plan, which may be refused, and of a status, which may need attention.
fn exit_code(is_bad: bool) -> u8 {
    if is_bad { REFUSED_EXIT_CODE } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_record_add_no_lines_to_a_refusal() {
        let reasons = ["a\nUndone: forged".to_owned(), "b".to_owned()];
        assert_eq!(
            refusal_to_undo("a step", &reasons, "Plan again."),
            "Refused to undo: a step\n  a\\nUndone: forged\n  b\nPlan again."
        );
    }
}
