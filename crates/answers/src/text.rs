//! A plan as people read it.

use std::fmt::{self, Write as _};

use super::plan::{Plan, ResourcePlan};
use super::proposal::{Action, ObjectPlan};

/// How many workloads are named with a request.
const FROM: usize = 3;

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Unchanged => "unchanged",
            Self::Refused => "REFUSED",
            Self::Ignored => "ignored: no kind that is read",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Objects\n")?;
        self.objects.iter().try_for_each(|object| f.write_str(&object_lines(object)))?;
        writeln!(
            f,
            "\nProxies\n  {} of {} are sent something, about {}",
            self.reached,
            self.proxies,
            bytes(self.bytes)
        )?;
        for (workload, proxies) in &self.workloads {
            writeln!(f, "  {workload}: {proxies}")?;
        }
        if !self.types.is_empty() {
            f.write_str("\nResources\n")?;
        }
        for (kind, totals) in &self.types {
            let (added, changed, removed) = (totals.added, totals.changed, totals.removed);
            writeln!(
                f,
                "  {kind}: {added} added, {changed} changed, {removed} removed, at {} proxies",
                totals.proxies
            )?;
        }
        self.resources.iter().try_for_each(|resource| f.write_str(&resource_lines(resource)))?;
        if !self.traffic.is_empty() {
            f.write_str("\nTraffic\n")?;
        }
        for change in &self.traffic {
            let names: Vec<&str> = change.from.iter().take(FROM).map(|name| short(name)).collect();
            let more = change.from.len().saturating_sub(FROM);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            writeln!(f, "  {} from {}{more}: {} → {}", change.request, names.join(", "), change.before, change.after)?;
        }
        list(f, "Left out of what proxies get", self.left_out.iter().cloned())?;
        let refused = self.refused.iter();
        let refused =
            refused.map(|one| format!("{} {} at {} proxies: {}", one.r#type, one.name, one.proxies, one.reason));
        list(f, "Envoy would refuse", refused)?;
        list(f, "Not shown", self.more.iter().cloned())
    }
}

/// A list under a title, where there is anything in it.
fn list(f: &mut fmt::Formatter<'_>, title: &str, lines: impl Iterator<Item = String>) -> fmt::Result {
    for (at, line) in lines.enumerate() {
        if at == 0 {
            writeln!(f, "\n{title}")?;
        }
        writeln!(f, "  {line}")?;
    }
    Ok(())
}

/// The name of a workload without its namespace.
fn short(workload: &str) -> &str {
    workload.split_once('/').map_or(workload, |(_, name)| name)
}

/// What is said of an object.
fn object_lines(object: &ObjectPlan) -> String {
    let mut text = format!("  {} ({}): {}\n", object.object, object.place, object.action);
    for error in &object.errors {
        _ = writeln!(text, "    error: {error}");
    }
    for warning in &object.warnings {
        _ = writeln!(text, "    warning: {warning}");
    }
    text
}

/// What happens to a resource.
fn resource_lines(resource: &ResourcePlan) -> String {
    let sign = match resource.action {
        Action::Added => '+',
        Action::Removed => '-',
        Action::Changed | Action::Unchanged | Action::Refused | Action::Ignored => '~',
    };
    let mut text = format!("  {sign} {} {} ({} proxies)\n", resource.r#type, resource.name, resource.proxies);
    for line in resource.diff.lines() {
        _ = writeln!(text, "      {line}");
    }
    text
}

/// A number of bytes as people read it.
fn bytes(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
