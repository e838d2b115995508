//! Rules for WasmPlugin, and for WebAssembly wherever it is configured.

use std::collections::BTreeSet;

use super::name::port_number;
use super::path::Path;
use super::request_uri::url_scheme;
use super::target_ref::attachment;
use super::{Validate, Verdict};
use crate::istio::{EnvValueSource, EnvVar, TrafficSelector, VmConfig, WasmPlugin};
use crate::object::ObjectMeta;
use navarch_base::shown_url::ShownUrl;

/// The maximum length of a name, in bytes.
const MAX_NAME: usize = 256;

/// The maximum length of the name of a Secret, in bytes.
const MAX_SECRET: usize = 253;

/// The number of characters of a SHA-256.
const CHECKSUM_LENGTH: usize = 64;

impl Validate for WasmPlugin {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let spec = Path::root("spec");
        attachment(
            &mut verdict,
            &spec,
            self.selector.as_ref(),
            self.target_ref.as_ref(),
            &self.target_refs,
        );

        verdict.check(&spec.field("url"), address(&self.url));
        verdict.check(&spec.field("sha256"), checksum(&self.sha256));
        verdict.check(
            &spec.field("imagePullSecret"),
            secret(&self.image_pull_secret),
        );
        verdict.check(&spec.field("pluginName"), name(&self.plugin_name));
        machine(
            &mut verdict,
            &spec.field("vmConfig"),
            self.vm_config.as_ref(),
        );

        traffic(&mut verdict, &spec.field("match"), &self.matches);
        verdict
    }
}

/// The URL of a module.
pub(super) fn address(url: &str) -> Result<(), String> {
    if url.is_empty() {
        return Err("is missing; write the URL of the module".to_owned());
    }
    let shown = ShownUrl::new(url);

    // A text that is not a URL may be the reference of an image, without a scheme.
    let scheme = match url_scheme(url) {
        Ok(scheme) => scheme,
        Err(fault) => url_scheme(&format!("http://{url}"))
            .map_err(|_| format!("{shown:?} is not the address of a module: it {fault}"))?,
    };
    match scheme.as_str() {
        "" | "file" | "http" | "https" | "oci" => Ok(()),
        other => Err(format!(
            "{shown:?} has the scheme {other:?}; oci, http, https and file are supported"
        )),
    }
}

/// A module's checksum, if set.
pub(super) fn checksum(text: &str) -> Result<(), String> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.is_empty() || (text.len() == CHECKSUM_LENGTH && text.bytes().all(is_hex)) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not a SHA-256; write {CHECKSUM_LENGTH} lower-case hex digits"
    ))
}

pub(super) fn secret(name: &str) -> Result<(), String> {
    if name.len() <= MAX_SECRET {
        Ok(())
    } else {
        Err(format!("is longer than {MAX_SECRET} bytes"))
    }
}

/// The name of a plugin or variable.
pub(super) fn name(name: &str) -> Result<(), String> {
    if name.len() <= MAX_NAME {
        Ok(())
    } else {
        Err(format!("is longer than {MAX_NAME} bytes"))
    }
}

/// Validates the VM that a module runs in; only the first invalid variable is reported.
pub(super) fn machine(verdict: &mut Verdict, at: &Path<'_>, machine: Option<&VmConfig>) {
    let mut known = BTreeSet::new();
    let at = at.field("env");

    for (index, variable) in machine.iter().flat_map(|machine| &machine.env).enumerate() {
        let EnvVar {
            name: called,
            value_from,
            value,
        } = variable;

        let outcome = if called.is_empty() {
            Err("has no name".to_owned())
        } else if !known.insert(called) {
            Err(format!("{called:?} is set twice"))
        } else if *value_from != EnvValueSource::Inline && !value.is_empty() {
            Err(format!(
                "{called:?} has a value, but valueFrom is {value_from}"
            ))
        } else {
            name(called)
        };

        if let Err(message) = outcome {
            verdict.error(&at.item(index), message);
            return;
        }
    }
}

/// Validates the selected traffic; only the first invalid port is reported.
pub(super) fn traffic(verdict: &mut Verdict, at: &Path<'_>, selectors: &[TrafficSelector]) {
    for (index, selector) in selectors.iter().enumerate() {
        let at = at.item(index);
        let at = at.field("ports");
        for (index, port) in selector.ports.iter().enumerate() {
            if let Err(message) = port_number(port.number) {
                verdict.error(&at.item(index), message);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_at_known_places() {
        for good in [
            "oci://a.example/b:c",
            "a.example/b",
            "https://a/b%20c",
            "file:///opt/a.wasm",
            "/opt/a.wasm",
            "a",
            ":80/a",
        ] {
            assert_eq!(address(good), Ok(()), "{good}");
        }

        for bad in [
            "",
            "ftp://a",
            "%zz",
            "{*}/{**}/x",
            "https://a/%z",
            "x:80",
            ":x",
            "[",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }

        let fault = address("ftp://user:password@host/a").unwrap_err();
        assert!(!fault.contains("password"), "{fault}");
    }

    #[test]
    fn checksums_are_hex() {
        assert!(checksum("").is_ok() && checksum(&"0a".repeat(32)).is_ok());
        assert!(checksum("0a").is_err() && checksum(&"0A".repeat(32)).is_err());
    }
}
