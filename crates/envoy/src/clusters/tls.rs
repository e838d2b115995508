//! TLS from a client to a service: user settings, or Istio's own (auto mTLS) if both sides support
//! it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::mtls::MtlsMode;
use navarch_api::istio::{ClientTlsMode, ClientTlsSettings};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Service, ServiceKey};

/// Prefix of SPIFFE ids.
const SPIFFE: &str = "spiffe://";

/// A TLS decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    /// The settings, complete.
    pub(super) settings: ClientTlsSettings,
    pub(super) by: TlsOrigin,
}

/// The origin of a TLS decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsOrigin {
    /// The user: applies to every endpoint.
    Rule,
    /// The mesh: applies to endpoints that accept it.
    Mesh,
}

/// Inputs of a decision besides the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upstream<'a> {
    pub(super) service: &'a Service,
    /// The SNI for SNI routing; empty if each request contains its host.
    pub(super) sni: &'a str,
    /// The presumed mode of servers; `None` if they are outside the mesh.
    pub(super) mode: Option<MtlsMode>,
    /// Whether the SPIFFE ids of the service are required of servers.
    pub(super) checks_accounts: bool,
}

/// The SPIFFE ids of a service, with all names of the trust domain, sorted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Accounts(ServiceKey);

/// Decides on TLS; `None` means plain text to all endpoints.
pub(super) fn decide(
    view: &View<'_>,
    rule: Option<&ClientTlsSettings>,
    upstream: Upstream<'_>,
) -> Option<Decision> {
    let Some(rule) = rule else {
        return decide_for_mesh(view, upstream);
    };

    let by = TlsOrigin::Rule;
    let own = |settings: ClientTlsSettings| Some(Decision { settings, by });

    match rule.mode {
        ClientTlsMode::Disable | ClientTlsMode::Simple => own(rule.clone()),
        ClientTlsMode::Mutual | ClientTlsMode::IstioMutual => {
            if let Some(files) = certificate_files(view) {
                // Certificates of hosts outside the mesh may have other issuers, so the rule's own
                // files apply there.
                if upstream.service.mesh_external
                    && view.mesh().settings.prefer_rule_tls_for_external
                {
                    return own(rule.clone());
                }
                return own(ClientTlsSettings {
                    subject_alt_names: rule.subject_alt_names.clone(),
                    sni: rule.sni.clone(),
                    insecure_skip_verify: rule.insecure_skip_verify,
                    ..files
                });
            }

            if rule.mode == ClientTlsMode::Mutual {
                return own(rule.clone());
            }

            let sni = if rule.sni.is_empty() {
                upstream.sni.to_owned()
            } else {
                rule.sni.clone()
            };

            let names = if rule.subject_alt_names.is_empty() {
                upstream.accounts(view)
            } else {
                rule.subject_alt_names.clone()
            };

            own(ClientTlsSettings {
                mode: ClientTlsMode::IstioMutual,
                subject_alt_names: names,
                sni,
                insecure_skip_verify: rule.insecure_skip_verify,
                ..ClientTlsSettings::default()
            })
        }
    }
}

/// Istio's mutual TLS if servers presumably accept it.
fn decide_for_mesh(view: &View<'_>, upstream: Upstream<'_>) -> Option<Decision> {
    let automatic = view.mesh().config.enable_auto_mtls == Some(true);
    let taken = matches!(upstream.mode, Some(MtlsMode::Permissive | MtlsMode::Strict));
    if !automatic || !taken || upstream.service.mesh_external {
        return None;
    }

    let base = certificate_files(view).unwrap_or_else(|| ClientTlsSettings {
        mode: ClientTlsMode::IstioMutual,
        ..ClientTlsSettings::default()
    });
    let settings = ClientTlsSettings {
        subject_alt_names: upstream.accounts(view),
        sni: upstream.sni.to_owned(),
        ..base
    };

    Some(Decision {
        settings,
        by: TlsOrigin::Mesh,
    })
}

/// Certificates in the proxy's metadata, which replace those of the mesh.
fn certificate_files(view: &View<'_>) -> Option<ClientTlsSettings> {
    let proxy = view.proxy();
    let chain = proxy
        .meta("TLS_CLIENT_CERT_CHAIN")
        .filter(|chain| !chain.is_empty())?;
    let file = |key: &str| {
        proxy
            .meta(key)
            .map(|path| path.to_string())
            .unwrap_or_default()
    };
    Some(ClientTlsSettings {
        mode: ClientTlsMode::Mutual,
        client_certificate: chain.to_string(),
        private_key: file("TLS_CLIENT_KEY"),
        ca_certificates: file("TLS_CLIENT_ROOT_CERT"),
        ..ClientTlsSettings::default()
    })
}

impl Upstream<'_> {
    /// The required SPIFFE ids of servers.
    pub(super) fn accounts(&self, view: &View<'_>) -> Vec<String> {
        if !self.checks_accounts {
            return Vec::new();
        }
        accounts_of(view, &self.service.key)
    }
}

/// The SPIFFE ids of a service, sorted.
pub(crate) fn accounts_of(view: &View<'_>, service: &ServiceKey) -> Vec<String> {
    view.get(&Accounts(service.clone()))
        .iter()
        .map(ToString::to_string)
        .collect()
}

impl Query for Accounts {
    type Value = Vec<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        // As in istiod, the youngest object that declares the service decides.
        let youngest = view
            .services_of(&self.0)
            .iter()
            .max_by_key(|service| (service.created, &service.name));
        let declared = youngest
            .into_iter()
            .flat_map(|service| service.service_accounts.iter());

        let running = view
            .endpoints(&self.0)
            .into_iter()
            .flat_map(|endpoints| endpoints.service_accounts.iter());
        let aliases = &view.mesh().config.trust_domain_aliases;
        let mut accounts: BTreeSet<Arc<str>> = BTreeSet::new();

        for account in declared.chain(running) {
            accounts.insert(account.clone());
            accounts.extend(
                aliases
                    .iter()
                    .filter_map(|alias| in_trust_domain(account, alias)),
            );
        }

        accounts.into_iter().collect()
    }
}

/// The same identity in another trust domain; `None` for names that are not workload identities.
fn in_trust_domain(id: &str, domain: &str) -> Option<Arc<str>> {
    let (_, path) = id.strip_prefix(SPIFFE)?.split_once('/')?;
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["ns", _, "sa", _] => Some(Arc::from(format!("{SPIFFE}{domain}/{path}"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_identities_move_to_another_trust_domain() {
        let moved = in_trust_domain("spiffe://cluster.local/ns/shop/sa/web", "old.example");
        assert_eq!(
            moved.as_deref(),
            Some("spiffe://old.example/ns/shop/sa/web")
        );
        assert_eq!(in_trust_domain("web.example", "old.example"), None);
        assert_eq!(
            in_trust_domain("spiffe://cluster.local/web", "old.example"),
            None
        );
    }
}
