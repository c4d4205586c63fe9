//! Paging costs by call stack, and by the call that allocated the memory, for sources that have call stacks.
//!
//! Memory belongs to the allocator's block that contains the address, or else to the mapping. Allocations are recorded
//! in the order of the source, whichever CPU reaches them, and may be recorded twice.
//!
//! Memory outside blocks may be the allocator's own: in the heap, or in a mapping made during an allocating call. An
//! access to it counts for the allocating call that made it, if any. An allocating call is one that has returned a
//! block at least once in the same call stack.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagelab_trace::calls::{CallStacks, Context};
use pagelab_trace::{Event, EventKind, ProcessIx};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{Cost, Instruction, ProcessId, ProfiledAccess};

/// Most rows of instructions.
const MOST_ROWS: usize = 5000;
/// Most rows of allocating calls.
const MOST_SITES: usize = 1000;

/// A call, in the context of another call.
#[derive(Clone, Debug, Serialize)]
pub struct ContextRow {
    /// Index of the context that contains the call; `None` for the first, which is no call.
    pub parent: Option<u32>,
    /// Index among the sources.
    pub source: u32,
    /// The process that made it first.
    pub process: u32,
    /// The file that holds the call instruction.
    pub file: Option<Arc<str>>,
    /// Last byte of the call instruction: bytes from the start of the file, or its address without a file.
    pub offset: u64,
    /// Name of the code, if the program generated the code at run time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}

/// An instruction in a context, and its cost.
#[derive(Clone, Debug, Serialize)]
pub struct StackRow {
    /// Index of the context.
    pub node: u32,
    /// Index among the source's processes.
    pub process: u32,
    /// The file that holds the instruction.
    pub file: Option<Arc<str>>,
    /// Bytes from the start of the file, or its address without a file.
    pub offset: u64,
    /// Name of the code, if the program generated the code at run time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Paging costs of its accesses.
    #[serde(flatten)]
    pub cost: Cost,
}

/// A call that allocated memory, and the costs of accesses to that memory.
#[derive(Clone, Debug, Serialize)]
pub struct SiteRow {
    /// `allocation` for an allocator's block, `mapping`, `heap` outside known blocks, or `unknown`.
    pub kind: &'static str,
    /// Index of the context of the call.
    pub node: u32,
    /// Number of blocks or mappings that it allocated.
    pub count: u64,
    /// Their total size in bytes.
    pub bytes: u64,
    /// Paging costs of accesses to them.
    #[serde(flatten)]
    pub cost: Cost,
}

/// Report of costs by call stack, see the module's text.
#[derive(Clone, Debug, Serialize)]
pub struct StacksReport {
    /// Calls; parents come before their children.
    pub nodes: Vec<ContextRow>,
    /// The most expensive instructions in their contexts.
    pub rows: Vec<StackRow>,
    /// Number of other instructions.
    pub rows_others: usize,
    /// Sum of their costs.
    pub rows_others_cost: Cost,
    /// The most expensive allocating calls.
    pub sites: Vec<SiteRow>,
    /// Number of other allocating calls.
    pub sites_others: usize,
    /// Sum of their costs.
    pub sites_others_cost: Cost,
}

/// Memory that was allocated by one call.
#[derive(Clone, Copy, Debug)]
struct Block {
    end: u64,
    site: usize,
    /// Position of the allocation in the source.
    position: u64,
}

#[derive(Clone, Debug, Default)]
struct ProcessMemory {
    blocks: BTreeMap<u64, Block>,
    mappings: BTreeMap<u64, Block>,
}

fn holder(blocks: &BTreeMap<u64, Block>, address: u64) -> Option<usize> {
    blocks.range(..=address).next_back().filter(|(_, block)| address < block.end).map(|(_, block)| block.site)
}

impl ProcessMemory {
    /// Removes a range from the mappings.
    fn unmap(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(len);
        let overlapping = |(start, block): (&u64, &Block)| (block.end > addr).then_some((*start, *block));
        let found: Vec<_> = self.mappings.range(..end).rev().map_while(overlapping).collect();
        for (start, block) in found {
            self.mappings.remove(&start);
            if start < addr {
                self.mappings.insert(start, Block { end: addr, ..block });
            }
            if block.end > end {
                self.mappings.insert(end, block);
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Site {
    kind: &'static str,
    source: u32,
    context: u32,
    count: u64,
    bytes: u64,
    cost: Cost,
}

/// Costs by call stack, see the module's text.
#[derive(Clone, Debug)]
pub(super) struct Stacks {
    /// Call stacks by source.
    call_stacks: Vec<Option<Arc<CallStacks>>>,
    costs: FxHashMap<(ProcessId, u32, u64), (Instruction, Cost)>,
    memory: FxHashMap<ProcessId, ProcessMemory>,
    sites: Vec<Site>,
    site_of: FxHashMap<(&'static str, u32, u32), usize>,
    /// Costs of accesses outside blocks, by the site of the memory and the context of the access.
    outside: FxHashMap<(usize, u32), Cost>,
}

impl Stacks {
    /// `call_stacks` has the call stacks of the sources.
    pub fn new(call_stacks: Vec<Option<Arc<CallStacks>>>) -> Self {
        let (costs, memory, site_of, outside) = Default::default();
        Self { call_stacks, costs, memory, sites: Vec::new(), site_of, outside }
    }

    /// Discards costs, but keeps allocations.
    pub fn begin(&mut self) {
        self.costs.clear();
        self.outside.clear();
        self.sites.iter_mut().for_each(|site| site.cost = Cost::default());
    }

    pub fn has_call_stacks(&self, source: u32) -> bool {
        self.call_stacks.get(source as usize).is_some_and(Option::is_some)
    }

    fn site(&mut self, kind: &'static str, source: u32, context: u32) -> usize {
        let Self { sites, site_of, .. } = self;
        *site_of.entry((kind, source, context)).or_insert_with(|| {
            sites.push(Site { kind, source, context, count: 0, bytes: 0, cost: Cost::default() });
            sites.len() - 1
        })
    }

    /// Records an event that affects the memory of a source's process.
    pub fn note(&mut self, source: u32, event: &Event) {
        let id = |process: ProcessIx| ProcessId { source, process: process.0 };
        match event.kind {
            EventKind::Allocated { addr, len, context, mapping } => {
                let kind = if mapping { "mapping" } else { "allocation" };
                let site = self.site(kind, source, context);
                let memory = self.memory.entry(id(event.process)).or_default();
                let (end, position) = (addr.saturating_add(len.max(1)), event.position);
                let map = if mapping { &memory.mappings } else { &memory.blocks };
                if map.get(&addr).is_some_and(|block| block.position == position) {
                    return;
                }
                if mapping {
                    memory.unmap(addr, len);
                    memory.mappings.insert(addr, Block { end, site, position });
                } else {
                    memory.blocks.insert(addr, Block { end, site, position });
                }
                self.sites[site].count += 1;
                self.sites[site].bytes += len;
            }
            EventKind::Freed { addr } => {
                if let Some(memory) = self.memory.get_mut(&id(event.process))
                    && memory.blocks.get(&addr).is_some_and(|block| block.position != event.position)
                {
                    memory.blocks.remove(&addr);
                }
            }
            EventKind::Munmap { addr, len } => {
                self.memory.entry(id(event.process)).or_default().unmap(addr, len);
            }
            EventKind::Mremap { old_addr, old_len, new_addr, new_len } => {
                let memory = self.memory.entry(id(event.process)).or_default();
                let moved = memory.mappings.range(..=old_addr).next_back().map(|(_, block)| *block);
                memory.unmap(old_addr, old_len);
                if let Some(block) = moved.filter(|block| old_addr < block.end) {
                    memory.unmap(new_addr, new_len);
                    memory.mappings.insert(new_addr, Block { end: new_addr.saturating_add(new_len), ..block });
                }
            }
            EventKind::Fork { child } => {
                let copy = self.memory.get(&id(event.process)).cloned().unwrap_or_default();
                self.memory.insert(id(child), copy);
            }
            EventKind::Exec { .. } | EventKind::Exit { .. } => _ = self.memory.remove(&id(event.process)),
            EventKind::ProcessStart { .. }
            | EventKind::Mmap { .. }
            | EventKind::Mprotect { .. }
            | EventKind::Madvise { .. }
            | EventKind::Msync { .. }
            | EventKind::Truncate { .. }
            | EventKind::FileData { .. }
            | EventKind::FileHole { .. }
            | EventKind::Relocate { .. }
            | EventKind::EngineCall { .. }
            | EventKind::Fault { .. }
            | EventKind::Brk { .. }
            | EventKind::Vfork { .. }
            | EventKind::ThreadStart { .. }
            | EventKind::ThreadExit
            | EventKind::Wake { .. }
            | EventKind::Woken { .. }
            | EventKind::Skip
            | EventKind::Resume { .. }
            | EventKind::Measure => {}
        }
    }

    /// Adds the cost of an access.
    pub fn count(&mut self, place: &ProfiledAccess, cost: &Cost) {
        let source = place.process.source;
        if !self.has_call_stacks(source) {
            return;
        }
        let new = || (place.instruction.clone(), Cost::default());
        self.costs.entry((place.process, place.context, place.pc)).or_insert_with(new).1.add(cost);
        let memory = self.memory.get(&place.process);
        if let Some(block) = memory.and_then(|memory| holder(&memory.blocks, place.va.0)) {
            self.sites[block].cost.add(cost);
            return;
        }
        let heap = place.area.kind == "heap";
        let mapping = memory.filter(|_| !heap).and_then(|memory| holder(&memory.mappings, place.va.0));
        let site = mapping.unwrap_or_else(|| self.site(if heap { "heap" } else { "unknown" }, source, 0));
        self.outside.entry((site, place.context)).or_default().add(cost);
    }

    /// The innermost allocating call that contains a context, if any.
    fn allocating_call(&self, source: u32, context: u32) -> Option<usize> {
        let contexts = &self.call_stacks[source as usize].as_ref()?.contexts;
        let mut at = context;
        loop {
            let frame = contexts.get(at as usize).filter(|frame| is_call(frame))?;
            if let Some(&site) = self.site_of.get(&("allocation", source, at)) {
                return Some(site);
            }
            at = frame.parent?;
        }
    }

    /// Charges the costs of accesses outside blocks to the allocating calls that made them, or else to their memory.
    fn charge_outside(&mut self) {
        let outside = std::mem::take(&mut self.outside);
        for ((memory, context), cost) in outside {
            let Site { kind, source, context: creator, .. } = self.sites[memory];
            let is_allocators = match kind {
                "heap" => true,
                "mapping" => self.allocating_call(source, creator).is_some(),
                _ => false,
            };
            let call = self.allocating_call(source, context).filter(|_| is_allocators);
            self.sites[call.unwrap_or(memory)].cost.add(&cost);
        }
    }

    /// The report; `None` if no source has call stacks.
    pub fn report(mut self) -> Option<StacksReport> {
        if self.call_stacks.iter().all(Option::is_none) {
            return None;
        }
        self.charge_outside();
        let mut nodes = Nodes::new(&self.call_stacks);
        // One address may have held instructions of two files, one after the other.
        let mut costs: Vec<_> = self.costs.into_iter().map(|(key, (at, cost))| (key, at, cost)).collect();
        costs.sort_unstable_by(|(a, _, x), (b, _, y)| y.cycles().cmp(&x.cycles()).then_with(|| a.cmp(b)));
        let mut sites: Vec<Site> = self.sites.into_iter().filter(|site| site.cost != Cost::default()).collect();
        let order = |site: &Site| (site.source, site.context, site.kind);
        sites.sort_unstable_by(|a, b| b.cost.cycles().cmp(&a.cost.cycles()).then_with(|| order(a).cmp(&order(b))));
        let sum = |costs: &mut dyn Iterator<Item = Cost>| {
            costs.fold(Cost::default(), |mut sum, cost| {
                sum.add(&cost);
                sum
            })
        };
        let rows_others_cost = sum(&mut costs.iter().skip(MOST_ROWS).map(|(_, _, cost)| *cost));
        let sites_others_cost = sum(&mut sites.iter().skip(MOST_SITES).map(|site| site.cost));
        let (rows_others, sites_others) =
            (costs.len().saturating_sub(MOST_ROWS), sites.len().saturating_sub(MOST_SITES));
        let rows = costs.into_iter().take(MOST_ROWS).map(|((process, context, _), at, cost)| {
            let name = nodes.name_of(process.source, process.process, at.file.is_none(), at.offset);
            let node = nodes.index_of(process.source, context);
            StackRow { node, process: process.process, file: at.file, offset: at.offset, name, cost }
        });
        let rows = rows.collect();
        let sites = sites.into_iter().take(MOST_SITES).map(|site| {
            let Site { kind, source, context, count, bytes, cost } = site;
            SiteRow { kind, node: nodes.index_of(source, context), count, bytes, cost }
        });
        let sites = sites.collect();
        let nodes = nodes.rows;
        Some(StacksReport { nodes, rows, rows_others, rows_others_cost, sites, sites_others, sites_others_cost })
    }
}

/// A context that begins an image is not a call.
fn is_call(context: &Context) -> bool {
    context.file.is_some() || context.offset != 0
}

/// The contexts of the rows, and the contexts that these are called in.
struct Nodes<'a> {
    call_stacks: &'a [Option<Arc<CallStacks>>],
    rows: Vec<ContextRow>,
    index: FxHashMap<(u32, u32), u32>,
}

impl<'a> Nodes<'a> {
    fn new(call_stacks: &'a [Option<Arc<CallStacks>>]) -> Self {
        let first = ContextRow { parent: None, source: 0, process: 0, file: None, offset: 0, name: None };
        Self { call_stacks, rows: vec![first], index: FxHashMap::default() }
    }

    fn context(&self, source: u32, context: u32) -> Option<&'a Context> {
        self.call_stacks[source as usize].as_ref()?.contexts.get(context as usize)
    }

    fn name_of(&self, source: u32, process: u32, is_generated: bool, address: u64) -> Option<Arc<str>> {
        let stacks = self.call_stacks[source as usize].as_ref().filter(|_| is_generated)?;
        stacks.name_of(process, address).cloned()
    }

    fn index_of(&mut self, source: u32, context: u32) -> u32 {
        // Goes from the context outwards to one that has a row. Not recursive, since stacks may be too deep.
        let (mut missing, mut at) = (Vec::new(), context);
        let mut parent = loop {
            if let Some(&index) = self.index.get(&(source, at)) {
                break index;
            }
            let Some(frame) = self.context(source, at) else { break 0 };
            let Some(parent) = frame.parent.filter(|_| is_call(frame)) else { break 0 };
            missing.push((at, frame));
            at = parent;
        };
        for (number, frame) in missing.into_iter().rev() {
            let name = self.name_of(source, frame.process, frame.file.is_none(), frame.offset);
            let (process, file, offset) = (frame.process, frame.file.clone(), frame.offset);
            self.rows.push(ContextRow { parent: Some(parent), source, process, file, offset, name });
            parent = self.rows.len() as u32 - 1;
            self.index.insert((source, number), parent);
        }
        parent
    }
}

#[cfg(test)]
#[path = "stacks_tests.rs"]
mod tests;
