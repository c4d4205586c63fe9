//! State of a layer's hashed table that its address spaces share: the tags, and the slots of ended processes.
//!
//! With a table per page size, the tables lie one behind the other. A scan goes over all of them.

use arrayvec::ArrayVec;

use super::geometry::{CHAINED_SLOT_BYTES, Counter, Geometry};
use super::parameters::{Collisions, FullGroups, HashFunction, HashedConfig, HashedKind, MAX_SEARCH_LINES};
use super::segments::SHARED_TAG;
use super::slot::{asid_of, is_used};
use super::{Hashed, Kind, PartOfSize, chained, open, power};
use crate::page_table::{Boot, PinnedTable, ScanStep, SetAside, Shared, SizeTables, TableScan};
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, PageSize, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;
use pagelab_trace::quantity::Bytes;

/// Statistics of the scans for slots of ended processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanCounters {
    pub scans: u64,
    pub lines: u64,
    /// Slots deleted.
    pub deleted: u64,
    pub cycles: Cycles,
}

/// The hashed tables of a layer.
#[derive(Clone)]
pub struct SharedTable {
    pub tables: ArrayVec<Geometry, { PageSize::ALL.len() }>,
    /// The page sizes in the order of serial probes, each with the index of its table.
    sizes: ArrayVec<(PageSize, usize), { PageSize::ALL.len() }>,
    serial: bool,
    heads_only: bool,
    /// The kernel's record of entries that were evicted from full groups. Its stale slots count among the table's.
    record: Option<Geometry>,
    pub scans: ScanCounters,
    pinned: Option<PinnedTable>,
    /// Segments whose base page size became smaller; `None` without segment tables.
    pub demoted: Option<u64>,
    exits_per_scan: usize,
    /// The smallest tag that was never allocated.
    next: u32,
    free: Vec<u16>,
    /// Tags of ended spaces whose slots are still in the table.
    ended: Vec<u16>,
}

impl SharedTable {
    fn new(
        config: &HashedConfig,
        tables: ArrayVec<Geometry, { PageSize::ALL.len() }>,
        record: Option<Geometry>,
    ) -> Self {
        Self {
            record,
            sizes: config.sizes_in_tables().with_tables().collect(),
            serial: config.sizes.are_probed_serially(),
            heads_only: config.collisions == Collisions::Kernel,
            scans: ScanCounters::default(),
            pinned: config.pinned.as_ref().map(|pinned| {
                pinned.pin(tables.iter().map(|table| (table.base(), PhysAddr(table.end() * FRAME_BYTES))))
            }),
            demoted: config.segments.as_ref().map(|_| 0),
            exits_per_scan: config.exits_per_scan as usize,
            next: 0,
            free: Vec::new(),
            ended: Vec::new(),
            tables,
        }
    }

    /// The table with a frame that a scan reads, and the frame's number within that table.
    fn table_at(&self, frame: u64) -> (&Geometry, u64) {
        let mut within = frame;
        for (table, frames) in self.scanned() {
            if within < frames {
                return (table, within);
            }
            within -= frames;
        }
        unreachable!("a scan ends with the last table")
    }

    /// The tables with the number of frames that a scan reads of each; of the kernel's record, these are the heads.
    fn scanned(&self) -> impl Iterator<Item = (&Geometry, u64)> {
        let heads = |record: &Geometry| (record.slots() * record.slot_bytes()).div_ceil(FRAME_BYTES);
        let tables = self.tables.iter().map(|table| (table, table.slot_frames()));
        tables.chain(self.record.iter().map(move |record| (record, heads(record))))
    }

    /// Number of frames that a scan reads.
    pub fn slot_frames(&self) -> u64 {
        self.scanned().map(|(_, frames)| frames).sum()
    }

    /// Sum of a counter over the tables.
    pub fn counter(&self, mem: &PhysMem, counter: Counter) -> u64 {
        self.tables.iter().chain(&self.record).map(|table| table.counter(mem, counter)).sum()
    }

    /// Number of slots that pages hash to.
    pub fn slots(&self) -> u64 {
        self.tables.iter().map(Geometry::slots).sum()
    }

