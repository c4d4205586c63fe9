//! Steps small programs without a C library, and looks at what they send.

mod recorder;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use pagelab_step::{Follow, StepError};
use recorder::{Recorded, record, record_following};

/// Numbers of control records, as `capture/valgrind/README.md` lists them.
const THREAD_START: u32 = 5;
const THREAD_EXIT: u32 = 6;
const KERNEL_ACCESS: u32 = 7;
const MMAP: u32 = 8;
const MADVISE: u32 = 12;
const FORK: u32 = 14;
const EXEC_BEGIN: u32 = 15;
const EXIT: u32 = 17;
const WAITED: u32 = 18;
const EXEC_NATIVE: u32 = 20;
const TRUNCATE: u32 = 22;
const WOKEN: u32 = 24;

/// What all programs begin with: system calls, and an end.
const PRELUDE: &str = r#"
typedef unsigned long u64;
static inline long call(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
__attribute__((noreturn)) static void end(int status) { for (;;) call(231, status, 0, 0, 0, 0, 0); }
static char memory[1 << 20] __attribute__((aligned(4096)));
"#;

struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    fn compile(source: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{PRELUDE}{source}");
        std::fs::write(folder.path().join("program.c"), text).unwrap();
        let options = ["-O1", "-nostdlib", "-static", "-fno-stack-protector", "-mno-avx", "-fcf-protection=none"];
        let mut gcc = Command::new("gcc");
        gcc.args(options).args(["-o", "program", "program.c"]).current_dir(folder.path());
        assert!(gcc.status().unwrap().success());
        Self { folder }
    }

    fn path(&self) -> String {
        self.folder.path().join("program").to_string_lossy().into_owned()
    }

    fn record(&self) -> Recorded {
        record(&[&self.path()])
    }
}

fn code(recorded: &Recorded) -> Option<i32> {
    ExitStatus::from_raw(recorded.status).code()
}

/// Accesses in this range of addresses: address, bytes, kind.
fn accesses_in(recorded: &Recorded, stream: usize, start: u64, bytes: u64) -> Vec<(u64, u16, u8)> {
    let accesses = &recorded.streams[stream].accesses;
    let inside = accesses.iter().filter(|access| (start..start + bytes).contains(&access.1));
    inside.map(|access| (access.1 - start, access.2, access.3)).collect()
}

fn kernel_accesses(recorded: &Recorded, stream: usize) -> Vec<(bool, u64, u64)> {
    let records = recorded.streams[stream].all(KERNEL_ACCESS);
    records.iter().map(|record| (record.u32(0) != 0, record.u64(4), record.u64(12))).collect()
}

#[test]
fn each_access_of_a_program_is_sent() {
    // Without options for large pages the array's place is known.
    let program = Program::compile(
        r#"
        void _start(void) {
            __asm__ volatile("movb $1, 0x70000(%0); addl $2, 0x70004(%0); movq 0x70008(%0), %%rax\n"
                             "lea 0x70100(%0), %%rdi; mov $5, %%ecx; cld; rep stosb\n"
                             "pushfq; pop %%rax; test $0x100, %%eax; jnz 1f\n"
                             "mov %%r11, %%rax; mov $39, %%eax; syscall; test $0x100, %%r11; jnz 1f\n"
                             "mov %0, %%rax; shr $12, %%rax; and $0, %%eax; jmp 2f\n"
                             "1: mov $9, %%eax\n 2: mov %%eax, 0x70200(%0)"
                             :: "r"(memory) : "rax", "rcx", "rdi", "r11", "memory", "cc");
            end(*(int*)(memory + 0x70200));
        }"#,
    );
    let recorded = program.record();
    assert_eq!(code(&recorded), Some(0), "the trap flag is visible to the program");
    let [stream] = &recorded.streams[..] else { panic!("one stream") };
    let (at, _) = stream.accesses.iter().map(|access| (access.1, access.2)).find(|access| access.1 == 1).unwrap();
    let expected: Vec<(u64, u16, u8)> = [(0, 1, 1), (4, 4, 2), (8, 8, 0)]
        .into_iter()
        .chain((0..5).map(|i| (0x100 + i, 1, 1)))
        .chain([(0x200, 4, 1), (0x200, 4, 0)])
        .collect();
    assert_eq!(accesses_in(&recorded, 0, at, 0x1000), expected);
    assert!(recorded.losses.is_empty(), "{:?}", recorded.losses);
    assert_eq!(stream.all(EXIT)[0].u32(0), 0);
    assert!(stream.all(MMAP).iter().any(|record| record.holds("[stack]")));
}

