//! Recording a real program under Valgrind.
//!
//! Our Valgrind tool (`capture/valgrind/`, a program of its own under the GPL) runs the program and sends what it does:
//! each translated stretch of code once, then for every execution its number and the addresses. The recorder expands
//! that into accesses and events, orders the processes against each other, and hands everything to a
//! [`TraceWriter`](crate::TraceWriter).
//!
//! ```text
//!  program under Valgrind ──shared memory, one ring a process──▶ ring ▶ process ▶ collect ▶ output ──▶ TraceWriter, or readers
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `tool` | compiles the tool and finds Valgrind |
//! | `program` | refuses programs that cannot be recorded |
//! | `protocol` | records of the stream |
//! | `ring` | connection to one process |
//! | `follow` | which children are followed |
//! | `frame` | bytes of the stream that came at once |
//! | `segment` | what is known of an execution before: all but the addresses |
//! | `process` | expands one process's stream |
//! | `collect` | orders the processes |
//! | `life_line` | ends processes whose recorder is gone |
//! | `live` | readers of the recording while the program runs |
//! | `output` | the way to the writer, `max_accesses` |
//! | `bounds` | other ends of a recording: bytes, seconds, a full disk |
//! | `replace` | replaces an older trace |
//! | `stretches` | which stretches of the program are recorded |
//! | `functions` | functions at whose calls they begin and end |
//! | `calls` | call stacks, by the calls and returns that are executed |
//! | `perf_maps` | names of generated code |
//! | `pages` | what skipped stretches have touched |
//! | `scratch` | folder of the socket and the logs |
//! | `session` | starts the program, passes signals on, ends it |
//!
//! **What is recorded.** Data accesses of the program in program order for each thread, an x86 instruction that loads
//! and stores the same place as one modify; each iteration of a `rep` instruction counts as an instruction. The
//! kernel's accesses to system-call buffers, signal frames and the initial stack, page by page, marked as the kernel's,
//! with no program counter. The first fetch of each code page of a process after it was mapped.
//!
//! **What differs from a run without Valgrind.** Threads take turns instead of running at once. The program sees a
//! processor without AVX-512, its own small library preloaded (`vgpreload_core`), no vdso, and a `VALGRIND_LIB`
//! variable. The program, ld.so, heap and stack lie where Valgrind puts them; what the program maps lies as the kernel
//! would lay it, below 64 GiB.

mod bounds;
mod calls;
mod collect;
mod flow;
mod follow;
mod frame;
mod functions;
mod life_line;
mod live;
mod output;
pub(crate) mod pages;
mod perf_maps;
mod process;
mod program;
mod protocol;
mod replace;
mod ring;
mod scratch;
mod segment;
mod session;
pub(crate) mod stretches;
mod tool;

pub use bounds::Bound;
pub use follow::Follow;
pub use live::{LiveSource, LiveWriter, live};
pub use session::{MAX_THREADS_DEFAULT, Progress, RecordSummary, Recording};
pub use stretches::{StretchRequest, Stretches};
pub use tool::prepare_tool;
