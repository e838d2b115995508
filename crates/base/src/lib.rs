//! What all programs of the project use and no user writes: files, texts, small collections, metrics,
//! and what the control plane and its agent agree on.
//!
//! Independent of the types of Istio and Kubernetes, and of protobuf. What belongs here is used by
//! several crates that do not depend on each other; what one crate alone uses is a module of it.
//!
//! | about | modules |
//! | --- | --- |
//! | files | [`atomic_file`] and [`regular_file`] replace and read them, [`file_events`] waits for changes, [`blocking`] runs such work, [`state_format`] numbers the formats of what is kept, [`digest`] compares |
//! | texts | [`printable`] makes those of strangers safe to show, [`shown_url`] leaves passwords out of URLs, [`percent_encoding`] decodes parts of them, [`error_chain`] writes errors, [`go_text`], [`base64_text`] and [`log_levels`] read what users write for istiod |
//! | addresses | [`cidr`], [`ip_list`], [`resolv_conf`] |
//! | collections | [`interned`] and [`small_map`] save memory where an object has one of millions |
//! | metrics | [`counter`] and [`label_text`] keep istiod's names, and escape labels |
//! | control plane and agent | [`metrics_log`] is how they share metrics of the mesh, [`routes_held`] which routes Envoy has, [`resource_version`] what the version of a resource is, [`compliance`] what restricts TLS, [`version`] what both report |

pub mod atomic_file;
pub mod base64_text;
pub mod blocking;
pub mod cidr;
pub mod compliance;
pub mod counter;
pub mod digest;
pub mod error_chain;
pub mod file_events;
pub mod go_text;
pub mod interned;
pub mod ip_list;
pub mod label_text;
pub mod log_levels;
pub mod metrics_log;
pub mod percent_encoding;
pub mod printable;
pub mod regular_file;
pub mod resolv_conf;
pub mod resource_version;
pub mod routes_held;
pub mod shown_url;
pub mod small_map;
pub mod state_format;
pub mod version;
