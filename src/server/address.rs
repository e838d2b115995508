//! Listen addresses in the form of Istio's flags.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use navarch_net::listen::{listen, listen_on_all};
use tokio::net::TcpListener;

/// A listen address: `:15010` (all addresses), `127.0.0.1:15010`, `[::1]:15010`, or empty to
/// disable it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// Disabled.
    Off,
    /// This port on all addresses.
    Every(u16),
    /// This address.
    At(SocketAddr),
}

/// An invalid listen address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid listen address {0:?}: use host:port, :port for all addresses, or an empty value to disable it"
)]
pub struct AddressError(String);

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        if text.is_empty() {
            return Ok(Self::Off);
        }
        if let Some(port) = text.strip_prefix(':') {
            return port.parse().map(Self::Every).map_err(|_| wrong());
        }
        let text = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        text.parse().map(Self::At).map_err(|_| wrong())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Every(port) => write!(f, ":{port}"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl ListenAddress {
    /// Opens the port; `None` when switched off.
    ///
    /// # Errors
    /// If the port is in use or may not be opened.
    pub fn bind(self) -> std::io::Result<Option<TcpListener>> {
        match self {
            Self::Off => Ok(None),
            Self::At(address) => listen(address).map(Some),
            Self::Every(port) => listen_on_all(port).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn istios_forms_are_understood() {
        assert_eq!("".parse(), Ok(ListenAddress::Off));
        assert_eq!(":15010".parse(), Ok(ListenAddress::Every(15010)));
        assert_eq!(
            "localhost:80".parse(),
            Ok(ListenAddress::At(SocketAddr::from(([127, 0, 0, 1], 80))))
        );
        let error = ":http".parse::<ListenAddress>().unwrap_err().to_string();
        assert!(
            error.contains("invalid listen address \":http\""),
            "{error}"
        );
    }
}
