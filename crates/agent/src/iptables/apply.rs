//! Applies the rules to the kernel once: equal rules remain, different rules are reported or
//! replaced.

use super::capture::{Capture, CaptureError};
use super::families::IpFamily;
use super::nftables;
use super::options::Options;
use super::routes::{self, RouteError};
use super::rule::{Rule, cleaning, guards, restore_text};
use super::rules::rules;
use super::state::{Comparison, State};
use super::tool::{Tool, ToolError};
use super::trace::traced;

/// Why applying the rules failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The settings are invalid.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A tool failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// Addresses or routes could not be set up.
    #[error(transparent)]
    Route(#[from] RouteError),
}

/// The commands for a machine without mesh rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// `iptables-restore` or `ip6tables-restore`, without `-restore` if rules are only removed;
    /// `nft` with nftables.
    pub program: String,
    /// The program's input: lines for a restore program, else the arguments of one call per line.
    pub lines: Vec<String>,
}

/// The tools and rules of one family.
struct FamilyRules {
    family: IpFamily,
    tool: Tool,
    rules: Vec<Rule>,
}

/// How the kernel's rules differ from the generated ones.
#[derive(Clone, Copy, Debug, Default)]
struct Drift {
    /// The kernel has mesh rules.
    has_rules: bool,
    /// Generated rules are missing, or others exist.
    differs: bool,
}

/// Generates the rules as a script, without reading the state of the machine.
///
/// # Errors
/// When the settings are invalid.
pub fn dry_run(options: &Options) -> Result<Vec<DryRun>, CaptureError> {
    if options.nftables {
        return nftables::dry_run(options);
    }

    let mut planned = Vec::new();

    for family in options.capture.families() {
        let rules = generate(options, family)?;
        planned.push(if options.cleanup_only {
            let lines = cleaning(&rules)
                .iter()
                .map(|command| command.join(" "))
                .collect();
            DryRun {
                program: family.program().to_owned(),
                lines,
            }
        } else {
            let lines = restore_text(&rules).lines().map(str::to_owned).collect();
            DryRun {
                program: format!("{}-restore", family.program()),
                lines,
            }
        });
    }

    Ok(planned)
}

/// Applies the options to the kernel. Applying the same options twice changes nothing.
///
/// # Errors
/// When no variant of the tools works, or a tool fails.
pub fn apply(options: &Options) -> Result<(), ApplyError> {
    if options.nftables {
        return nftables::apply(options);
    }

    let parts = parts(options)?;
    let drift = drift(&parts, &options.capture, options);
    let others_exist = drift.has_rules && drift.differs && !options.cleanup_only;
    if others_exist && !options.reconcile {
        tracing::warn!("other mesh rules already exist; use --reconcile to replace them");
    }

    let guarded = others_exist && options.reconcile;
    if guarded {
        add_guards(&parts)?;
    }

    let clean = guarded || options.cleanup_only;
    let applied = exchange(options, &parts, clean, drift.differs);
    if guarded {
        remove_guards(&parts);
    }

    applied?;
    if !options.cleanup_only {
        routes::configure(&options.capture)?;
    }

    Ok(())
}

/// Removes old rules if requested, and applies the new rules where they are missing.
fn exchange(
    options: &Options,
    parts: &[FamilyRules],
    clean: bool,
    differs: bool,
) -> Result<(), ToolError> {
    if clean {
        for part in parts {
            // Log rules may remain from an earlier run, even if tracing is disabled now.
            try_all(&part.tool, cleaning(&traced(part.rules.clone())));
        }
    }

    if options.cleanup_only || !(differs || options.force_apply) {
        tracing::info!(cleaned = clean, "no rules to apply");
        return Ok(());
    }

    for part in parts {
        part.tool.restore(&restore_text(&part.rules))?;
        tracing::info!(family = ?part.family, rules = part.rules.len(), "rules applied");
    }

    Ok(())
}

/// Generates the rules of a family for these options.
fn generate(options: &Options, family: IpFamily) -> Result<Vec<Rule>, CaptureError> {
    let rules = rules(&options.capture, family)?;
    Ok(if options.trace { traced(rules) } else { rules })
}

/// Finds the tools and generates the rules of each family.
fn parts(options: &Options) -> Result<Vec<FamilyRules>, ApplyError> {
    let lock_file = Some(options.network_namespace.as_str())
        .filter(|path| options.cni_mode && !path.is_empty());
    let part = |family| {
        let tool = Tool::find(family, &options.binary, lock_file)?;
        Ok(FamilyRules {
            family,
            tool,
            rules: generate(options, family)?,
        })
    };
    options.capture.families().map(part).collect()
}

/// Compares the kernel's rules with the generated ones.
fn drift(parts: &[FamilyRules], capture: &Capture, options: &Options) -> Drift {
    let mut drift = Drift::default();
    for part in parts {
        let comparison = comparison(part);
        tracing::debug!(family = ?part.family, ?comparison, "compared the kernel's rules");
        drift.has_rules |= comparison != Comparison::Clean && !part.rules.is_empty();
        drift.differs |= comparison != Comparison::Alike;
    }

    // Leftover IPv6 rules affect traffic even if IPv6 is not captured.
    if !capture.ipv6
        && let Ok(tool) = Tool::find(IpFamily::V6, &options.binary, None)
        && tool.save().is_ok_and(|saved| {
            State::parse(&saved).against(&State::default()) == Comparison::Differs
        })
    {
        tracing::warn!("IPv6 traffic is not captured, but IPv6 rules of the mesh exist");
    }

    drift.differs |= !drift.has_rules;
    drift
}

/// Compares the kernel with the rules of a family.
fn comparison(part: &FamilyRules) -> Comparison {
    let wanted = State::of(&part.rules);
    let Ok(saved) = part.tool.save() else {
        return Comparison::Clean;
    };

    let by_text = State::parse(&saved).against(&wanted);
    let all_exist = || {
        part.rules
            .iter()
            .all(|rule| part.tool.run(&rule.checking()).is_ok())
    };
    if by_text == Comparison::Alike && !all_exist() {
        Comparison::Differs
    } else {
        by_text
    }
}

/// Drops all traffic. Guards of an interrupted earlier run are removed first.
fn add_guards(parts: &[FamilyRules]) -> Result<(), ToolError> {
    remove_guards(parts);
    for part in parts {
        for guard in guards() {
            part.tool.run(&guard.adding())?;
        }
    }
    Ok(())
}

/// Removes the guards, so traffic flows again.
fn remove_guards(parts: &[FamilyRules]) {
    for part in parts {
        try_all(
            &part.tool,
            guards().iter().filter_map(Rule::deletion).collect(),
        );
    }
}

/// Runs all commands and ignores failures, because the rule may not exist.
fn try_all(tool: &Tool, commands: Vec<Vec<String>>) {
    for command in commands {
        if let Err(error) = tool.run(&command) {
            tracing::debug!(%error, "no rules to remove");
        }
    }
}
