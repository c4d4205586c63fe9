//! Memory cgroups: charges of pages to groups, and the choice of the group for the next scan.
//!
//! Models: every page, including pages of files, is charged to the group of the program that touches it first, and
//! stays charged to it. Each group has its own LRU lists. A group at its limit reclaims its own pages; when the machine
//! runs short of memory, groups are scanned in proportion to the size of their pages.
//! Source: Linux mm/memcontrol.c (`try_charge_memcg`, `mem_cgroup_lruvec`), mm/vmscan.c (`shrink_node_memcgs`).
//! Parameters: `kernel.cgroup_limit_bytes` (for all programs in no other group), `memory_limit` of a source.
//! Stats: `cgroup.*`.
//! Deviations: groups are not nested and have no `memory.low` or `memory.high`. Page tables and kernel objects are not
//! charged.

use super::Reclaim;
use super::lru::{Lru, LruPageKind};
use pagelab_base::addr::Pfn;

pagelab_base::id! {
    /// Number of a group of a layer. [`GroupId::REST`] is the group of all programs in no other group.
    GroupId(u16)
}

impl GroupId {
    /// The group of all programs in no other group.
    pub const REST: Self = Self::FIRST;
}

/// Cause of reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// A group is at its limit.
    Limit(GroupId),
    /// Memory runs short.
    Memory,
}

/// A group and its pages.
#[derive(Clone, Default)]
pub struct Cgroup {
    /// The source that the group was created for; empty for the rest.
    pub name: String,
    pub(super) lru: Lru,
    /// Limit of the group, in frames.
    pub limit_frames: u64,
    /// Frames charged to the group.
    pub used_frames: u64,
    /// Largest number of frames charged at a time.
    pub peak_frames: u64,
    /// Number of scans because the group was at its limit.
    pub limit_scans: u64,
    /// Scanning that the group is owed, in frames.
    credit: i64,
}

/// The group whose turn it is to be scanned, and the credits of all groups after the turn.
pub(super) struct ScanTurn {
    pub group: GroupId,
    credits: Vec<i64>,
}

impl Cgroup {
    /// A group without pages, for the source of this name, with a limit in frames.
    pub fn new(name: &str, limit_frames: u64) -> Self {
        Self { name: name.to_owned(), limit_frames, ..Self::default() }
    }
}

impl Reclaim {
    /// A new group.
    pub fn add_group(&mut self, group: Cgroup) -> GroupId {
        self.groups.push(group);
        GroupId::from(self.groups.len() - 1)
    }

    /// All groups; [`GroupId::REST`] is the first.
    pub fn groups(&self) -> &[Cgroup] {
        &self.groups
    }

    /// The group that a frame is charged to.
    pub(super) fn group_of(&self, pfn: Pfn) -> GroupId {
        if self.members.is_empty() { GroupId::REST } else { self.members.get(&pfn).copied().unwrap_or_default() }
    }

    pub(super) fn group(&self, id: GroupId) -> &Cgroup {
        &self.groups[usize::from(id.0)]
    }

    pub(super) fn group_mut(&mut self, id: GroupId) -> &mut Cgroup {
        &mut self.groups[usize::from(id.0)]
    }

    /// Charges 2^order frames from `pfn` on to a group.
    pub fn charge(&mut self, pfn: Pfn, order: u32, id: GroupId) {
        if id != GroupId::REST {
            (0..1 << order).for_each(|n| _ = self.members.insert(pfn + n, id));
        }
        let group = self.group_mut(id);
        group.used_frames += 1 << order;
        group.peak_frames = group.peak_frames.max(group.used_frames);
    }

    /// Removes the charge of 2^order frames from `pfn` on, and removes them from the LRU lists.
    pub fn uncharge(&mut self, pfn: Pfn, order: u32) {
        let id = self.group_of(pfn);
        let group = self.group_mut(id);
        group.lru.forget(pfn, order);
        group.used_frames -= 1 << order;
        if id != GroupId::REST {
            (0..1 << order).for_each(|n| _ = self.members.remove(&(pfn + n)));
        }
    }

    /// Number of charged frames, over all groups.
    pub fn used_frames(&self) -> u64 {
        self.groups.iter().map(|group| group.used_frames).sum()
    }

    /// Number of frames of a kind on the LRU lists.
    pub fn listed(&self, kind: LruPageKind) -> u64 {
        self.groups.iter().map(|group| group.lru.frames(kind)).sum()
    }

    /// Whether a fault of a group must reclaim memory before it allocates `frames` more, with `free` frames left.
    pub fn pressure(&self, free: u64, frames: u64, id: GroupId) -> Option<Pressure> {
        let group = self.group(id);
        match () {
            () if group.used_frames + frames > group.limit_frames => Some(Pressure::Limit(id)),
            () if free < self.marks.min + frames => Some(Pressure::Memory),
            () => None,
        }
    }

