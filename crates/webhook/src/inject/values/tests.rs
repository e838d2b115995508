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

/// Whether a template of Deployments from Gateways reads a value, which it gets as plain data.
fn is_read_by_templates(path: &str) -> bool {
    let templates = [
        include_str!("../../../../../deploy/charts/navarch/files/waypoint.yaml"),
        include_str!("../../../../../deploy/charts/navarch/files/kube-gateway.yaml"),
    ];
    let Some((parent, name)) = path.rsplit_once('.') else {
        return false;
    };

    // The waypoint's names several in a list.
    let whole = format!(".Values.{path}");
    let indexed = format!("index $.Values.{parent} $field");
    templates.iter().any(|text| {
        text.contains(&whole) || text.contains(&indexed) && text.contains(&format!("\"{name}\""))
    })
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
        let is_read = read != usual || is_read_by_templates(&path);
        assert!(is_read, "{path} is not read");
    }
}
