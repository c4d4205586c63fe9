//! The arrays of one translation cache: locations of its tags and pointers, and the lines that look-ups and fills read
//! and write.

use arrayvec::ArrayVec;

use crate::config::TranslationCacheConfig;
use pagelab_base::addr::{FRAME_SHIFT, LINE_BYTES, PhysAddr, VirtAddr};
use pagelab_base::memory::PhysMem;

const INDEX_BITS: u32 = 9;
/// The lowest level whose entries are cached; pointers to entries of level 1 would be useless for any other page.
pub const LOWEST: u8 = 2;
pub(super) const PUD: u8 = 3;
const POINTER_BYTES: u64 = 8;

/// Lines of the sets of four levels: two each, and one more for sets that do not begin at a line.
pub type Lines = ArrayVec<PhysAddr, 9>;

/// When a look-up hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A tag has all address bits above the entry and hits on its own.
    FullPrefix,
    /// A tag has the offset of its level and hits if the tags of all levels above hit.
    OwnOffset,
    /// As `OwnOffset`, but with the index of level 3 for all levels.
    PudIndex,
}

/// A hit: the cached pointer to an entry of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHit {
    /// Level of the entry that the pointer refers to.
    pub level: u8,
    /// Address of the pointer, if it is not in a line of the tags.
    pub pointer: Option<PhysAddr>,
    /// Value of the pointer: the address of the entry.
    pub entry: PhysAddr,
}

/// Result of a look-up, and the lines that it read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheLookUp {
    /// The lines of tags.
    pub tags: Lines,
    /// The deepest level that hits.
    pub hit: Option<CacheHit>,
}

/// The layout of a cache object: tags of all levels, then pointers of all levels.
#[derive(Clone, Copy, Debug)]
pub struct CacheArrays {
    rule: Rule,
    /// Of each level except the pud's.
    entries: u64,
    pud_entries: u64,
    ways: u64,
    /// Level of the root.
    top: u8,
    tag_bytes: u64,
}

impl CacheArrays {
    /// The arrays for tables of `top` levels; `None` for a form without arrays.
    pub fn new(config: &TranslationCacheConfig, top: u8) -> Option<Self> {
        let rule = match config {
            TranslationCacheConfig::FullPrefix(_) => Rule::FullPrefix,
            TranslationCacheConfig::AsPublished(_) => Rule::OwnOffset,
            TranslationCacheConfig::PudIndex(_) => Rule::PudIndex,
            TranslationCacheConfig::Generations(_) | TranslationCacheConfig::MmuAssisted(_) => return None,
        };
        let parameters = config.arrays()?;
        // An offset of 9 bits, and one value more for "empty", fit into two bytes.
        let tag_bytes = if rule == Rule::FullPrefix { 8 } else { 2 };
        let (entries, ways) = (parameters.entries.into(), parameters.ways.into());
        let pud_entries = parameters.pud_entries.map_or(entries, u64::from);
        Some(Self { rule, entries, pud_entries, ways, top, tag_bytes })
    }

    /// Size of an object, in bytes.
    pub fn bytes(&self) -> u64 {
        self.pointers_at() + self.first(self.top + 1) * POINTER_BYTES
    }

    /// The lines of the tags of a new object.
    pub fn tag_lines(&self, object: PhysAddr) -> impl Iterator<Item = PhysAddr> + use<> {
        (object.0..object.0 + self.pointers_at()).step_by(LINE_BYTES as usize).map(PhysAddr)
    }

    /// Whether a level's index alone gives the location of its pointer.
    pub fn is_direct_mapped(&self) -> bool {
        self.ways == 1
    }

    fn level_entries(&self, level: u8) -> u64 {
        if level == PUD { self.pud_entries } else { self.entries }
    }

    /// Number of the first place of a level: those of the levels below it come before.
    fn first(&self, level: u8) -> u64 {
        (LOWEST..level).map(|below| self.level_entries(below)).sum()
    }

    fn pointers_at(&self) -> u64 {
        (self.first(self.top + 1) * self.tag_bytes).next_multiple_of(POINTER_BYTES)
    }

