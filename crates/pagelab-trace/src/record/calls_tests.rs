use super::*;
use crate::record::protocol::Transfer::{Call, Return};

const STACK: u64 = 0x7fff_0000;

/// A process with one thread whose calls are tracked.
struct Followed {
    calls: Calls,
    stacks: ProcessStacks,
    position: u64,
    _folder: tempfile::TempDir,
}

impl Followed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut calls = Calls::new(folder.path(), SystemTime::now());
        let mut stacks = ProcessStacks::default();
        calls.image(0, 1, &mut stacks);
        stacks.map(Mapped { file: &"/bin/program".into(), addr: 0x40_0000, len: 0x1000, file_offset: 0x2000 });
        Self { calls, stacks, position: 0, _folder: folder }
    }

    fn transfer(&mut self, transfer: Transfer, slot: u64, behind: u64) {
        self.position += 1;
        self.calls.transfer(&mut self.stacks, transfer, (slot, behind), ThreadIx(0), self.position);
    }

    fn call(&mut self, slot: u64, behind: u64) {
        self.transfer(Call, slot, behind);
    }

    fn back(&mut self, slot: u64) {
        self.transfer(Return, slot, 0);
    }

    /// Return addresses of the calls of the current context, outermost first.
    fn stack(&self) -> Vec<u64> {
        let (mut all, mut at) = (Vec::new(), self.stacks.context());
        while let Some(parent) = self.calls.contexts[at as usize].parent {
            all.push(self.calls.contexts[at as usize].offset + 1);
            at = parent;
        }
        all.reverse();
        all
    }
}

#[test]
fn calls_and_returns_make_a_tree_of_contexts() {
    let mut followed = Followed::new();
    followed.call(STACK, 100);
    followed.call(STACK - 16, 200);
    assert_eq!(followed.stack(), [100, 200]);
    let first = followed.stacks.context();
    followed.back(STACK - 16);
    assert_eq!(followed.stacks.returned(), first);
    followed.call(STACK - 16, 300);
    assert_eq!(followed.stack(), [100, 300]);
    followed.back(STACK - 16);
    followed.call(STACK - 32, 200);
    assert_eq!(followed.stacks.context(), first, "the same call from the same context is the same context");
    followed.back(STACK - 32);
    followed.back(STACK);
    assert_eq!(followed.stack(), [0; 0]);
    // A return from a call made before tracking began.
    followed.back(STACK + 64);
    assert_eq!(followed.stack(), [0; 0]);
    let rows = [(1, 1), (2, 2), (3, 1), (4, 3), (5, 1), (6, 2), (7, 1), (8, 0), (9, 0)];
    assert_eq!(followed.calls.writer.rows(), rows.map(|(position, context)| CallRow { position, thread: 0, context }));
}

#[test]
fn a_call_is_found_in_the_file_that_holds_it() {
    let mut followed = Followed::new();
    followed.call(STACK, 0x40_0010);
    followed.call(STACK - 8, 0x41_0010);
    let [_, in_file, elsewhere] = &followed.calls.contexts[..] else { panic!("two calls") };
    assert_eq!((in_file.file.as_deref(), in_file.offset), (Some("/bin/program"), 0x200f));
    assert_eq!((elsewhere.file.as_deref(), elsewhere.offset), (None, 0x41_000f));
}

#[test]
fn frames_that_are_left_by_a_jump_are_gone() {
    let mut followed = Followed::new();
    followed.call(STACK, 100);
    for depth in 1..10 {
        followed.call(STACK - 16 * depth, 200);
    }
    // longjmp to the frame of the first call, which then calls again.
    followed.call(STACK - 16, 300);
    assert_eq!(followed.stack(), [100, 300]);
    followed.call(STACK - 32, 400);
    // longjmp to a frame that then returns.
    followed.back(STACK);
    assert_eq!(followed.stack(), [0; 0]);
}

