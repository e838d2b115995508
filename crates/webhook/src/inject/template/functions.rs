//! The functions that templates may call: Istio's own (`pkg/kube/inject/template.go`), and those of sprig that make the same
//! of the same input. What asks the clock, chance, files or the network there is not here.

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

/// All functions, with these variables to be read by `env`.
pub(super) fn all(environment: &BTreeMap<String, String>) -> FuncMap {
    // Istio's come last: some stand in the place of sprig's.
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
        let set = environment.get(&text_at(args, 0)?).filter(|value| !value.is_empty());
        set.map_or_else(|| text_at(args, 1), |value| Ok(value.clone())).map(text)
    };
    functions.insert("env".to_owned(), Arc::new(env));
    functions
}