    fn space<K: Kind>(&self, asid: u16) -> Hashed<K> {
        let part = |&(size, table): &(PageSize, usize)| PartOfSize { size, geometry: self.tables[table], slots: 0 };
        let parts = self.sizes.iter().map(part).collect();
        let space = Hashed::new(parts, (self.serial, self.heads_only), self.record, asid);
        Hashed { pinned: self.pinned, ..space }
    }

    fn take_tag(&mut self) -> Option<u16> {
        self.free.pop().or_else(|| {
            let tag = u16::try_from(self.next).ok().filter(|&tag| tag != SHARED_TAG)?;
            self.next += 1;
            Some(tag)
        })
    }

    /// A new address space; `None` if all tags are in use or wait for a scan.
    pub fn add_space<K: Kind>(&mut self) -> Option<Hashed<K>> {
        let tag = self.take_tag()?;
        Some(self.space(tag))
    }

    /// Ends an address space that has no slots.
    pub fn remove_space<K: Kind>(&mut self, space: &Hashed<K>) {
        assert_eq!(space.slots(), 0, "the space of tag {} still has slots", space.asid);
        self.free.push(space.asid);
    }

    /// Leaves the slots of a space to a later scan: the space gets another tag and maps nothing. Returns false if there
    /// is no free tag.
    pub fn abandon<K: Kind>(&mut self, mem: &mut PhysMem, space: &mut Hashed<K>) -> bool {
        if space.slots() == 0 {
            return true;
        }
        let Some(tag) = self.take_tag() else { return false };
        for part in &space.parts {
            part.geometry.add_to_counter(mem, Counter::Stale, part.slots as i64);
        }
        let old = std::mem::replace(space, self.space(tag));
        space.segments = old.segments;
        space.segments.iter_mut().for_each(|segments| segments.clear(mem));
        self.ended.push(old.asid);
        true
    }

    /// Describes how full the table is.
    pub fn occupation(&self, mem: &PhysMem) -> String {
        let of_table = |(n, table): (usize, &Geometry)| {
            let [used, deleted, stale] =
                [Counter::Used, Counter::Deleted, Counter::Stale].map(|counter| table.counter(mem, counter));
            let slots = table.slots();
            let part = if self.tables.len() == 1 {
                String::new()
            } else {
                format!(" for pages of {}", self.sizes[n].0.name())
            };
            format!(
                "{used} of {slots} slots{part} are in use ({stale} by ended processes) and {deleted} marked deleted"
            )
        };
        self.tables.iter().enumerate().map(of_table).collect::<Vec<_>>().join("; ")
    }

    /// The error for a page that has no slot in a layer's table: how full the table is, and what would help.
    pub fn no_place(&self, mem: &PhysMem, layer: &str, va: VirtAddr) -> String {
        let geometry = &self.tables[0];
        let key = format!("--set system.layers.{layer}.page_table");
        // Where the search ended, and whether a longer search may find a free slot.
        let (where_to, further) = match geometry.kind {
            HashedKind::Power => ("in either group of it".to_owned(), false),
            HashedKind::Chained if self.tables.iter().any(|table| table.chain_slots_left(mem) == 0) => {
                ("left in the chain table".to_owned(), false)
            }
            HashedKind::Chained | HashedKind::Open | HashedKind::Clustered | HashedKind::Compact => {
                let lines = geometry.search_lines;
                (format!("within {lines} lines of its place"), lines < MAX_SEARCH_LINES)
            }
        };
        let mut ways = Vec::new();
        if geometry.hash == HashFunction::Modulo {
            ways.push(format!("a hash that keeps neighbours apart ({key}.hash=mix64)"));
        }
        if further {
            ways.push(format!("longer searches ({key}.search_lines=N, up to {MAX_SEARCH_LINES})"));
        }
        ways.push(format!("a larger table ({key}.table_bytes=SIZE or a lower load_factor)"));
        if geometry.kind == HashedKind::Power && self.record.is_none() {
            ways.push(format!("a kernel that evicts entries ({key}.full_groups=evict)"));
        }
        if self.demoted.is_some() {
            ways.push(format!("larger segment tables, if its segment has no entry ({key}.segments.table_bytes)"));
        }
        if self.tables.len() > 1 {
            ways.push(format!("other shares of the page sizes ({key}.sizes.shares)"));
        }
        format!(
            "layer `{layer}` has no slot for {va:?} {where_to} in the hashed page table: {}; what helps is {}",
            self.occupation(mem),
            ways.join(", or "),
        )
    }

