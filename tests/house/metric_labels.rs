//! Labels of metrics are constants, or texts that are escaped: the library writes texts as they are,
//! so that a name with a quote and a line break would add metrics to the page.

use std::fs;

use regex::Regex;

use super::sources_without_tests;

/// The fields of label sets of a source file whose texts are not escaped.
fn raw_labels(text: &str) -> Vec<String> {
    let set =
        Regex::new(r"(?s)EncodeLabelSet\)\]\s+(?:pub(?:\([^)]*\))? )?struct (\w+) \{(.*?)\n\}")
            .unwrap();
    let field =
        Regex::new(r"(?m)^\s*(?:pub(?:\([^)]*\))? )?(\S+): .*\b(?:String|Arc<str>|Cow<)").unwrap();

    let mut raw = Vec::new();
    for found in set.captures_iter(text) {
        for line in field.captures_iter(&found[2]) {
            raw.push(format!("{}.{}", &found[1], &line[1]));
        }
    }
    raw
}

#[test]
fn label_values_that_are_not_constants_are_escaped() {
    let mut sets = 0;
    let mut raw = Vec::new();
    for file in sources_without_tests() {
        let text = fs::read_to_string(&file).unwrap();
        sets += text.matches("EncodeLabelSet)]").count();
        let labels = raw_labels(&text);
        raw.extend(
            labels
                .into_iter()
                .map(|label| format!("{}: {label}", file.display())),
        );
    }
    assert!(sets > 20, "{sets}");
    assert_eq!(raw, Vec::<String>::new(), "use navarch_base::label_text");
}

#[test]
fn raw_labels_are_recognized() {
    let text = "#[derive(Clone, EncodeLabelSet)]\npub(super) struct Labels {\n    /// A: String.\n    \
                name: String,\n    kind: &'static str,\n    pub(super) place: Arc<str>,\n}\n\n\
                struct Other {\n    text: String,\n}\n";
    assert_eq!(raw_labels(text), ["Labels.name", "Labels.place"]);
}
