use super::*;
use crate::observe::profile::Area;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::page_fault::Intent;
use pagelab_trace::ThreadIx;
use pagelab_trace::calls::GeneratedCode;

const PROCESS: ProcessId = ProcessId { source: 0, process: 0 };

/// Contexts: 0 is the start; 1 is called in it; 2 and 3 in 1; 4 is the start of another image; 5 is generated code
/// called in 4.
fn call_stacks() -> Stacks {
    let call = |parent, file: Option<&str>, offset| Context { parent, process: 0, file: file.map(Arc::from), offset };
    let contexts = vec![
        call(None, None, 0),
        call(Some(0), Some("/p"), 10),
        call(Some(1), Some("/p"), 20),
        call(Some(1), Some("/p"), 30),
        call(Some(0), None, 0),
        call(Some(4), None, 1005),
    ];
    let generated = vec![GeneratedCode { process: 0, start: 1000, len: 50, name: "f".into() }];
    Stacks::new(vec![Some(Arc::new(CallStacks { contexts, generated }))])
}

fn event(position: u64, kind: EventKind) -> Event {
    Event { position, process: ProcessIx(0), thread: ThreadIx(0), kind }
}

fn allocated(position: u64, addr: u64, len: u64, context: u32, mapping: bool) -> Event {
    event(position, EventKind::Allocated { addr, len, context, mapping })
}

fn place(va: u64, pc: u64, context: u32, kind: &'static str) -> ProfiledAccess {
    let instruction = Instruction { file: Some("/p".into()), offset: pc };
    let area = Area { kind, file: None };
    let (va, intent, at) = (VirtAddr(va), Intent::Load, Cycles::ZERO);
    ProfiledAccess { process: PROCESS, va, area, instruction, pc, context, intent, at }
}

fn walks(cycles: u64) -> Cost {
    Cost { walks: 1, translation_cycles: cycles, ..Cost::default() }
}

/// Kind, offsets of the calls in the stack, blocks, bytes, walks.
fn sites(report: &StacksReport) -> Vec<(&'static str, Vec<u64>, u64, u64, u64)> {
    let row = |site: &SiteRow| (site.kind, stack(report, site.node), site.count, site.bytes, site.cost.walks);
    report.sites.iter().map(row).collect()
}

fn stack(report: &StacksReport, node: u32) -> Vec<u64> {
    let (mut all, mut at) = (Vec::new(), node);
    while let Some(parent) = report.nodes[at as usize].parent {
        assert!(parent < at, "parents come first");
        all.push(report.nodes[at as usize].offset);
        at = parent;
    }
    all.reverse();
    all
}

#[test]
fn costs_are_by_instruction_and_context() {
    let mut stacks = call_stacks();
    stacks.count(&place(0, 7, 2, "anonymous"), &walks(5));
    stacks.count(&place(0, 7, 3, "anonymous"), &walks(50));
    stacks.count(&place(0, 7, 2, "anonymous"), &walks(6));
    stacks.count(&place(0, 8, 5, "anonymous"), &walks(1));
    let report = stacks.report().unwrap();
    let rows: Vec<_> =
        report.rows.iter().map(|row| (row.offset, stack(&report, row.node), row.cost.cycles())).collect();
    // The context that begins an image is not a call.
    assert_eq!(rows, [(7, vec![10, 30], 50), (7, vec![10, 20], 11), (8, vec![1005], 1)]);
    assert_eq!(report.nodes.iter().filter_map(|node| node.name.as_deref()).collect::<Vec<_>>(), ["f"]);
    assert_eq!((report.rows_others, report.rows_others_cost), (0, Cost::default()));
}

#[test]
fn memory_belongs_to_its_block_before_its_mapping() {
    let mut stacks = call_stacks();
    stacks.note(0, &allocated(1, 0x1000, 0x4000, 1, true));
    stacks.note(0, &allocated(2, 0x2000, 0x100, 2, false));
    // Recorded again, as by another CPU.
    stacks.note(0, &allocated(2, 0x2000, 0x100, 2, false));
    for va in [0x20ff, 0x2100, 0x5000] {
        stacks.count(&place(va, 1, 0, "anonymous"), &walks(1));
    }
    stacks.count(&place(0x9000, 1, 0, "heap"), &walks(1));
    stacks.note(0, &event(3, EventKind::Freed { addr: 0x2000 }));
    stacks.note(0, &allocated(3, 0x2000, 0x50, 3, false));
    stacks.note(0, &event(3, EventKind::Freed { addr: 0x2000 }));
    stacks.count(&place(0x2000, 1, 0, "anonymous"), &walks(10));
    let report = stacks.report().unwrap();
    let expected = [
        ("allocation", vec![10, 30], 1, 0x50, 1),
        ("heap", vec![], 0, 0, 1),
        ("unknown", vec![], 0, 0, 1),
        ("mapping", vec![10], 1, 0x4000, 1),
        ("allocation", vec![10, 20], 1, 0x100, 1),
    ];
    assert_eq!(sites(&report), expected);
}