#[test]
fn system_calls_touch_memory() {
    let program = Program::compile(
        r#"
        void _start(void) {
            int ends[2];
            call(22, (long)ends, 0, 0, 0, 0, 0);
            u64 parts[4] = {(u64)memory, 10, (u64)memory + 8192, 20};
            call(20, ends[1], (long)parts, 2, 0, 0, 0);
            call(0, ends[0], (long)memory + 16384, 100, 0, 0, 0);
            u64 whole[2] = {(u64)memory + 0x8000, 0x21000};
            call(278, ends[1], (long)whole, 1, 0, 0, 0);
            whole[0] += 0x30000;
            call(278, ends[0], (long)whole, 1, 0, 0, 0);
            call(28, (long)memory, 8192, 4, 0, 0, 0);
            end(call(0, 99, (long)memory, 100, 0, 0, 0) == -9 ? 3 : 4);
        }"#,
    );
    let recorded = program.record();
    assert_eq!(code(&recorded), Some(3));
    let made = kernel_accesses(&recorded, 0);
    let (_, at, _) = *made.iter().find(|access| !access.0 && access.2 == 10).expect("the first part");
    assert!(made.contains(&(false, at + 8192, 20)), "{made:x?}");
    assert!(made.contains(&(true, at + 16384, 30)), "{made:x?}");
    // The pipe has room for 16 pages. The kernel has taken 32 then, and the last one is not one of them.
    assert!(
        made.contains(&(false, at + 0x8000, 0x10000)) && made.contains(&(false, at + 0x18000, 0x10000)),
        "{made:x?}"
    );
    assert!(made.contains(&(true, at + 0x38000, 0x10000)) && !made.iter().any(|access| access.1 == at + 0x28000));
    assert!(made.iter().any(|access| access.0 && access.2 == 8), "the descriptors of the pipe");
    let advice = recorded.streams[0].all(MADVISE);
    assert_eq!((advice[0].u64(0), advice[0].u64(8), advice[0].u32(16)), (at, 8192, 4));
}

/// A file that a program creates anew loses what it had, also by the old call for it.
#[test]
fn a_file_that_is_created_anew_is_cut() {
    let program = Program::compile(
        r#"
        static const char name[] = "cut.bin";
        void _start(void) {
            long file = call(85, (long)name, 0600, 0, 0, 0, 0);
            call(1, file, (long)memory, 5000, 0, 0, 0);
            call(3, file, 0, 0, 0, 0, 0);
            file = call(85, (long)name, 0600, 0, 0, 0, 0);
            call(1, file, (long)memory, 300, 0, 0, 0);
            call(3, file, 0, 0, 0, 0, 0);
            file = call(2, (long)name, 01002, 0600, 0, 0, 0);
            end(call(87, (long)name, 0, 0, 0, 0, 0) == 0 && file >= 0 ? 0 : 1);
        }"#,
    );
    let recorded = program.record();
    assert_eq!(code(&recorded), Some(0));
    let cuts = recorded.streams[0].all(TRUNCATE);
    let lengths: Vec<(u64, u64)> = cuts.iter().map(|cut| (cut.u64(0), cut.u64(8))).collect();
    assert_eq!(lengths, [(5000, 0), (300, 0)]);
}

/// The kernel writes what it tells of a segment, and nothing if there is none.
#[test]
fn only_calls_that_succeed_write_what_they_tell() {
    let program = Program::compile(
        r#"
        void _start(void) {
            long segment = call(29, 0, 4096, 0600, 0, 0, 0);
            long failed = call(31, 0x7fffffff, 2, (long)memory, 0, 0, 0);
            long told = call(31, segment, 2, (long)memory + 4096, 0, 0, 0);
            long removed = call(31, segment, 0, (long)memory + 8192, 0, 0, 0);
            end(segment >= 0 && failed < 0 && told == 0 && removed == 0 ? 0 : 1);
        }"#,
    );
    let recorded = program.record();
    assert_eq!(code(&recorded), Some(0));
    let made: Vec<(bool, u64)> = kernel_accesses(&recorded, 0).iter().map(|access| (access.0, access.2)).collect();
    assert_eq!(made.iter().filter(|access| **access == (true, 112)).count(), 1, "{made:?}");
}

#[test]
fn handlers_get_frames_and_faults_are_not_accesses() {
    let program = Program::compile(
        r#"
        __attribute__((naked)) static void give_back(void) { __asm__("mov $15, %eax; syscall"); }
        static void handler(int number, void* information, void* context) {
            /* The instruction at fault is two bytes long. */
            ((u64*)context)[5 + 16] += 2;
            memory[77] = number;
        }
        void _start(void) {
            u64 action[4] = {(u64)handler, 0x04000004, (u64)give_back, 0};
            call(13, 11, (long)action, 0, 8, 0, 0);
            __asm__ volatile("xor %%ecx, %%ecx; mov (%%rcx), %%al" ::: "rax", "rcx");
            end(memory[77]);
        }"#,
    );
    let recorded = program.record();
    assert_eq!(code(&recorded), Some(11));
    assert!(recorded.streams[0].accesses.iter().all(|access| access.1 >= 0x1000), "the fault made no access");
    let frames: Vec<_> = kernel_accesses(&recorded, 0).into_iter().filter(|access| access.2 > 800).collect();
    let written = frames.iter().rfind(|access| access.0).expect("a frame");
    assert!(frames.contains(&(false, written.1, written.2)), "it is read again: {frames:x?}");
}

