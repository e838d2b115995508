//! A plan as text.

use std::fmt::{self, Write as _};

use navarch_base::printable::{escape, escape_lines, escape_list};

use super::plan::{Plan, ResourcePlan};
use super::proposal::{Action, ObjectPlan};
use super::traffic::TrafficChange;

/// Maximum number of listed workloads of a request.
const MAX_SOURCES: usize = 3;

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Unchanged => "unchanged",
            Self::Rejected => "REJECTED",
            Self::Ignored => "ignored: unsupported kind",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Objects\n")?;
        self.objects
            .iter()
            .try_for_each(|object| f.write_str(&object_lines(object)))?;
        writeln!(
            f,
            "\nProxies\n  {} of {} receive changes, about {}",
            self.reached,
            self.proxies,
            bytes(self.bytes)
        )?;

        if !self.asked.is_empty() {
            writeln!(f, "  connected to {}", escape_list(&self.asked))?;
        }

        for (workload, proxies) in &self.workloads {
            writeln!(f, "  {}: {proxies}", escape(workload))?;
        }

        if !self.types.is_empty() {
            f.write_str("\nResources\n")?;
        }

        for (resource_type, totals) in &self.types {
            let added = totals.added;
            let changed = totals.changed;
            let removed = totals.removed;
            writeln!(
                f,
                "  {}: {added} added, {changed} changed, {removed} removed, at {} proxies",
                escape(resource_type),
                totals.proxies
            )?;
        }

        self.resources
            .iter()
            .try_for_each(|resource| f.write_str(&resource_lines(resource)))?;
        if !self.traffic.is_empty() {
            f.write_str("\nTraffic\n")?;
        }

        for change in &self.traffic {
            let names: Vec<&str> = change.from.iter().map(|name| short(name)).collect();
            writeln!(
                f,
                "  {}{}: {} → {}",
                escape(&change.request),
                escape(&from(&names)),
                escape(&change.before),
                escape(&change.after)
            )?;
        }

        list(f, "Not sent to proxies", self.left_out.iter().cloned())?;
        let rejected = self.refused.iter();
        let rejected = rejected.map(|one| {
            format!(
                "{} {} at {} proxies: {}",
                one.r#type, one.name, one.proxies, one.reason
            )
        });

        list(f, "Envoy would reject", rejected)?;
        list(f, "Not shown", self.more.iter().cloned())
    }
}

impl Plan {
    /// A summary in at most three lines: affected proxies, requests with another outcome, errors.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let reached = self.reached;
        let all = self.proxies;
        let workloads: Vec<&str> = self.workloads.keys().map(String::as_str).collect();
        let mut lines = vec![match reached {
            0 => format!("plan: none of {all} proxies connected to this replica receives changes"),
            _ => {
                let bytes = bytes(self.bytes);
                format!(
                    "plan: {reached} of {all} proxies connected to this replica receive about {bytes} ({})",
                    some(&workloads)
                )
            }
        }];

        if let Some(change) = self.traffic.first() {
            let names: Vec<&str> = change.from.iter().map(|name| short(name)).collect();
            let more = self.traffic.len() - 1;
            let more = if more > 0 {
                format!(" (and {more} more requests)")
            } else {
                String::new()
            };

            let TrafficChange {
                request,
                before,
                after,
                ..
            } = change;

            lines.push(format!(
                "plan: {request}{}: {before} → {after}{more}",
                from(&names)
            ));
        }

        let rejected = self.refused.iter().map(|one| {
            format!(
                "plan: Envoy would reject {} {} at {} proxies: {}",
                one.r#type, one.name, one.proxies, one.reason
            )
        });

        let wrong: Vec<String> = rejected
            .chain(
                self.left_out
                    .iter()
                    .map(|line| format!("plan: not sent to proxies: {line}")),
            )
            .collect();

        if let Some(first) = wrong.first() {
            let more = if wrong.len() > 1 {
                format!("{} more problem(s); ", wrong.len() - 1)
            } else {
                String::new()
            };
            // Long lines are truncated.
            lines.push(match more.is_empty() {
                true => first.clone(),
                false => first.replacen("plan: ", &format!("plan: {more}"), 1),
            });
        }

        lines.iter().map(|line| escape(line).into_owned()).collect()
    }
}

