//! The messages of OTLP, as far as they are sent and read here (opentelemetry-proto 1.7).

use bytes::Bytes;
use prost::Message;

use navarch_proto::opentelemetry::proto::common::v1::any_value::Value;
use navarch_proto::opentelemetry::proto::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};

/// The code of a status that is an error.
const ERROR: i32 = 2;
/// What happens within a process, as the kind of a span.
const INTERNAL: i32 = 1;
/// Flags of a sampled span whose parent is of the same process: the bit `IsRemote` is valid and
/// unset.
const FLAGS: u32 = 0x101;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

/// The collector's response.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<ExportTracePartialSuccess>,
}

/// The rejected spans.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTracePartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

/// Spans of one process.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_spans: Vec<ScopeSpans>,
}

/// The process that sends, by its attributes.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// Spans of one library.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<Span>,
}

/// `opentelemetry.proto.trace.v1.Span`, without trace state, events and links.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub trace_id: Bytes,
    /// 8 bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub span_id: Bytes,
    /// 8 bytes; empty for the root of a trace.
    #[prost(bytes = "bytes", tag = "4")]
    pub parent_span_id: Bytes,
    /// The name of the operation.
    #[prost(string, tag = "5")]
    pub name: String,
    /// `SpanKind`.
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// Details such as `navarch.object.kind`. OTLP requires unique keys.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// The status, if it is an error.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// Of W3C's trace context, and whether the parent is remote.
    #[prost(fixed32, tag = "16")]
    pub(crate) flags: u32,
}

/// The status of a span.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// The error message.
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    /// `StatusCode`.
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

impl Span {
    /// A span of this process between two moments, in nanoseconds since 1970.
    #[must_use]
    pub fn internal(name: &str, [start, end]: [u64; 2]) -> Self {
        Self {
            name: name.to_owned(),
            kind: INTERNAL,
            start_time_unix_nano: start,
            end_time_unix_nano: end.max(start),
            flags: FLAGS,
            ..Self::default()
        }
    }
}

impl Status {
    /// `STATUS_CODE_ERROR`, with a message for people.
    #[must_use]
    pub fn error(message: String) -> Self {
        Self {
            message,
            code: ERROR,
        }
    }
}

/// What attributes are made from.
pub trait AttributeValue {
    /// The value on the wire.
    fn value(self) -> Value;
}

impl AttributeValue for &str {
    fn value(self) -> Value {
        Value::StringValue(self.to_owned())
    }
}

impl AttributeValue for String {
    fn value(self) -> Value {
        Value::StringValue(self)
    }
}

impl AttributeValue for bool {
    fn value(self) -> Value {
        Value::BoolValue(self)
    }
}

impl AttributeValue for i64 {
    fn value(self) -> Value {
        Value::IntValue(self)
    }
}

impl AttributeValue for u64 {
    fn value(self) -> Value {
        Value::IntValue(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

impl AttributeValue for usize {
    fn value(self) -> Value {
        Value::IntValue(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

impl AttributeValue for Vec<String> {
    fn value(self) -> Value {
        let values = self
            .into_iter()
            .map(|text| AnyValue {
                value: Some(Value::StringValue(text)),
            })
            .collect();
        Value::ArrayValue(ArrayValue { values })
    }
}

/// An attribute of a span or of a process.
#[must_use]
pub fn attribute(key: &str, value: impl AttributeValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(value.value()),
        }),
        ..KeyValue::default()
    }
}
