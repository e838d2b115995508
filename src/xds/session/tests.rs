//! The state machine: each transition, then random conversations.

mod conversation;
mod order;
mod rig;
mod transitions;