/// The sources of requests, if known.
fn from(names: &[&str]) -> String {
    if names.is_empty() {
        String::new()
    } else {
        format!(" from {}", some(names))
    }
}

/// The first names, and the number of further ones.
fn some(names: &[&str]) -> String {
    let listed = names
        .iter()
        .take(MAX_SOURCES)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MAX_SOURCES) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// A list with a title, unless empty: a line for each item.
fn list(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    lines: impl Iterator<Item = String>,
) -> fmt::Result {
    for (at, line) in lines.enumerate() {
        if at == 0 {
            writeln!(f, "\n{title}")?;
        }
        writeln!(f, "  {}", escape(&line))?;
    }
    Ok(())
}

/// The name of a workload without its namespace.
fn short(workload: &str) -> &str {
    workload.split_once('/').map_or(workload, |(_, name)| name)
}

/// The plan of one object in text.
fn object_lines(object: &ObjectPlan) -> String {
    let mut text = format!(
        "  {} ({}): {}\n",
        escape(&object.object),
        escape(&object.place),
        object.action
    );
    for error in &object.errors {
        _ = writeln!(text, "    error: {}", escape(error));
    }
    for warning in &object.warnings {
        _ = writeln!(text, "    warning: {}", escape(warning));
    }
    text
}

/// The change of one resource in text.
fn resource_lines(resource: &ResourcePlan) -> String {
    let sign = match resource.action {
        Action::Added => '+',
        Action::Removed => '-',
        Action::Changed | Action::Unchanged | Action::Rejected | Action::Ignored => '~',
    };
    let mut text = format!(
        "  {sign} {} {} ({} proxies)\n",
        escape(&resource.r#type),
        escape(&resource.name),
        resource.proxies
    );
    for line in escape_lines(&resource.diff).lines() {
        _ = writeln!(text, "      {line}");
    }
    text
}

/// A human-readable number of bytes.
fn bytes(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::plan::RejectedResource;
    use super::*;

    #[test]
    fn texts_of_objects_and_servers_add_no_lines() {
        let forged = || "a\nProxies\n  forged\u{1b}[2J".to_owned();
        let change = TrafficChange {
            request: forged(),
            from: BTreeSet::from([forged()]),
            before: forged(),
            after: forged(),
        };
        let rejected = RejectedResource {
            r#type: forged(),
            name: forged(),
            proxies: 1,
            reason: forged(),
        };

        let plan = Plan {
            reached: 1,
            workloads: BTreeMap::from([(forged(), 1)]),
            asked: vec![forged()],
            traffic: vec![change],
            left_out: vec![forged()],
            refused: vec![rejected],
            more: vec![forged()],
            ..Plan::default()
        };

        let text = plan.to_string();
        assert_eq!(text.matches("\nProxies\n").count(), 1, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        for line in plan.summary() {
            assert!(!line.contains(['\n', '\u{1b}']), "{line}");
        }
    }

    #[test]
    fn a_plan_summary_has_proxies_traffic_and_problems() {
        let change = TrafficChange {
            request: "GET reviews:9080/".to_owned(),
            from: BTreeSet::from(["shop/web".to_owned()]),
            before: "v1 100 %".to_owned(),
            after: "v1 90 %, v2 10 %".to_owned(),
        };

        let rejected = RejectedResource {
            r#type: "rds".into(),
            name: "9080".into(),
            proxies: 1,
            reason: "bad".into(),
        };

        let workloads = ["a", "b", "c", "d", "e"].map(|name| (format!("shop/{name}"), 1));
        let plan = Plan {
            proxies: 12,
            reached: 5,
            bytes: 700,
            workloads: BTreeMap::from(workloads),
            traffic: vec![change.clone(), change],
            refused: vec![rejected.clone(), rejected],
            ..Plan::default()
        };

        assert_eq!(
            plan.summary(),
            [
                "plan: 5 of 12 proxies connected to this replica receive about 700 bytes (shop/a, shop/b, shop/c and 2 more)",
                "plan: GET reviews:9080/ from web: v1 100 % → v1 90 %, v2 10 % (and 1 more requests)",
                "plan: 1 more problem(s); Envoy would reject rds 9080 at 1 proxies: bad",
            ]
        );

        let nobody = Plan {
            proxies: 12,
            ..Plan::default()
        };
        assert_eq!(
            nobody.summary(),
            ["plan: none of 12 proxies connected to this replica receives changes"]
        );
    }
}