#[test]
fn an_allocators_own_memory_is_of_the_call_that_it_serves() {
    let mut stacks = call_stacks();
    let count = |stacks: &mut Stacks, va, context, kind| stacks.count(&place(va, 1, context, kind), &walks(1));
    // Before the first block of context 2 is known: in that call, and in a call that it makes.
    count(&mut stacks, 0x2ff0, 2, "heap");
    stacks.note(0, &allocated(1, 0x8000, 0x1000, 2, true));
    stacks.note(0, &allocated(2, 0x1000, 0x1000, 2, false));
    count(&mut stacks, 0x8ff0, 2, "anonymous");
    // A block belongs to its own call, whichever call accesses it.
    stacks.note(0, &allocated(3, 0x4000, 0x1000, 3, false));
    count(&mut stacks, 0x4000, 2, "heap");
    // Outside allocating calls, the costs stay with the heap and the mapping.
    count(&mut stacks, 0x2ff0, 1, "heap");
    count(&mut stacks, 0x8ff0, 1, "anonymous");
    // A mapping of the program itself, and memory without a known origin.
    stacks.note(0, &allocated(4, 0xa000, 0x1000, 1, true));
    count(&mut stacks, 0xa000, 2, "anonymous");
    count(&mut stacks, 0xf000, 2, "stack");
    let mut found = sites(&stacks.report().unwrap());
    found.sort();
    let expected = [
        ("allocation", vec![10, 20], 1, 0x1000, 2),
        ("allocation", vec![10, 30], 1, 0x1000, 1),
        ("heap", vec![], 0, 0, 1),
        ("mapping", vec![10], 1, 0x1000, 1),
        ("mapping", vec![10, 20], 1, 0x1000, 1),
        ("unknown", vec![], 0, 0, 1),
    ];
    assert_eq!(found, expected);
}

#[test]
fn blocks_without_a_call_claim_no_accesses() {
    let mut stacks = call_stacks();
    for image in [0, 4] {
        stacks.note(0, &allocated(u64::from(image), 0x1000 + u64::from(image), 1, image, false));
    }
    stacks.count(&place(0x2000, 1, 2, "heap"), &walks(1));
    stacks.count(&place(0x2000, 1, 5, "heap"), &walks(1));
    stacks.count(&place(0x2000, 1, 0, "heap"), &walks(1));
    assert_eq!(sites(&stacks.report().unwrap()), [("heap", vec![], 0, 0, 3)]);
}

#[test]
fn mappings_are_cut_moved_and_copied() {
    let mut stacks = call_stacks();
    let remap = EventKind::Mremap { old_addr: 0x3000, old_len: 0x1000, new_addr: 0x8000, new_len: 0x2000 };
    stacks.note(0, &allocated(1, 0x1000, 0x4000, 1, true));
    stacks.note(0, &event(2, EventKind::Munmap { addr: 0x2000, len: 0x1000 }));
    stacks.note(0, &event(2, remap));
    stacks.note(0, &event(3, EventKind::Fork { child: ProcessIx(1) }));
    stacks.note(0, &event(4, EventKind::Exec { path: "/q".into() }));
    let count = |stacks: &mut Stacks, process, va| {
        let process = ProcessId { process, ..PROCESS };
        stacks.count(&ProfiledAccess { process, ..place(va, 1, 0, "anonymous") }, &walks(1));
    };
    for va in [0x1fff, 0x4000, 0x4fff, 0x8000, 0x9fff] {
        count(&mut stacks, 1, va);
    }
    for va in [0x2000, 0x3000, 0x5000, 0xa000] {
        count(&mut stacks, 1, va);
    }
    count(&mut stacks, 0, 0x1000);
    let report = stacks.report().unwrap();
    assert_eq!(sites(&report), [("unknown", vec![], 0, 0, 5), ("mapping", vec![10], 1, 0x4000, 5)]);
}

#[test]
fn allocated_blocks_survive_the_start_of_counting() {
    let mut stacks = call_stacks();
    stacks.note(0, &allocated(1, 0x1000, 0x1000, 1, false));
    stacks.count(&place(0x1000, 1, 0, "heap"), &walks(1));
    stacks.begin();
    stacks.count(&place(0x1000, 1, 0, "heap"), &walks(2));
    let report = stacks.report().unwrap();
    assert_eq!(sites(&report), [("allocation", vec![10], 1, 0x1000, 1)]);
    assert_eq!(report.rows.iter().map(|row| row.cost.cycles()).collect::<Vec<_>>(), [2]);
}

#[test]
fn sources_without_stacks_have_no_report() {
    let mut stacks = Stacks::new(vec![None]);
    stacks.count(&place(0, 1, 0, "heap"), &walks(1));
    assert!(stacks.report().is_none());
}
