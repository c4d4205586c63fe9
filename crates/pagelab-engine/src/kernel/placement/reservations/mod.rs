//! PTEMagnet: blocks of adjacent frames that a kernel reserves for adjacent pages, so that the pages stay together however many
//! programs ask for memory at once.
//!
//! Models: the first fault in a group of 8 pages takes a block of 8 frames and gives out, zeroes and maps one; the faults that
//! follow in the group take theirs from the block ([`Part`] finds it). A reservation ends, and gives back what was not given
//! out, when all of its pages are, when a page of the group is unmapped, copied or reclaimed, with the address space, and when
//! memory is needed. Its frames are charged to a cgroup as they are given out.
//! Source: Margaritov, Ustiugov, Shahab, Grot, "PTEMagnet: fine-grained physical memory reservation for faster page walks in
//! public clouds" (ASPLOS 2021), and its artefact for Linux 4.19 (`do_anonymous_page`, `wp_page_copy`, `try_to_unmap_one`).
//! Parameters: `system.layers.NAME.placement` of kind `ptemagnet`: `group_pages`, `release_above_percent`, `cycles`,
//! `instructions`.
//! Stats: `layer.NAME.reservations.*`.
//! Deviations from the artefact, which leaves these out or is wrong there: a group that does not lie wholly inside its mapping has no
//! reservation; one whose pages are all given out is dropped; a block that cannot be had leaves the fault to the ordinary way; a
//! page that was read before it was written (zero page) counts as untouched. Silent in the paper: a forked child has no reservations of
//! its own or its parent's, and a page that the parent copies ends the group's. Threads of the kernel that watch memory are not
//! modelled: the fault that finds too little gives reservations back, as many at a time as a scan of reclaim looks at pages.

mod part;

use std::collections::BTreeSet;

pub use part::{KEY_BITS, NODE_BYTES, NODE_ORDER, Part, Reservation, Way};

use crate::base::addr::{FRAME_SHIFT, Pfn, VirtAddr};
use crate::config::PtemagnetConfig;
use crate::kernel::frames::frame_alloc::FramePurpose;
use crate::kernel::layer::Layer;
use crate::kernel::reclaim::SCAN_PAGES;
use crate::kernel::vma::VaRange;

/// Why a reservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All its pages are given out.
    Full,
    /// A page of the group was unmapped, by a call, by reclaim or with the address space.
    Unmapped,
    Copied,
    /// Memory is needed.
    Pressure,
}

impl End {
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Full, "full", "all their pages were given out"),
        (Self::Unmapped, "unmapped", "a page of the group was unmapped"),
        (Self::Copied, "copied", "a page of the group was copied"),
        (Self::Pressure, "pressure", "memory was needed"),
    ];
}

/// What they count.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReservationCounters {
    pub made: u64,
    /// Pages given out of them.
    pub given: u64,
    /// Groups for which there was no block.
    pub no_block: u64,
    /// By [`End`].
    pub ended: [u64; 4],
    /// Most frames reserved and not given out.
    pub peak_unused: u64,
}

/// The reservations of a layer.
pub struct Reservations {
    pub config: PtemagnetConfig,
    /// Address space and number of each group that has one: a list for those who look for some to give back.
    live: BTreeSet<(u32, u64)>,
    /// Frames reserved and not given out.
    unused: u64,
    pub counters: ReservationCounters,
}

impl Reservations {
    pub fn new(config: PtemagnetConfig) -> Self {
        Self { config, live: BTreeSet::new(), unused: 0, counters: ReservationCounters::default() }
    }

    /// Number of the group that an address lies in.
    pub fn group(&self, va: VirtAddr) -> u64 {
        va.0 >> (FRAME_SHIFT + self.config.order())
    }

    /// The pages of a group.
    pub fn range(&self, group: u64) -> VaRange {
        let shift = FRAME_SHIFT + self.config.order();
        VaRange { start: VirtAddr(group << shift), end: VirtAddr((group + 1) << shift) }
    }

