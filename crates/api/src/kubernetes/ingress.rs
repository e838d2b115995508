//! `networking.k8s.io/v1` Ingress and IngressClass.

use std::sync::Arc;

use k8s_openapi::api::networking::v1 as wire;

use super::metadata::text;
use crate::field_error::FieldError;
use crate::names::PortName;
use crate::object::Object;

/// An Ingress: HTTP routes from outside, by host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingress {
    /// `spec.ingressClassName`: the IngressClass whose controller serves it.
    pub class_name: Option<Arc<str>>,
    /// `spec.defaultBackend`: the backend of requests that match no rule.
    pub default_backend: Option<IngressBackend>,
    /// `spec.tls`.
    pub tls: Vec<IngressTls>,
    /// `spec.rules`.
    pub rules: Vec<IngressRule>,
}

/// The certificate for some hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressTls {
    /// The hosts; empty means all.
    pub hosts: Vec<Arc<str>>,
    /// The Secret in the Ingress' namespace; empty is unset.
    pub secret_name: Arc<str>,
}

/// The paths of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressRule {
    /// The host; empty matches any.
    pub host: Arc<str>,
    /// `http.paths`; `None` if the rule has no `http`.
    pub paths: Option<Vec<IngressPath>>,
}

/// The backend of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressPath {
    /// As written, such as `/shop`; empty if it is not set.
    pub path: Arc<str>,
    /// How it is matched.
    pub path_type: PathType,
    /// Where requests to this path go.
    pub backend: IngressBackend,
}

/// How a path is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathType {
    /// The whole path must be equal.
    Exact,
    /// The path must start with these segments.
    Prefix,
    /// The controller decides.
    ImplementationSpecific,
}

/// A backend of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngressBackend {
    /// A port of a Service in the Ingress' namespace.
    Service {
        /// The Service's name.
        name: Arc<str>,
        /// One of `spec.ports` of the Service, not a port of its pods.
        port: IngressPort,
    },
    /// Another object, which controllers of a mesh do not support.
    Resource,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngressPort {
    /// `port.number`, from 1 to 65535.
    Number(u16),
    /// `port.name`, if there is no number; empty if neither is set.
    Name(PortName),
}

/// An IngressClass: the controller that serves Ingresses of this class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressClass {
    /// `spec.controller`.
    pub controller: Arc<str>,
}

impl TryFrom<wire::Ingress> for Object<Ingress> {
    type Error = FieldError;

    fn try_from(object: wire::Ingress) -> Result<Self, FieldError> {
        let spec = object.spec.unwrap_or_default();
        let tls = spec.tls.into_iter().flatten().map(|tls| IngressTls {
            hosts: tls.hosts.into_iter().flatten().map(Arc::from).collect(),
            secret_name: text(tls.secret_name),
        });
        let mut rules = Vec::new();

        for (index, rule) in spec.rules.into_iter().flatten().enumerate() {
            let paths = rule.http.map(|http| {
                http.paths
                    .into_iter()
                    .enumerate()
                    .map(|(at, path)| read_path(at, path))
            });

            let paths: Option<Result<Vec<_>, FieldError>> = paths.map(Iterator::collect);
            let paths = paths
                .transpose()
                .map_err(|error| error.under(&format!("spec.rules[{index}].http")))?;
            rules.push(IngressRule {
                host: text(rule.host),
                paths,
            });
        }

        let default_backend = spec.default_backend.map(read_backend).transpose();
        let spec = Ingress {
            class_name: spec.ingress_class_name.map(Arc::from),
            default_backend: default_backend.map_err(|error| error.under("spec.defaultBackend"))?,
            tls: tls.collect(),
            rules,
        };

        Ok(Self {
            meta: object.metadata.try_into()?,
            spec,
        })
    }
}

/// Parses a path; the controller decides about unknown types.
fn read_path(index: usize, path: wire::HTTPIngressPath) -> Result<IngressPath, FieldError> {
    let path_type = match path.path_type.as_str() {
        "Exact" => PathType::Exact,
        "Prefix" => PathType::Prefix,
        _ => PathType::ImplementationSpecific,
    };
    let backend = read_backend(path.backend)
        .map_err(|error| error.under(&format!("paths[{index}].backend")))?;
    Ok(IngressPath {
        path: text(path.path),
        path_type,
        backend,
    })
}

/// Parses a backend.
fn read_backend(backend: wire::IngressBackend) -> Result<IngressBackend, FieldError> {
    let Some(service) = backend.service else {
        return Ok(IngressBackend::Resource);
    };

    let port = service.port.unwrap_or_default();
    let port = match port.number.unwrap_or_default() {
        0 => IngressPort::Name(PortName::new(port.name.unwrap_or_default())),
        number => {
            let number = u16::try_from(number);
            IngressPort::Number(number.map_err(|_| {
                FieldError::new(
                    "service.port.number",
                    "is not a port number, it must be between 1 and 65535",
                )
            })?)
        }
    };

    Ok(IngressBackend::Service {
        name: Arc::from(service.name),
        port,
    })
}

impl TryFrom<wire::IngressClass> for Object<IngressClass> {
    type Error = FieldError;

    fn try_from(object: wire::IngressClass) -> Result<Self, FieldError> {
        let controller = text(object.spec.and_then(|spec| spec.controller));
        Ok(Self {
            meta: object.metadata.try_into()?,
            spec: IngressClass { controller },
        })
    }
}