    /// The tag of an address at a level; 0 is an empty place.
    fn tag(&self, level: u8, va: VirtAddr) -> u64 {
        1 + if self.rule == Rule::FullPrefix { prefix(level, va) } else { offset(level, va) }
    }

    /// Number of the first place of an address's set, counted over all levels.
    fn set(&self, level: u8, va: VirtAddr) -> u64 {
        let sets = self.level_entries(level) / self.ways;
        let index = offset(if self.rule == Rule::PudIndex { PUD } else { level }, va) & (sets - 1);
        self.first(level) + index * self.ways
    }

    fn tag_at(&self, object: PhysAddr, place: u64) -> PhysAddr {
        object + place * self.tag_bytes
    }

    fn pointer_at(&self, object: PhysAddr, place: u64) -> PhysAddr {
        object + self.pointers_at() + place * POINTER_BYTES
    }

    fn read_tag(&self, mem: &PhysMem, at: PhysAddr) -> u64 {
        let (shift, mask) = (8 * (at.0 % 8), u64::MAX >> (64 - 8 * self.tag_bytes));
        mem.read(PhysAddr(at.0 & !7)) >> shift & mask
    }

    fn write_tag(&self, mem: &mut PhysMem, at: PhysAddr, tag: u64) {
        let (shift, mask) = (8 * (at.0 % 8), u64::MAX >> (64 - 8 * self.tag_bytes));
        let word = PhysAddr(at.0 & !7);
        mem.write(word, mem.read(word) & !(mask << shift) | tag << shift);
    }

    /// The place in a level's set that has the tag of an address.
    fn place(&self, mem: &PhysMem, object: PhysAddr, level: u8, va: VirtAddr) -> Option<u64> {
        let (set, tag) = (self.set(level, va), self.tag(level, va));
        (set..set + self.ways).find(|&place| self.read_tag(mem, self.tag_at(object, place)) == tag)
    }

    /// Looks up an address: full prefixes from the lowest level upwards until one hits, the other tags from the root
    /// downwards until one misses.
    pub fn look_up(&self, mem: &PhysMem, object: PhysAddr, va: VirtAddr) -> CacheLookUp {
        let mut found = CacheLookUp::default();
        let upwards = self.rule == Rule::FullPrefix;
        for n in 0..=self.top - LOWEST {
            let level = if upwards { LOWEST + n } else { self.top - n };
            self.set_lines(self.tag_at(object, self.set(level, va)), self.tag_bytes, &mut found.tags);
            let place = self.place(mem, object, level, va);
            if let Some(place) = place {
                let pointer = self.pointer_at(object, place);
                found.hit = Some(CacheHit { level, pointer: Some(pointer), entry: PhysAddr(mem.read(pointer)) });
            }
            if place.is_some() == upwards {
                break;
            }
        }
        found
    }

    /// The lines of tags written by a fill of the levels `from` to `to`.
    pub fn fill_tags(&self, object: PhysAddr, from: u8, to: u8, va: VirtAddr) -> Lines {
        let mut lines = Lines::new();
        for level in from..=to {
            let set = self.set(level, va);
            self.set_lines(self.tag_at(object, set), self.tag_bytes, &mut lines);
        }
        lines
    }

    /// The lines of pointers written by a fill.
    pub fn fill_pointers(&self, object: PhysAddr, from: u8, to: u8, va: VirtAddr) -> Lines {
        let mut lines = Lines::new();
        for level in from..=to {
            self.set_lines(self.pointer_at(object, self.set(level, va)), POINTER_BYTES, &mut lines);
        }
        lines
    }

    /// Adds the lines of a set that starts at an address.
    fn set_lines(&self, at: PhysAddr, bytes: u64, lines: &mut Lines) {
        let (first, last) = (at.0 & !(LINE_BYTES - 1), at.0 + self.ways * bytes - 1);
        for line in (first..=last).step_by(LINE_BYTES as usize).map(PhysAddr) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }

