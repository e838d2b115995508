//! The functions of templates: Istio's own (`pkg/kube/inject/template.go`), and deterministic
//! functions of sprig. Functions that depend on time, random numbers, files or the network are not
//! available.

mod arguments;
mod istio;
mod lists;
mod maps;
mod numbers;
mod printing;
mod texts;
mod yaml_text;

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::{FuncMap, Result, Value};

use super::value::text;
use arguments::text_at;

type Function = fn(&[Value]) -> Result<Value>;

/// All functions; `env` reads these variables.
pub(super) fn all(environment: &BTreeMap<String, String>) -> FuncMap {
    // Istio's functions are last, because some replace sprig's.
    let tables: [&[(&str, Function)]; 6] = [
        texts::FUNCTIONS,
        printing::FUNCTIONS,
        lists::FUNCTIONS,
        maps::FUNCTIONS,
        numbers::FUNCTIONS,
        istio::FUNCTIONS,
    ];

    let mut functions = FuncMap::new();
    for (name, function) in tables.into_iter().flatten() {
        functions.insert((*name).to_owned(), Arc::new(*function));
    }

    let environment = environment.clone();
    let env = move |args: &[Value]| {
        let set = environment
            .get(&text_at(args, 0)?)
            .filter(|value| !value.is_empty());
        set.map_or_else(|| text_at(args, 1), |value| Ok(value.clone()))
            .map(text)
    };

    functions.insert("env".to_owned(), Arc::new(env));
    functions
}
