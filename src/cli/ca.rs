//! `navarch ca`: shows the roots of the mesh and rotates them.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use http::{HeaderValue, Method};
use navarch_base::printable::escape;
use serde_json::Value;

use super::debug_api::{ACCESS_ADVICE, DebugApi};
use super::output::{print_body, print_text};
use crate::admin::CA_COMMAND;
use navarch_agent::local_http::LocalRequest;

/// Timeout of a request: a command waits until the change is stored.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Show the roots that the mesh trusts, and replace the one that signs.
///
/// A new root is first distributed: to the ConfigMaps in all namespaces, to proxies and agents, to
/// webhooks. It signs once every connected proxy trusts it; the former root stays trusted until the
/// last certificate signed by it has expired.
///
/// Changes are only accepted from the control plane's own machine, which includes port-forward:
/// with --address from elsewhere nothing can be changed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch ca status
  navarch ca rotate --context production")]
pub(super) struct Ca {
    /// What to do.
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    api: DebugApi,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show the roots with their roles, and the proxies that do not trust all of them yet
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Create and distribute a new root; it signs automatically once every proxy trusts it
    Rotate {
        /// Let the root that is being distributed sign now; fails if a proxy does not trust it
        #[arg(long)]
        now: bool,
        /// With --now: even if proxies do not trust it; they cannot connect until they do
        #[arg(long, requires = "now")]
        force: bool,
    },
}

impl Ca {
    /// Sends the request, and prints the response.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let command = match &self.command {
            Command::Status { .. } => None,
            Command::Rotate { now: false, .. } => Some("begin"),
            Command::Rotate {
                now: true,
                force: false,
            } => Some("switch"),
            Command::Rotate {
                now: true,
                force: true,
            } => Some("switch-regardless"),
        };

        let answer = self.send(command)?;

        match self.command {
            Command::Status { json: true } => print_body(&answer),
            Command::Status { json: false } | Command::Rotate { .. } => {
                let status =
                    serde_json::from_str(&answer).context("invalid response of the debug API")?;
                print_text(&describe(&status))
            }
        }
    }

    /// Requests the status from the debug API, or sends a command to it.
    fn send(&self, command: Option<&'static str>) -> anyhow::Result<String> {
        let mut question = LocalRequest::get("", 0, "/debug/ca", REQUEST_TIMEOUT);

        if let Some(command) = command {
            question.method = Method::POST;
            question
                .headers
                .insert(CA_COMMAND, HeaderValue::from_static(command));
        }

        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;
        let (place, answer) = runtime.block_on(async {
            let servers = self.api.servers().await?;
            let (place, _) = servers.one().await?;
            let answer = servers.put(&place, question).await?;
            anyhow::Ok((place, answer))
        })?;

        let text = answer.text().into_owned();

        match answer.status.as_u16() {
            200 => Ok(text),
            403 if command.is_some() => {
                bail!(
                    "{place} accepts changes only from its own machine: use --kubeconfig, or run the command there with a localhost address"
                )
            }
            401 | 403 => bail!("{place} denied access: {ACCESS_ADVICE}"),
            _ => bail!("command rejected: {}", escape(text.trim())),
        }
    }
}

/// The status as text.
fn describe(status: &Value) -> String {
    let text = |value: &Value, name: &str| {
        let text = value.get(name).and_then(Value::as_str).unwrap_or_default();
        escape(text).into_owned()
    };

    let list = |name: &str| {
        status
            .get(name)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };

    let explained = match text(status, "phase").as_str() {
        "settled" => "settled: one root signs, and no other is trusted",
        "distributing" => {
            "distributing: the next root is trusted, and signs once every proxy trusts it"
        }
        "retiring" => {
            "retiring: the new root signs, the former is trusted until its certificates have expired"
        }
        _ => "unknown",
    };

    let mut lines = vec![
        format!("phase    {explained}"),
        format!("kept in  {}", text(status, "keptIn")),
    ];

    for root in list("roots") {
        let until = match text(&root, "trustedUntil") {
            until if until.is_empty() => until,
            until => format!(", trusted until {until}"),
        };
        let subject = text(&root, "subject");
        let ends = text(&root, "notAfter");
        let fingerprint: String = text(&root, "fingerprint").chars().take(16).collect();
        lines.push(format!(
            "{:<8} {fingerprint}  {subject}, ends {ends}{until}",
            text(&root, "role")
        ));
    }

    let after = text(status, "signsAfter");
    if !after.is_empty() {
        lines.push(format!("next     signs after {after}"));
    }

    for one in list("missing") {
        lines.push(format!(
            "missing  {}: {}",
            text(&one, "who"),
            text(&one, "why")
        ));
    }

    let problem = text(status, "problem");
    if !problem.is_empty() {
        lines.push(format!("problem  {problem}"));
    }

    for signer in list("signers") {
        lines.extend(describe_signer(&signer));
    }

    lines.push(String::new());
    lines.join("\n")
}

