//! A template from the config.

use gotmpl::{FuncMap, Template};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::super::merge::clean;
use super::output::{MAX_BYTES, Output};
use super::tree::{self, Trees};
use navarch_api::yaml::{self, Schema};

/// The maximum length of a template, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// The maximum number of loop iterations in one rendering.
const MAX_STEPS: u64 = 20_000;

/// The name of the main template among the templates that the text defines.
const MAIN: &str = "inject";

/// Built-in functions of the template language.
const OWN: [&str; 23] = [
    "and", "call", "html", "index", "slice", "js", "len", "not", "or", "print", "printf",
    "println", "urlquery", "eq", "ge", "gt", "le", "lt", "ne", "break", "continue", "true",
    "false",
];

/// Replaces each comment with an empty string literal that has the same trim markers: the parser
/// applies a trim marker on one side of a comment to both sides.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        let (before, action) = rest.split_at(at + 2);
        out.push_str(before);
        let inner = action.strip_prefix('-').unwrap_or(action).trim_start();
        let comment = inner
            .strip_prefix("/*")
            .and_then(|inner| inner.find("*/").and_then(|end| inner.get(end + 2..)));
        rest = match comment {
            Some(after) => {
                out.push_str(if action.starts_with('-') {
                    "- \"\""
                } else {
                    "\"\""
                });
                after
            }
            None => action,
        };
    }

    out.push_str(rest);
    out
}

/// A parsed and validated template.
pub(super) struct UserTemplate(Template);

impl std::fmt::Debug for UserTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("UserTemplate").finish_non_exhaustive()
    }
}

impl UserTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// When the text is not a template, calls unknown functions or templates, or may not terminate.
    pub(super) fn parse(text: &str, functions: &FuncMap) -> Result<Self, String> {
        if text.len() > MAX_TEXT {
            return Err(format!(
                "it has {} bytes; the maximum is {MAX_TEXT}",
                text.len()
            ));
        }

        let parsed = Template::new(MAIN)
            .parse(&without_comments(text))
            .map_err(|error| error.to_string())?;
        let named = parsed.templates();
        let mut trees: Trees = named
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), parsed.lookup(name)?.clone())))
            .collect();

        let known = |name: &str| OWN.contains(&name) || functions.contains_key(name);
        if trees.contains_key(MAIN) {
            tree::adapt(&mut trees, MAIN, &known)?;
        }

        let empty = Template::new(MAIN)
            .funcs(functions.clone())
            .max_range_iters(MAX_STEPS);
        let whole = trees.into_iter().fold(empty, |template, (name, tree)| {
            template.add_parse_tree(&name, tree)
        });

        Ok(Self(whole))
    }

    /// Renders the template to text.
    ///
    /// # Errors
    /// When rendering fails, or the output is too long.
    fn text(&self, data: &gotmpl::Value) -> Result<String, String> {
        let mut output = Output::default();
        if self.0.lookup(MAIN).is_some() {
            self.0
                .execute_template_fmt(&mut output, MAIN, data)
                .map_err(|error| match error {
                    gotmpl::TemplateError::Write => format!("its output exceeds {MAX_BYTES} bytes"),
                    error => error.to_string(),
                })?;
        }
        Ok(output.into_text())
    }

    /// Renders the template and parses the output as objects, one per YAML document.
    ///
    /// # Errors
    /// When rendering fails, or the output is too long or not a list of objects.
    pub(super) fn objects(&self, data: &gotmpl::Value) -> Result<Vec<Value>, String> {
        let text = self.text(data)?;
        let mut objects = Vec::new();

        for document in yaml::documents(&text) {
            match yaml::parse_last_wins(document.text, Schema::V1_1) {
                Ok(Value::Null) => {}
                Ok(object @ Value::Object(_)) => objects.push(object),
                Ok(_) => {
                    return Err(format!(
                        "line {} of its output is not an object",
                        document.lines_before + 1
                    ));
                }
                Err(error) => {
                    let line = document
                        .text
                        .lines()
                        .nth(error.line.saturating_sub(1))
                        .unwrap_or_default();
                    return Err(format!("its output is not YAML: {error}: {}", line.trim()));
                }
            }
        }

        Ok(objects)
    }

    /// Renders the template and parses the output as part of a pod.
    ///
    /// # Errors
    /// When rendering fails, or the output is too long or not part of a pod.
    pub(super) fn render(&self, data: &gotmpl::Value) -> Result<Value, String> {
        let text = self.text(data)?;

        // Templates write fixed keys before the content of a user's annotation, which may repeat
        // the keys.
        let overlay = match yaml::parse_last_wins(&text, Schema::V1_1) {
            Ok(Value::Null) => Value::Object(serde_json::Map::new()),
            Ok(overlay @ Value::Object(_)) => overlay,
            Ok(_) => return Err("its output is not an object".to_owned()),
            Err(error) => {
                let line = text
                    .lines()
                    .nth(error.line.saturating_sub(1))
                    .unwrap_or_default();
                return Err(format!("its output is not YAML: {error}: {}", line.trim()));
            }
        };

        // Unknown fields are allowed, because they may be from a newer version of Kubernetes; wrong
        // types are rejected.
        serde_json::from_value::<Pod>(clean(overlay.clone()))
            .map_err(|error| format!("its output does not fit the Pod schema: {error}"))?;

        Ok(overlay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_with_trim_markers_trim_whitespace() {
        let text = "a\n  {{- /* x */}}\n b {{/* y */ -}}\n c{{ 1 }}";
        let template = Template::new(MAIN).parse(&without_comments(text)).unwrap();
        assert_eq!(
            template.execute_to_string(&gotmpl::Value::Nil).unwrap(),
            "a\n b c1"
        );
    }
}
