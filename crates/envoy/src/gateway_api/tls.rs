//! TLS of listeners (istiod's `buildTLS`).

use super::certificates::{PairFault, RootsFault};
use super::fault::{
    Fault, INVALID_CA_CERTIFICATE_KIND, INVALID_CA_CERTIFICATE_REF, INVALID_CERTIFICATE_REF,
    REF_NOT_PERMITTED,
};
use super::grants::{self, Reference, Referent, Referrer};
use crate::sds::{BUILTIN_PREFIX, CA_SUFFIX, CONFIG_MAP_PREFIX, GATEWAY_SECRET_PREFIX};
use navarch_api::gateway_api::{
    CertificateRef, FrontendValidation, GatewayTls, Listener, ObjectReference,
};
use navarch_api::istio::{ServerTlsMode, ServerTlsSettings};
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_api::text_map::TextMap;
use navarch_api::validation::is_cipher_suite;
use navarch_push::view::View;

/// The TLS option for the client certificate mode.
const TERMINATE_MODE: &str = "gateway.istio.io/tls-terminate-mode";
/// The TLS option for cipher suites.
const CIPHER_SUITES: &str = "gateway.istio.io/tls-cipher-suites";
/// The option to pass connections through to the cluster named by their SNI.
const LISTENER_PROTOCOL: &str = "gateway.istio.io/listener-protocol";
/// The label of gateways between networks.
const NETWORK_LABEL: &str = "topology.istio.io/network";
/// The label with the port for traffic from other networks.
const GATEWAY_PORT_LABEL: &str = "networking.istio.io/gatewayPort";
/// The default port for traffic from other networks.
const GATEWAY_PORT: &str = "15443";
/// Maximum number of certificates of a listener: one for each key type.
const MAX_CERTIFICATES: usize = 2;

/// The owner of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub(super) kind: Referrer,
    pub(super) namespace: &'a Namespace,
    pub(super) labels: &'a TextMap,
    pub(super) tls: Option<&'a GatewayTls>,
}

/// The TLS settings of a listener, `None` without TLS, and its fault, if any.
pub(super) fn of_listener(
    view: &View<'_>,
    owner: Owner<'_>,
    listener: &Listener,
) -> (Option<ServerTlsSettings>, Option<Fault>) {
    let Some(tls) = &listener.tls else {
        return (None, None);
    };

    let mut settings = ServerTlsSettings::default();
    let fault = match tls.mode.as_str() {
        "Terminate" => match terminate(view, owner, listener, &mut settings) {
            Ok(Done::Yes) => return (Some(settings), None),
            Ok(Done::No) => None,
            Err(fault) => return (Some(settings), Some(fault)),
        },
        "Passthrough" => {
            let auto = is_auto_passthrough(owner.labels, listener);
            settings.mode = if auto {
                ServerTlsMode::AutoPassthrough
            } else {
                ServerTlsMode::Passthrough
            };
            None
        }
        _ => None,
    };

    let suites = tls
        .options
        .get(CIPHER_SUITES)
        .map(String::as_str)
        .unwrap_or_default();
    for suite in suites
        .split(',')
        .map(str::trim)
        .filter(|suite| !suite.is_empty() && is_cipher_suite(suite))
    {
        if !settings.cipher_suites.iter().any(|known| known == suite) {
            settings.cipher_suites.push(suite.to_owned());
        }
    }

    (Some(settings), fault)
}

/// Whether the settings are complete.
enum Done {
    Yes,
    /// More settings may apply.
    No,
}

