//! The identifiers that an API server gives to objects.

use std::fmt;
use std::sync::Arc;

/// `metadata.uid`: opaque, empty if unknown. A UUID in Kubernetes' notation is stored without
/// allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uid(Form);

/// The representation of an identifier; equal texts have equal representations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Form {
    /// The empty text.
    #[default]
    Empty,
    /// A UUID in lower case.
    Uuid([u8; 16]),
    /// Any other text.
    Other(Arc<str>),
}

impl Uid {
    /// Prints as `text` again. Equal only to the same text: upper and lower case differ.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(match uuid(text) {
            Some(bytes) => Form::Uuid(bytes),
            None if text.is_empty() => Form::Empty,
            None => Form::Other(Arc::from(text)),
        })
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Empty => Ok(()),
            Form::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    f.write_str(if matches!(at, 4 | 6 | 8 | 10) {
                        "-"
                    } else {
                        ""
                    })?;
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
            Form::Other(text) => f.write_str(text),
        }
    }
}

/// The bytes of a UUID in lower case.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut digits = 0;

    for (at, byte) in text.bytes().enumerate() {
        match (at, byte) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9' | b'a'..=b'f') => {}
            _ => return None,
        }

        let digit = if byte.is_ascii_digit() {
            byte - b'0'
        } else {
            byte - b'a' + 10
        };

        let half: &mut u8 = bytes.get_mut(digits / 2)?;
        *half = *half << 4 | digit;
        digits += 1;
    }

    (text.len() == 36).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_alone_are_equal() {
        let texts = [
            "6f1b3c1e-0d1c-4c7b-9b5e-3f7f6a2d9e10",
            "6F1B3C1E-0d1c-4c7b-9b5e-3f7f6a2d9e10",
            "6f1b3c1e-0d1c-4c7b-9b5e-3f7f6a2d9e11",
            "6f1b3c1e-0d1c-4c7b-9b5e-3f7f6a2d9e1",
            "6f1b3c1e-0d1c-4c7b-9b5e-3f7f6a2d9e100",
            "6f1b3c1e00d1c-4c7b-9b5e-3f7f6a2d9e10",
            "1",
            "",
        ];

        for (index, one) in texts.iter().enumerate() {
            assert_eq!(Uid::new(one).to_string(), *one);
            for (other_index, other) in texts.iter().enumerate() {
                assert_eq!(
                    Uid::new(one) == Uid::new(other),
                    index == other_index,
                    "{one} {other}"
                );
            }
        }

        assert!(matches!(Uid::new(texts[0]).0, Form::Uuid(_)));
    }
}
