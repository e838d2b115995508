use serde_json::json;

use super::*;

/// The values that affect only injection according to the chart's table, each with a setting.
fn settings() -> Vec<(String, Value)> {
    let table = include_str!("../../../../../tests/chart/navarch.txt");
    // This value omits the ConfigMap, so the injector cannot read it.
    let rows = table
        .lines()
        .filter(|line| !line.starts_with("global.omitSidecarInjectorConfigMap"));
    let rows = rows.filter_map(|line| line.strip_suffix(" -> injector"));
    rows.filter_map(|row| {
        let (path, setting) = row.split(" with ").next()?.split_once(" = ")?;
        Some((path.to_owned(), serde_json::from_str(setting).ok()?))
    })
    .collect()
}

#[test]
fn only_chart_values_for_injection_are_read() {
    let (usual, _) = Values::parse("{}").unwrap();
    let settings = settings();
    assert!(settings.len() > 35, "{settings:?}");
    for (path, setting) in settings {
        // The chart copies values without a prefix to `pilot`.
        let path = if path.starts_with("cni.") {
            format!("pilot.{path}")
        } else {
            path
        };
        let value = path
            .rsplit('.')
            .fold(setting, |value, key| json!({ key: value }));
        let (read, _) = Values::parse(&value.to_string()).unwrap();
        assert_ne!(read, usual, "{path} is not read");
    }
}
