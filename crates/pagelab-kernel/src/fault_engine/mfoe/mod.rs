//! MFOE, the minor-fault offload engine.
//!
//! Models: per CPU a pre-allocation table in the layer's memory, which its register CR9 points to ([`tables`]), and
//! another one if pages of 2 MiB are the engine's, too ([`ready`]); the walker's part, which takes a frame from there
//! for a page whose entry is armed ([`offload`]); the kernel's part ([`state`]); a background thread that accounts for
//! what was taken and puts zeroed frames in its place ([`refill`]), one that arms the entries of new mappings
//! ([`arming`]). In its software form the kernel's fault handler takes the frames, and the walker knows nothing of it.
//! Source: Tirumalasetty et al., "Reducing Minor Page Fault Overheads through Enhanced Page Walker", ACM TACO 2022: 4.1
//! to 4.9.
//! Parameters: `system.layers.NAME.fault_engine` ([`parameters`]).
//! Stats: `layer.NAME.fault_engine.*`.
//! What the paper leaves open, and the choice:
//! - Which bits a table's words have: valid 1, used 1, owner 22, frame 34, in one word that the walker reads at once;
//!   the address in the other.
//! - 256 entries and the header do not fit a page: the table has as many frames as it needs.
//! - After a failed allocation an entry is neither used nor valid, and the pass of 4.5 would stop there for ever: it
//!   goes on at every entry that is not valid.
//! - fork: the child's entries are not armed. mprotect: words get the new permissions. munmap, mremap, madvise: words
//!   go or move as swap entries do. Before any of these, and at exit, all used entries of the process are accounted
//!   for.
//! - A page is taken without a look at its cgroup's limit; the background thread charges it.
//! - 80 % of main memory: of the cgroup's limit if the process has one, else of the layer's memory. What counts is the
//!   memory that the process maps. It is looked at when the background thread accounts for a page, and stays out until
//!   the process ends.
//! - Sizes that adapt are future work there (4.5). Here a CPU's table keeps twice as many frames after it was found
//!   empty, and half as many after less than a quarter were taken (`least_entries`).
//! - Pages of 2 MiB (4.9) take a table of their own per CPU, with a register like CR9. Where a mapping may have such a
//!   page, the entry above the page table's last level is armed if no table stands there yet: 4.9 does so if a huge
//!   page can be allocated, which here the ready frames tell. A call that cuts such a place takes the word away, as
//!   does a handler that finds no such frame, and the thread arms the parts. Advice that makes a place fit for it takes
//!   entries away that were armed in parts. Without a ready frame of 2 MiB the fault is the kernel's, whatever is ready
//!   of 4 KiB. Memory is not compacted. Tables of 2 MiB frames do not adapt, and no pass begins early for them.
//! - NUMA nodes: the frames of a CPU's table come from its own node first (4.2's static policy), or from that alone, or
//!   from that of the thread (`numa`). Where an access goes makes no difference to its latency.
//! - Ready frames stay where they are when memory is short. The thread makes none ready then.
//!
//! Deviations: processes enable it when they begin, or never do (`fault_engine_for` of the layer). What disables it for
//! one is its end, or the limit. When it is disabled for the last one, 4.7 frees all ready frames; here the background
//! thread does so (`unused`), or they stay for the next. One thread arms the mappings in turn, where the paper spawns
//! one for each. Calls that account for used entries make no references for it. A fault in a host's table does not halt
//! a guest's walk: the walk begins anew. Whoever maps a page of 4 KiB where one of 2 MiB could be waits for others that
//! map a page there, as handlers do. Hosts take no memory back from guests, so nothing has to be forbidden to them
//! (4.9).

pub mod arming;
pub mod of_layer;
pub mod offload;
pub mod parameters;
pub mod ready;
pub mod refill;
pub mod state;
pub mod tables;

pub use offload::Offload;