    /// By kind: whether pages of a group can be reclaimed.
    pub(super) fn possible(&self, group: &Cgroup) -> [bool; 2] {
        let swap = self.swap.as_ref().is_some_and(|swap| swap.room() > 0);
        let listed = |kind| group.lru.frames(kind) > 0;
        [swap && listed(LruPageKind::Anonymous), listed(LruPageKind::File)]
    }

    /// Whether any page might be reclaimed.
    pub fn has_pages(&self, pressure: Pressure) -> bool {
        match pressure {
            Pressure::Limit(id) => self.possible(self.group(id)).contains(&true),
            Pressure::Memory => self.groups.iter().any(|group| self.possible(group).contains(&true)),
        }
    }

    /// Chooses the group for the next scan.
    pub(super) fn next_group(&self, pressure: Pressure) -> ScanTurn {
        if let Pressure::Limit(group) = pressure {
            return ScanTurn { group, credits: Vec::new() };
        }
        let due = |group: &Cgroup| {
            let [anonymous, file] = self.possible(group);
            let frames = |kind, counts: bool| if counts { group.lru.frames(kind) as i64 } else { 0 };
            frames(LruPageKind::Anonymous, anonymous) + frames(LruPageKind::File, file)
        };
        let mut credits: Vec<i64> = self.groups.iter().map(|group| group.credit + due(group)).collect();
        let with_pages = (0..self.groups.len()).filter(|&n| due(&self.groups[n]) > 0);
        // Among equals, the first.
        let chosen = with_pages.max_by_key(|&n| (credits[n], std::cmp::Reverse(n))).unwrap_or(0);
        credits[chosen] -= self.groups.iter().map(due).sum::<i64>();
        ScanTurn { group: GroupId::from(chosen), credits }
    }

    /// Records that the group which [`Self::next_group`] returned is scanned.
    pub(super) fn take_turn(&mut self, turn: ScanTurn) {
        if turn.credits.is_empty() {
            self.group_mut(turn.group).limit_scans += 1;
        }
        self.groups.iter_mut().zip(turn.credits).for_each(|(group, credit)| group.credit = credit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KernelConfig;
    use pagelab_hardware::device::Clock;

    fn reclaim() -> Reclaim {
        let preset = include_str!("../../../../presets/kernels/linux-4.9.toml");
        let swap = "[swap]\nsize_bytes = \"1GiB\"\nread_cycles = 1\nwrite_cycles = 1\nqueue_depth = 1\n";
        let kernel: KernelConfig = toml::from_str(&format!("{preset}\n{swap}")).unwrap();
        Reclaim::new(1 << 20, &kernel, Clock { mhz: 1000 }).unwrap()
    }

    #[test]
    fn scans_for_the_machine_go_to_groups_in_proportion_and_those_at_a_limit_to_its_own() {
        let mut reclaim = reclaim();
        let other = reclaim.add_group(Cgroup::new("other", 100));
        for (first, count, id) in [(0, 300, GroupId::REST), (1000, 100, other)] {
            for n in first..first + count {
                reclaim.charge(Pfn(n), 0, id);
                reclaim.add(Pfn(n), 0, LruPageKind::Anonymous);
            }
        }
        assert_eq!((reclaim.used_frames(), reclaim.listed(LruPageKind::Anonymous)), (400, 400));
        assert_eq!(reclaim.pressure(1 << 19, 1, other), Some(Pressure::Limit(other)));
        assert_eq!(reclaim.pressure(1 << 19, 1, GroupId::REST), None);
        assert_eq!(reclaim.pressure(1, 1, GroupId::REST), Some(Pressure::Memory));
        let mut scans = [0; 2];
        for _ in 0..400 {
            let turn = reclaim.next_group(Pressure::Memory);
            scans[turn.group] += 1;
            reclaim.take_turn(turn);
        }
        assert_eq!(scans, [300, 100]);
        let turn = reclaim.next_group(Pressure::Limit(other));
        assert_eq!(turn.group, other);
        reclaim.take_turn(turn);
        assert_eq!(reclaim.group(other).limit_scans, 1);
        reclaim.uncharge(Pfn(1000), 0);
        assert_eq!((reclaim.group(other).used_frames, reclaim.group(other).peak_frames), (99, 100));
        assert_eq!(reclaim.pressure(1 << 19, 1, other), None);
        assert_eq!(reclaim.group_of(Pfn(1000)), GroupId::REST);
        // A group without pages is never scanned.
        (0..300).for_each(|n| reclaim.uncharge(Pfn(n), 0));
        assert_eq!(reclaim.next_group(Pressure::Memory).group, other);
        assert!(!reclaim.has_pages(Pressure::Limit(GroupId::REST)) && reclaim.has_pages(Pressure::Memory));
    }
}
