//! A replica of the walk in Linux's page-fault handler, plain and with a translation cache.
//!
//! Models: what `__handle_mm_fault` of Linux 4.19 (mm/memory.c) does from its entry to its call of `handle_pte_fault`,
//! on arrays with the layout of page-table pages. It fills `struct vm_fault`, finds the root through the mapping's
//! `vm_mm` and its `pgd`, and descends from the pgd to the pmd with the checks of each level (`p4d_none`, `pud_none`,
//! `pud_trans_huge`, `pmd_none`, `is_swap_pmd`, `pmd_trans_huge`). As in the kernel, tables are found through a base
//! that is read from memory (`page_offset_base`). With four levels the p4d is the pgd's entry. The translation cache is
//! that of Wu and Patel, Fig 5: an array of tags and an array of pointers, of 16 entries each, for each level above the
//! last. [`Form::Published`] compares indices from the pgd on; [`Form::FullPrefix`] compares all address bits above the
//! entry, from the pmd on. Nine words of `struct vm_fault` are zeroed. Compilers use one store per word, or a string
//! instruction, which takes about ten cycles longer (GCC 12 for x86-64 without vector registers, as the kernel is
//! built).
//! Deviations: all tables exist, so the code that allocates tables never runs.
//!
//! Why `unsafe`: the kernel's code has no bounds checks, and they would be a significant part of the measured time.
//! Pointers stay inside one allocation: [`Replica::new`] writes every entry of its tables, and indices have nine bits.
#![allow(unsafe_code)]

use std::{arch::asm, hint::black_box, mem::MaybeUninit, ptr};

const ENTRIES: usize = 512;
const TABLE_BYTES: usize = 4096;
const PAGE_SHIFT: u32 = 12;
/// Lowest address bit of each level's index.
const PGD_SHIFT: u32 = 39;
const PUD_SHIFT: u32 = 30;
const PMD_SHIFT: u32 = 21;

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const DEVICE: u64 = 1 << 58;
/// Flags of an entry that points to a table: present, writable, user, accessed, dirty.
const TABLE: u64 = 0x67;
const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;
const LARGE_FRAME_MASK: u64 = 0x000f_ffff_c000_0000;
const GFP_HIGHUSER_MOVABLE: u32 = 0x0062_00ca;
const GFP_FS_IO: u32 = 0x0000_00c0;

/// Start address of the region, aligned to 1 GiB.
pub const START: u64 = 0x7f12_4000_0000;
pub const BYTES: u64 = 1 << 30;

/// Entries per level of a translation cache.
const CACHED: usize = 16;
/// Levels of a translation cache: pgd, pud, pmd.
const LEVELS: usize = 3;
const SHIFTS: [u32; LEVELS] = [PGD_SHIFT, PUD_SHIFT, PMD_SHIFT];

#[repr(C, align(4096))]
#[derive(Clone)]
struct Table([u64; ENTRIES]);

/// `struct mm_struct`, up to its `pgd`.
#[repr(C, align(64))]
struct Mm {
    other: [u64; 10],
    pgd: *const u64,
}

/// `struct vm_area_struct`, up to `vm_file`.
#[repr(C, align(64))]
struct Vma {
    start: u64,
    /// End, neighbours, node of the tree, gap.
    in_tree: [u64; 7],
    mm: *const Mm,
    protection: u64,
    flags: u64,
    /// Node of the file's tree, anonymous mapping, operations.
    reverse: [u64; 8],
    page_offset: u64,
    file: *const u8,
}

/// `struct vm_fault`.
#[repr(C)]
struct VmFault {
    vma: *const Vma,
    flags: u32,
    gfp_mask: u32,
    page_offset: u64,
    address: u64,
    pmd: *const u64,
    pud: *const u64,
    /// `orig_pte`, `cow_page`, `memcg`, `page`, `pte`, `ptl`, `prealloc_pte`.
    for_later: [u64; 7],
}

/// Number of words from the pmd on, which are zeroed.
const ZEROED: usize = 9;

/// The arrays of the published form: tags are nine-bit indices.
#[repr(C, align(64))]
struct Published {
    tags: [[u16; CACHED]; LEVELS],
    entries: [[*const u64; CACHED]; LEVELS],
}

/// The arrays of the full-prefix form.
#[repr(C, align(64))]
struct FullPrefix {
    tags: [[u64; CACHED]; LEVELS],
    entries: [[*const u64; CACHED]; LEVELS],
}

/// How a translation cache detects a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Published,
    FullPrefix,
}

impl Form {
    pub const ALL: [Self; 2] = [Self::FullPrefix, Self::Published];
}

/// The level at which a descent begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Pgd,
    Pud,
    Pmd,
}

