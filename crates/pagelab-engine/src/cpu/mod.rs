//! A CPU (hardware thread): its clock, the loop over its accesses, and the activities that interrupt them.

pub mod activity;
pub mod clock;
pub mod lookahead;
pub mod replay;
pub mod stack;
pub mod state;
