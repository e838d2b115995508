//! The Helm chart without Helm: its templates use plain values alone, so that a few lines can fill them in.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// All templates of a chart, filled in with its default values, ordered by file name, as one text of documents.
///
/// # Errors
/// When a file cannot be read, or a template uses more than `.Values.…`, `.Release.Namespace`, `if .Values.…` and
/// `if ne .Values.… "text"`.
pub fn render(chart: &Path, namespace: &str) -> Result<String> {
    render_with(chart, namespace, &[])
}

/// The same with other values for these paths, such as `replicas.min`.
///
/// # Errors
/// As [`render`], and when there is no such value.
pub fn render_with(chart: &Path, namespace: &str, set: &[(&str, &str)]) -> Result<String> {
    let mut values = values(&std::fs::read_to_string(chart.join("values.yaml"))?)?;
    for (path, value) in set {
        let known = values.pointer_mut(&pointer(path)).with_context(|| format!("no value {path}"))?;
        *known = Value::String((*value).to_owned());
    }
    let mut files: Vec<_> =
        std::fs::read_dir(chart.join("templates"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut out = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {namespace}\n  labels:\n    app.kubernetes.io/part-of: navarch\n"
    );
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let filled = fill(&text, &values, namespace).with_context(|| format!("{}", file.display()))?;
        if !filled.trim().is_empty() {
            write!(out, "---\n{}\n", filled.trim_matches('\n'))?;
        }
    }
    Ok(out)
}

/// The JSON pointer of a path such as `replicas.min`.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// A template with its actions carried out.
fn fill(template: &str, values: &Value, namespace: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = template;
    // Whether what is in each `if` that is open counts.
    let mut open: Vec<bool> = Vec::new();
    while let Some((before, after)) = rest.split_once("{{") {
        let (action, after) = after.split_once("}}").context("an action has no end")?;
        let trims = action.starts_with('-');
        if open.iter().all(|counts| *counts) {
            out.push_str(if trims { before.trim_end() } else { before });
        }
        let action = action.trim_start_matches('-').trim();
        match action.split_once(' ') {
            Some(("if", condition)) => open.push(match condition.strip_prefix("ne ") {
                None => !matches!(value(values, condition.trim())?, "" | "false" | "0"),
                Some(words) => {
                    let (path, text) = words.split_once(' ').context("`ne` compares two words")?;
                    value(values, path)? != text.trim().trim_matches('"')
                }
            }),
            Some(_) => bail!("cannot do {action:?}"),
            None if action == "end" => _ = open.pop().context("an end of nothing")?,
            None if !open.iter().all(|counts| *counts) => {}
            None if action == ".Release.Namespace" => out.push_str(namespace),
            None => out.push_str(value(values, action)?),
        }
        rest = after;
    }
    anyhow::ensure!(open.is_empty(), "an if has no end");
    out.push_str(rest);
    Ok(out)
}

/// The value that `.Values.…` stands for.
fn value<'a>(values: &'a Value, action: &str) -> Result<&'a str> {
    let path = action.strip_prefix(".Values.").with_context(|| format!("unknown template action {action:?}"))?;
    values.pointer(&pointer(path)).and_then(Value::as_str).with_context(|| format!("values.yaml has no {path}"))
}

/// The values of a file of plain `key: value` lines, sections by two spaces; all as texts.
fn values(text: &str) -> Result<Value> {
    let mut all = serde_json::Map::new();
    let mut section = None;
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty()) {
        let (key, value) = line.trim().split_once(':').with_context(|| format!("no key in {line:?}"))?;
        let is_section = value.trim().is_empty();
        let value = Value::String(value.trim().trim_matches('"').to_owned());
        if line.starts_with("  ") {
            let section: &String = section.as_ref().with_context(|| format!("no section for {line:?}"))?;
            let members = all.get_mut(section).and_then(Value::as_object_mut).context("a section is an object")?;
            members.insert(key.to_owned(), value);
        } else if is_section {
            all.insert(key.to_owned(), Value::Object(serde_json::Map::new()));
            section = Some(key.to_owned());
        } else {
            all.insert(key.to_owned(), value);
        }
    }
    Ok(Value::Object(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_manifests_are_the_chart_with_its_defaults() {
        let deploy = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy"));
        let rendered = render(&deploy.join("charts/navarch"), "istio-system").unwrap();
        let committed = deploy.join("navarch.yaml");
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&committed, &rendered).unwrap();
        }
        let now = std::fs::read_to_string(committed).unwrap_or_default();
        assert!(now == rendered, "out of date; run: REWRITE=1 cargo test -p navarch-testkit chart");
    }

    #[test]
    fn what_is_off_is_left_out_and_what_is_on_is_there() {
        let chart = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/charts/navarch"));
        let plain = render(chart, "istio-system").unwrap();
        assert!(!plain.contains("NetworkPolicy") && !plain.contains("limits:"), "{plain}");
        let set = [("networkPolicy.enabled", "true"), ("resources.memoryLimit", "2Gi")];
        let on = render_with(chart, "istio-system", &set).unwrap();
        assert!(on.contains("kind: NetworkPolicy") && on.contains("            limits:\n              memory: 2Gi\n"));
        assert!(!on.contains("ipBlock"), "whoever calls the webhooks is not limited");
        let set = [("networkPolicy.enabled", "true"), ("networkPolicy.apiServers", "10.0.0.0/28")];
        let limited = render_with(chart, "istio-system", &set).unwrap();
        assert!(limited.contains("      from:\n        - ipBlock:\n            cidr: 10.0.0.0/28\n"), "{limited}");
        assert!(render_with(chart, "istio-system", &[("no.such", "1")]).is_err());
        assert!(fill("{{ if .Values.a }}", &serde_json::json!({"a": "true"}), "").is_err());
    }

    #[test]
    fn the_image_is_what_the_deployment_says() {
        let deploy = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy"));
        let image = std::fs::read_to_string(deploy.join("Containerfile")).unwrap();
        let steps: Vec<(&str, &str)> =
            image.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' ')).collect();
        // Only what comes after the last FROM is in the image.
        let last = steps.iter().rposition(|(step, _)| *step == "FROM").unwrap();
        let all = |wanted: &str| -> Vec<&str> {
            steps[last..].iter().filter(|(step, _)| *step == wanted).map(|(_, rest)| *rest).collect()
        };
        assert_eq!(all("FROM"), ["scratch"], "no shell, no libraries: the program is static or does not start");
        assert_eq!(all("RUN"), [""; 0], "there is nothing to run it with");
        assert_eq!(all("ENTRYPOINT"), [r#"["/navarch"]"#]);
        let deployment = std::fs::read_to_string(deploy.join("charts/navarch/templates/deployment.yaml")).unwrap();
        let [user] = all("USER")[..] else { panic!("one user") };
        let (user, group) = user.split_once(':').unwrap();
        for wanted in [
            format!("runAsUser: {user}"),
            format!("runAsGroup: {group}"),
            "runAsNonRoot: true".to_owned(),
            "readOnlyRootFilesystem: true".to_owned(),
            "allowPrivilegeEscalation: false".to_owned(),
        ] {
            assert!(deployment.contains(&wanted), "{wanted}");
        }
        let ports: std::collections::BTreeSet<&str> = all("EXPOSE").iter().flat_map(|ports| ports.split(' ')).collect();
        let opened = deployment.lines().filter_map(|line| line.trim().strip_prefix("containerPort: "));
        assert_eq!(ports, opened.collect());
        for copied in all("COPY") {
            assert!(copied.starts_with("--from=build "), "{copied}: nothing of the checkout but what was built");
        }
    }
}
