//! Which frames the pages of programs get: policies in front of the frame allocator.

pub mod ca_paging;
pub mod eager;
pub mod reservations;