/// Sets TLS termination.
fn terminate(
    view: &View<'_>,
    owner: Owner<'_>,
    listener: &Listener,
    settings: &mut ServerTlsSettings,
) -> Result<Done, Fault> {
    let Some(tls) = &listener.tls else {
        return Ok(Done::Yes);
    };

    let mode = tls.options.get(TERMINATE_MODE).map(String::as_str);
    settings.mode = match mode {
        Some("MUTUAL") => ServerTlsMode::Mutual,
        Some("OPTIONAL_MUTUAL") => ServerTlsMode::OptionalMutual,
        Some("ISTIO_MUTUAL") => ServerTlsMode::IstioMutual,
        _ => ServerTlsMode::Simple,
    };

    match mode {
        Some("ISTIO_SIMPLE") => {
            BUILTIN_PREFIX.clone_into(&mut settings.credential_name);
            return Ok(Done::Yes);
        }
        Some("ISTIO_MUTUAL") => return Ok(Done::Yes),
        _ => {}
    }

    if tls.certificate_refs.len() > MAX_CERTIFICATES {
        let message = format!("at most {MAX_CERTIFICATES} server certificates are supported");
        return Err(Fault::new(INVALID_CERTIFICATE_REF, message));
    }

    let mut fault = None;
    let mut names = Vec::new();

    for reference in &tls.certificate_refs {
        match certificate(view, owner, reference) {
            Ok(name) => names.push(name),
            Err(wrong) => fault = Fault::joined(fault.take(), Some(wrong)),
        }
    }

    if names.is_empty() {
        return fault.map_or(Ok(Done::Yes), Err);
    }

    // As in istiod, conditions report invalid certificates only if no other is left.
    if let Some(fault) = fault {
        view.remark(format!(
            "listener {:?} in namespace {} is served without one of its certificates: {}",
            listener.name, owner.namespace, fault.message
        ));
    }

    match names.as_slice() {
        [only] => settings.credential_name.clone_from(only),
        _ => settings.credential_names = names,
    }

    if let Some(validation) = validation(owner.tls, listener.port)
        && !validation.ca_certificate_refs.is_empty()
    {
        check_clients(view, owner, validation, mode, settings)?;
    }

    Ok(Done::No)
}

/// The client validation of a port in the Gateway.
fn validation(tls: Option<&GatewayTls>, port: i32) -> Option<&FrontendValidation> {
    let frontend = tls?.frontend.as_ref()?;
    let own = frontend.per_port.iter().find(|own| own.port == port);
    own.map_or(&frontend.default, |own| &own.tls)
        .validation
        .as_ref()
}

/// Sets the validation of client certificates.
fn check_clients(
    view: &View<'_>,
    owner: Owner<'_>,
    validation: &FrontendValidation,
    mode: Option<&str>,
    settings: &mut ServerTlsSettings,
) -> Result<(), Fault> {
    let [reference] = validation.ca_certificate_refs.as_slice() else {
        return Err(Fault::new(
            INVALID_CA_CERTIFICATE_REF,
            "only one caCertificateRef is supported",
        ));
    };

    settings.ca_cert_credential_name = authorities(view, owner, reference)?;
    (settings.mode, settings.insecure_skip_verify) = match validation.mode.as_str() {
        "AllowInsecureFallback" => (ServerTlsMode::OptionalMutual, Some(true)),
        _ => (ServerTlsMode::Mutual, Some(false)),
    };

    match mode {
        Some("MUTUAL") => {
            (settings.mode, settings.insecure_skip_verify) = (ServerTlsMode::Mutual, Some(false))
        }
        Some("OPTIONAL_MUTUAL") => {
            (settings.mode, settings.insecure_skip_verify) =
                (ServerTlsMode::OptionalMutual, Some(false));
        }
        _ => {}
    }

    Ok(())
}

/// The resource name of a certificate. The existence of an object of another namespace must not be
/// disclosed to users who may not reference it.
fn certificate(
    view: &View<'_>,
    owner: Owner<'_>,
    reference: &CertificateRef,
) -> Result<String, Fault> {
    let namespace = reference
        .namespace
        .as_deref()
        .map_or_else(|| owner.namespace.clone(), Namespace::new);
    if namespace != *owner.namespace
        && !may_read(view, owner, Referent::Secret, &namespace, &reference.name)
    {
        let message = format!(
            "certificateRef {}/{namespace} not accessible to a Gateway in namespace {:?} (missing a ReferenceGrant?)",
            reference.name,
            owner.namespace.as_str()
        );
        return Err(Fault::new(REF_NOT_PERMITTED, message));
    }

    check_secret(view, reference, &namespace, "certificate reference")
        .map_err(|message| Fault::new(INVALID_CERTIFICATE_REF, message))?;
    Ok(format!(
        "{GATEWAY_SECRET_PREFIX}{namespace}/{}",
        reference.name
    ))
}

