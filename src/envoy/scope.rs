//! What a proxy may see: services, VirtualServices and DestinationRules under its Sidecar, visibility and namespace.
