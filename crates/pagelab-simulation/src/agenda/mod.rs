//! Simulated time: which CPU runs next, and what happens between the accesses of programs.

mod accounts;
mod address_bits;
mod events;
mod fair;
mod kthreads;
mod lanes;
mod load;
mod recorded;
mod shootdown;
mod start;
mod tasks;
mod turns;
