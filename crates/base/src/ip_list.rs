//! Lists of IP addresses, which mostly contain one.

use std::net::IpAddr;
use std::ops::Deref;

/// Addresses in the order in which they were written. A single address is stored without
/// allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpList(List);

/// The content of a list; a single address is always [`List::One`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum List {
    /// Empty.
    #[default]
    None,
    One(IpAddr),
    /// Several.
    More(Box<[IpAddr]>),
}

impl Deref for IpList {
    type Target = [IpAddr];

    fn deref(&self) -> &[IpAddr] {
        match &self.0 {
            List::None => &[],
            List::One(one) => std::slice::from_ref(one),
            List::More(more) => more,
        }
    }
}

impl FromIterator<IpAddr> for IpList {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut rest = addresses.into_iter();
        let Some(first) = rest.next() else {
            return Self::default();
        };
        let Some(second) = rest.next() else {
            return Self(List::One(first));
        };
        Self(List::More(
            [first, second].into_iter().chain(rest).collect(),
        ))
    }
}

impl<'a> IntoIterator for &'a IpList {
    type Item = &'a IpAddr;
    type IntoIter = std::slice::Iter<'a, IpAddr>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_length_are_as_they_were_written() {
        let addresses: Vec<IpAddr> = ["10.0.0.1", "fd00::1", "10.0.0.2"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        for length in 0..=addresses.len() {
            let list: IpList = addresses.iter().take(length).copied().collect();
            assert_eq!(*list, addresses[..length]);
        }
    }
}
