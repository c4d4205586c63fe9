//! Layout of a hashed table, and the slot of each page.

use super::parameters::{HashFunction, HashedConfig, HashedKind, LARGE_SEGMENT, SMALL_SEGMENT, SegmentsConfig};
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, LINE_SHIFT, PageSize, PhysAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::mix;
use pagelab_trace::quantity::format_bytes;

/// Alignment of the first slot in frames. It is the size of a super-slot of 512 lines, which is one cluster of eight
/// pages for the host.
const ALIGN_FRAMES: u64 = 8;
/// log2 of the number of entries that fit into a line beside their tag.
const PACKED_SHIFT: u32 = 3;
/// Bytes of a slot of the chained design: tag, entry, pointer, padding.
pub const CHAINED_SLOT_BYTES: u64 = 32;

/// Bits of virtual addresses.
pub const VA_BITS: u32 = 48;
/// Bytes of a slot of the power design: tag and entry.
const POWER_SLOT_BYTES: u64 = 16;
/// log2 of the slots per group of the power design.
const GROUP_SHIFT: u32 = 3;

/// A page of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Tag of the address space.
    pub asid: u16,
    /// Number of the page among pages of its size.
    pub vpn: u64,
    pub size: PageSize,
}

/// Counters that the kernel keeps in the last frame of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Slots with at least one entry, including those of ended processes.
    Used,
    /// Slots marked deleted.
    Deleted,
    /// Used slots of ended processes.
    Stale,
    /// Number of slots of the chain table that have ever been allocated.
    ChainEnd,
    /// First slot in the chain table's list of free slots; 0 for none.
    ChainFree,
    /// Number of entries evicted from full groups.
    Evicted,
}

/// Layout and hash function of a hashed table.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub kind: HashedKind,
    /// Address of the first slot.
    base: PhysAddr,
    /// Address of the counters.
    counters: PhysAddr,
    /// Number of home positions that a page can hash to: slots, or super-slots of several lines.
    homes: u64,
    slot_bytes: u64,
    /// log2 of the pages per slot.
    cluster_shift: u32,
    /// log2 of the slots per super-slot.
    super_shift: u32,
    /// Slots of the chain table.
    chain_slots: u64,
    /// log2 of the bytes of a segment of the power design.
    segment_shift: u32,
    pub hash: HashFunction,
    seed: u64,
    /// Maximum number of lines that a search reads; a page without a slot within them cannot be mapped.
    pub search_lines: u32,
}

impl Geometry {
    /// The table for a layer of `frames` frames, of which the first `taken` are already reserved. It gets this share of
    /// the memory of the layer's tables; `key` names the tables in errors.
    pub fn new(
        config: &HashedConfig,
        kind: HashedKind,
        (frames, taken): (u64, u64),
        share: f64,
        key: &str,
    ) -> Result<Self, EngineError> {
        let (load, cluster) = (config.load_factor_of(kind), config.cluster_of(kind));
        let pages_shift = cluster.ilog2();
        let (slot_bytes, cluster_shift) = match kind {
            HashedKind::Chained => (CHAINED_SLOT_BYTES, 0),
            HashedKind::Open | HashedKind::Clustered => (8 * (1 + u64::from(cluster)).next_power_of_two(), pages_shift),
            HashedKind::Compact => (LINE_BYTES, PACKED_SHIFT),
            HashedKind::Power => (POWER_SLOT_BYTES, 0),
        };
        let super_shift = match kind {
            HashedKind::Power => GROUP_SHIFT,
            HashedKind::Chained | HashedKind::Open | HashedKind::Clustered | HashedKind::Compact => {
                pages_shift - cluster_shift
            }
        };
        let home_bytes = slot_bytes << super_shift;
        let pages = frames as f64;
        let homes = match config.table_bytes {
            Some(bytes) => (bytes.0 as f64 * share) as u64 / home_bytes,
            None => {
                let homes = pages * slot_bytes as f64 / home_bytes as f64 / f64::from(1 << cluster_shift) / load;
                (homes * share).ceil() as u64
            }
        };
        // A table besides others has at least a frame.
        let homes = if share < 1.0 { homes.max((FRAME_BYTES / home_bytes).max(1)) } else { homes };
        let homes = match kind {
            // The hash is truncated to its low bits.
            HashedKind::Power if config.table_bytes.is_none() => homes.next_power_of_two(),
            HashedKind::Power => homes.checked_ilog2().map_or(0, |log| 1 << log),
            HashedKind::Chained | HashedKind::Open | HashedKind::Clustered | HashedKind::Compact => homes,
        };
        if homes == 0 {
            let what = format!("the table needs at least one slot, which takes {}", format_bytes(home_bytes));
            return Err(EngineError::config(format!("{key}.table_bytes"), what));
        }
        let chain_slots = match kind {
            HashedKind::Chained => (homes as f64 * load).ceil() as u64,
            HashedKind::Open | HashedKind::Clustered | HashedKind::Compact | HashedKind::Power => 0,
        };
        let first = taken.next_multiple_of(ALIGN_FRAMES);
        let slots_bytes = homes * home_bytes + chain_slots * CHAINED_SLOT_BYTES;
        let end = first + slots_bytes.div_ceil(FRAME_BYTES);
        if end >= frames / 2 {
            let what = format!(
                "a table of {} does not leave half of the layer's {} to programs; give the layer more memory or set a \
                 higher load_factor or a smaller table_bytes",
                format_bytes(slots_bytes),
                format_bytes(frames * FRAME_BYTES),
            );
            return Err(EngineError::config(key, what));
        }
        Ok(Self {
            kind,
            base: PhysAddr(first * FRAME_BYTES),
            counters: PhysAddr(end * FRAME_BYTES),
            homes,
            slot_bytes,
            cluster_shift,
            super_shift,
            chain_slots,
            segment_shift: config.segments.as_ref().map_or(SMALL_SEGMENT, SegmentsConfig::shift),
            hash: config.hash,
            seed: mix(config.seed),
            search_lines: config.search_lines,
        })
    }

