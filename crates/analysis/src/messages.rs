//! The table of messages: code, name, level and words, all of them Istio's.

use std::fmt;

/// How bad a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// It does not work.
    Error,
    /// It probably does not do what is meant.
    Warning,
    /// It is worth knowing.
    Info,
}

impl Level {
    /// The level of a name, in whatever case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Error, Self::Warning, Self::Info]
            .into_iter()
            .find(|level| level.to_string().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
        })
    }
}

/// One kind of message.
#[derive(Debug, PartialEq, Eq)]
pub struct MessageType {
    /// The code, such as `IST0101`.
    pub code: &'static str,
    /// The name that Istio's documentation gives it.
    pub name: &'static str,
    /// How bad it is.
    pub level: Level,
    /// The words, with Go's verbs (`%s`, `%v`, `%d`, `%q`) where parameters go.
    pub template: &'static str,
}

/// Declares the messages.
macro_rules! messages {
    ($($ident:ident $code:literal $level:ident $name:literal $template:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $template)]
            pub static $ident: MessageType =
                MessageType { code: $code, name: $name, level: Level::$level, template: $template };
        )*

        /// All messages by code.
        pub static ALL: &[&MessageType] = &[$(&$ident),*];
    };
}

messages! {
    DEPRECATED "IST0002" Warning "Deprecated"
        "Deprecated: %s";
    REFERENCED_RESOURCE_NOT_FOUND "IST0101" Error "ReferencedResourceNotFound"
        "Referenced %s not found: %q";
    NAMESPACE_NOT_INJECTED "IST0102" Info "NamespaceNotInjected"
        "The namespace is not enabled for Istio injection. Run 'kubectl label namespace %s istio-injection=enabled' to enable it, or 'kubectl label namespace %s istio-injection=disabled' to explicitly mark it as not needing injection.";
    POD_MISSING_PROXY "IST0103" Warning "PodMissingProxy"
        "The pod %s is missing the Istio proxy. This can often be resolved by restarting or redeploying the workload.";
    SCHEMA_VALIDATION_ERROR "IST0106" Error "SchemaValidationError"
        "Schema validation error: %v";
    MISPLACED_ANNOTATION "IST0107" Warning "MisplacedAnnotation"
        "Misplaced annotation: %s can only be applied to %s";
    UNKNOWN_ANNOTATION "IST0108" Warning "UnknownAnnotation"
        "Unknown annotation: %s";
    CONFLICTING_MESH_GATEWAY_VIRTUAL_SERVICE_HOSTS "IST0109" Error "ConflictingMeshGatewayVirtualServiceHosts"
        "The VirtualServices %s associated with mesh gateway define the same host %s which can lead to undefined behavior. This can be fixed by merging the conflicting VirtualServices into a single resource.";
    CONFLICTING_SIDECAR_WORKLOAD_SELECTORS "IST0110" Error "ConflictingSidecarWorkloadSelectors"
        "The Sidecars %v in namespace %q select the same workload pod %q, which can lead to undefined behavior.";
    MULTIPLE_SIDECARS_WITHOUT_WORKLOAD_SELECTORS "IST0111" Error "MultipleSidecarsWithoutWorkloadSelectors"
        "The Sidecars %v in namespace %q have no workload selector, which can lead to undefined behavior.";
    VIRTUAL_SERVICE_DESTINATION_PORT_SELECTOR_REQUIRED "IST0112" Error "VirtualServiceDestinationPortSelectorRequired"
        "This VirtualService routes to a service %q that exposes multiple ports %v. Specifying a port in the destination is required to disambiguate.";
    DEPLOYMENT_ASSOCIATED_TO_MULTIPLE_SERVICES "IST0116" Warning "DeploymentAssociatedToMultipleServices"
        "This deployment %s is associated with multiple services using port %d but different protocols: %v";
    PORT_NAME_IS_NOT_UNDER_NAMING_CONVENTION "IST0118" Info "PortNameIsNotUnderNamingConvention"
        "Port name %s (port: %d, targetPort: %s) doesn't follow the naming convention of Istio port.";
    NAMESPACE_MULTIPLE_INJECTION_LABELS "IST0123" Warning "NamespaceMultipleInjectionLabels"
        "The namespace has more than one type of injection labels %v, which may lead to undefined behavior. Make sure only one injection label exists.";
    INVALID_ANNOTATION "IST0125" Warning "InvalidAnnotation"
        "Invalid annotation %s: %s";
    UNKNOWN_MESH_NETWORKS_SERVICE_REGISTRY "IST0126" Error "UnknownMeshNetworksServiceRegistry"
        "Unknown service registry %s in network %s";
    NO_MATCHING_WORKLOADS_FOUND "IST0127" Warning "NoMatchingWorkloadsFound"
        "No matching workloads for this resource with the following labels: %s";
    NO_SERVER_CERTIFICATE_VERIFICATION_DESTINATION_LEVEL "IST0128" Warning "NoServerCertificateVerificationDestinationLevel"
        "DestinationRule %s in namespace %s has TLS mode set to %s but no caCertificates are set to validate server identity for host: %s";
    NO_SERVER_CERTIFICATE_VERIFICATION_PORT_LEVEL "IST0129" Warning "NoServerCertificateVerificationPortLevel"
        "DestinationRule %s in namespace %s has TLS mode set to %s but no caCertificates are set to validate server identity for host: %s at port %s";
    VIRTUAL_SERVICE_UNREACHABLE_RULE "IST0130" Warning "VirtualServiceUnreachableRule"
        "VirtualService rule %v not used (%s).";
    VIRTUAL_SERVICE_INEFFECTIVE_MATCH "IST0131" Info "VirtualServiceIneffectiveMatch"
        "VirtualService rule %v match %v is not used (duplicate/overlapping match in rule %v).";
    VIRTUAL_SERVICE_HOST_NOT_FOUND_IN_GATEWAY "IST0132" Warning "VirtualServiceHostNotFoundInGateway"
        "one or more host %v defined in VirtualService %s not found in Gateway %s.";
    SCHEMA_WARNING "IST0133" Warning "SchemaWarning"
        "Schema validation warning: %v";
    SERVICE_ENTRY_ADDRESSES_REQUIRED "IST0134" Warning "ServiceEntryAddressesRequired"
        "ServiceEntry addresses are required for this protocol.";
    DEPRECATED_ANNOTATION "IST0135" Info "DeprecatedAnnotation"
        "Annotation %q has been deprecated%s and may not work in future Istio versions.";
    DEPLOYMENT_CONFLICTING_PORTS "IST0137" Warning "DeploymentConflictingPorts"
        "This deployment %s is associated with multiple services %v using targetPort %q but different ports: %v.";
    GATEWAY_DUPLICATE_CERTIFICATE "IST0138" Warning "GatewayDuplicateCertificate"
        "Duplicate certificate in multiple gateways %v may cause 404s if clients re-use HTTP2 connections.";
    INVALID_WEBHOOK "IST0139" Error "InvalidWebhook"
        "%v";
    INGRESS_ROUTE_RULES_NOT_AFFECTED "IST0140" Warning "IngressRouteRulesNotAffected"
        "Subset in virtual service %s has no effect on ingress gateway %s requests";
    INVALID_APPLICATION_UID "IST0144" Warning "InvalidApplicationUID"
        "User ID (UID) 1337 is reserved for the sidecar proxy.";
    CONFLICTING_GATEWAYS "IST0145" Error "ConflictingGateways"
        "Conflict with gateways %s (workload selector %s, port %s, hosts %v).";
    IMAGE_AUTO_WITHOUT_INJECTION_WARNING "IST0146" Warning "ImageAutoWithoutInjectionWarning"
        "%s %s contains `image: auto` but does not match any Istio injection webhook selectors.";
    IMAGE_AUTO_WITHOUT_INJECTION_ERROR "IST0147" Error "ImageAutoWithoutInjectionError"
        "%s %s contains `image: auto` but does not match any Istio injection webhook selectors.";
    NAMESPACE_INJECTION_ENABLED_BY_DEFAULT "IST0148" Info "NamespaceInjectionEnabledByDefault"
        "is enabled for Istio injection, as Istio is installed with enableNamespacesByDefault as true.";
    JWT_CLAIM_BASED_ROUTING_WITHOUT_REQUEST_AUTHN "IST0149" Error "JwtClaimBasedRoutingWithoutRequestAuthN"
        "The virtual service uses the JWT claim based routing (key: %s) but found no request authentication for the gateway (%s) pod (%s). The request authentication must first be applied for the gateway pods to validate the JWT token and make the claims available for routing.";
    EXTERNAL_NAME_SERVICE_TYPE_INVALID_PORT_NAME "IST0150" Warning "ExternalNameServiceTypeInvalidPortName"
        "Port name for ExternalName service is invalid. Proxy may prevent tcp named ports and unmatched traffic for ports serving TCP protocol from being forwarded correctly";
    ENVOY_FILTER_USES_RELATIVE_OPERATION "IST0151" Warning "EnvoyFilterUsesRelativeOperation"
        "This EnvoyFilter does not have a priority and has a relative patch operation set which can cause the EnvoyFilter not to be applied. Using the INSERT_FIRST of ADD option or setting the priority may help in ensuring the EnvoyFilter is applied correctly.";
    ENVOY_FILTER_USES_REPLACE_OPERATION_INCORRECTLY "IST0152" Error "EnvoyFilterUsesReplaceOperationIncorrectly"
        "The REPLACE operation is only valid for HTTP_FILTER and NETWORK_FILTER.";
    ENVOY_FILTER_USES_ADD_OPERATION_INCORRECTLY "IST0153" Error "EnvoyFilterUsesAddOperationIncorrectly"
        "The ADD operation will be ignored when applyTo is set to ROUTE_CONFIGURATION, or HTTP_ROUTE.";
    ENVOY_FILTER_USES_REMOVE_OPERATION_INCORRECTLY "IST0154" Error "EnvoyFilterUsesRemoveOperationIncorrectly"
        "The REMOVE operation will be ignored when applyTo is set to ROUTE_CONFIGURATION, or HTTP_ROUTE.";
    ENVOY_FILTER_USES_RELATIVE_OPERATION_WITH_PROXY_VERSION "IST0155" Warning "EnvoyFilterUsesRelativeOperationWithProxyVersion"
        "This EnvoyFilter does not have a priority and has a relative patch operation (NSTERT_BEFORE/AFTER, REPLACE, MERGE, DELETE) and proxyVersion set which can cause the EnvoyFilter not to be applied during an upgrade. Using the INSERT_FIRST or ADD option or setting the priority may help in ensuring the EnvoyFilter is applied correctly.";
    INVALID_TELEMETRY_PROVIDER "IST0157" Warning "InvalidTelemetryProvider"
        "The Telemetry %v in namespace %q with empty providers will be ignored.";
    PODS_ISTIO_PROXY_IMAGE_MISMATCH_IN_NAMESPACE "IST0158" Warning "PodsIstioProxyImageMismatchInNamespace"
        "The Istio proxy images of the pods running in the namespace do not match the image defined in the injection configuration (pod names: %v). This often happens after upgrading the Istio control-plane and can be fixed by redeploying the pods.";
    CONFLICTING_TELEMETRY_WORKLOAD_SELECTORS "IST0159" Error "ConflictingTelemetryWorkloadSelectors"
        "The Telemetries %v in namespace %q select the same workload pod %q, which can lead to undefined behavior.";
    MULTIPLE_TELEMETRIES_WITHOUT_WORKLOAD_SELECTORS "IST0160" Error "MultipleTelemetriesWithoutWorkloadSelectors"
        "The Telemetries %v in namespace %q have no workload selector, which can lead to undefined behavior.";
    INVALID_GATEWAY_CREDENTIAL "IST0161" Error "InvalidGatewayCredential"
        "The credential referenced by the Gateway %s in namespace %s is invalid, which can cause the traffic not to work as expected.";
    GATEWAY_PORT_NOT_DEFINED_ON_SERVICE "IST0162" Warning "GatewayPortNotDefinedOnService"
        "The gateway is listening on a target port (port %d) that is not defined in the Service associated with its workload instances (Pod selector %s). If you need to access the gateway port through the gateway Service, it will not be available.";
    INVALID_EXTERNAL_CONTROL_PLANE_CONFIG "IST0163" Warning "InvalidExternalControlPlaneConfig"
        "The hostname (%s) that was provided for the webhook (%s) to reach the ingress gateway on the external control plane cluster %s. Traffic may not flow properly.";
    EXTERNAL_CONTROL_PLANE_ADDRESS_IS_NOT_A_HOSTNAME "IST0164" Info "ExternalControlPlaneAddressIsNotAHostname"
        "The address (%s) that was provided for the webhook (%s) to reach the ingress gateway on the external control plane cluster is an IP address. This is not recommended for a production environment.";
    REFERENCED_INTERNAL_GATEWAY "IST0165" Warning "ReferencedInternalGateway"
        "Gateway reference in VirtualService %s is to an implementation-generated internal Gateway: %s.";
    INEFFECTIVE_SELECTOR "IST0166" Warning "IneffectiveSelector"
        "Ineffective selector on Kubernetes Gateway %s. Use the TargetRef field instead.";
    INEFFECTIVE_POLICY "IST0167" Warning "IneffectivePolicy"
        "The policy has no impact: %s.";
    MULTI_CLUSTER_INCONSISTENT_SERVICE "IST0170" Warning "MultiClusterInconsistentService"
        "The service %v in namespace %q is inconsistent across clusters %q, which can lead to undefined behaviors. The inconsistent behaviors are: %v.";
    NEGATIVE_CONDITION_STATUS "IST0171" Warning "NegativeConditionStatus"
        "A condition with a negative status is present: type=%s, reason=%s, message=%s.";
    DESTINATION_RULE_SUBSET_NOT_SELECT_PODS "IST0173" Error "DestinationRuleSubsetNotSelectPods"
        "The Subset %s defined in the DestinationRule does not select any pods. Which may lead to 503 UH (NoHealthyUpstream).";
    UNKNOWN_DESTINATION_RULE_HOST "IST0174" Warning "UnknownDestinationRuleHost"
        "The host %s defined in the DestinationRule does not match any services in the mesh.";
    JWKS_URI_FETCH_UNRESTRICTED "IST0175" Warning "JwksUriFetchUnrestricted"
        "BLOCKED_CIDRS_IN_JWKS_URIS is not configured but %d RequestAuthentication resource(s) exist (%s). Consider configuring it to restrict JWKS URI fetches to trusted networks.";
    GATEWAY_API_CRD_VERSION_BELOW_MINIMUM "IST0176" Warning "GatewayAPICRDVersionBelowMinimum"
        "Gateway API CRD %q is at version %q but Istio requires at least %q; resources of this kind will not be processed. Upgrade the Gateway API CRDs to satisfy the minimum version.";
    CONFLICTING_SERVICE_ENTRY_PROTOCOL "IST0177" Warning "ConflictingServiceEntryProtocol"
        "Multiple ServiceEntries (%s) define the same host %q and port %d with conflicting protocols (%s).";
}

/// The codes of istioctl's other commands: users may name them, but no analyzer here reports them.
const OTHER_COMMAND_CODES: [&str; 9] = [
    "IST0001", "IST0136", "IST0141", "IST0142", "IST0143", "IST0156", "IST0168", "IST0169",
    "IST0172",
];

/// Whether there is such a code.
#[must_use]
pub fn is_code(code: &str) -> bool {
    ALL.iter().any(|message| message.code == code) || OTHER_COMMAND_CODES.contains(&code)
}
