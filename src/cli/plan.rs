//! `navarch plan`: shows the effects of a change before it is made.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use http::Method;
use navarch_base::printable::escape;

use super::debug_api::{DebugApi, DebugRequest};
use super::output::{Output, print};
use super::progress::Progress;
use super::{offline, reading};
use navarch_agent::local_http::LocalResponse;
use navarch_answers::mirror::Mirror;
use navarch_answers::parts::{PlanPart, merged};
use navarch_answers::plan::{Plan, part};
use navarch_answers::proposal::{Action, Proposal, ProposedFile};
use navarch_answers::{STACK, implied};

/// Timeout of a running control plane.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);
/// The exit code if the plan contains something of --fail-on.
const FAIL_ON_EXIT_CODE: u8 = 3;

/// Show the effect of a change before it is made
///
/// The plan shows which objects are valid, which proxies the change affects, what they would
/// receive, which requests would be routed differently, and what Envoy would reject or what would
/// not be sent to proxies. Nothing is applied.
///
/// The request is sent to every ready control plane of the kubeconfig's cluster, or to each
/// --address: each knows its own proxies, and their plans are merged.
///
/// Exit codes: 0 the plan has nothing of --fail-on; 1 there is no plan, or one of several control
/// planes did not respond; 2 the command line is wrong; 3 the plan has something of --fail-on.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch plan -f change.yaml                            against the control plane of the kubeconfig's cluster
  navarch plan -f change.yaml --address istiod:15014 --token-file token
  navarch plan -f change.yaml --against config/          against a directory; its pods and WorkloadEntries imply the proxies
  navarch plan --remove vs/shop/reviews -o json          if this VirtualService were removed
  navarch plan -f change.yaml --fail-on invalid,refused,left-out || exit 1    in a pipeline")]
pub(super) struct PlanCommand {
    /// File or directory with objects to add or change, or - for the standard input; can be
    /// repeated
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        required_unless_present = "remove"
    )]
    files: Vec<PathBuf>,
    /// Object to remove, as KIND/NAMESPACE/NAME; can be repeated
    #[arg(long, value_name = "OBJECT")]
    remove: Vec<String>,
    /// Configuration to which the change is applied: live, or a directory as for --config-dir
    #[arg(long, value_name = "live|DIR", default_value = "live")]
    against: String,
    /// File with the mesh config for the directory: key mesh of the ConfigMap istio
    #[arg(
        long = "meshConfigFile",
        alias = "mesh-config-file",
        value_name = "FILE"
    )]
    mesh_config: Option<PathBuf>,
    /// What makes the command fail
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "invalid,refused"
    )]
    fail_on: Vec<FailOn>,
    /// Output format
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    api: DebugApi,
}

/// What a plan may be failed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// An object is invalid
    Invalid,
    /// Envoy would reject a resource
    #[value(name = "refused")]
    Rejected,
    /// Part of the configuration would not be sent to proxies
    LeftOut,
    /// There is a warning for an object
    Warning,
    /// Requests would be routed differently
    Traffic,
    /// A proxy would receive changes
    Change,
    /// Nothing
    Never,
}

impl PlanCommand {
    /// Computes the plan and prints it.
    ///
    /// # Errors
    /// If files cannot be read, or the control plane does not respond.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let proposal = self.proposal()?;
        let progress = Progress::begin("computing the plan");
        let (plan, silent) = if self.against == "live" {
            self.fetch_plan(&proposal)?
        } else {
            (self.make(proposal)?, false)
        };
        drop(progress);
        print(self.output, &plan, &plan)?;
        let is_found = self.fail_on.iter().any(|what| what.is_in(&plan));
        Ok(match (silent, is_found) {
            (true, _) => ExitCode::FAILURE,
            (false, true) => ExitCode::from(FAIL_ON_EXIT_CODE),
            (false, false) => ExitCode::SUCCESS,
        })
    }

    /// Reads the proposed change.
    fn proposal(&self) -> anyhow::Result<Proposal> {
        let mut files = Vec::new();
        for path in &self.files {
            for file in reading::files_of(path)? {
                files.push(ProposedFile {
                    place: file.display().to_string(),
                    text: reading::read(&file)?,
                });
            }
        }
        ensure!(
            !(files.is_empty() && self.remove.is_empty()),
            "the files of -f contain no objects"
        );
        Ok(Proposal {
            files,
            remove: self.remove.clone(),
        })
    }

    /// Requests the plan from every running control plane for its proxies. Returns whether one of
    /// them failed.
    fn fetch_plan(&self, proposal: &Proposal) -> anyhow::Result<(Plan, bool)> {
        let body = serde_json::to_vec(proposal)?;
        let path = "/debug/plan?part=true".to_owned();
        let mut parts = Vec::new();
        let mut silent = Vec::new();

        for (place, answer) in self.api.query_each(&DebugRequest {
            method: Method::POST,
            path,
            body,
            timeout: REQUEST_TIMEOUT,
        })? {
            match answer.and_then(|answer| read(&answer)) {
                Ok(part) => parts.push((place, part)),
                Err(error) => silent.push(escape(&format!("{error:#}")).into_owned()),
            }
        }

        ensure!(!parts.is_empty(), "{}", silent.join("\n"));
        let is_silent = !silent.is_empty();
        let mut plan = match <[_; 1]>::try_from(parts) {
            Ok([(_, only)]) if !is_silent => only.whole(),
            Ok(only) => merged(only.into()),
            Err(several) => merged(several),
        };

        plan.more.extend(
            silent
                .into_iter()
                .map(|error| format!("proxies of a control plane: {error}")),
        );

        Ok((plan, is_silent))
    }

    /// Computes the plan for a directory.
    fn make(&self, proposal: Proposal) -> anyhow::Result<Plan> {
        let (context, problems) =
            offline::snapshot(self.against.as_ref(), self.mesh_config.as_ref())?;

        // Translation is deeply recursive.
        let make = move || {
            part(
                &mut Mirror::of(&context, implied(&context)),
                &proposal,
                &mut |_| (),
            )
            .whole()
        };

        let thread = std::thread::Builder::new()
            .name("plan".to_owned())
            .stack_size(STACK)
            .spawn(make)?;
        let mut plan = thread
            .join()
            .map_err(|_| anyhow::anyhow!("the planning thread panicked; see the log above"))?;
        plan.more.extend(
            problems
                .iter()
                .map(|problem| format!("directory: {problem}")),
        );

        Ok(plan)
    }
}

/// Parses the response of a control plane.
fn read(answer: &LocalResponse) -> anyhow::Result<PlanPart> {
    serde_json::from_slice(&answer.body)
        .context("the response is of an incompatible Navarch release")
}

impl FailOn {
    /// Whether a plan contains this.
    fn is_in(self, plan: &Plan) -> bool {
        match self {
            Self::Invalid => plan
                .objects
                .iter()
                .any(|object| object.action == Action::Rejected),
            Self::Rejected => !plan.refused.is_empty(),
            Self::LeftOut => !plan.left_out.is_empty(),
            Self::Warning => plan
                .objects
                .iter()
                .any(|object| !object.warnings.is_empty()),
            Self::Traffic => !plan.traffic.is_empty(),
            Self::Change => plan.reached > 0,
            Self::Never => false,
        }
    }
}
