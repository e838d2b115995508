//! Checks which entry a workload may use, from the known state of the cluster, before any request
//! to the API server.
//!
//! Anyone may open a stream and send any name. So names are validated before they are used in a
//! request's path, an identity is required before any lookup, and the error for a missing entry is
//! the same as for an entry of another workload.

use serde_json::Value;

use super::workload::{Claim, Workload};
use super::{Registrar, RegistrationError, entry_state};
use navarch_api::istio::{WorkloadEntry, WorkloadGroup};
use navarch_api::names::{is_kubernetes_label, is_kubernetes_name};
use navarch_api::object::NamespacedName;

impl Registrar {
    /// Whether a workload may use its entry; `false` if it needs no registration.
    ///
    /// # Errors
    /// If the workload may not use the entry.
    pub(super) fn permits(&self, workload: &Workload) -> Result<bool, RegistrationError> {
        let name = workload.entry();
        check_names(workload, &name)?;

        if self.0.config.validates_identity {
            workload
                .is_proved()
                .map_err(|why| RegistrationError::Unproved(name.clone(), why))?;
        }

        let objects = (self.0.objects)();
        let entry = objects.get::<WorkloadEntry>(&name);
        match (entry, &workload.claim) {
            (Some(entry), claim) => {
                self.permits_account(workload, &name, &entry.spec.service_account)?;
                Ok(matches!(claim, Claim::Group(_))
                    || entry.meta.annotations.contains_key(entry_state::CHECKED))
            }
            (None, Claim::Entry(_)) => Err(RegistrationError::NoEntry(name)),
            (None, Claim::Group(group)) => {
                let group = NamespacedName::new(workload.namespace.as_str(), group);
                let found = objects.get::<WorkloadGroup>(&group);
                let found = found.ok_or_else(|| RegistrationError::NoGroup(name.clone(), group))?;
                let account = found
                    .spec
                    .template
                    .as_ref()
                    .map_or("", |template| &template.service_account);
                self.permits_account(workload, &name, account)
                    .map(|()| true)
            }
        }
    }

    /// Whether a workload may use an entry with this service account.
    fn permits_account(
        &self,
        workload: &Workload,
        name: &NamespacedName,
        account: &str,
    ) -> Result<(), RegistrationError> {
        match workload.may_control(account) {
            Err(why) if self.0.config.validates_identity => {
                Err(RegistrationError::Stranger(name.clone(), why))
            }
            Err(_) | Ok(()) => Ok(()),
        }
    }

    /// As above, for the spec of an entry from the API server.
    pub(super) fn permits_spec(
        &self,
        workload: &Workload,
        name: &NamespacedName,
        spec: &Value,
    ) -> Result<(), RegistrationError> {
        let account = spec
            .get("serviceAccount")
            .and_then(Value::as_str)
            .unwrap_or_default();
        self.permits_account(workload, name, account)
    }
}

/// Checks that the names from a workload are valid object names, because they become parts of
/// paths.
fn check_names(workload: &Workload, entry: &NamespacedName) -> Result<(), RegistrationError> {
    let group = match &workload.claim {
        Claim::Group(group) => group,
        Claim::Entry(name) => name,
    };
    if !is_kubernetes_label(workload.namespace.as_str()) {
        return Err(RegistrationError::Name("namespace"));
    }
    if !is_kubernetes_name(group) || !is_kubernetes_name(&entry.name) {
        return Err(RegistrationError::Name("WorkloadEntry or WorkloadGroup"));
    }
    Ok(())
}
