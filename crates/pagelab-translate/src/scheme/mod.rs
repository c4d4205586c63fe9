//! Other ways to a translation than walking every layer's table: segments, shadow tables, speculation.

pub mod segment;
pub mod shadow;
pub mod speculation;