    /// The same table for a search that ends with the first slot.
    pub fn heads_only(self) -> Self {
        Self { search_lines: 1, ..self }
    }

    /// Whether a slot is in this table.
    pub fn contains(&self, slot: PhysAddr) -> bool {
        (self.base.0..self.counters.0).contains(&slot.0)
    }

    /// Number of the frame behind the table.
    pub fn end(&self) -> u64 {
        self.base.pfn().0 + self.frames()
    }

    /// Address of the first slot, at the beginning of a frame.
    pub fn base(&self) -> PhysAddr {
        self.base
    }

    /// Number of frames of the slots, which a scan reads.
    pub fn slot_frames(&self) -> u64 {
        (self.counters.0 - self.base.0) / FRAME_BYTES
    }

    /// Number of frames of the slots and the counters.
    pub fn frames(&self) -> u64 {
        self.slot_frames() + 1
    }

    /// Number of slots that pages hash to.
    pub fn slots(&self) -> u64 {
        self.homes << self.super_shift
    }

    pub fn homes(&self) -> u64 {
        self.homes
    }

    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Whether entries have 7 bytes.
    pub fn packed(&self) -> bool {
        self.kind == HashedKind::Compact
    }

    /// Number of the cluster of pages that share a slot.
    #[inline(always)]
    pub fn block(&self, vpn: u64) -> u64 {
        vpn >> self.cluster_shift
    }

    /// Index of a page's entry in its slot.
    #[inline(always)]
    pub fn index(&self, vpn: u64) -> u32 {
        vpn as u32 & ((1 << self.cluster_shift) - 1)
    }

    /// Home position that a page hashes to.
    #[inline(always)]
    pub fn home(&self, key: Key) -> u64 {
        if self.kind == HashedKind::Power {
            return self.group_of(key);
        }
        let block = key.vpn >> (self.cluster_shift + self.super_shift) | size_bits(key.size);
        match self.hash {
            HashFunction::Mix64 => {
                let mixed = mix((block | u64::from(key.asid) << 40) ^ self.seed);
                ((u128::from(mixed) * u128::from(self.homes)) >> 64) as u64
            }
            HashFunction::Modulo => block % self.homes,
        }
    }

