//! An iterator over the fields of a message without copies.

use prost::encoding::decode_varint;

/// A message that Kubernetes would not encode in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnexpectedField;

/// The fields of a message: numbers and contents.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// The content of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// A number or a boolean.
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// A wire type that is not used here.
    Other,
}

/// The next number. Most keys and lengths take one byte.
#[inline]
fn number(rest: &mut &[u8]) -> Result<u64, UnexpectedField> {
    match rest.split_first() {
        Some((first, after)) if *first < 0x80 => {
            *rest = after;
            Ok(u64::from(*first))
        }
        Some(_) | None => decode_varint(rest).map_err(|_| UnexpectedField),
    }
}

impl<'a> Fields<'a> {
    /// The next field.
    #[inline]
    fn field(&mut self) -> Result<(u64, Content<'a>), UnexpectedField> {
        let key = number(&mut self.0)?;
        let content = match key & 7 {
            0 => Content::Number(number(&mut self.0)?),
            1 => self.take(8).map(|_| Content::Other)?,
            2 => {
                let length = number(&mut self.0)?;
                Content::Bytes(self.take(usize::try_from(length).map_err(|_| UnexpectedField)?)?)
            }
            5 => self.take(4).map(|_| Content::Other)?,
            _ => return Err(UnexpectedField),
        };
        Ok((key >> 3, content))
    }

    /// The next bytes.
    fn take(&mut self, length: usize) -> Result<&'a [u8], UnexpectedField> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(UnexpectedField)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Content<'a>), UnexpectedField>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field())
    }
}

impl<'a> Content<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], UnexpectedField> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Other => Err(UnexpectedField),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, UnexpectedField> {
        std::str::from_utf8(self.bytes()?).map_err(|_| UnexpectedField)
    }

    pub(super) fn number(self) -> Result<u64, UnexpectedField> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) | Self::Other => Err(UnexpectedField),
        }
    }

    /// The number as one of 64 bits with its sign.
    pub(super) fn signed(self) -> Result<i64, UnexpectedField> {
        self.number().map(u64::cast_signed)
    }

    /// The number as one of 32 bits with its sign.
    pub(super) fn short(self) -> Result<i32, UnexpectedField> {
        i32::try_from(self.signed()?).map_err(|_| UnexpectedField)
    }

    /// Whether the number is not 0.
    pub(super) fn to_bool(self) -> Result<bool, UnexpectedField> {
        self.number().map(|number| number != 0)
    }
}

/// Sets a value that may occur once; prost would merge two.
pub(super) fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), UnexpectedField> {
    if place.replace(value).is_some() {
        Err(UnexpectedField)
    } else {
        Ok(())
    }
}

/// The place of the field with this number, if it is among the wanted ones.
#[inline]
fn place_of<'p, T, const N: usize>(
    number: u64,
    wanted: &[u64; N],
    places: &'p mut [T; N],
) -> Option<&'p mut T> {
    let at = wanted.iter().position(|wanted| *wanted == number)?;
    places.get_mut(at)
}

/// The messages in the fields of these numbers, each at most once.
pub(super) fn messages<const N: usize>(
    bytes: &[u8],
    numbers: [u64; N],
) -> Result<[Option<&[u8]>; N], UnexpectedField> {
    let mut found = [None; N];
    for field in Fields(bytes) {
        let (number, content) = field?;
        if let Some(place) = place_of(number, &numbers, &mut found) {
            set_once(place, content.bytes()?)?;
        }
    }
    Ok(found)
}

/// The texts in the fields with these numbers, empty if a field is absent.
pub(super) fn texts<const N: usize>(
    bytes: &[u8],
    numbers: [u64; N],
) -> Result<[&str; N], UnexpectedField> {
    let mut found = [""; N];
    for field in Fields(bytes) {
        let (number, content) = field?;
        if let Some(place) = place_of(number, &numbers, &mut found) {
            *place = content.text()?;
        }
    }
    Ok(found)
}
