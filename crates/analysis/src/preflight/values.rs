//! The Helm values with which Navarch's chart takes the place of an istiod.
//!
//! Their base are the values that Istio's chart keeps in a ConfigMap, or else those of the
//! injector; what the Deployment, its autoscaler and the ConfigMaps say goes over them.

mod chart;
mod observed;

use navarch_api::istiod;
use navarch_api::yaml::{self, Schema};
use serde_json::{Map, Value};

use super::mesh_settings::CONFIG_MAP;
use super::row::{Outcome, Row};
use super::{Installation, credentials};

/// The values of Istio's chart that users have set.
const RECORDED: ValuesEntry = ValuesEntry {
    map: "values",
    key: "original-values",
};
/// The values of the injector.
const INJECTOR: ValuesEntry = ValuesEntry {
    map: "istio-sidecar-injector",
    key: "values",
};
/// The values that name the image of the control plane.
const IMAGE: [&str; 4] = ["image", "hub", "tag", "variant"];
/// The values of the images of proxies, which stay.
const PROXY_IMAGES: [&str; 4] = [
    "global.hub",
    "global.tag",
    "global.variant",
    "global.proxy.image",
];

/// Where values are kept.
#[derive(Clone, Copy, Debug)]
struct ValuesEntry {
    /// The ConfigMap, without its revision.
    map: &'static str,
    key: &'static str,
}

/// Helm values, and their rows of the report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HelmValues {
    values: Value,
    rows: Vec<Row>,
}

impl HelmValues {
    /// The values for Navarch's chart that keep what an installation has. Credentials are left out,
    /// and so are values that the chart does not have.
    #[must_use]
    pub fn of(installation: Installation<'_>) -> Self {
        let injector = parsed(installation, INJECTOR);
        let recorded = parsed(installation, RECORDED);
        let object = match &recorded {
            Some(_) => named(installation, RECORDED),
            None => named(installation, INJECTOR),
        };
        let mut values = match recorded {
            Some(recorded) => flat(recorded),
            None => chart::without_defaults(flat(injector.clone().unwrap_or_default())),
        };

        let mut rows = chart::rows(&object, &values);
        chart::remove_unknown(&mut values);
        set_images(&mut values, &injector.map(flat).unwrap_or_default());
        if installation.revision() != istiod::DEFAULT_REVISION {
            set(&mut values, "revision", installation.revision().into());
        }
        set_compatibility(&mut values, installation);
        observed::set_all(&mut values, installation);

        for path in credentials::remove(&mut values) {
            let reason = "may be a credential, so the values leave it out";
            let row = Row::new(Outcome::DoFirst, "Helm values", reason).at(path);
            rows.push(row.then("add it to the values yourself, or as envVarFrom of a Secret"));
        }
        Self { values, rows }
    }

    /// The values as YAML.
    #[must_use]
    pub fn yaml(&self) -> String {
        yaml::write(&self.values)
    }

    /// What they cannot keep.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

/// A value at a path such as `global.hub`.
fn at<'a>(values: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(values, |members, key| members.get(key))
}

/// Sets the value at a path.
fn set(values: &mut Value, path: &str, value: Value) {
    let mut here = values;
    for key in path.split('.') {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        let Some(members) = here.as_object_mut() else {
            return;
        };
        here = members.entry(key).or_insert(Value::Null);
    }
    *here = value;
}

/// The values in an entry of a ConfigMap of this revision.
fn parsed(installation: Installation<'_>, entry: ValuesEntry) -> Option<Value> {
    let text = installation.entry(entry.map, entry.key)?;
    let values = yaml::parse(text, Schema::V1_2).ok()?;
    values.is_object().then_some(values)
}

/// The ConfigMap of an entry, as rows name it.
fn named(installation: Installation<'_>, entry: ValuesEntry) -> String {
    format!(
        "ConfigMap {}/{}",
        installation.namespace(),
        installation.istiod.named(entry.map)
    )
}

/// Values with those under `pilot` a level higher, as the charts take them, and without those that
/// charts put there themselves.
fn flat(mut values: Value) -> Value {
    let Some(members) = values.as_object_mut() else {
        return values;
    };
    members.retain(|key, _| !key.starts_with('_'));
    let pilot = members.remove("pilot").unwrap_or_default();
    merge(&mut values, pilot);
    values
}

/// Puts values over others, by key.
fn merge(below: &mut Value, over: Value) {
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => {
            for (key, value) in over {
                merge(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (below, over) => *below = over,
    }
}

/// The image of the control plane is Navarch's, those of proxies stay.
fn set_images(values: &mut Value, injector: &Value) {
    if let Some(members) = values.as_object_mut() {
        members.retain(|key, _| !IMAGE.contains(&key.as_str()));
    }
    for path in PROXY_IMAGES {
        if let Some(value) = at(injector, path)
            && value.as_str().is_some_and(|value| !value.is_empty())
        {
            set(values, path, value.clone());
        }
    }

    // A hub of its own, or the chart would look for Navarch in that of the proxies.
    for (path, default) in [("hub", "global.hub"), ("tag", "global.tag")] {
        if let Some(default) = at(chart::defaults(), default) {
            set(values, path, default.clone());
        }
    }
}

/// Keeps the defaults of the release of istiod, unless the values name those of another one.
fn set_compatibility(values: &mut Value, installation: Installation<'_>) {
    let minor = installation.release();
    let is_set = at(values, "compatibilityVersion").is_some();
    if let Some(minor) = minor.filter(|minor| minor.has_defaults() && !is_set) {
        set(values, "compatibilityVersion", minor.to_string().into());
    }
}

/// The tag of the images of proxies, if the injector's values name one.
pub(super) fn proxy_tag(installation: Installation<'_>) -> Option<String> {
    let values = parsed(installation, INJECTOR)?;
    let tag = at(&values, "global.tag")?.as_str()?;
    Some(tag.to_owned())
}

/// Whether the mesh config of this revision is in a ConfigMap.
fn mesh_entry<'a>(installation: Installation<'a>, key: &str) -> Option<&'a str> {
    installation.entry(CONFIG_MAP, key)
}
