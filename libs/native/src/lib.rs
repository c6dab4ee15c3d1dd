//! The native core of Headrace: what a receiver does with each event. `headrace_common.record.native` is its only caller.
//!
//! Whatever is not plain is left to Python, which does all of it too: both make the same bytes. Nothing here reads a length that a
//! peer announces before as many bytes are there, and no call takes longer than its bounded input makes it.

#![forbid(unsafe_code)]

pub mod document;
pub mod entries;
pub mod ids;
pub mod json;
pub mod message;
pub mod msgpack;
pub mod record;
pub mod scan;
pub mod time;

#[cfg(feature = "python")]
mod python;
