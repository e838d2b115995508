#![doc = include_str!("../README.md")]

mod attributes;
mod config;
mod core;
mod deps;
mod engine;
mod facts;
mod ids;
mod inputs;
mod interner;
mod memo;
mod node_list;
mod notice;
mod queries;
mod query;
mod remark_list;
mod trace;
mod tree;
mod view;

pub use config::{EngineConfig, EngineSizes, PushStats, Reads};
pub use engine::{Engine, Faulty, Publish, Remark};
pub use ids::SubscriberId;
pub use inputs::Inputs;
pub use notice::{Notice, NoticeChange};
pub use query::{Computes, Query};
pub use view::View;
