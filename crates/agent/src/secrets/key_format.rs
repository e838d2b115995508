//! The format of new private keys (`PKCS8_KEY`): PKCS#8, or the older formats that it wraps, PKCS#1
//! for RSA and SEC 1 for elliptic curves.

use navarch_pki::pem;

/// Tags of DER.
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// The tag of `parameters` in SEC 1's `ECPrivateKey`.
const PARAMETERS: u8 = 0xa0;

/// The format of a private key in PEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyFormat {
    /// `PRIVATE KEY`.
    #[default]
    Pkcs8,
    /// `RSA PRIVATE KEY` or `EC PRIVATE KEY`: for applications that read no other ones.
    Traditional,
}

impl KeyFormat {
    /// Encodes a key in PEM; `None` if `pkcs8` is not the DER of a key of RSA or of a named curve.
    pub(super) fn encode(self, pkcs8: &[u8]) -> Option<String> {
        match self {
            Self::Pkcs8 => Some(pem::encode_block("PRIVATE KEY", pkcs8)),
            Self::Traditional => traditional(pkcs8),
        }
    }
}

/// An element of DER.
#[derive(Clone, Copy, Debug)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
}

/// The wrapped key, under the name of its format.
fn traditional(pkcs8: &[u8]) -> Option<String> {
    let (info, _) = expect(SEQUENCE, pkcs8)?;
    let (_version, rest) = expect(INTEGER, info)?;
    let (algorithm, rest) = expect(SEQUENCE, rest)?;
    let (key, _) = expect(OCTET_STRING, rest)?;

    // The parameters of an algorithm are a named curve, or NULL for RSA.
    let (_identifier, parameters) = expect(OBJECT_IDENTIFIER, algorithm)?;
    let (parameters, _) = read(parameters)?;
    if parameters.tag == OBJECT_IDENTIFIER {
        let key = with_curve(key, parameters.content)?;
        Some(pem::encode_block("EC PRIVATE KEY", &key))
    } else {
        Some(pem::encode_block("RSA PRIVATE KEY", key))
    }
}

/// An `ECPrivateKey` that names its curve: in PKCS#8 it does not have to, because that does.
fn with_curve(key: &[u8], curve: &[u8]) -> Option<Vec<u8>> {
    let (fields, _) = expect(SEQUENCE, key)?;
    let (version, rest) = expect(INTEGER, fields)?;
    let (secret, rest) = expect(OCTET_STRING, rest)?;
    if rest.first() == Some(&PARAMETERS) {
        return Some(key.to_vec());
    }

    let parameters = element(PARAMETERS, &element(OBJECT_IDENTIFIER, curve)?)?;
    let fields = [
        element(INTEGER, version)?,
        element(OCTET_STRING, secret)?,
        parameters,
        rest.to_vec(),
    ];
    element(SEQUENCE, &fields.concat())
}

/// The content of the first element, which has this tag, and what is behind it.
fn expect(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, rest) = read(der)?;
    (found.tag == tag).then_some((found.content, rest))
}

/// The first element, and what is behind it.
fn read(der: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first.checked_sub(0x80) {
        None => (usize::from(*first), rest),
        Some(count) => {
            let (digits, rest) = rest.split_at_checked(usize::from(count))?;
            let length = digits.iter().try_fold(0_usize, |length, digit| {
                length.checked_mul(256)?.checked_add(usize::from(*digit))
            })?;
            (length, rest)
        }
    };

    let (content, rest) = rest.split_at_checked(length)?;
    Some((Element { tag: *tag, content }, rest))
}

/// An element with this content; `None` if it has more than 64 KiB.
fn element(tag: u8, content: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(content.len()).ok()?;
    let [high, low] = length.to_be_bytes();
    let mut der = match (high, low) {
        (0, ..0x80) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    der.extend_from_slice(content);
    Some(der)
}

#[cfg(test)]
mod tests {
    use navarch_pki::KeyType;
    use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384};

    use super::*;

    /// Whether a text is the same key.
    fn is_key(text: &str, key: &KeyPair) -> bool {
        let read = KeyPair::from_pem(text).unwrap();
        read.public_key_pem() == key.public_key_pem()
    }

    #[test]
    fn keys_of_curves_are_written_in_both_formats() {
        for key in [
            KeyType::P256.generate().unwrap(),
            KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap(),
        ] {
            let der = key.serialize_der();
            let pkcs8 = KeyFormat::Pkcs8.encode(&der).unwrap();
            assert!(pkcs8.starts_with("-----BEGIN PRIVATE KEY-----\n"));
            assert!(is_key(&pkcs8, &key));

            let sec1 = KeyFormat::Traditional.encode(&der).unwrap();
            assert!(sec1.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
            assert!(is_key(&sec1, &key));
        }
    }

    #[test]
    fn keys_of_rsa_are_written_in_both_formats() {
        let key = KeyType::Rsa2048.generate().unwrap();
        let der = key.serialize_der();
        assert!(is_key(&KeyFormat::Pkcs8.encode(&der).unwrap(), &key));

        let pkcs1 = KeyFormat::Traditional.encode(&der).unwrap();
        assert!(pkcs1.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        assert!(is_key(&pkcs1, &key));
    }

    #[test]
    fn a_key_of_a_curve_names_it_once() {
        let curve = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        let bare = [
            element(INTEGER, &[1]).unwrap(),
            element(OCTET_STRING, &[7; 32]).unwrap(),
        ];
        let bare = element(SEQUENCE, &bare.concat()).unwrap();

        let named = with_curve(&bare, &curve).unwrap();
        assert_eq!(named.len(), bare.len() + 12);
        assert_eq!(with_curve(&named, &curve), Some(named));
    }

    #[test]
    fn what_is_no_key_is_not_written() {
        let lengths: [&[u8]; 4] = [&[], &[SEQUENCE], &[SEQUENCE, 0x05], &[SEQUENCE, 0x84, 1]];
        for der in lengths {
            assert_eq!(KeyFormat::Traditional.encode(der), None, "{der:?}");
        }
        for length in [0, 127, 128, 255, 256, 65_535] {
            let content = vec![1; length];
            let der = element(OCTET_STRING, &content).unwrap();
            let (found, rest) = expect(OCTET_STRING, &der).unwrap();
            assert!(found == content && rest.is_empty(), "{length}");
        }
        assert_eq!(element(OCTET_STRING, &vec![1; 65_536]), None);
    }
}
