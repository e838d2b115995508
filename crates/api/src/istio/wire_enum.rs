//! Enums as protobuf's JSON writes them.

/// Declares an enum whose wire form is a name, whose number is accepted too, and whose default is the first variant.
///
/// An unknown name is a decode error that lists the names that would have been right; an unknown number is the default.
macro_rules! wire_enum {
    (
        $(#[$doc:meta])*
        $name:ident {
            $(#[$first_doc:meta])*
            $first:ident = $first_number:literal, $first_wire:literal;
            $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $wire:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            $first,
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// The name on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    Self::$first => $first_wire,
                    $(Self::$variant => $wire,)*
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "type": "string", "enum": [$first_wire $(, $wire)*] })
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // Its index tells a writer of protobuf's JSON which one is the default.
                serializer.serialize_unit_variant(stringify!($name), *self as u32, self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                /// Takes a name or a number.
                struct Visitor;

                impl ::serde::de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str(concat!("one of ", $first_wire $(, ", ", $wire)*))
                    }

                    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        match text {
                            $first_wire => Ok($name::$first),
                            $($wire => Ok($name::$variant),)*
                            _ => Err(E::invalid_value(::serde::de::Unexpected::Str(text), &self)),
                        }
                    }

                    fn visit_u64<E: ::serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
                        match number {
                            $first_number => Ok($name::$first),
                            $($number => Ok($name::$variant),)*
                            // A number of a later version, or of none, says nothing, as to istiod.
                            _ if i32::try_from(number).is_ok() => Ok($name::$first),
                            _ => Err(E::invalid_value(::serde::de::Unexpected::Unsigned(number), &self)),
                        }
                    }

                    fn visit_i64<E: ::serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
                        match (u64::try_from(number), i32::try_from(number)) {
                            (Ok(number), _) => self.visit_u64(number),
                            (Err(_), Ok(_)) => Ok($name::$first),
                            (Err(_), Err(_)) => Err(E::invalid_value(::serde::de::Unexpected::Signed(number), &self)),
                        }
                    }
                }

                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

pub(crate) use wire_enum;