/// A mapping of 1 GiB with its tables and caches. `struct vm_fault` is zeroed by a string instruction, or by one store
/// per word.
pub struct Replica<const BY_STRING: bool> {
    /// Root, pud and pmd table; no table of PTEs, since those are not read.
    tables: Box<[Table]>,
    /// `page_offset_base`.
    direct_map: *const u8,
    /// Keeps the `Mm` alive that `vma` points to.
    _mm: Box<Mm>,
    vma: Box<Vma>,
    published: Box<Published>,
    full_prefix: Box<FullPrefix>,
}

impl<const BY_STRING: bool> Replica<BY_STRING> {
    pub fn new() -> Self {
        let mut tables = vec![Table([0; ENTRIES]); 4].into_boxed_slice();
        let entry = |table: usize| (table * TABLE_BYTES) as u64 | TABLE;
        tables[0].0[index(START, PGD_SHIFT)] = entry(1);
        tables[1].0[index(START, PUD_SHIFT)] = entry(2);
        tables[2].0.fill(entry(3));
        let mm = Box::new(Mm { other: [0; 10], pgd: tables.as_ptr().cast() });
        let vma = Box::new(Vma {
            start: START,
            in_tree: [0; 7],
            mm: &raw const *mm,
            protection: 0,
            flags: 0x73,
            reverse: [0; 8],
            page_offset: START >> PAGE_SHIFT,
            file: ptr::null(),
        });
        let direct_map = tables.as_ptr().cast();
        let (published, full_prefix) = (Box::new(Published::empty()), Box::new(FullPrefix::empty()));
        Self { tables, direct_map, _mm: mm, vma, published, full_prefix }
    }

    /// The plain walk; returns the offset of the pmd's entry in the tables.
    #[inline(never)]
    pub fn walk(&self, address: u64) -> usize {
        let mut fault = MaybeUninit::uninit();
        let fault = self.begin(&mut fault, address);
        let root = Self::root(fault.vma, fault.address);
        // SAFETY: it is the root's entry for the address.
        let path = unsafe { self.descend(fault, From::Pgd, root) };
        self.offset(path[2])
    }

    /// The walk from a known entry of level `from` for the address, without a look-up.
    #[inline(never)]
    pub fn walk_known(&self, address: u64, from: From, entry: *const u64) -> usize {
        let mut fault = MaybeUninit::uninit();
        let fault = self.begin(&mut fault, address);
        // SAFETY: the entry is one of `entry`'s for the address.
        let path = unsafe { self.descend(fault, from, entry) };
        self.offset(path[2])
    }

    /// The entry that a walk reads at a level.
    pub fn entry(&self, address: u64, from: From) -> *const u64 {
        let (table, shift) = match from {
            From::Pgd => (0, PGD_SHIFT),
            From::Pud => (1, PUD_SHIFT),
            From::Pmd => (2, PMD_SHIFT),
        };
        &raw const self.tables[table].0[index(address, shift)]
    }

    /// The walk that begins with a look-up, and fills the cache with the levels below the hit.
    #[inline(never)]
    pub fn walk_cached(&mut self, address: u64, form: Form) -> usize {
        match form {
            Form::Published => self.walk_published::<true>(address),
            Form::FullPrefix => self.walk_full_prefix::<true>(address),
        }
    }

    /// [`Self::walk_cached`] without filling.
    #[inline(never)]
    pub fn walk_looked_up(&mut self, address: u64, form: Form) -> usize {
        match form {
            Form::Published => self.walk_published::<false>(address),
            Form::FullPrefix => self.walk_full_prefix::<false>(address),
        }
    }

    /// Empties both caches.
    pub fn forget(&mut self) {
        (*self.published, *self.full_prefix) = (Published::empty(), FullPrefix::empty());
    }

    /// The root's entry for an address (`pgd_offset`).
    #[inline(always)]
    fn root(vma: *const Vma, address: u64) -> *const u64 {
        // SAFETY: mapping and space are our own, and the root has an entry of each index of nine bits.
        unsafe {
            let mm = (&raw const (*vma).mm).read_volatile();
            (&raw const (*mm).pgd).read_volatile().add(index(address, PGD_SHIFT))
        }
    }

    fn offset(&self, entry: *const u64) -> usize {
        entry.addr() - self.direct_map.addr()
    }