/// A signer of workload certificates as lines.
fn describe_signer(signer: &Value) -> Vec<String> {
    let text = |value: &Value, name: &str| {
        let text = value.get(name).and_then(Value::as_str).unwrap_or_default();
        escape(text).into_owned()
    };
    let list = |name: &str| {
        let list = signer.get(name).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };

    let namespaces: Vec<String> = list("namespaces")
        .iter()
        .filter_map(Value::as_str)
        .map(|name| escape(name).into_owned())
        .collect();
    let whom = match namespaces.as_slice() {
        [] => "all other namespaces".to_owned(),
        some => some.join(", "),
    };
    let last = match text(signer, "lastSuccess") {
        none if none.is_empty() => "has signed nothing yet".to_owned(),
        moment => format!("last signed at {moment}"),
    };
    let mut lines = vec![format!(
        "signer   {} for {whom}, {last}",
        text(signer, "name")
    )];

    let away = text(signer, "away");
    if !away.is_empty() {
        lines.push(format!("  away     {away}"));
    }
    for one in list("unavailable") {
        lines.push(format!(
            "  away     for {}: {}",
            text(&one, "namespace"),
            text(&one, "why")
        ));
    }
    let error = text(signer, "lastError");
    if !error.is_empty() {
        lines.push(format!(
            "  error    {} {error}",
            text(signer, "lastErrorAt")
        ));
    }
    for link in list("chain") {
        lines.push(format!(
            "  issuer   {}, ends {}",
            text(&link, "subject"),
            text(&link, "notAfter")
        ));
    }

    for root in list("roots") {
        let fingerprint: String = text(&root, "fingerprint").chars().take(16).collect();
        let is_new = root.get("isDistributed") == Some(&Value::Bool(false));
        let state = if is_new { ", being distributed" } else { "" };
        lines.push(format!(
            "  root     {fingerprint}  {}, ends {}{state}",
            text(&root, "subject"),
            text(&root, "notAfter")
        ));
    }
    for one in list("missing") {
        lines.push(format!(
            "  missing  {}: {}",
            text(&one, "who"),
            text(&one, "why")
        ));
    }

    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_of_the_status_add_no_lines() {
        let status = json!({
            "phase": "settled", "keptIn": "a\nproblem  forged\u{1b}[2J",
            "missing": [{"who": "web-1\nnext     forged", "why": "\u{202e}"}],
            "signers": [{"name": "spire", "lastError": "no\nsigner   forged"}],
        });
        let text = describe(&status);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(
            text.contains(r"kept in  a\nproblem  forged\u{1b}[2J"),
            "{text}"
        );
    }

    #[test]
    fn ca_status_lists_missing_proxies() {
        let status = json!({
            "phase": "distributing", "origin": "selfSigned", "keptIn": "istio-ca-secret",
            "roots": [{"role": "signing", "subject": "O=td", "fingerprint": "0123456789abcdef0123", "notAfter": "2036"}],
            "signsAfter": "2026", "missing": [{"who": "web-1.shop-3", "why": "late"}],
            "signers": [{
                "name": "spire", "namespaces": ["bank"], "away": "refused",
                "unavailable": [{"namespace": "shop", "why": "no key"}],
                "roots": [{"subject": "O=company", "fingerprint": "0123456789abcdef0123", "notAfter": "2036", "isDistributed": false}],
            }],
        });
        let text = describe(&status);
        for line in [
            "signing  0123456789abcdef  O=td, ends 2036\n",
            "missing  web-1.shop-3: late\n",
            "signer   spire for bank, has signed nothing yet\n  away     refused\n  away     for shop: no key\n",
            "  root     0123456789abcdef  O=company, ends 2036, being distributed\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
