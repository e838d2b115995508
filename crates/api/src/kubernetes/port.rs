//! Port numbers and transport protocols, as in every kind with ports.

use std::fmt;

use crate::field_error::FieldError;

/// The transport protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// `TCP`, the default.
    #[default]
    Tcp,
    /// `UDP`.
    Udp,
    /// `SCTP`.
    Sctp,
}

impl Protocol {
    /// The protocol as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Reads `protocol`; absent and empty mean TCP.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, FieldError> {
        match text {
            None | Some("" | "TCP") => Ok(Self::Tcp),
            Some("UDP") => Ok(Self::Udp),
            Some("SCTP") => Ok(Self::Sctp),
            Some(other) => Err(FieldError::new(
                "protocol",
                format!("{other:?} is not one of TCP, UDP, SCTP"),
            )),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A port number of 1 to 65535; the error names the field by `path`.
pub(crate) fn port_number(number: i32, path: &str) -> Result<u16, FieldError> {
    match u16::try_from(number) {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(FieldError::new(
            path,
            format!("{number} is not a port number, it must be between 1 and 65535"),
        )),
    }
}