    /// Fills `struct vm_fault` (`linear_page_index`, `__get_fault_gfp_mask`).
    #[inline(always)]
    fn begin<'a>(&self, fault: &'a mut MaybeUninit<VmFault>, address: u64) -> &'a mut VmFault {
        let vma = black_box(&raw const *self.vma);
        let at = fault.as_mut_ptr();
        // SAFETY: the mapping is our own; each word of what is filled is written, and zeros are null pointers.
        unsafe {
            let fields = &*vma;
            (&raw mut (*at).vma).write_volatile(vma);
            let zeros = (&raw mut (*at).pmd).cast::<u64>();
            if BY_STRING {
                asm!("rep stosq", inout("rcx") ZEROED => _, inout("rdi") zeros => _, in("rax") 0_u64,
                    options(nostack, preserves_flags));
            } else {
                (0..ZEROED).for_each(|word| zeros.add(word).write_volatile(0));
            }
            let gfp = if fields.file.is_null() { GFP_HIGHUSER_MOVABLE } else { GFP_HIGHUSER_MOVABLE | GFP_FS_IO };
            (&raw mut (*at).flags).write_volatile(black_box(0x55));
            (&raw mut (*at).gfp_mask).write_volatile(gfp);
            (&raw mut (*at).page_offset).write_volatile(((address - fields.start) >> PAGE_SHIFT) + fields.page_offset);
            (&raw mut (*at).address).write_volatile(address & !(TABLE_BYTES as u64 - 1));
            fault.assume_init_mut()
        }
    }

    /// Descends to the pmd from an entry of a level; returns the entries of pgd, pud and pmd that it read.
    ///
    /// # Safety
    /// `entry` is the entry of that level for the fault's address.
    #[inline(always)]
    unsafe fn descend(&self, fault: &mut VmFault, from: From, entry: *const u64) -> [*const u64; LEVELS] {
        let mut path = [ptr::null(); LEVELS];
        // SAFETY: by the caller's promise the entry is in our tables, all of whose entries on the way lead to the next
        // of them; indices have nine bits.
        unsafe {
            if from == From::Pgd {
                path[0] = entry;
                // The p4d is folded into it.
                let p4d = path[0].read_volatile();
                if p4d & !0x60 == 0 {
                    missing();
                }
                path[1] = self.table(p4d & FRAME_MASK).add(index(fault.address, PUD_SHIFT));
            } else if from == From::Pud {
                path[1] = entry;
            }
            if from == From::Pmd {
                path[2] = entry;
            } else {
                fault.pud = path[1];
                let pud = path[1].read_volatile();
                if pud & !0x60 == 0 || pud & (LARGE | DEVICE) != 0 {
                    missing();
                }
                // `pud_pfn_mask` checks again whether it is a large page.
                let mask = if path[1].read_volatile() & LARGE == 0 { FRAME_MASK } else { LARGE_FRAME_MASK };
                path[2] = self.table(pud & mask).add(index(fault.address, PMD_SHIFT));
            }
            fault.pmd = path[2];
            let pmd = path[2].read_volatile();
            if pmd & !0x60 == 0 || pmd & PRESENT == 0 || pmd & (LARGE | DEVICE) != 0 {
                missing();
            }
        }
        black_box(&raw const *fault);
        path
    }

    /// The table at a physical address (`__va`).
    ///
    /// # Safety
    /// The address is of one of our tables.
    #[inline(always)]
    unsafe fn table(&self, address: u64) -> *const u64 {
        // SAFETY: the field is our own; by the caller's promise the address lies inside our tables.
        unsafe { (&raw const self.direct_map).read_volatile().add(address as usize).cast() }
    }

    #[inline(always)]
    fn walk_published<const FILL: bool>(&mut self, address: u64) -> usize {
        let mut fault = MaybeUninit::uninit();
        let fault = self.begin(&mut fault, address);
        let offsets = SHIFTS.map(|shift| index(fault.address, shift));
        let cache = black_box(&raw mut *self.published);
        // SAFETY: the cache is our own, and indices are below its entries. What a tag of an address hits was filled for
        // an address with the same offsets at all levels above, which in a region of 1 GiB is the right entry.
        unsafe {
            let (mut hits, mut entry) = (0, ptr::null());
            for (level, &offset) in offsets.iter().enumerate() {
                if (&raw const (*cache).tags[level][offset % CACHED]).read_volatile() != offset as u16 + 1 {
                    break;
                }
                hits = level + 1;
            }
            if hits > 0 {
                entry = (&raw const (*cache).entries[hits - 1][offsets[hits - 1] % CACHED]).read_volatile();
            }
            let path = self.descend_after(fault, hits, entry);
            if FILL {
                for level in hits..LEVELS {
                    let place = offsets[level] % CACHED;
                    (&raw mut (*cache).tags[level][place]).write_volatile(offsets[level] as u16 + 1);
                    (&raw mut (*cache).entries[level][place]).write_volatile(path[level]);
                }
            }
            self.offset(path[2])
        }
    }

    #[inline(always)]
    fn walk_full_prefix<const FILL: bool>(&mut self, address: u64) -> usize {
        let mut fault = MaybeUninit::uninit();
        let fault = self.begin(&mut fault, address);
        let prefixes = SHIFTS.map(|shift| fault.address >> shift);
        let cache = black_box(&raw mut *self.full_prefix);
        // SAFETY: the cache is our own, and indices are below its entries. What a prefix hits was filled for it.
        unsafe {
            let (mut hits, mut entry) = (0, ptr::null());
            for level in (0..LEVELS).rev() {
                let place = prefixes[level] as usize % CACHED;
                if (&raw const (*cache).tags[level][place]).read_volatile() == prefixes[level] {
                    (hits, entry) = (level + 1, (&raw const (*cache).entries[level][place]).read_volatile());
                    break;
                }
            }
            let path = self.descend_after(fault, hits, entry);
            if FILL {
                for level in hits..LEVELS {
                    let place = prefixes[level] as usize % CACHED;
                    (&raw mut (*cache).tags[level][place]).write_volatile(prefixes[level]);
                    (&raw mut (*cache).entries[level][place]).write_volatile(path[level]);
                }
            }
            self.offset(path[2])
        }
    }

    /// Descends from the deepest level that hits.
    ///
    /// # Safety
    /// `entry` is the entry of that level for the fault's address; it is ignored without a hit.
    #[inline(always)]
    unsafe fn descend_after(&self, fault: &mut VmFault, hits: usize, entry: *const u64) -> [*const u64; LEVELS] {
        // SAFETY: by the caller's promise.
        unsafe {
            match hits {
                0 => self.descend(fault, From::Pgd, Self::root(fault.vma, fault.address)),
                1 => self.descend(fault, From::Pgd, entry),
                2 => self.descend(fault, From::Pud, entry),
                _ => self.descend(fault, From::Pmd, entry),
            }
        }
    }
}

