//! The event model of the minor-fault offload engine (MFOE).
//!
//! Models: hardware that serves minor faults from a ring of pages per core, which threads of the kernel refill each
//! period.
//!     A fault of a core whose ring has a page is a *hit*: it takes the hit latency, and all later faults of its core
//!     come earlier by what that saves. Another is a *miss*: the kernel handles it, and later faults come later by the
//!     penalty.
//! Source: Tirumalasetty, Chou, Reddy, Gratz, Abouelwafa, "Reducing Minor Page Fault Overheads through Enhanced Page
//!     Walker", ACM TACO 2022, section 5.1, figure 8, table 4. [`parameters`] says for each number where it comes from.
//! Parameters: see [`parameters`].
//! Deviations: a pass refills core after core and page after page in time, where the paper speaks of an update. What
//! the
//!     paper does not say is a parameter: the order of the cores, what follows a pass that takes too long, whether the
//!     program waits for the first fill. The time of the program's faults is divided by the cores that it keeps busy.
//!     The latency of a fault ends at the latest with the next fault of its core.
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