    /// Enters the entry of an address at a level, instead of the oldest entry of its set. If several levels are
    /// filled, the order is from the root down. False if the entry would be wrong: with one index for all levels, the
    /// tags above may have been replaced by another path since the walk.
    pub fn fill(&self, mem: &mut PhysMem, object: PhysAddr, level: u8, va: VirtAddr, entry: PhysAddr) -> bool {
        let above_hit = || (level + 1..=self.top).all(|above| self.place(mem, object, above, va).is_some());
        if self.rule == Rule::PudIndex && !above_hit() {
            return false;
        }
        let set = self.set(level, va);
        let last = self.place(mem, object, level, va).unwrap_or(set + self.ways - 1);
        for place in (set + 1..=last).rev() {
            let tag = self.read_tag(mem, self.tag_at(object, place - 1));
            self.write_tag(mem, self.tag_at(object, place), tag);
            let pointer = mem.read(self.pointer_at(object, place - 1));
            mem.write(self.pointer_at(object, place), pointer);
        }
        self.write_tag(mem, self.tag_at(object, set), self.tag(level, va));
        mem.write(self.pointer_at(object, set), entry.0);
        if self.rule == Rule::PudIndex {
            // Levels below belong to another path unless they are filled next.
            for below in LOWEST..level {
                self.write_tag(mem, self.tag_at(object, self.set(below, va)), 0);
            }
        }
        true
    }
}

/// All bits of an address above the range that an entry of a level maps.
pub(super) fn prefix(level: u8, va: VirtAddr) -> u64 {
    va.0 >> (FRAME_SHIFT + INDEX_BITS * u32::from(level - 1))
}

