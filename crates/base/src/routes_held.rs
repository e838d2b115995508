//! The contract between control plane and agent on the form of routes: what the agent says of its
//! Envoy's route configurations when a stream starts.
//!
//! A route configuration with its virtual hosts inside cannot be replaced by one whose virtual hosts
//! follow on their own (VHDS) without a gap: Envoy puts the new one in force at once, and requests
//! that arrive before its virtual hosts find none. So the control plane must know, on every replica
//! and after each restart, what an Envoy has. Envoy's own requests tell it too late, with the first
//! request for routes; its agent lives as long as Envoy, and knows it from the start.

/// The key of the node metadata with which an agent says what its Envoy has, in the first request of
/// a delta stream.
pub const NODE_KEY: &str = "ROUTES_HELD";

/// What an Envoy has of route configurations, from this stream or an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutesHeld {
    /// No route configuration: it has just started.
    Nothing,
    /// Route configurations, all with their virtual hosts inside.
    Whole,
    /// Route configurations whose virtual hosts are resources of their own.
    VirtualHosts,
}

impl RoutesHeld {
    /// The value in the metadata.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Whole => "whole",
            Self::VirtualHosts => "virtual-hosts",
        }
    }

    /// Reads a value of the metadata; `None` for others, which a later agent may send.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Nothing, Self::Whole, Self::VirtualHosts]
            .into_iter()
            .find(|held| held.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for held in [
            RoutesHeld::Nothing,
            RoutesHeld::Whole,
            RoutesHeld::VirtualHosts,
        ] {
            assert_eq!(RoutesHeld::parse(held.as_str()), Some(held));
        }
        assert_eq!(RoutesHeld::parse("half"), None);
    }
}