    /// Primary group of a page: the segment's number, scrambled as in Linux (`vsid_scramble`), XOR the page's number
    /// within the segment, counted in pages of the segment's base size. The number of a large segment is also shifted
    /// by 25 bits (Power ISA, book III; `hpt_hash`).
    #[inline(always)]
    fn group_of(&self, key: Key) -> u64 {
        let pages_shift = self.segment_shift - key.size.shift();
        let segment = key.vpn >> pages_shift;
        let id = match self.hash {
            HashFunction::Mix64 => mix((segment | u64::from(key.asid) << 40) ^ self.seed),
            HashFunction::Modulo => segment,
        };
        let id = if self.segment_shift == LARGE_SEGMENT { id ^ id << 25 } else { id };
        (id ^ key.vpn & ((1 << pages_shift) - 1)) & (self.homes - 1)
    }

    /// The slots of a group of the power design.
    #[inline(always)]
    pub fn group(&self, number: u64) -> impl Iterator<Item = PhysAddr> + use<> {
        let first = self.base.0 + (number << GROUP_SHIFT) * POWER_SLOT_BYTES;
        (0..1 << GROUP_SHIFT).map(move |slot| PhysAddr(first + slot * POWER_SLOT_BYTES))
    }

    /// Address of a page's slot at position `home`; in a super-slot, the page's line.
    #[inline(always)]
    pub fn slot(&self, home: u64, vpn: u64) -> PhysAddr {
        let line = self.block(vpn) & ((1 << self.super_shift) - 1);
        PhysAddr(self.base.0 + ((home << self.super_shift) | line) * self.slot_bytes)
    }

    /// The slots in the table's frame with this index, without those of the chain table.
    pub fn slots_in(&self, frame: u64) -> impl Iterator<Item = PhysAddr> + use<> {
        let end = self.base.0 + self.slots() * self.slot_bytes;
        let first = self.base.0 + frame * FRAME_BYTES;
        (first..(first + FRAME_BYTES).min(end)).step_by(self.slot_bytes as usize).map(PhysAddr)
    }

    /// Allocates a slot of the chain table.
    pub fn take_chain_slot(&self, mem: &mut PhysMem) -> Option<PhysAddr> {
        let free = self.counter(mem, Counter::ChainFree);
        if free != 0 {
            let next = mem.read_block(PhysAddr(free + 16));
            self.set_counter(mem, Counter::ChainFree, next);
            return Some(PhysAddr(free));
        }
        let used = self.counter(mem, Counter::ChainEnd);
        if used == self.chain_slots {
            return None;
        }
        self.set_counter(mem, Counter::ChainEnd, used + 1);
        Some(self.base + (self.slots() + used) * CHAINED_SLOT_BYTES)
    }

    /// Number of free slots of the chain table.
    pub fn chain_slots_left(&self, mem: &PhysMem) -> u64 {
        // The list ends with 0, which is no address of a slot.
        let slot_at = |address: u64| (address != 0).then_some(address);
        let given_back = std::iter::successors(slot_at(self.counter(mem, Counter::ChainFree)), |&slot| {
            slot_at(mem.read_block(PhysAddr(slot + 16)))
        });
        self.chain_slots - self.counter(mem, Counter::ChainEnd) + given_back.count() as u64
    }

    /// Frees a slot of the chain table.
    pub fn free_chain_slot(&self, mem: &mut PhysMem, slot: PhysAddr) {
        mem.write_block(slot, 0);
        mem.write_block(slot + 8, 0);
        mem.write_block(slot + 16, self.counter(mem, Counter::ChainFree));
        self.set_counter(mem, Counter::ChainFree, slot.0);
    }

    fn counter_addr(&self, counter: Counter) -> PhysAddr {
        self.counters + 8 * counter as u64
    }

    pub fn counter(&self, mem: &PhysMem, counter: Counter) -> u64 {
        mem.read_block(self.counter_addr(counter))
    }

    pub fn set_counter(&self, mem: &mut PhysMem, counter: Counter, value: u64) {
        mem.write_block(self.counter_addr(counter), value);
    }

    pub fn add_to_counter(&self, mem: &mut PhysMem, counter: Counter, more: i64) {
        let value = self.counter(mem, counter).checked_add_signed(more).expect("what is counted down was counted");
        self.set_counter(mem, counter, value);
    }
}

/// The bits of a page's tag, and of what is hashed, that contain its size; 0 for 4 KiB.
#[inline(always)]
pub fn size_bits(size: PageSize) -> u64 {
    (size as u64) << 37
}

/// Number of the cache line of an address.
#[inline(always)]
pub fn line_of(addr: PhysAddr) -> u64 {
    addr.0 >> LINE_SHIFT
}