/// The index of an address into a table of a level.
pub(super) fn offset(level: u8, va: VirtAddr) -> u64 {
    prefix(level, va) & ((1 << INDEX_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TranslationCacheArrays;
    use pagelab_base::addr::Pfn;

    type Form = fn(TranslationCacheArrays) -> TranslationCacheConfig;

    const FORMS: [Form; 3] =
        [TranslationCacheConfig::FullPrefix, TranslationCacheConfig::AsPublished, TranslationCacheConfig::PudIndex];

    /// Hits and false hits, by level, of accesses to random pages of a region of this many GiB.
    fn rates(form: Form, entries: u32, ways: u32, gigabytes: u64) -> ([u64; 5], [u64; 5]) {
        rates_with(&form(TranslationCacheArrays { entries, ways, ..Default::default() }), gigabytes)
    }

    fn rates_with(config: &TranslationCacheConfig, gigabytes: u64) -> ([u64; 5], [u64; 5]) {
        let arrays = CacheArrays::new(config, 4).unwrap();
        let (mut mem, object) = (PhysMem::default(), PhysAddr(0));
        (0..arrays.bytes().div_ceil(4096)).for_each(|n| mem.create(Pfn(n)));
        let (mut hits, mut wrong, mut random) = ([0; 5], [0; 5], 1_u64);
        // One entry per level for each path, distinct from all others.
        let entry = |level: u8, va: VirtAddr| PhysAddr((u64::from(level) << 56 | prefix(level, va)) * 8);
        for _ in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let va = VirtAddr((0x7f00_0000_0000 + (random >> 20) % (gigabytes << 30)) & !4095);
            let mut filled = 4;
            if let Some(hit) = arrays.look_up(&mem, object, va).hit {
                let level = usize::from(hit.level);
                hits[level] += 1;
                wrong[level] += u64::from(hit.entry != entry(hit.level, va));
                filled = hit.level - 1;
            }
            (LOWEST..=filled).rev().for_each(|level| _ = arrays.fill(&mut mem, object, level, va, entry(level, va)));
        }
        (hits, wrong)
    }

    #[test]
    fn full_prefixes_and_one_index_are_never_wrong() {
        for gigabytes in [1, 2, 64, 2048] {
            for (form, ways) in [(0, 1), (0, 4), (2, 1)] {
                for entries in [4, 64] {
                    let (hits, wrong) = rates(FORMS[form], entries, ways, gigabytes);
                    assert_eq!(wrong, [0; 5], "form {form}, {entries} entries, {ways} ways, {gigabytes} GiB");
                    assert!(hits.iter().sum::<u64>() > 1000);
                }
            }
        }
    }

    #[test]
    fn entries_of_the_pud_change_the_hits_of_that_level_alone() {
        // 512 regions of 1 GiB: a slot for each is filled once, and the pud then hits whenever the pmd does not.
        let hits = |form: Form, pud_entries| {
            let parameters = TranslationCacheArrays { pud_entries, ..Default::default() };
            rates_with(&form(parameters), 512).0
        };
        for form in [FORMS[0], FORMS[1]] {
            let (few, many) = (hits(form, Some(16)), hits(form, Some(512)));
            assert_eq!(few, hits(form, None), "16 is what the other levels have");
            assert!(few[3] < 10_000 && many[3] > 190_000, "{few:?} {many:?}");
        }
        let [few, many] = [Some(16), Some(512)].map(|pud_entries| {
            CacheArrays::new(&FORMS[0](TranslationCacheArrays { pud_entries, ..Default::default() }), 4)
                .unwrap()
                .bytes()
        });
        assert_eq!(many - few, (512 - 16) * 16);
    }

    #[test]
    fn the_published_rule_is_wrong_beyond_a_gigabyte() {
        let percent = |entries, gigabytes| {
            let (hits, wrong) = rates(FORMS[1], entries, 1, gigabytes);
            assert_eq!(wrong[4], 0, "the root's own offset is its whole prefix");
            assert!(hits[2] > 3000, "{hits:?}");
            100.0 * wrong[2] as f64 / hits[2] as f64
        };
        assert!(percent(16, 1).abs() < f64::EPSILON);
        // The entry belongs to any of the regions of 1 GiB with the same probability.
        for (gigabytes, expected) in [(2, 50.0), (4, 75.0), (8, 87.5)] {
            for entries in [16, 512] {
                let found = percent(entries, gigabytes);
                assert!((found - expected).abs() < 2.0, "{found} % with {entries} entries, {gigabytes} GiB");
            }
        }
    }

    #[test]
    fn one_index_does_not_mix_the_paths_of_two_cpus() {
        let arrays = CacheArrays::new(&FORMS[2](TranslationCacheArrays::default()), 4).unwrap();
        let (mut mem, object) = (PhysMem::default(), PhysAddr(0));
        mem.create(Pfn(0));
        // PUDs with the same index. A walk has read the first one, and the other path is filled before the first walk
        // fills its PMD.
        let [first, second] = [1 << 30, 17 << 30].map(VirtAddr);
        (2..=4).rev().for_each(|level| assert!(arrays.fill(&mut mem, object, level, first, PhysAddr(64))));
        (2..=4).rev().for_each(|level| assert!(arrays.fill(&mut mem, object, level, second, PhysAddr(128))));
        let next = |va: VirtAddr| va + (1 << 21);
        assert!(!arrays.fill(&mut mem, object, 2, next(first), PhysAddr(72)));
        let hit = arrays.look_up(&mem, object, next(second)).hit.expect("its pud is there");
        assert_eq!((hit.level, hit.entry), (3, PhysAddr(128)));
    }

    #[test]
    fn a_set_evicts_its_oldest_entry() {
        let arrays =
            CacheArrays::new(&FORMS[0](TranslationCacheArrays { entries: 4, ways: 4, ..Default::default() }), 5)
                .unwrap();
        let (mut mem, object) = (PhysMem::default(), PhysAddr(0));
        mem.create(Pfn(0));
        let va = |n: u64| VirtAddr(n << 21);
        let hits =
            |mem: &PhysMem| [1, 2, 3, 4, 5].map(|n| arrays.look_up(mem, object, va(n)).hit.map(|hit| hit.entry.0));
        for n in 1..=4 {
            assert!(arrays.fill(&mut mem, object, 2, va(n), PhysAddr(8 * n)));
        }
        assert_eq!(hits(&mem), [Some(8), Some(16), Some(24), Some(32), None]);
        // A refilled entry is the youngest.
        assert!(arrays.fill(&mut mem, object, 2, va(1), PhysAddr(80)));
        assert!(arrays.fill(&mut mem, object, 2, va(5), PhysAddr(40)));
        assert_eq!(hits(&mem), [Some(80), None, Some(24), Some(32), Some(40)]);
        // Four tags of 8 bytes in four levels.
        assert_eq!(arrays.bytes(), 4 * 4 * 16);
        assert_eq!(arrays.tag_lines(object).count(), 2);
        assert_eq!(arrays.fill_tags(object, 2, 5, va(1)).len(), 2);
    }
}
