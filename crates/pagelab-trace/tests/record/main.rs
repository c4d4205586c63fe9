//! Records real programs. Needs valgrind with its headers, and gcc.

mod children;
mod dependencies;
mod edges;
mod endings;
mod stretches;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pagelab_trace::record::{Recording, StretchRequest, prepare_tool};
use pagelab_trace::{Access, AccessKind, Batch, Branches, Event, EventKind, Segment, Source, ThreadIx, TraceReader};

const MANIFEST: &str = env!("CARGO_MANIFEST_DIR");

fn tool_dir() -> PathBuf {
    let sources = Path::new(MANIFEST).join("../../capture/valgrind");
    prepare_tool(&sources, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("valgrind-tool")).unwrap()
}

/// Compiles `tests/programs/NAME.c`. A program that is there already stays if it is the same: a recorder that runs it
/// reads its symbols after its start, and one in its place would be another file.
fn compiled(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(MANIFEST).join(format!("tests/programs/{name}.c"));
    let (program, id) = (folder.join(name), std::thread::current().id());
    let own = folder.join(format!("{name}-{}-{id:?}", std::process::id()));
    let status = Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&own).arg(source).status().unwrap();
    assert!(status.success());
    if std::fs::read(&program).is_ok_and(|there| there == std::fs::read(&own).unwrap()) {
        std::fs::remove_file(own).unwrap();
    } else {
        std::fs::rename(own, &program).unwrap();
    }
    program
}

/// Not a test: the process that [`recorder`] starts, with its own standard output, signals and exit.
#[test]
#[ignore = "started by other tests"]
fn recorder_process() {
    let Some(output) = std::env::var_os("RECORD_OUTPUT") else { return };
    let command = std::env::var("RECORD_COMMAND").unwrap().split('\n').map(OsString::from).collect();
    let mut recording = Recording::new(command, tool_dir());
    recording.max_accesses = std::env::var("RECORD_MAX").ok().map(|n| n.parse().unwrap());
    if let Ok(n) = std::env::var("RECORD_THREADS") {
        recording.max_threads = n.parse().unwrap();
    }
    if let Ok(request) = std::env::var("RECORD_STRETCHES") {
        recording.stretches = serde_json::from_str::<StretchRequest>(&request).unwrap().parse().unwrap();
    }
    recording.follow = std::env::var("RECORD_FOLLOW").ok().map(|text| text.parse().unwrap());
    recording.least_free_bytes = std::env::var("RECORD_LEAST_FREE").ok().map(|n| n.parse().unwrap());
    match recording.run(Path::new(&output)) {
        Ok((summary, _)) => {
            eprintln!("{summary:?}");
            std::process::exit(summary.exit_code);
        }
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(100);
        }
    }
}

