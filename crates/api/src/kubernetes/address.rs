//! IP addresses, parsed on decoding.

use std::net::IpAddr;

use crate::field_error::FieldError;
use navarch_base::ip_list::IpList;

/// Parses one address; the error names the field by `path`.
pub(super) fn parse_ip(text: &str, path: &str) -> Result<IpAddr, FieldError> {
    text.parse()
        .map_err(|_| FieldError::new(path, format!("{text:?} is not an IP address")))
}

/// Parses a list of addresses; the error names the item of the list at `path`.
pub(super) fn parse_ips<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    path: &str,
) -> Result<IpList, FieldError> {
    let parse = |(index, text)| parse_ip(text, "").map_err(|error| error.under_item(path, index));
    texts.into_iter().enumerate().map(parse).collect()
}