impl Published {
    fn empty() -> Self {
        Self { tags: [[0; CACHED]; LEVELS], entries: [[ptr::null(); CACHED]; LEVELS] }
    }
}

impl FullPrefix {
    fn empty() -> Self {
        Self { tags: [[0; CACHED]; LEVELS], entries: [[ptr::null(); CACHED]; LEVELS] }
    }
}

#[inline(always)]
fn index(address: u64, shift: u32) -> usize {
    (address >> shift) as usize % ENTRIES
}

/// Stands for the code that would build or split tables, which never runs here.
#[cold]
#[inline(never)]
fn missing() {
    unreachable!("every entry of the region is there");
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [From; 3] = [From::Pgd, From::Pud, From::Pmd];

    #[test]
    fn every_way_leads_to_the_same_entry() {
        every_way_of::<false>();
        every_way_of::<true>();
    }

    fn every_way_of<const BY_STRING: bool>() {
        let mut replica = Replica::<BY_STRING>::new();
        // Pages of one pmd, of pmds with the same index, and of all.
        for page in (0..BYTES / 4096).step_by(17).chain([0, 1, 512, 16 * 512, 0]) {
            let address = START + page * 4096 + 8;
            let expected = 2 * TABLE_BYTES + (page / 512) as usize * 8;
            assert_eq!(replica.walk(address), expected);
            for from in ALL {
                assert_eq!(replica.walk_known(address, from, replica.entry(address, from)), expected);
            }
            for form in Form::ALL {
                assert_eq!(replica.walk_looked_up(address, form), expected, "{form:?}, page {page}");
                assert_eq!(replica.walk_cached(address, form), expected, "{form:?}, page {page}");
                assert_eq!(replica.walk_cached(address, form), expected, "{form:?}, page {page} again");
            }
        }
        assert_ne!(replica.full_prefix.tags[2], [0; CACHED]);
        replica.forget();
        assert_eq!((replica.full_prefix.tags[2], replica.published.tags[0]), ([0; CACHED], [0; CACHED]));
    }

    #[test]
    fn a_hit_begins_at_what_was_filled() {
        let mut replica = Replica::<false>::new();
        let elsewhere = &raw const replica.tables[2].0[511];
        for form in Form::ALL {
            replica.walk_cached(START, form);
            replica.published.entries[2][0] = elsewhere;
            replica.full_prefix.entries[2][0] = elsewhere;
            assert_eq!(replica.walk_cached(START, form), replica.offset(elsewhere), "{form:?}");
            // Another pmd replaces the entry, and is replaced in turn.
            let other = START + (16 << PMD_SHIFT);
            assert_ne!(replica.walk_cached(other, form), replica.offset(elsewhere));
            assert_eq!(replica.walk_cached(START, form), 2 * TABLE_BYTES);
        }
    }
}
