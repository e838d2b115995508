//! The report as text. Texts of control planes add no lines to it.

use std::borrow::Cow;
use std::fmt;

use navarch_base::printable::escape;

use super::{Group, Report};
use crate::twin::NotCompared;
use crate::watch::Changes;

/// The maximum number of names in a list; the JSON has all.
const MAX_NAMES: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unexplained, documented): (Vec<&Group>, Vec<&Group>) = self
            .groups
            .iter()
            .partition(|group| group.documented.is_none());

        writeln!(
            f,
            "{} of {} compared proxies get the same from istiod and from Navarch",
            self.equal, self.compared
        )?;
        section(f, "Differences", &unexplained)?;
        section(f, "Documented differences", &documented)?;
        reasons(f, "Not compared because of an error", &self.failed)?;
        reasons(f, "Never compared", &self.skipped)?;

        if !unexplained.is_empty() {
            writeln!(
                f,
                "\nNext: see whether both control planes read the objects above (revision, \
                 namespaces, time of the last change), and report a difference that no object \
                 explains with the output of `navarch shadow -o json`"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        section(f, "Appeared", &self.appeared)?;
        if !self.ended.is_empty() {
            writeln!(f, "\nEnded:")?;
        }
        for ended in &self.ended {
            writeln!(f, "  {}", escape(&ended.cause))?;
        }
        Ok(())
    }
}

/// Groups under a title, if there are any.
fn section(f: &mut fmt::Formatter<'_>, title: &str, groups: &[&Group]) -> fmt::Result {
    if groups.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}:")?;
    for group in groups {
        write!(f, "{group}")?;
    }
    Ok(())
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", escape(&self.cause))?;
        writeln!(f, "    proxies: {}", names(&self.proxies))?;
        writeln!(f, "    resources: {}", names(&self.resources))?;
        if !self.objects.is_empty() {
            writeln!(f, "    objects: {}", names(&self.objects))?;
        }
        for example in &self.examples {
            writeln!(f, "    {}", escape(example))?;
        }

        let others = self.differences.saturating_sub(self.examples.len());
        if others > 0 {
            writeln!(f, "    and {others} more differences")?;
        }
        Ok(())
    }
}

/// The first names of a list, and the number of the others.
fn names<'a>(all: impl IntoIterator<Item = &'a String, IntoIter: ExactSizeIterator>) -> String {
    let all = all.into_iter();
    let others = all.len().saturating_sub(MAX_NAMES);
    let mut names: Vec<Cow<'_, str>> = all.take(MAX_NAMES).map(|name| escape(name)).collect();
    if others > 0 {
        names.push(format!("{others} more").into());
    }
    names.join(", ")
}

/// Proxies with reasons under a title, if there are any.
fn reasons(f: &mut fmt::Formatter<'_>, title: &str, proxies: &[NotCompared]) -> fmt::Result {
    if proxies.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}:")?;
    for one in proxies.iter().take(MAX_NAMES) {
        writeln!(f, "  {}: {}", escape(&one.proxy), escape(&one.reason))?;
    }
    let others = proxies.len().saturating_sub(MAX_NAMES);
    if others > 0 {
        writeln!(f, "  and {others} more")?;
    }
    Ok(())
}
