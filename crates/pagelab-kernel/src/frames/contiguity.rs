//! Contiguity of the frames of adjacent pages, as a host's walker meets them in a guest's memory.
//!
//! The eight PTEs of a cache line translate a group of eight pages. If the frames of these lie in one aligned block of
//! eight, their host PTEs share a cache line too; if they are scattered, each has a line of its own.
//! Source: PTEMagnet (ASPLOS 2021), whose metric is the number of host PTE lines per PTE line of the guest: 1 at best,
//! 8 at worst.

use serde::Serialize;

/// log2 of the number of PTEs in a cache line.
pub(crate) const LINE_ORDER: u32 = 3;

/// Counts over the groups of eight pages in which anonymous memory is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contiguity {
    /// Groups with at least one page.
    pub groups: u64,
    /// Aligned blocks of eight frames that contain these pages, summed over the groups.
    pub lines: u64,
    /// Groups all of whose eight pages are mapped.
    pub full: u64,
    /// Full groups whose frames are one aligned block.
    pub contiguous: u64,
}

impl Contiguity {
    /// Adds the counts of other memory.
    pub fn add(&mut self, other: Self) {
        self.groups += other.groups;
        self.lines += other.lines;
        self.full += other.full;
        self.contiguous += other.contiguous;
    }

    pub(crate) fn add_group(&mut self, group: &PageGroup) {
        self.groups += u64::from(group.pages > 0);
        self.lines += group.count as u64;
        self.full += u64::from(group.pages == 1 << LINE_ORDER);
        self.contiguous += u64::from(group.pages == 1 << LINE_ORDER && group.count == 1);
    }
}

/// A run of adjacent pages in adjacent frames: number of the first page, of its frame, and length in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ContiguousRun(pub u64, pub u64, pub u64);

/// The group that is being counted.
#[derive(Default)]
pub(crate) struct PageGroup {
    pub(crate) number: u64,
    pub(crate) pages: u32,
    pub(crate) lines: [u64; 1 << LINE_ORDER],
    pub(crate) count: usize,
}

impl PageGroup {
    pub(crate) fn add(&mut self, pfn: u64) {
        self.pages += 1;
        let line = pfn >> LINE_ORDER;
        if !self.lines[..self.count].contains(&line) {
            self.lines[self.count] = line;
            self.count += 1;
        }
    }
}
