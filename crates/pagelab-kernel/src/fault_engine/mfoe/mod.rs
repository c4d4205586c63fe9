//! MFOE, the minor-fault offload engine.
//!
//! Models: a pre-allocation table per CPU in the layer's memory, to which its register CR9 points ([`tables`]), and a
//! second one if the engine also maps pages of 2 MiB ([`ready`]); the walker's part, which takes a frame from the table
//! for a page whose entry is armed ([`offload`]); the kernel's part ([`state`]); a background thread that accounts for
//! taken frames and replaces them by zeroed ones ([`refill`]), and a thread that arms the entries of new mappings
//! ([`arming`]). In the software forms, the kernel's fault handler takes the frames, or a
//! system call ahead of the access ([`ahead`]), and the walker is unchanged.
//! Source: Tirumalasetty et al., "Reducing Minor Page Fault Overheads through Enhanced Page Walker", ACM TACO 2022: 4.1
//! to 4.9.
//! Parameters: `system.layers.NAME.fault_engine` ([`parameters`]).
//! Stats: `layer.NAME.fault_engine.*`.
//! Choices where the paper leaves details open:
//! - Bits of a table's words: valid 1, used 1, owner 22, frame 34, in one word that the walker reads at once; the other
//!   word holds the address.
//! - 256 entries and the header do not fit into a page: the table has as many frames as it needs.
//! - After a failed allocation an entry is neither used nor valid, and the pass of 4.5 would stop there forever. Here,
//!   it continues at every entry that is not valid.
//! - fork: the child's entries are not armed. mprotect: words get the new permissions. munmap, mremap, madvise: words
//!   are removed or moved like swap entries. Before any of these, and at exit, all used entries of the process are
//!   accounted for.
//! - A page is taken without checking the limit of its cgroup; the background thread charges it.
//! - 80 % of main memory means: of the cgroup's limit if the process has one, otherwise of the layer's memory. It is
//!   compared with the memory that the process maps, when the background thread accounts for a page. A process above it
//!   stays excluded until it ends.
//! - Adaptive sizes are future work in the paper (4.5). Here, a CPU's table keeps twice as many frames after it was
//!   found empty, and half as many after less than a quarter were taken (`least_entries`).
//! - Pages of 2 MiB (4.9) have a table of their own per CPU, with a register like CR9. Where a mapping may have such a
//!   page, the entry above the page table's last level is armed if there is no table yet. In 4.9 this requires that a
//!   huge page can be allocated, which the ready frames guarantee here. A call that splits such a place removes the
//!   word, as does a handler that finds no such frame, and the thread arms the parts. Advice that makes a place
//!   suitable for a large page removes words that were written for its parts. Without a ready frame of 2 MiB the kernel
//!   handles the fault, even if frames of 4 KiB are ready. Memory is not compacted. Tables of
//!   2 MiB frames adapt, and have passes started early, by parameters of their own.
//! - NUMA nodes: the frames of a CPU's table come from its own node first (the static policy of 4.2), from that node
//!   alone, or from the thread's node (`numa`). Accesses to a frame take the latency of its node if
//!   `machine.memory.nodes` says how long that is.
//! - Ready frames are not given back when memory is short. The thread then prepares no more.
//! - Mappings that a process makes while it has the engine are served, also when they are extended or protected later.
//!   Those that it makes without it never are. Entries that have not been armed when it is disabled stay so.
//!
//! Deviations: the engine ends with the process, or when the process exceeds the limit. When the last process ends, 4.7
//! frees all ready frames; here the background thread does so (`unused`), or they stay for the next process. A call
//! frees them at once ([`call`]). One thread arms all mappings in turn, while the paper spawns one for each. Calls that
//! account for used entries make no references for it. A fault in a host's table does not suspend a guest's walk: the
//! walk restarts. A task that maps a page of 4 KiB where one of 2 MiB is possible waits for others that map a page
//! there, as handlers do. A host that is short of memory may take back the frames that are ready in its guest (4.9).

pub mod ahead;
pub mod arming;
pub mod call;
pub mod engine_access;
pub mod offload;
pub mod parameters;
pub mod ready;
pub mod refill;
pub mod state;
pub mod tables;

pub use offload::Offload;