fn recorder(output: &Path, command: &[&str]) -> Command {
    let mut recorder = Command::new(std::env::current_exe().unwrap());
    recorder
        .args(["--ignored", "--exact", "recorder_process", "--nocapture", "-q"])
        .env("RECORD_OUTPUT", output)
        .env("RECORD_COMMAND", command.join("\n"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    recorder
}

/// The program's own output, after the lines of libtest.
fn program_output(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_once("running 1 test\n").map_or("", |(_, rest)| rest).to_owned()
}

#[derive(Default)]
struct Recorded {
    accesses: Vec<(ThreadIx, Access)>,
    branches: Vec<Branches>,
    events: Vec<Event>,
    complete: bool,
    notes: Vec<String>,
}

impl Recorded {
    fn read(path: &Path) -> Self {
        let mut reader = TraceReader::open(path).unwrap();
        let meta = reader.meta();
        let notes = meta.losses.iter().chain(&meta.notes).cloned().collect();
        let mut recorded = Self { complete: meta.complete, notes, ..Self::default() };
        let mut batch = Batch::default();
        while reader.next_batch(&mut batch).unwrap() {
            recorded.branches.extend_from_slice(&batch.branches);
            let mut begin = 0;
            for segment in &batch.segments {
                match segment {
                    Segment::Run { thread, end } => {
                        recorded.accesses.extend(batch.accesses[begin..*end].iter().map(|access| (*thread, *access)));
                        begin = *end;
                    }
                    Segment::Event(event) => recorded.events.push(event.clone()),
                }
            }
        }
        recorded
    }

    /// The program's own data accesses in `range`.
    fn data(&self, range: std::ops::Range<u64>) -> Vec<(u64, AccessKind)> {
        self.accesses
            .iter()
            .filter(|(_, a)| range.contains(&a.vaddr) && !a.maker.is_kernel() && a.kind != AccessKind::Fetch)
            .map(|(_, access)| (access.vaddr, access.kind))
            .collect()
    }

    fn position(&self, what: &str, matches: impl Fn(&EventKind) -> bool) -> u64 {
        let found = self.events.iter().find(|event| matches(&event.kind));
        found.unwrap_or_else(|| panic!("no {what} in {:#?}", self.events)).position
    }

    /// Number of the first store of the program itself to `vaddr`. Loads may be older: the dynamic linker had other
    /// mappings at these addresses.
    fn first_store(&self, vaddr: u64) -> u64 {
        let stores = |a: &Access| a.vaddr == vaddr && a.kind == AccessKind::Store && !a.maker.is_kernel();
        let found = self.accesses.iter().position(|(_, access)| stores(access));
        found.unwrap_or_else(|| panic!("no store to {vaddr:#x}")) as u64
    }
}

fn record(command: &[&str]) -> (Output, Recorded) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let output = recorder(&trace, command).output().unwrap();
    assert!(trace.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    (output, Recorded::read(&trace))
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("no address: {text:?}"))
}

fn wait_at_most(child: &mut Child, limit: Duration) {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < limit, "the recorder does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn known_accesses_are_recorded_exactly_and_in_order() {
    const N: u64 = 1000;
    let (output, recorded) = record(&[compiled("known").to_str().unwrap(), &N.to_string()]);
    assert_eq!(output.status.code(), Some(7), "exit status is passed on");
    let text = program_output(&output);
    let (a, b) = text.trim().split_once(' ').unwrap();
    let (a, b) = (hexadecimal(a), hexadecimal(b));

    let remap = recorded.position("mremap", |e| {
        *e == EventKind::Mremap { old_addr: a, old_len: 1 << 20, new_addr: b, new_len: 1 << 22 }
    });
    let expected: Vec<(u64, AccessKind)> =
        [AccessKind::Store, AccessKind::Load, AccessKind::Modify, AccessKind::Modify]
            .into_iter()
            .flat_map(|kind| (0..N).map(move |i| (a + 8 * i, kind)))
            .collect();
    let before = Recorded { accesses: recorded.accesses[..remap as usize].to_vec(), ..Recorded::default() };
    let first = before.first_store(a) as usize;
    let of_array = Recorded { accesses: before.accesses[first..].to_vec(), ..Recorded::default() };
    assert_eq!(of_array.data(a..a + 8 * N), expected);
    let gaps: Vec<u32> = of_array
        .accesses
        .iter()
        .filter(|(_, access)| (a..a + 8 * N).contains(&access.vaddr))
        .map(|(_, access)| access.gap)
        .collect();
    for (i, gaps) in gaps.chunks(N as usize).enumerate() {
        assert!(gaps[1..].iter().all(|gap| *gap == 4), "loop {i}: its iterations have 4 instructions");
    }

    let last = recorded.first_store(b + (1 << 22) - 8);
    assert!(last >= remap);
    let order = [
        recorded.position("mmap", |e| matches!(e, EventKind::Mmap { addr, len, .. } if (*addr, *len) == (a, 1 << 20))),
        recorded.first_store(a),
        remap,
        recorded.position(
            "mprotect",
            |e| matches!(e, EventKind::Mprotect { addr, len: 4096, prot } if *addr == b && prot.read && !prot.write),
        ),
        recorded.position("madvise", |e| *e == EventKind::Madvise { addr: b + 8192, len: 4096, advice: 4 }),
        recorded.position("munmap", |e| *e == EventKind::Munmap { addr: b + (1 << 21), len: 1 << 21 }),
        recorded.position("enable", |e| *e == EventKind::EngineCall { enable: true }),
        recorded.position("disable", |e| *e == EventKind::EngineCall { enable: false }),
        recorded.position("exit", |e| *e == EventKind::Exit { code: 7 }),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert!(recorded.complete && recorded.notes.is_empty(), "{:?}", recorded.notes);
}

#[test]
fn events_of_mapped_files_are_recorded() {
    const MS_SYNC: u32 = 4;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("data");
    std::fs::write(&path, [7; 8192]).unwrap();
    let name = path.to_str().unwrap();
    let (output, recorded) = record(&[compiled("files").to_str().unwrap(), name]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let addr = hexadecimal(&program_output(&output));
    let is_of_files = |event: &&Event| matches!(event.kind, EventKind::Msync { .. } | EventKind::Truncate { .. });
    let kinds: Vec<EventKind> = recorded.events.iter().filter(is_of_files).map(|event| event.kind.clone()).collect();
    let file: std::sync::Arc<str> = name.into();
    let expected = [
        EventKind::Msync { addr, len: 8192, flags: MS_SYNC },
        EventKind::Truncate { file: file.clone(), old_len: 8192, new_len: 100 },
        EventKind::Truncate { file: file.clone(), old_len: 100, new_len: 12288 },
    ];
    assert_eq!(kinds, expected);
    recorded.position("mmap", |e| matches!(e, EventKind::Mmap { file: Some(mapped), .. } if *mapped == file));
}

#[test]
fn the_first_mappings_and_the_kernels_accesses_are_there() {
    let (_, recorded) = record(&[compiled("known").to_str().unwrap()]);
    // Every access is in a current mapping, or where the stack may grow.
    const EXEC_STACK_BYTES: u64 = 128 << 10;
    const MOST_STACK_BYTES: u64 = 8 << 20;
    let mut mapped: BTreeMap<u64, ()> = BTreeMap::new();
    let mut heap = 0..0;
    let mut events = recorded.events.iter().peekable();
    let mut stack = 0..0;
    for (i, (_, access)) in recorded.accesses.iter().enumerate() {
        while let Some(event) = events.next_if(|event| event.position <= i as u64) {
            let pages = |addr: u64, len: u64| (addr >> 12)..((addr + len + 4095) >> 12);
            match &event.kind {
                EventKind::Mmap { addr, len, file, .. } => {
                    if file.as_deref() == Some("[stack]") {
                        stack = *addr..addr + len;
                    }
                    mapped.extend(pages(*addr, *len).map(|page| (page, ())));
                }
                EventKind::Munmap { addr, len } => pages(*addr, *len).for_each(|page| {
                    mapped.remove(&page);
                }),
                EventKind::Mremap { old_addr, old_len, new_addr, new_len } => {
                    pages(*old_addr, *old_len).for_each(|page| {
                        mapped.remove(&page);
                    });
                    mapped.extend(pages(*new_addr, *new_len).map(|page| (page, ())));
                }
                EventKind::Brk { start, end } => heap = *start..*end,
                _ => {}
            }
        }
        let grown = stack.end.saturating_sub(MOST_STACK_BYTES)..stack.end;
        assert!(
            mapped.contains_key(&(access.vaddr >> 12)) || heap.contains(&access.vaddr) || grown.contains(&access.vaddr),
            "access {i} lies outside all mappings: {access:x?}"
        );
    }
    let kernel: Vec<&Access> = recorded.accesses.iter().map(|(_, a)| a).filter(|a| a.maker.is_kernel()).collect();
    // write(2) read the output of printf; execve wrote the initial stack.
    assert!(kernel.iter().any(|a| a.kind == AccessKind::Load && a.size_bytes > 20));
    assert_eq!(kernel[0].kind, AccessKind::Store);
    // `setup_arg_pages` makes room below the strings; the vectors, which come later, may begin a page further down.
    let room = (kernel[0].vaddr & !4095) - stack.start;
    assert!([EXEC_STACK_BYTES, EXEC_STACK_BYTES - 4096].contains(&room), "the stack has not grown yet: {room}");
    assert!(kernel.iter().all(|a| (a.vaddr & 4095) + u64::from(a.size_bytes) <= 4096), "cut at pages");
    let fetched: Vec<u64> =
        recorded.accesses.iter().filter(|(_, a)| a.kind == AccessKind::Fetch).map(|(_, a)| a.vaddr >> 12).collect();
    let mut once = fetched.clone();
    once.sort_unstable();
    once.dedup();
    assert!(once.len() > 50 && once.len() == fetched.len(), "each code page is fetched once");
}

/// Instructions, loads, stores and modifies of a program as lackey counts them, with two corrections: instructions
/// after the last access are not in a trace, and a locked instruction, which lackey shows as a load and a modify of the
/// same address, is one modify.
fn counts_of_lackey(program: &Path, vertices: &str, environment: &[(&str, &str)], log: &Path) -> [i64; 4] {
    let output = Command::new(which::which("valgrind.bin").unwrap())
        .args(["--tool=lackey", "--trace-mem=yes", "--vgdb=no"])
        .arg(format!("--log-file={}", log.display()))
        .args([program.as_os_str(), vertices.as_ref()])
        .env_clear()
        .envs(environment.iter().copied())
        .env("VALGRIND_LIB", tool_dir())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success());
    let (mut counts, mut after_the_last_access, mut before) = ([0; 4], 0, "");
    let text = std::fs::read_to_string(log).unwrap();
    for line in text.lines() {
        let Some(kind) = ["I ", " L", " S", " M"].iter().position(|start| line.starts_with(start)) else { continue };
        counts[kind] += 1;
        after_the_last_access = if kind == 0 { after_the_last_access + 1 } else { 0 };
        let locked = kind == 3 && before.strip_prefix(" L") == line.strip_prefix(" M");
        counts[1] -= i64::from(locked);
        before = line;
    }
    counts[0] -= after_the_last_access;
    counts
}

/// The same counts of our recorder.
fn counts_of_recorder(environment: &[(&str, &str)], trace: &Path) -> [i64; 4] {
    let environment = environment.iter().copied();
    let status = recorder(trace, &[]).env_clear().envs(environment).output().unwrap().status;
    assert_eq!(status.code(), Some(0));
    let recorded = Recorded::read(trace);
    std::fs::remove_dir_all(trace).unwrap();
    let mut ours = [0; 3];
    let own = recorded.accesses.iter().filter(|(_, a)| !a.maker.is_kernel() && a.kind != AccessKind::Fetch);
    own.for_each(|(_, a)| ours[a.kind as usize] += 1);
    let instructions = recorded.accesses.iter().map(|(_, a)| i64::from(a.gap)).sum();
    [instructions, ours[0], ours[1], ours[2]]
}

/// Counts agree with those of Valgrind's own lackey. Both get the same arguments and environment. Lackey's program
/// loads a library of Valgrind's before it begins, and ours does not, so a short run is subtracted from a long one.
#[test]
fn totals_equal_those_of_lackey() {
    let bfs = compiled("bfs");
    let folder = tempfile::tempdir().unwrap();
    let (trace, log) = (folder.path().join("t.trace"), folder.path().join("log"));
    let (path, output) = (std::env::var("PATH").unwrap(), trace.to_str().unwrap());
    for padding in ["", "-", &"x".repeat(3000)] {
        let [(lackeys, ours), (lackeys_start, our_start)] = ["3000", "1000"].map(|vertices| {
            let command = format!("{}\n{vertices}", bfs.display());
            let environment = [
                ("PATH", path.as_str()),
                ("RECORD_OUTPUT", output),
                ("RECORD_COMMAND", &command),
                ("PADDING", padding),
            ];
            (counts_of_lackey(&bfs, vertices, &environment, &log), counts_of_recorder(&environment, &trace))
        });
        let difference = |long: [i64; 4], short: [i64; 4]| std::array::from_fn::<_, 4, _>(|n| long[n] - short[n]);
        assert_eq!(difference(ours, our_start), difference(lackeys, lackeys_start));
        assert!(difference(ours, our_start).iter().take(3).all(|n| *n > 500), "{ours:?} {our_start:?}");
    }
}

#[test]
fn forks_execs_and_threads_are_in_order() {
    let (output, recorded) = record(&[compiled("family").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let page = hexadecimal(&program_output(&output));
    let stores: Vec<u64> = recorded
        .data(page..page + 4096)
        .into_iter()
        .filter(|(_, kind)| *kind == AccessKind::Store)
        .map(|(vaddr, _)| (vaddr - page) / 8)
        .collect();
    assert_eq!(stores, [0, 1, 3, 4, 2, 5], "the child's store comes before what its parent did after waiting");

    let forks: Vec<(u32, u32, u64)> = recorded
        .events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Fork { child } | EventKind::Vfork { child } => Some((event.process.0, child.0, event.position)),
            _ => None,
        })
        .collect();
    assert_eq!(forks.iter().map(|f| (f.0, f.1)).collect::<Vec<_>>(), [(0, 1), (0, 2)]);
    let events = |process: u32| recorded.events.iter().filter(move |event| event.process.0 == process);
    for (_, child, position) in &forks {
        let first = events(*child).next().unwrap();
        assert!(matches!(first.kind, EventKind::ThreadStart { .. }) && first.position >= *position, "{first:?}");
    }
    let exits: Vec<(u32, i32)> = recorded
        .events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Exit { code } => Some((event.process.0, code)),
            _ => None,
        })
        .collect();
    assert_eq!(exits, [(1, 3), (2, 0), (0, 0)]);
    let exec =
        events(2).find(|event| matches!(&event.kind, EventKind::Exec { path } if path.contains("true"))).unwrap();
    let mapped = events(2).filter(|e| e.position >= exec.position && matches!(e.kind, EventKind::Mmap { .. })).count();
    assert!(mapped > 5, "the new image's mappings follow");

    let starts = events(0).filter(|event| matches!(event.kind, EventKind::ThreadStart { .. })).count();
    let ends = events(0).filter(|event| event.kind == EventKind::ThreadExit).count();
    assert_eq!((starts, ends), (2, 2));
    let by = |offset: u64| recorded.accesses[recorded.first_store(page + 8 * offset) as usize].0;
    assert_eq!(by(0), by(5));
    assert!(by(2) != by(0) && by(1) != by(0));
}

