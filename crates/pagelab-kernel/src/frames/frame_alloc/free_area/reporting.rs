//! Free blocks that are reported to a host, once until they are used again.
//!
//! # Source
//! Linux 6.1 `mm/page_reporting.c`: `page_reporting_cycle`, `page_reporting_drain`; `mm/page_alloc.c`:
//! `__isolate_free_page`, `__putback_isolated_page`, `del_page_from_free_list` (`__ClearPageReported`).

use super::super::report::Reported;
use super::super::{AllocEffects, MigrateType, ReportPass};
use super::{AT_BOOT, FrameState, FreeArea, Index, NEWER, OLDER};

/// Requests per list and pass: one for each 16 requests that all its blocks would take, and one more.
const PARTS_OF_A_LIST: u64 = 16;

impl FreeArea {
    /// Begins to note which free blocks of at least this order have been reported. Blocks that were never handed out
    /// get their places at the ends of the lists, as in Linux.
    pub(in crate::frames::frame_alloc) fn track_reports(&mut self, order: u32) {
        if self.reported.order == order {
            return;
        }
        self.reported = Reported::new(order, self.states.len());
        let mut at_no_cost = AllocEffects::default();
        while let Some(range) = self.untouched.pop() {
            for index in range.step_by(1 << self.max_order) {
                self.link_last(index, self.max_order, AT_BOOT, &mut at_no_cost);
            }
        }
        self.untouched_blocks = 0;
    }

    /// The smallest order of a block that is reported.
    pub(in crate::frames::frame_alloc) fn report_order(&self) -> u32 {
        self.reported.order
    }

    /// Isolates free blocks that have not been reported, as far as the request has room and more than `min` frames
    /// remain. Calls `locked` for each list that has blocks. Goes on where the pass is. Returns whether the request is
    /// full and more blocks wait; otherwise the pass is through with this memory.
    pub(in crate::frames::frame_alloc) fn isolate_unreported(
        &mut self,
        pass: &mut ReportPass,
        min: u64,
        effects: &mut AllocEffects,
        locked: &mut dyn FnMut(&mut AllocEffects),
    ) -> bool {
        pass.order = pass.order.max(self.reported.order);
        while pass.order <= self.max_order {
            let list = MigrateType::ALL[pass.list];
            if self.heads[list as usize][pass.order as usize] != 0 {
                locked(effects);
                if self.isolate_from(list, pass, min, effects) {
                    return true;
                }
            }
            pass.next_list();
        }
        false
    }

    /// [`Self::isolate_unreported`] for one list (`page_reporting_cycle`).
    fn isolate_from(&mut self, list: MigrateType, pass: &mut ReportPass, min: u64, effects: &mut AllocEffects) -> bool {
        let order = pass.order;
        let each = PARTS_OF_A_LIST * pass.capacity as u64;
        let budget = pass.budget.unwrap_or_else(|| self.free_blocks(order).div_ceil(each) as i64);
        let mut at = self.heads[list as usize][order as usize];
        let mut rest = None;
        while at != 0 {
            let index = at - 1;
            at = self.links[(index >> self.pair) as usize][OLDER];
            effects.descriptors.push(self.pfn(index));
            if self.reported.contains(index) {
                continue;
            }
            if budget < 0 {
                pass.goes_on = true;
                rest = Some(index);
                break;
            }
            if pass.batch.len() == pass.capacity {
                self.rotate_to_front(index, order, list, effects);
                pass.budget = Some(budget - 1);
                return true;
            }
            if self.free_frames <= min + (1 << order) {
                rest = Some(index);
                break;
            }
            self.unlink(index, effects);
            self.states[index as usize] = FrameState::used(order, MigrateType::Movable).0;
            self.free_frames -= 1 << order;
            self.booted = true;
            pass.batch.push((self.pfn(index), order));
        }
        pass.budget = Some(budget);
        if let Some(index) = rest {
            self.rotate_to_front(index, order, list, effects);
        }
        false
    }

    /// Puts a block back after it was reported, at the end of a list. If it merges with free buddies, the whole has not
    /// been reported.
    pub(in crate::frames::frame_alloc) fn put_back(
        &mut self,
        index: Index,
        order: u32,
        list: MigrateType,
        effects: &mut AllocEffects,
    ) {
        let (first, whole) = self.merge(index, order, effects);
        self.link_last(first, whole, list, effects);
        if whole == order {
            self.reported.set(first, true);
        }
    }

    /// Puts the free block at `index` at the end of the list of its order and type.
    fn link_last(&mut self, index: Index, order: u32, list: MigrateType, effects: &mut AllocEffects) {
        let newer = self.tails[list as usize][order as usize];
        if newer == 0 {
            return self.link(index, order, list, effects);
        }
        self.links[(index >> self.pair) as usize] = [newer, 0];
        self.states[index as usize] = FrameState::free(order, list).0;
        effects.descriptors.push(self.pfn(index));
        self.links[((newer - 1) >> self.pair) as usize][OLDER] = index + 1;
        effects.descriptors.push(self.pfn(newer - 1));
        self.tails[list as usize][order as usize] = index + 1;
        self.listed[list as usize][order as usize] += 1;
    }

    /// Makes a listed block the first of its list; those before it go to the end (`list_rotate_to_front`).
    fn rotate_to_front(&mut self, index: Index, order: u32, list: MigrateType, effects: &mut AllocEffects) {
        let newer = self.links[(index >> self.pair) as usize][NEWER];
        if newer == 0 {
            return;
        }
        let (head, tail) = (self.heads[list as usize][order as usize], self.tails[list as usize][order as usize]);
        self.links[((newer - 1) >> self.pair) as usize][OLDER] = 0;
        self.links[((tail - 1) >> self.pair) as usize][OLDER] = head;
        self.links[((head - 1) >> self.pair) as usize][NEWER] = tail;
        self.links[(index >> self.pair) as usize][NEWER] = 0;
        self.heads[list as usize][order as usize] = index + 1;
        self.tails[list as usize][order as usize] = newer;
        effects.descriptors.extend([index, newer - 1, head - 1, tail - 1].map(|at| self.pfn(at)));
    }

    /// Checks that only free blocks of such orders are marked as reported.
    pub(super) fn check_reported(&self) {
        for index in self.reported.all() {
            let state = self.state(index);
            let listed = state.free_list().is_some() && state.order() >= self.reported.order;
            assert!(listed, "reported at {index}: {state}");
        }
    }
}
