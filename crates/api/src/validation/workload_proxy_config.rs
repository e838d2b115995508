//! Rules for the kind ProxyConfig.

use super::path::Path;
use super::scope::policy_selector;
use super::{Validate, Verdict};
use crate::istio::ProxyConfig;
use crate::object::ObjectMeta;

impl Validate for ProxyConfig {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            selector,
            concurrency,
            environment_variables: _,
            image: _,
        } = self;
        let spec = Path::root("spec");
        policy_selector(&mut verdict, &spec.field("selector"), selector.as_ref());
        if let Some(threads) = concurrency.filter(|threads| *threads < 0) {
            verdict.error(
                &spec.field("concurrency"),
                format!("{threads} is negative; write 0 for one per core, or more"),
            );
        }
        verdict
    }
}
