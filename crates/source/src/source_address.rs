//! Addresses of configuration sources, from flags and the mesh config.

use std::path::PathBuf;

use navarch_api::istio::ClientTlsSettings;
use navarch_api::mesh::{ConfigSource, Resource};

/// The address of a configuration source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceAddress {
    /// `fs:///path`: a directory.
    Files(PathBuf),
    /// `k8s://`: the Kubernetes API.
    Kubernetes,
    /// `xds://host:port`: another control plane.
    Xds(Box<XdsServer>),
}

/// Another control plane as a source.
#[derive(Clone, Debug, PartialEq)]
pub struct XdsServer {
    /// `host:port`.
    pub address: String,
    /// The TLS settings; `None` for plain text.
    pub tls: Option<ClientTlsSettings>,
    /// Whether only services and workloads are read.
    pub services_alone: bool,
}

/// The address is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported config source {0:?}: use fs:///path, xds://host:port or k8s://")]
pub struct SourceAddressError(String);

impl SourceAddress {
    /// The address of a config source in the mesh config.
    ///
    /// # Errors
    /// If the address is not supported.
    pub fn of(source: &ConfigSource) -> Result<Self, SourceAddressError> {
        let mut address = source.address.parse()?;
        if let Self::Xds(server) = &mut address {
            server.tls.clone_from(&source.tls_settings);
            server.services_alone = source
                .subscribed_resources
                .contains(&Resource::ServiceRegistry);
        }
        Ok(address)
    }
}

impl std::str::FromStr for SourceAddress {
    type Err = SourceAddressError;

    fn from_str(text: &str) -> Result<Self, SourceAddressError> {
        let invalid = || SourceAddressError(text.to_owned());

        match text.split_once("://") {
            Some(("fs", path)) if !path.is_empty() => Ok(Self::Files(PathBuf::from(path))),
            Some(("k8s", _)) => Ok(Self::Kubernetes),
            Some(("xds", address)) => {
                let address = address.trim_end_matches('/');
                let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
                if host.is_empty() || port.parse::<u16>().is_err() || address.contains('/') {
                    return Err(invalid());
                }
                Ok(Self::Xds(Box::new(XdsServer {
                    address: address.to_owned(),
                    tls: None,
                    services_alone: false,
                })))
            }
            Some(_) | None => Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_named_by_urls() {
        let xds = |address: &str| {
            SourceAddress::Xds(Box::new(XdsServer {
                address: address.to_owned(),
                tls: None,
                services_alone: false,
            }))
        };

        assert_eq!(
            "fs:///a/b".parse(),
            Ok(SourceAddress::Files(PathBuf::from("/a/b")))
        );
        assert_eq!("k8s://".parse(), Ok(SourceAddress::Kubernetes));
        assert_eq!(
            "xds://istiod.other:15012".parse(),
            Ok(xds("istiod.other:15012"))
        );

        assert_eq!("xds://[::1]:15010/".parse(), Ok(xds("[::1]:15010")));

        for wrong in [
            "",
            "fs://",
            "/a",
            "xds://",
            "xds://host",
            "xds://:1",
            "xds://host:1/path",
            "xds://host:port",
            "http://a:1",
        ] {
            assert!(wrong.parse::<SourceAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_config_source_has_address_tls_and_subscribed_resources() {
        let tls_settings = Some(ClientTlsSettings {
            sni: "istiod.istio-system.svc".to_owned(),
            ..Default::default()
        });
        let subscribed_resources = vec![Resource::ServiceRegistry];
        let source = ConfigSource {
            address: "xds://a:1".to_owned(),
            tls_settings: tls_settings.clone(),
            subscribed_resources,
        };
        let server = Box::new(XdsServer {
            address: "a:1".to_owned(),
            tls: tls_settings,
            services_alone: true,
        });
        assert_eq!(SourceAddress::of(&source), Ok(SourceAddress::Xds(server)));
    }
}
