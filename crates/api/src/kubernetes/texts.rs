//! Texts of Kubernetes objects that other objects repeat.

use super::endpoint_slice::{Endpoint, EndpointPort, EndpointSlice};
use super::pod::Pod;
use super::service::Service;
use super::service_port::{ServicePort, TargetPort};
use crate::shared_texts::{HasTexts, SharedTexts};

impl HasTexts for Pod {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.service_account.share(texts);
        self.node.share(texts);
        if let Some(dns) = &mut self.dns {
            dns.subdomain.share(texts);
        }
        texts.share_ports(&mut self.ports);
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
        if let Some(pod) = &mut self.pod {
            pod.share(texts);
            texts.share_pod(pod);
        }
    }
}

impl HasTexts for EndpointPort {
    fn share(&mut self, texts: &mut SharedTexts) {
        self.name.share(texts);
    }
}
