//! HTTP/2 and gRPC: connections, their calls, and the messages of a call.

mod calls;
mod connection_task;
pub(crate) mod grpc_reader;
pub(crate) mod grpc_writer;
mod http2;
mod keepalive;

pub use calls::CallContext;
pub use grpc_reader::read_pieces;
pub use http2::{ConnectionInfo, Server, plain_connections};
