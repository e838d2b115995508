//! `x-forwarded-client-cert`: what a gateway says of the client behind it. Counts from trusted addresses only.

use std::net::IpAddr;

use super::{Credentials, MeshSnapshot};
use navarch_api::cidr::Cidr;
use navarch_api::identity::{Caller, Identity};

pub(super) const HEADER: &str = "x-forwarded-client-cert";

/// Networks whose gateways are trusted (`TRUSTED_GATEWAY_CIDR`). With any, loopback is trusted, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedNetworks(Vec<Cidr>);

impl TrustedNetworks {
    /// From a comma-separated list of CIDR blocks.
    ///
    /// # Errors
    /// Gives the first that is none.
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

/// The caller that a trusted gateway vouches for. Of several hops only the last counts, which the gateway itself has
/// seen; what stands before it was the client's to write.
///
/// # Errors
/// When the gateway is not trusted, or names nobody of this mesh.
pub(super) fn caller(
    shown: Credentials<'_>,
    trusted: &TrustedNetworks,
    snapshot: &MeshSnapshot,
) -> Result<Caller, String> {
    let peer = shown.peer.ok_or("the gateway's address is not known")?;
    if !trusted.contain(peer.ip()) {
        return Err(format!("{} is no trusted gateway", peer.ip()));
    }
    let value = shown.headers.get_all(HEADER).iter().next_back().and_then(|value| value.to_str().ok());
    let last = last_element(value.unwrap_or_default());
    let fields = split(last, ';');
    let uris = fields.iter().filter_map(|field| {
        let (name, value) = field.split_once('=')?;
        name.trim().eq_ignore_ascii_case("uri").then(|| value.trim().trim_matches('"'))
    });
    let identities = uris.filter_map(|uri| Identity::parse(uri).ok());
    let identities: Vec<Identity> = identities.filter(|one| snapshot.trusts(&one.trust_domain)).collect();
    if identities.is_empty() {
        return Err(format!("it names nobody of trust domain {}", snapshot.trust_domain));
    }
    Ok(Caller { identities, ..Caller::default() })
}

/// The last of a list whose elements are parted by commas outside of quotes.
fn last_element(text: &str) -> &str {
    split(text, ',').pop().unwrap_or_default()
}

/// Splits at a sign where it stands outside of quotes.
fn split(text: &str, at: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
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
