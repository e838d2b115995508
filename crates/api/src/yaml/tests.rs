use serde_json::json;

use super::*;

/// The documents of a stream, each with the number of lines before it.
fn split(stream: &str) -> Vec<(usize, &str)> {
    documents(stream)
        .map(|document| (document.lines_before, document.text))
        .collect()
}

#[test]
fn scalars_are_read_as_kubernetes_tools_read_them() {
    let text =
        "a: on\nb: 'on'\nc: 0644\nd: 2026-01-01T00:00:00Z\ne: ~\nf: 1.5\ng: 10.0.0.1\nh: 1_0\n";
    let expected = json!({
        "a": true, "b": "on", "c": 420, "d": "2026-01-01T00:00:00Z", "e": null, "f": 1.5, "g": "10.0.0.1", "h": 10,
    });
    assert_eq!(parse(text, Schema::V1_1).unwrap(), expected);
    assert_eq!(
        parse("a: on\nb: n\nc: true\nd: 0o7\n", Schema::V1_2).unwrap(),
        json!({ "a": "on", "b": "n", "c": true, "d": 7 })
    );
}

#[test]
fn a_duplicate_yaml_key_is_rejected_with_its_line() {
    let error = parse("a: 1\nb: 2\na: 3\n", Schema::V1_1).unwrap_err();
    assert_eq!(error.line, 3, "{error}");
    assert_eq!(
        parse_last_wins("a: 1\nb: 2\na: 3\n", Schema::V1_1).unwrap(),
        json!({ "a": 3, "b": 2 })
    );
}

#[test]
fn streams_are_split_at_markers_alone() {
    let stream =
        "a: 1\n---\nb: |\n  ---\n  x\n--- # two\nc: 3\n----\n...\n\n# nothing\n---\r\nd: 4";
    assert_eq!(
        split(stream),
        [
            (0, "a: 1\n"),
            (1, "\nb: |\n  ---\n  x\n"),
            (5, " # two\nc: 3\n----\n"),
            (11, "\r\nd: 4")
        ]
    );
    assert_eq!(split("---\n---\n# x\n---\n"), []);
    assert_eq!(split("%YAML 1.1\n---\na: 1"), [(1, "\na: 1")]);
    assert_eq!(split("\u{feff}a: 1"), [(0, "a: 1")]);
    assert_eq!(split("--- {a: 1}"), [(0, " {a: 1}")]);
}

#[test]
fn lines_before_a_document_and_lines_in_it_add_up() {
    let stream = "a: 1\n---\n\nb: [\n---\nc: 1\nd: x: y\n";
    let lines: Vec<_> = documents(stream)
        .map(|document| {
            parse(document.text, Schema::V1_1).map_err(|error| document.lines_before + error.line)
        })
        .collect();
    assert_eq!(lines[0], Ok(json!({ "a": 1 })));
    assert!(matches!(lines[1], Err(4 | 5)), "{lines:?}");
    assert_eq!(lines[2], Err(7));
}

#[test]
fn the_size_of_a_document_is_bounded() {
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    assert!(parse(&deep, Schema::V1_1).is_err());
    let block: String = (0..2000)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    assert!(parse(&block, Schema::V1_1).is_err());
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 0..12_u8 {
        let name = char::from(b'b' + level);
        let of = char::from(b'a' + level);
        let items = vec![format!("*{of}"); 10].join(",");
        bomb.push_str(&format!("{name}: &{name} [{items}]\n"));
    }
    assert!(parse(&bomb, Schema::V1_1).is_err());
}

#[test]
fn anchors_and_merges_are_followed() {
    let text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\n";
    assert_eq!(
        parse(text, Schema::V1_1).unwrap()["more"],
        json!({ "a": 1, "b": 3 })
    );
}

#[test]
fn the_line_of_a_field_is_found() {
    let text = "metadata:\n  labels:\n    a.b/c: x\n    a: y\nspec:\n  http:\n  - name: one\n  - name: two\n    route:\n    - x\n";
    let line = |path| line_of(text, path).unwrap();
    assert_eq!(line("metadata.labels.a.b/c"), 3);
    assert_eq!(line("metadata.labels.a"), 4);
    assert_eq!(line("spec.http[1].name"), 8);
    assert_eq!(line("spec.http[1].route[0]"), 10);
    assert_eq!(line("spec.http[1].rewrite.uri"), 8);
    assert_eq!(line("spec.http[7]"), 6);
    assert_eq!(line("status"), 1);
    assert_eq!(line_of("a: [", "a"), None);
    assert_eq!(line_of("{\"a\": {\n\"b\": 1}}", "a.b"), Some(2));
}

#[test]
fn quoted_text_may_go_on_at_the_column_of_its_key() {
    let text = concat!(
        "a:\n",
        "  note: 'one: \"two\n",
        "  it''s three\n",
        "\n",
        "  four'\n",
        "  list:\n",
        "  - \"x\n",
        "  y \\\" z\n",
        "  \"\n",
        "  - k: &n 'p\n",
        "    q'\n",
        "  block: |\n",
        "    note: 'kept\n",
        "    as it is\n",
        "  \"key: 1\": \"m\n",
        "  n\"\n",
        "  # it's\n",
        "  end: 1\n",
    );
    let expected = json!({ "a": {
        "note": "one: \"two it's three\nfour",
        "list": ["x y \" z ", { "k": "p q" }],
        "block": "note: 'kept\nas it is\n",
        "key: 1": "m n",
        "end": 1,
    } });

    assert_eq!(parse(text, Schema::V1_1).unwrap(), expected);
}

#[test]
fn quoted_text_that_never_ends_is_rejected_where_it_is() {
    let error = parse("a: 'one\ntwo\nb: 1\n", Schema::V1_1).unwrap_err();
    assert_eq!(error.line, 2, "{error}");
}

#[test]
fn many_wrapped_texts_are_read_at_once() {
    let entry = |number: usize| format!("k{number}: 'one\n{}two'\n", "three\n".repeat(20));
    let text: String = (0..2_000).map(entry).collect();
    let read = parse(&text, Schema::V1_1).unwrap();
    assert_eq!(read.as_object().unwrap().len(), 2_000);
}