    /// The slots in the table's frame with this index that have one of these tags.
    pub fn stale_in(&self, mem: &PhysMem, frame: u64, tags: &[u16]) -> Vec<PhysAddr> {
        let (table, frame) = self.table_at(frame);
        let heads = table.slots_in(frame);
        let is_stale = |slot: &PhysAddr| is_stale(mem, *slot, tags);
        match table.kind {
            HashedKind::Chained => heads.flat_map(|head| chained::chain(mem, head)).filter(is_stale).collect(),
            HashedKind::Open | HashedKind::Clustered | HashedKind::Compact | HashedKind::Power => {
                heads.filter(is_stale).collect()
            }
        }
    }

    /// Deletes those slots; chains are repaired through their heads.
    pub fn delete_stale(&mut self, mem: &mut PhysMem, frame: u64, tags: &[u16]) {
        let (&geometry, within) = self.table_at(frame);
        let mut deleted = 0;
        match geometry.kind {
            HashedKind::Chained => {
                for head in geometry.slots_in(within) {
                    // A repair moves slots, so the chain is searched again each time.
                    while let Some(slot) = stale_in_chain(mem, head, tags) {
                        chained::release(&geometry, mem, head, slot);
                        deleted += 1;
                    }
                }
            }
            HashedKind::Open | HashedKind::Clustered | HashedKind::Compact | HashedKind::Power => {
                let release = if geometry.kind == HashedKind::Power { power::release } else { open::release };
                for slot in self.stale_in(mem, frame, tags) {
                    release(&geometry, mem, slot);
                    deleted += 1;
                }
            }
        }
        geometry.add_to_counter(mem, Counter::Used, -deleted);
        let counts_stale = if self.record.is_some() { self.tables[0] } else { geometry };
        counts_stale.add_to_counter(mem, Counter::Stale, -deleted);
        self.scans.deleted += deleted.unsigned_abs();
    }
}

impl<K: Kind> Shared<Hashed<K>> for SharedTable {
    fn boot(config: &HashedConfig, boot: &Boot, mem: &mut PhysMem) -> Result<(Self, SetAside), EngineError> {
        let key = format!("system.layers.{}.page_table", boot.layer);
        let (mut tables, mut end) = (ArrayVec::new(), boot.taken);
        let sizes = config.sizes_in_tables();
        for (share, (size, _)) in sizes.table_shares().into_iter().zip(sizes.with_tables()) {
            // Super-slots keep lines of neighbouring pages together for a host. A table of larger pages is small.
            let separate = size > PageSize::Size4K && sizes.tables == SizeTables::Separate;
            let lines = HashedConfig { cluster: config.cluster.map(|pages| pages.min(8)), ..config.clone() };
            let of_size = if separate { &lines } else { config };
            let table = Geometry::new(of_size, K::KIND, (boot.frames, end), share, &key)?;
            end = table.end();
            tables.push(table);
        }
        let mut record = None;
        if config.full_groups == FullGroups::Evict {
            let heads = tables[0].slots();
            let like = HashedConfig {
                table_bytes: Some(Bytes(heads * CHAINED_SLOT_BYTES)),
                // A page per frame at least, however small the table is.
                load_factor: Some((boot.frames as f64 / heads as f64).max(1.0)),
                search_lines: MAX_SEARCH_LINES,
                ..config.clone()
            };
            let table = Geometry::new(&like, HashedKind::Chained, (boot.frames, end), 1.0, &key)?;
            (record, end) = (Some(table), table.end());
        }
        let first = tables[0].base().pfn();
        mem.create_block(first, end - first.0);
        let set_aside = SetAside { end, of_spaces: 0, what: Some("the hashed table") };
        Ok((Self::new(config, tables, record), set_aside))
    }