    pub fn unused_frames(&self) -> u64 {
        self.unused
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

impl Layer {
    /// The group of an address, if its pages can have a reservation at all: it lies inside the range of its mapping.
    pub fn group_within(&self, va: VirtAddr, mapping: VaRange) -> Option<u64> {
        let reservations = self.reservations.as_ref()?;
        let group = reservations.group(va);
        let range = reservations.range(group);
        (group >> KEY_BITS == 0 && mapping.start <= range.start && range.end <= mapping.end).then_some(group)
    }

    /// The reservation of a group.
    pub fn reservation(&self, space: u32, group: u64) -> Option<Reservation> {
        self.spaces[space as usize].part.get(&self.mem, group)
    }

    pub fn part_way(&self, space: u32, group: u64) -> Way {
        self.spaces[space as usize].part.way(&self.mem, group)
    }

    /// Whether so much memory is in use that reservations are to be given back, and none are made.
    pub fn is_crowded(&self) -> bool {
        let Some(reservations) = &self.reservations else { return false };
        let frames = self.memory_bytes() >> FRAME_SHIFT;
        (frames - self.free_frame_count()) * 100 > frames * u64::from(reservations.config.release_above_percent)
    }

    /// A block for a group, nothing of it given out yet; the nodes of its leaf are there.
    pub fn reserve(&mut self, space: u32, group: u64) -> bool {
        let order = self.reservations.as_ref().expect("the layer makes them").config.order();
        let block = self.frames.alloc(order, FramePurpose::UserData, self.acting_cpu);
        let reservations = self.reservations.as_mut().expect("the layer makes them");
        let Some(block) = block else {
            reservations.counters.no_block += 1;
            return false;
        };
        self.spaces[space as usize].part.set(&mut self.mem, group, Some(Reservation { block, given: 0 }));
        reservations.live.insert((space, group));
        reservations.unused += 1 << order;
        reservations.counters.made += 1;
        true
    }

    /// Gives a page out of its group's reservation; none if the group has no reservation or that page is given out.
    pub fn give_out(&mut self, space: u32, va: VirtAddr) -> Option<Pfn> {
        let reservations = self.reservations.as_mut()?;
        let (group, order) = (reservations.group(va), reservations.config.order());
        let reservation = self.spaces[space as usize].part.get(&self.mem, group)?;
        let n = va.0 >> FRAME_SHIFT & ((1 << order) - 1);
        if reservation.given >> n & 1 != 0 {
            return None;
        }
        let given = reservation.given | 1 << n;
        self.spaces[space as usize].part.set(&mut self.mem, group, Some(Reservation { given, ..reservation }));
        reservations.unused -= 1;
        let counters = &mut reservations.counters;
        (counters.given, counters.peak_unused) = (counters.given + 1, counters.peak_unused.max(reservations.unused));
        let pfn = Pfn(reservation.block.0 + n);
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.charge(pfn, 0, self.acting_group);
        }
        if given.count_ones() == 1 << order {
            self.end_reservation(space, group, End::Full);
        }
        Some(pfn)
    }

    /// Ends a group's reservation, if it has one: what was not given out is free again. Returns how many frames these are.
    pub fn end_reservation(&mut self, space: u32, group: u64, why: End) -> u64 {
        let Some(reservations) = &mut self.reservations else { return 0 };
        let part = &self.spaces[space as usize].part;
        let Some(reservation) = part.get(&self.mem, group) else { return 0 };
        part.set(&mut self.mem, group, None);
        reservations.live.remove(&(space, group));
        reservations.counters.ended[why as usize] += 1;
        let order = reservations.config.order();
        let unused = (1 << order) - u64::from(reservation.given.count_ones());
        reservations.unused -= unused;
        for n in (0..1 << order).filter(|n| reservation.given >> n & 1 == 0) {
            self.free_frame_of_block(Pfn(reservation.block.0 + n));
        }
        unused
    }

    /// Ends the reservations of all groups that overlap a range.
    pub fn end_reservations(&mut self, space: u32, range: VaRange) {
        let Some(reservations) = self.reservations.as_ref().filter(|of| !of.is_empty() && !range.is_empty()) else {
            return;
        };
        let (first, last) = (reservations.group(range.start), reservations.group(VirtAddr(range.end.0 - 1)));
        let groups: Vec<u64> =
            reservations.live.range((space, first)..=(space, last)).map(|&(_, group)| group).collect();
        groups.into_iter().for_each(|group| _ = self.end_reservation(space, group, End::Unmapped));
    }

    /// A page is unmapped: its group's reservation ends.
    pub fn end_reservation_of(&mut self, space: u32, va: VirtAddr) {
        if let Some(reservations) = self.reservations.as_ref().filter(|of| !of.is_empty()) {
            self.end_reservation(space, reservations.group(va), End::Unmapped);
        }
    }

    /// Ends all reservations of a space and frees the table itself, as the end of its mm does.
    pub fn drop_part(&mut self, space: u32) {
        self.end_reservations(space, VaRange { start: VirtAddr(0), end: VirtAddr(u64::MAX) });
        let part = &mut self.spaces[space as usize].part;
        part.clear(&mut self.mem, &mut |pfn| self.frames.free(pfn, NODE_ORDER, self.acting_cpu));
    }

    /// The next reservations to be given back.
    pub fn reservations_to_end(&self) -> Vec<(u32, u64)> {
        self.reservations.iter().flat_map(|of| of.live.iter().copied()).take(SCAN_PAGES).collect()
    }

    /// Frames of the tables of reservations.
    pub fn part_frames(&self) -> u64 {
        if self.reservations.is_none() { 0 } else { self.spaces.iter().map(|space| space.part.frames()).sum() }
    }

    /// Frames reserved and not given out.
    pub fn reserved_frames(&self) -> u64 {
        self.reservations.as_ref().map_or(0, Reservations::unused_frames)
    }
}
