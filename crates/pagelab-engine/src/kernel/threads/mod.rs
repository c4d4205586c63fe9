//! Kernel threads and other work of a kernel that no program waits for.

pub mod collapse;
pub mod exit_scan;
pub mod khugepaged;
pub mod kswapd;
pub mod schedule;