#[test]
fn another_stack_is_called_from_where_the_first_was_left() {
    let mut followed = Followed::new();
    let other = STACK - (64 << 20);
    followed.call(STACK, 100);
    followed.call(other, 200);
    followed.call(other - 16, 300);
    assert_eq!(followed.stack(), [100, 200, 300]);
    // Back to the first stack while the other stays in use.
    followed.call(STACK - 16, 400);
    assert_eq!(followed.stack(), [100, 400]);
    followed.back(STACK - 16);
    followed.back(other - 16);
    assert_eq!(followed.stack(), [100, 200]);
    followed.back(STACK);
    assert_eq!(followed.stack(), [0; 0]);
}

#[test]
fn a_stack_is_left_even_when_nothing_is_left_on_it() {
    let mut followed = Followed::new();
    let other = STACK - (64 << 20);
    followed.call(STACK, 100);
    // A signal handler makes calls on its own stack, and returns to the address that the kernel put there.
    followed.call(other - 16, 200);
    assert_eq!(followed.stack(), [100, 200]);
    followed.back(other - 16);
    followed.back(other);
    followed.call(STACK - 16, 300);
    assert_eq!(followed.stack(), [100, 300]);
    followed.back(STACK - 16);
    followed.back(STACK);
    assert_eq!(followed.stack(), [0; 0]);
}

#[test]
fn large_frames_are_no_other_stacks() {
    let mut followed = Followed::new();
    followed.call(STACK, 100);
    followed.call(STACK - (7 << 20), 200);
    assert!(followed.stacks.current.others.is_empty());
    followed.back(STACK - (7 << 20));
    assert_eq!(followed.stack(), [100]);
}

#[test]
fn deep_recursion_is_truncated_and_reported() {
    let mut followed = Followed::new();
    let slot = |depth: usize| STACK - 16 * depth as u64;
    for depth in 0..MOST_FRAMES + 100 {
        followed.call(slot(depth), 100);
    }
    assert_eq!(followed.stack().len(), MOST_FRAMES);
    for depth in (0..MOST_FRAMES + 100).rev() {
        followed.back(slot(depth));
    }
    assert_eq!(followed.stack(), [0; 0]);
    let notes = followed.calls.finish(None).unwrap();
    assert!(notes.iter().any(|note| note.contains("500 frames were cut")), "{notes:?}");
}

#[test]
fn threads_and_children_have_stacks_of_their_own() {
    let mut followed = Followed::new();
    followed.stacks.switch_to(1);
    followed.call(STACK, 100);
    followed.stacks.switch_to(2);
    assert_eq!(followed.stack(), [0; 0]);
    followed.call(STACK - (1 << 30), 200);
    followed.stacks.switch_to(1);
    assert_eq!(followed.stack(), [100]);
    let mut child = followed.stacks.fork(1);
    followed.back(STACK);
    std::mem::swap(&mut child, &mut followed.stacks);
    assert_eq!(followed.stack(), [100]);
    // A new image has no calls yet, and its own addresses.
    followed.calls.image(1, 2, &mut followed.stacks);
    assert_eq!(followed.calls.contexts[followed.stacks.context() as usize].parent, Some(0));
    followed.call(STACK, 100);
    assert_eq!(followed.stack(), [1, 100], "the context that begins the image is no call");
}

#[test]
fn bytes_of_the_tables_are_known_before_they_are_written() {
    let mut followed = Followed::new();
    let empty = followed.calls.bytes();
    for call in 0..20_000 {
        followed.call(STACK, 100 + call % 5000);
        followed.back(STACK);
    }
    let estimated = followed.calls.bytes();
    followed.calls.finish(None).unwrap();
    let folder = std::fs::read_dir(followed._folder.path()).unwrap();
    let written: u64 = folder.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(empty < 100, "{empty} bytes of nothing");
    assert!((written / 4..written * 4).contains(&estimated), "{estimated} bytes expected, {written} written");
}
