//! The event model of the minor-fault offload engine (MFOE).
//!
//! Models: hardware that handles minor faults with pages from a ring per core; kernel threads refill the rings in every
//! period.
//! A fault on a core whose ring has a page is a *hit*: it takes the hit latency, and all later faults of the core come
//! earlier by the saved time. Otherwise it is a *miss*: the kernel handles it, and later faults come later by the
//! penalty.
//! Source: Tirumalasetty, Chou, Reddy, Gratz, Abouelwafa, "Reducing Minor Page Fault Overheads through Enhanced Page
//! Walker", ACM TACO 2022, section 5.1, figure 8, table 4. [`parameters`] contains the origin of each number.
//! Parameters: see [`parameters`].
//! Deviations: a pass refills core by core and page by page over time, where the paper speaks of an update. What the
//! paper does not specify is a parameter: the order of the cores, what follows a pass that takes too long, whether the
//! program waits for the first fill. The time of the program's faults is divided by the number of cores that it keeps
//! busy. The latency of a fault ends at the latest with the next fault of its core.
//!
//! Times are whole picoseconds; a latency in cycles is rounded once.

mod outcome;
pub mod parameters;
mod refill;
mod replay;
pub mod study;

pub use outcome::{Bound, CoreOutcome, Misses, Outcome};
pub use parameters::{Config, InitialFill, LatePass, Visit};
pub use replay::{run, run_with};
pub use study::study;