#[test]
fn the_end_by_a_signal_is_kept() {
    let program = Program::compile("void _start(void) { *(volatile int*)8 = 1; end(0); }");
    let recorded = program.record();
    assert_eq!(ExitStatus::from_raw(recorded.status).signal(), Some(11));
    assert_eq!(recorded.streams[0].all(EXIT)[0].u32(0), 128 + 11);
}

const CHILDREN: &str = r#"
    void _start(void) {
        u64* stack = (u64*)__builtin_frame_address(0) + 1;
        if (stack[0] > 1) { memory[5] = 1; end(6); }
        for (int i = 0; i < 2; i++) {
            long child = call(57, 0, 0, 0, 0, 0, 0);
            if (child == 0) {
                char* arguments[] = {(char*)stack[1], "again", 0};
                memory[100] = 1;
                call(59, (long)arguments[0], (long)arguments, 0, 0, 0, 0);
                end(99);
            }
            int status = 0;
            call(61, child, (long)&status, 0, 0, 0, 0);
            if (status != 6 << 8) end(1);
        }
        end(0);
    }"#;

#[test]
fn children_and_executed_programs_have_streams() {
    let program = Program::compile(CHILDREN);
    let recorded = program.record();
    assert_eq!(code(&recorded), Some(0));
    assert_eq!(recorded.streams.len(), 5, "the program, two children, and what they execute");
    let [parent, child, image, ..] = &recorded.streams[..] else { unreachable!() };
    let (fork, hello) = (parent.all(FORK)[0], &child.controls[0]);
    assert_eq!(fork.u64(4), hello.u64(8), "the key");
    assert_eq!((fork.u32(0), fork.u32(12)), (hello.u32(16), 0));
    assert!(child.all(EXEC_BEGIN)[0].holds("program"));
    assert_eq!(image.controls[0].u64(8), hello.u64(8), "it is the same process");
    assert_eq!(image.all(EXIT)[0].u32(0), 6);
    let waited: Vec<_> = parent.all(WAITED).iter().map(|record| (record.u32(0), record.u32(4))).collect();
    assert_eq!(waited[0], (fork.u32(0), 6 << 8));
}

#[test]
fn children_that_are_not_followed_run_natively() {
    let program = Program::compile(CHILDREN);
    let path = program.path();
    let recorded = record_following(&[&path], Some(Follow { every: 2, from: 1 })).unwrap();
    assert_eq!(code(&recorded), Some(0));
    assert_eq!(recorded.streams.len(), 4);
    assert!(recorded.streams[1].all(EXEC_NATIVE)[0].holds("is not followed"));
}

#[test]
fn threads_start_and_end() {
    let program = Program::compile(
        r#"
        static int word = 1;
        void _start(void) {
            long flags = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x200000;
            u64 arguments[11] = {flags, 0, (u64)&word, 0, 0, (u64)memory, 65536, 0, 0, 0, 0};
            long result;
            __asm__ volatile("syscall; test %%rax, %%rax; jnz 1f\n"
                             "movb $1, 70000+memory(%%rip); mov $60, %%eax; xor %%edi, %%edi; syscall\n 1:"
                             : "=a"(result) : "0"(435), "D"(arguments), "S"(88) : "rcx", "r11", "memory");
            if (result < 0) end(2);
            for (;;) {
                int seen = *(volatile int*)&word;
                if (seen == 0) break;
                call(202, (long)&word, 0, seen, 0, 0, 0);
            }
            end(memory[70000] == 1 ? 0 : 1);
        }"#,
    );
    let recorded = program.record();
    assert_eq!(code(&recorded), Some(0));
    let stream = &recorded.streams[0];
    let started: Vec<u32> = stream.all(THREAD_START).iter().map(|record| record.u32(0)).collect();
    assert_eq!(started.len(), 2);
    assert_eq!(stream.all(THREAD_EXIT)[0].u32(0), started[1]);
    assert_eq!(stream.all(WOKEN)[0].u32(0), 1, "by its creation");
    assert!(stream.accesses.iter().any(|access| (access.2, access.3) == (1, 1)));
}

#[test]
fn calls_whose_memory_is_unknown_are_losses() {
    let program = Program::compile(
        "void _start(void) { call(321, 0, (long)memory, 120, 0, 0, 0); call(999, 1, 2, 3, 4, 5, 6); end(0); }",
    );
    let losses = program.record().losses;
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert!(losses[0].contains("bpf: the memory"), "{losses:?}");
}

#[test]
fn a_program_that_cannot_start_is_an_error() {
    let Err(error) = record_following(&["/no/such/program"], None) else { panic!("it cannot start") };
    assert!(matches!(error, StepError::Start { .. }) && error.to_string().contains("/no/such/program"), "{error}");
}