    /// The state of the table at the end, and the cost of scans for ended processes.
    fn statistics(&self, mem: &PhysMem) -> Vec<Measure> {
        let counter = |counter| self.counter(mem, counter);
        let ScanCounters { scans, lines, deleted, cycles } = self.scans;
        let mut all = vec![
            Measure::number("slots", self.slots(), "Slots of the hashed page table"),
            Measure::number("slots.used", counter(Counter::Used), "Slots in use at the end, including those on chains"),
            Measure::number(
                "slots.stale",
                counter(Counter::Stale),
                "Slots in use at the end by processes that have ended",
            ),
            Measure::number(
                "slots.deleted",
                counter(Counter::Deleted),
                "Slots marked deleted at the end, which do not end a search",
            ),
            Measure::count("scan.count", scans, "Scans over the table for the slots of ended processes"),
            Measure::count("scan.lines", lines, "Lines read by these scans"),
            Measure::count("scan.deleted", deleted, "Slots deleted by these scans"),
            Measure::cycles("scan.cycles", cycles, "Cycles of the scans, among cycles.kernel"),
        ];
        if let Some(demoted) = self.demoted {
            let text = "Segments of large pages that got smaller ones too, for which all their slots were replaced";
            all.push(Measure::count("segments.demoted", demoted, text));
        }
        if let Some(record) = &self.record {
            let evicted = self.tables[0].counter(mem, Counter::Evicted);
            all.push(Measure::count("evicted", evicted, "Entries evicted from full groups to the kernel's record"));
            let used = record.counter(mem, Counter::Used);
            all.push(Measure::number("record.used", used, "Entries in the kernel's record at the end"));
        }
        for (table, (size, _)) in self.tables.iter().zip(&self.sizes).filter(|_| self.tables.len() > 1) {
            let name = size.name();
            let used = table.counter(mem, Counter::Used);
            all.push(Measure::number(
                format!("slots.{name}"),
                table.slots(),
                format!("Slots of the table for pages of {name}"),
            ));
            all.push(Measure::number(
                format!("slots.{name}.used"),
                used,
                format!("Slots of the table for pages of {name} in use at the end"),
            ));
        }
        all
    }

    /// Due when enough processes have ended.
    fn is_scan_due(&self) -> bool {
        self.ended.len() >= self.exits_per_scan
    }

    /// The scan takes over the tags of the processes that have ended so far.
    fn begin_scan(&mut self) -> Option<TableScan> {
        if self.ended.len() < self.exits_per_scan {
            return None;
        }
        self.scans.scans += 1;
        Some(TableScan { tags: std::mem::take(&mut self.ended), at: 0 })
    }

    /// Reads one frame of the table and writes the lines with slots of ended processes.
    fn plan_scan(&self, mem: &PhysMem, scan: &TableScan) -> ScanStep {
        let mut written = self.stale_in(mem, scan.at, &scan.tags);
        written.dedup_by_key(|slot| slot.0 / LINE_BYTES);
        let (table, within) = self.table_at(scan.at);
        ScanStep { read: (table.base() + within * FRAME_BYTES, FRAME_BYTES), written }
    }

    /// After the last frame of the table the tags become free.
    fn commit_scan(&mut self, mem: &mut PhysMem, scan: &mut TableScan) -> bool {
        self.delete_stale(mem, scan.at, &scan.tags);
        self.scans.lines += FRAME_BYTES / LINE_BYTES;
        scan.at += 1;
        let continues = scan.at < self.slot_frames();
        if !continues {
            self.free.append(&mut scan.tags);
        }
        continues
    }

    fn charge_scan(&mut self, cycles: Cycles) {
        self.scans.cycles += cycles;
    }
}

fn is_stale(mem: &PhysMem, slot: PhysAddr, tags: &[u16]) -> bool {
    let tag = mem.read_block(slot);
    is_used(tag) && tags.contains(&asid_of(tag))
}

fn stale_in_chain(mem: &PhysMem, head: PhysAddr, tags: &[u16]) -> Option<PhysAddr> {
    chained::chain(mem, head).find(|&slot| is_stale(mem, slot, tags))
}