/// Checks that a Secret contains a certificate and its key.
pub(super) fn check_secret(
    view: &View<'_>,
    reference: &CertificateRef,
    namespace: &Namespace,
    what: &str,
) -> Result<(), String> {
    let CertificateRef {
        group, kind, name, ..
    } = reference;
    let shown = format!(
        "{group}/{kind}/{name}.{}",
        reference.namespace.as_deref().unwrap_or_default()
    );
    if Referent::parse(group, kind) != Some(Referent::Secret) {
        return Err(format!("invalid {what} {shown}, only secret is allowed"));
    }
    match &*view.get(&PairFault(NamespacedName::new(namespace.as_str(), name))) {
        Some(fault) => Err(format!("invalid {what} {shown}, {fault}")),
        None => Ok(()),
    }
}

/// The resource name of CAs.
fn authorities(
    view: &View<'_>,
    owner: Owner<'_>,
    reference: &ObjectReference,
) -> Result<String, Fault> {
    let ObjectReference {
        group,
        kind,
        name,
        namespace,
    } = reference;

    let shown = format!(
        "{group}/{kind}/{name}.{}",
        namespace.as_deref().unwrap_or_default()
    );
    let namespace = namespace
        .as_deref()
        .map_or_else(|| owner.namespace.clone(), Namespace::new);
    let referent = Referent::parse(group, kind);
    let (granted, prefix) = match referent {
        Some(Referent::Secret) => (Referent::Secret, GATEWAY_SECRET_PREFIX),
        _ => (Referent::ConfigMap, CONFIG_MAP_PREFIX),
    };

    // As in istiod, grants by name are for the name with its suffix.
    let suffixed = format!("{name}{CA_SUFFIX}");
    if namespace != *owner.namespace && !may_read(view, owner, granted, &namespace, &suffixed) {
        let message = format!(
            "caCertificateRef {namespace}/{name} not accessible to a Gateway in namespace {:?} (missing a ReferenceGrant?)",
            owner.namespace.as_str()
        );
        return Err(Fault::new(REF_NOT_PERMITTED, message));
    }

    let object = NamespacedName::new(namespace.as_str(), name);
    let query = match referent {
        Some(Referent::Secret) => RootsFault::Secret(object),
        Some(Referent::ConfigMap) => RootsFault::ConfigMap(object),
        _ => {
            let message = format!(
                "invalid CA certificate reference {shown}, only secret and configmap are allowed"
            );
            return Err(Fault::new(INVALID_CA_CERTIFICATE_KIND, message));
        }
    };

    match &*view.get(&query) {
        Some(problem) => {
            let message = format!("invalid CA certificate reference {shown}, {}", problem.text);
            Err(Fault::new(INVALID_CA_CERTIFICATE_REF, message))
        }
        None => Ok(format!("{prefix}{namespace}/{suffixed}")),
    }
}

/// Whether a grant allows the owner to reference an object of another namespace.
pub(super) fn may_read(
    view: &View<'_>,
    owner: Owner<'_>,
    to: Referent,
    namespace: &Namespace,
    name: &str,
) -> bool {
    let reference = Reference {
        from: owner.kind,
        from_namespace: owner.namespace.clone(),
        to,
        to_namespace: namespace.clone(),
    };
    grants::allows(view, reference, name)
}

/// Whether connections are passed through to the cluster named by their SNI: gateways between
/// networks.
fn is_auto_passthrough(labels: &TextMap, listener: &Listener) -> bool {
    let options = listener.tls.as_ref().map(|tls| &tls.options);
    if options
        .and_then(|options| options.get(LISTENER_PROTOCOL))
        .is_some_and(|mode| mode == "auto-passthrough")
    {
        return true;
    }
    let port = labels
        .get(GATEWAY_PORT_LABEL)
        .map_or(GATEWAY_PORT, |port| &**port);
    labels.contains_key(NETWORK_LABEL) && listener.port.to_string() == port
}
