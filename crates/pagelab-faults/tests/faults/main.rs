//! Fault traces, fault processes, and the event model of fault offload.

mod format;
mod mfoe;
mod mfoe_reference;
mod support;
mod text;
