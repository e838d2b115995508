//! Rules for TrafficExtension.

use super::path::Path;
use super::target_ref::attachment;
use super::wasm_plugin::{address, checksum, machine, name, secret, traffic};
use super::{Validate, Verdict};
use crate::istio::TrafficExtension;
use crate::object::ObjectMeta;

/// The maximum size of a script, in bytes.
const MAX_SCRIPT: usize = 65_536;

impl Validate for TrafficExtension {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            selector,
            target_refs,
            phase: _,
            priority: _,
            matches,
            wasm,
            lua,
        } = self;

        let spec = Path::root("spec");
        attachment(&mut verdict, &spec, selector.as_ref(), None, target_refs);

        if wasm.is_some() == lua.is_some() {
            verdict.error(
                &spec.field("wasm"),
                "and lua are alternatives; write one of them",
            );
        }

        if let Some(lua) = lua {
            let at = spec.field("lua");
            let at = at.field("inlineCode");
            if lua.inline_code.is_empty() {
                verdict.error(&at, "is empty");
            } else if lua.inline_code.len() > MAX_SCRIPT {
                verdict.error(&at, format!("is longer than {MAX_SCRIPT} bytes"));
            }
        }

        if let Some(wasm) = wasm {
            let at = spec.field("wasm");
            verdict.check(&at.field("url"), address(&wasm.url));
            verdict.check(&at.field("sha256"), checksum(&wasm.sha256));
            verdict.check(
                &at.field("imagePullSecret"),
                secret(&wasm.image_pull_secret),
            );
            verdict.check(&at.field("pluginName"), name(&wasm.plugin_name));
            machine(&mut verdict, &at.field("vmConfig"), wasm.vm_config.as_ref());
        }

        traffic(&mut verdict, &spec.field("match"), matches);
        verdict
    }
}
