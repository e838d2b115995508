//! A service with mutual TLS for tests.

use std::net::SocketAddr;

/// The service `web` of the namespace `shop` on `port`, with one pod whose sidecar accepts only
/// mutual TLS on `inbound`, for an application. Its Sidecar is the last object, so that a test can
/// append to its spec.
pub fn strict(pod: &str, port: u16, inbound: u16, application: SocketAddr) -> String {
    format!(
        r"
apiVersion: v1
kind: Pod
metadata: {{name: web-1, namespace: shop, labels: {{app: web, security.istio.io/tlsMode: istio}}}}
spec: {{serviceAccountName: web, containers: [{{name: app, image: app}}]}}
status: {{phase: Running, podIP: {pod}, podIPs: [{{ip: {pod}}}], conditions: [{{type: Ready, status: 'True'}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: shop}}
spec: {{clusterIP: 10.96.3.1, selector: {{app: web}}, ports: [{{name: http, port: {port}, targetPort: {inbound}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
endpoints: [{{addresses: [{pod}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: web-1, namespace: shop}}}}]
ports: [{{name: http, port: {inbound}, protocol: TCP}}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {{name: strict, namespace: shop}}
spec: {{mtls: {{mode: STRICT}}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: web, namespace: shop}}
spec:
  workloadSelector: {{labels: {{app: web}}}}
  ingress:
  - port: {{number: {inbound}, protocol: HTTP, name: http}}
    bind: {pod}
    captureMode: NONE
    defaultEndpoint: {application}
"
    )
}
