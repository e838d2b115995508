//! Enums in protobuf's JSON mapping.

/// Declares an enum that is encoded by name and decoded by name or number; the default is the first
/// variant.
///
/// An unknown name is a decode error that lists the valid names; an unknown number decodes to the
/// default.
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

        #[cfg(test)]
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
                // The variant index lets the protobuf JSON serializer recognize the default.
                serializer.serialize_unit_variant(stringify!($name), *self as u32, self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                /// Accepts a name or a number.
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
                            // An unknown number, such as one of a later version, decodes to the
                            // default, as in istiod.
                            _ if i32::try_from(number).is_ok() => Ok($name::$first),
                            _ => {
                                let found = ::serde::de::Unexpected::Unsigned(number);
                                Err(E::invalid_value(found, &self))
                            }
                        }
                    }

                    fn visit_i64<E: ::serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
                        match (u64::try_from(number), i32::try_from(number)) {
                            (Ok(number), _) => self.visit_u64(number),
                            (Err(_), Ok(_)) => Ok($name::$first),
                            (Err(_), Err(_)) => {
                                let found = ::serde::de::Unexpected::Signed(number);
                                Err(E::invalid_value(found, &self))
                            }
                        }
                    }
                }

                deserializer.deserialize_any(Visitor)
            }
        }
    };
}

pub(crate) use wire_enum;
