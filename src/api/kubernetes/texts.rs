//! Which texts of Kubernetes objects other objects repeat.

use super::endpoint_slice::{Endpoint, EndpointPort, EndpointSlice, TargetRef};
use super::pod::{ContainerPort, Pod};
use super::service::Service;
use super::service_port::{ServicePort, TargetPort};
use crate::api::shared_texts::{HasTexts, SharedTexts};

impl HasTexts for Pod {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.service_account.share(texts);
        self.node.share(texts);
        self.subdomain.share(texts);
        self.ports.share(texts);
        self.pod_ips.shrink_to_fit();
        self.host_ips.shrink_to_fit();
    }
}

impl HasTexts for ContainerPort {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.name.share(texts);
    }
}

impl HasTexts for Service {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.ports.share(texts);
        self.selector.share(texts);
    }
}

impl HasTexts for ServicePort {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.name.share(texts);
        self.app_protocol.share(texts);
        if let TargetPort::Name(name) = &mut self.target {
            name.share(texts);
        }
    }
}

impl HasTexts for EndpointSlice {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.service.share(texts);
        self.endpoints.share(texts);
        self.ports.share(texts);
    }
}

impl HasTexts for Endpoint {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.addresses.shrink_to_fit();
        self.node.share(texts);
        self.zone.share(texts);
        self.target.share(texts);
        self.zone_hints.share(texts);
        self.node_hints.share(texts);
    }
}

impl HasTexts for TargetRef {
    fn share(&mut self, texts: &mut SharedTexts) {
        texts.share(&mut self.kind);
        self.namespace.share(texts);
    }
}

impl HasTexts for EndpointPort {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.name.share(texts);
        self.app_protocol.share(texts);
    }
}
