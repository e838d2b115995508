//! What all ports share: how much clients may make the process hold and do, the count of who was turned away, and which
//! addresses are never connected to at the word of others.

pub mod budget;
pub mod destination;
pub mod rate;
pub mod rejections;
pub mod turns;
