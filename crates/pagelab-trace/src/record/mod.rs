//! Records a real program, under Valgrind or by single steps.
//!
//! By single steps (`pagelab_step`) the program runs natively, and the same stream comes from a thread of its own.
//!
//! Our Valgrind tool (`capture/valgrind/`, a separate program under the GPL) runs the program and sends what it does:
//! each translated segment of code once, then for every execution its number and the addresses. The recorder expands
//! that into accesses and events, orders the processes relative to each other, and passes everything to a
//! [`TraceWriter`](crate::TraceWriter).
//!
//! ```text
//!  program under Valgrind ──shared memory, one ring a process──▶ ring ▶ process ▶ collect ▶ output ──▶ TraceWriter, or readers
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `tool` | compiles the tool and finds Valgrind |
//! | `valgrind_limits` | raises limits of Valgrind on addresses and mappings |
//! | `program` | refuses programs that cannot be recorded |
//! | `protocol` | records of the stream |
//! | `ring` | connection to one process, and the door that processes come through |
//! | `follow` | selects the children to follow |
//! | `frame` | a piece of the stream that was sent at once |
//! | `segment` | what is known about an execution in advance: everything except the addresses |
//! | `process` | expands one process's stream |
//! | `collect` | orders the processes |
//! | `life_line` | ends processes when the recorder is gone |
//! | `live` | readers of the recording while the program runs |
//! | `log` | what Valgrind's log tells of things left out |
//! | `output` | passes data to the writer, up to `max_accesses` |
//! | `bounds` | other limits of a recording: bytes, seconds, a full disk |
//! | `replace` | replaces an older trace |
//! | `stretches` | selects the stretches of the program to record |
//! | `functions` | functions at whose calls stretches begin and end |
//! | `calls` | call stacks, by the executed calls and returns |
//! | `engine_call` | calls of the kernel's fault engine |
//! | `perf_maps` | names of generated code |
//! | `pages` | pages touched in skipped stretches |
//! | `running` | the program, under Valgrind or stepped |
//! | `scratch` | folder of the socket and the logs |
//! | `session` | starts the program, forwards signals, ends it |
//!
//! **What is recorded.** Data accesses of the program in program order for each thread. An x86 instruction that loads
//! and stores the same location is one modify; each iteration of a `rep` instruction counts as an instruction. The
//! kernel's accesses to system-call buffers, signal frames and the initial stack, page by page, marked as the kernel's,
//! without a program counter. The first fetch from each code page of a process after it was mapped.
//!
//! **What differs from a run without Valgrind.** Threads take turns instead of running in parallel. The program sees a
//! processor without AVX-512, and no vdso. Valgrind places the program and its heap; ld.so and the program's own
//! mappings are placed as the kernel would, downwards from the first stack.

mod bounds;
mod calls;
mod collect;
mod engine_call;
mod flow;
mod follow;
mod frame;
mod functions;
mod life_line;
mod live;
mod log;
mod memory_files;
mod output;
pub(crate) mod pages;
mod perf_maps;
mod process;
mod program;
mod protocol;
mod replace;
mod ring;
mod running;
mod scratch;
mod segment;
mod session;
pub(crate) mod stretches;
mod tool;
mod valgrind_limits;

pub use bounds::Bound;
pub use engine_call::ENGINE_CALLS;
pub use follow::Follow;
pub use live::{LiveSource, LiveWriter, live};
pub use pagelab_step::note_ignored_signals;
pub use running::Method;
pub use session::{MAX_THREADS_DEFAULT, PATIENCE_DEFAULT, RecordProgress, RecordSummary, Recording};
pub use stretches::{StretchRequest, Stretches};
pub use tool::prepare_tool;
