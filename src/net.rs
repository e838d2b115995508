//! What all ports share: how much clients may make the process hold, and the count of who was turned away.

pub mod budget;
pub mod rejections;
