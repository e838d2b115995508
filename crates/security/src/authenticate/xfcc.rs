//! `x-forwarded-client-cert`: the client identity that a gateway forwards. Only accepted from
//! trusted addresses.

use std::net::IpAddr;

use super::{Credentials, MeshSnapshot};
use navarch_api::identity::Caller;
use navarch_base::cidr::Cidr;

pub(super) const HEADER: &str = "x-forwarded-client-cert";

/// Networks whose gateways are trusted (`TRUSTED_GATEWAY_CIDR`). If there are any, loopback is also
/// trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedNetworks(Vec<Cidr>);

impl TrustedNetworks {
    /// Parses a comma-separated list of CIDR blocks.
    ///
    /// # Errors
    /// The first invalid block.
    pub fn parse(text: &str) -> Result<Self, String> {
        Cidr::parse_list(text).map(Self).map_err(str::to_owned)
    }

    /// Whether no network is trusted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address is trusted.
    fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || self.0.iter().any(|network| network.contains(address))
    }
}

/// The caller that a trusted gateway forwards. Only the last element is used: the gateway itself
/// adds it, whereas the client may have written the elements before it.
///
/// # Errors
/// If the gateway is not trusted, or the element has no identity of this mesh.
pub(super) fn caller(
    shown: Credentials<'_>,
    trusted: &TrustedNetworks,
    snapshot: &MeshSnapshot,
) -> Result<Caller, String> {
    let peer = shown.peer.ok_or("the gateway's address is unknown")?;
    if !trusted.contain(peer.ip()) {
        return Err(format!("{} is not a trusted gateway", peer.ip()));
    }

    let value = shown
        .headers
        .get_all(HEADER)
        .iter()
        .next_back()
        .and_then(|value| value.to_str().ok());

    let last = last_element(value.unwrap_or_default());
    let fields = split(last, ';');
    let uris = fields.iter().filter_map(|field| {
        let (name, value) = field.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("uri")
            .then(|| value.trim().trim_matches('"'))
    });

    Ok(Caller {
        identities: snapshot.identities(uris)?,
        ..Caller::default()
    })
}

/// The last element of a list that is separated by commas outside of quotes.
fn last_element(text: &str) -> &str {
    split(text, ',').pop().unwrap_or_default()
}

/// Splits a text at a character outside of quotes.
fn split(text: &str, at: char) -> Vec<&str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(|sign: char| {
        let plain = !std::mem::take(&mut escaped);
        match sign {
            '"' if plain => quoted = !quoted,
            '\\' if plain && quoted => escaped = true,
            _ => {}
        }
        sign == at && !quoted
    })
    .collect()
}
