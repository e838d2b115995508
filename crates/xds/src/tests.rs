//! The whole room over real connections: real push thread, real codec, clients of both protocols.

mod asked;
mod bench;
mod both;
mod clients;
mod compressed;
mod delta;
mod life;
mod limits;
mod peers;
mod pressure;
mod state;
mod versions;
