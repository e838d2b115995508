//! Rules for PeerAuthentication.

use super::name::port_number;
use super::path::Path;
use super::scope::policy_selector;
use super::{Validate, Verdict};
use crate::istio::PeerAuthentication;
use crate::object::ObjectMeta;

impl Validate for PeerAuthentication {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            selector,
            mtls: _,
            port_level_mtls,
        } = self;
        let spec = Path::root("spec");
        policy_selector(&mut verdict, &spec.field("selector"), selector.as_ref());

        let at = &spec.field("portLevelMtls");
        let Some(ports) = port_level_mtls else {
            return verdict;
        };

        if ports.is_empty() {
            verdict.error(
                at,
                "is empty; name at least one port, or leave the field out",
            );
        } else if selector
            .as_ref()
            .is_none_or(|selector| selector.match_labels.is_empty())
        {
            verdict.error(
                at,
                "is set, but no workload is selected; set selector.matchLabels, as ports are those of a workload",
            );
        }

        for port in ports.keys() {
            verdict.check(&at.field(&port.to_string()), port_number(*port));
        }

        verdict
    }
}