#[test]
fn pipelines_and_their_exit_status_pass_through() {
    let (output, recorded) = record(&["sh", "-c", "echo one two three | wc -w; exit 4"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(program_output(&output).trim(), "3");
    assert_eq!(recorded.events.iter().filter(|e| matches!(e.kind, EventKind::Exit { .. })).count(), 3);
    assert!(recorded.complete);
}

#[test]
fn faults_and_deaths_by_signal() {
    let (output, recorded) = record(&[compiled("faults").to_str().unwrap()]);
    assert_eq!(program_output(&output).trim(), "3");
    assert_eq!(output.status.code(), Some(128 + 11));
    assert!(recorded.events.iter().any(|event| event.kind == EventKind::Exit { code: 128 + 11 }));
    // The retried store appears once per attempt, and the kernel writes the handler's frame.
    let page = recorded
        .events
        .iter()
        .find_map(|event| match event.kind {
            EventKind::Mprotect { addr, len: 4096, prot } if prot.bits() == 0 => Some(addr),
            _ => None,
        })
        .unwrap();
    // Another mapping may have been at this address before.
    let mut stores = recorded.data(page..page + 4096);
    stores.retain(|(_, kind)| *kind == AccessKind::Store);
    assert_eq!(stores, [(page, AccessKind::Store); 3]);
    assert!(recorded.complete);
}

#[test]
fn a_failed_recording_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let output = recorder(&trace, &["no-such-program-at-all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(100));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no-such-program-at-all: no such program in PATH"), "{said}");
    assert!(!trace.exists());
}
