//! Spans to an OpenTelemetry collector, as the variables `OTEL_*` of OpenTelemetry's specification
//! say.
//!
//! ```text
//! spans of a trace ─▶ SpanQueue ─▶ Exporter: batches, once more after a while ─▶ gRPC or HTTP ─▶ collector
//!                      │ full: the trace is dropped and counted
//! ```
//!
//! OpenTelemetry's SDK (`opentelemetry`, `_sdk`, `-otlp` 0.31) was measured and not taken. It adds
//! 8 crates to the control plane's 323 for gRPC alone, and 11 for both protocols, among them `ring`
//! as a second provider of cryptography, or `reqwest` as a second client of HTTP. It reads the
//! environment itself, and does not report settings that it ignores. Its spans begin and end around code,
//! where these are made from records afterwards. This crate needs only a handful of the protocol's
//! messages and one call; tests have a server of the published messages (`opentelemetry-proto`)
//! read what is sent. The crate does not depend on the meaning of spans.

mod collector;
mod endpoint;
mod exporter;
mod ids;
mod messages;
mod metrics;
mod sampler;
mod tls;
mod variables;

pub use endpoint::Endpoint;
pub use exporter::{Exporter, SpanQueue, start};
pub use ids::{Ids, SpanId, TraceId};
pub use messages::{Span, Status, attribute};
pub use metrics::Metrics;
pub use sampler::Sampler;
pub use variables::{Batching, Config, Headers, NAMES, Protocol, Reading, TlsFiles, read};
