//! Faults in kernels that reserve blocks ([`crate::kernel::placement::reservations`]): the way to a page of a group's block.
//!
//! A fault takes the lock of its group's leaf, builds the nodes and the reservation that are missing, takes its page and lets the lock
//! go. What cannot be served so goes the ordinary way. Whoever ends a reservation does so at once; the fault looks again.

use super::target::Aim;
use super::work::Work;
use super::{Fault, State};
use crate::base::addr::{Cycles, Pfn, PhysAddr};
use crate::base::error::EngineError;
use crate::base::step::{BlockKey, RefKind, Step};
use crate::kernel::fault::stage::Stage;
use crate::kernel::frames::frame_alloc::FramePurpose;
use crate::kernel::layer::{CpuLine, Layer};
use crate::kernel::os::Os;
use crate::kernel::placement::reservations::{End, NODE_BYTES, NODE_ORDER};
use crate::kernel::reclaim::Pressure;
use crate::kernel::vma::{Vma, VmaKind};

/// A step on the way to a page of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reserve {
    /// Search the table and take the leaf's lock.
    Look,
    /// Zero a node that is missing and link it.
    Node { node: Pfn },
    /// Take a block for the group.
    Block,
    /// Take the page. Of a `new` block the metadata is set up; under the zone's lock `descriptors` were read for it.
    Take { new: bool, descriptors: Vec<Pfn> },
    /// Give these groups' reservations back.
    GiveBack { groups: Vec<(u32, u64)> },
}

impl Fault {
    /// The first step towards a frame for the page: by a reservation or an offset if it can have one.
    pub(super) fn begin_allocation(&self, os: &Os) -> State {
        match () {
            () if self.group(os).is_some() => State::Reserve(Reserve::Look),
            () if self.has_place(os) => State::Aim(Aim::Target),
            () => State::Allocation,
        }
    }

    /// The mapping of the page, if it is private anonymous memory.
    pub(super) fn private_anonymous<'a>(&self, layer: &'a Layer) -> Option<&'a Vma> {
        let vma = layer.spaces[self.space.index as usize].vmas.find(self.va)?;
        (!vma.is_shared() && vma.file.is_none() && vma.kind != VmaKind::Special).then_some(vma)
    }

    /// The group that the page may come from.
    fn group(&self, os: &Os) -> Option<u64> {
        let layer = &os.layers[usize::from(self.space.layer)];
        if layer.reservations.is_none() || self.plain || self.work != Work::Fresh || self.order > 0 {
            return None;
        }
        layer.group_within(self.va, self.private_anonymous(layer)?.range())
    }

    fn group_key(&self, os: &Os) -> BlockKey {
        BlockKey::Reservation { space: self.space, group: self.group(os).expect("the page has a group") }
    }

    pub(super) fn plan_reserve(&self, os: &Os, layer: &Layer, reserve: &Reserve, step: &mut Step) {
        let space = self.space.index;
        let way = |group| layer.part_way(space, group);
        let group = self.group(os);
        match reserve {
            Reserve::Look => {
                let config = &layer.reservations.as_ref().expect("the layer makes them").config;
                charge(step, config.cycles, config.instructions);
                let way = way(group.expect("the page has a group"));
                way.entries().iter().for_each(|&entry| step.kernel(RefKind::Read, entry));
                if let Some(leaf) = way.leaf() {
                    step.kernel(RefKind::Locked, leaf);
                }
            }
            Reserve::Node { node } => {
                step.kernel(RefKind::Zero { bytes: NODE_BYTES }, node.addr());
                step.kernel(RefKind::Write, layer.page_metadata(*node));
                let entries = group.map(way);
                let parent = entries.as_ref().and_then(|way| way.entries().last().copied());
                step.kernel(RefKind::Locked, parent.unwrap_or(layer.spaces[space as usize].counter_line()));
            }
            Reserve::Block => {
                let cost = os.costs.fault.all()[Stage::Allocation as usize];
                charge(step, cost.cycles, cost.instructions);
                step.kernel(RefKind::Write, layer.cpu_line(self.cpu, CpuLine::FreeLists));
            }
            Reserve::Take { new, descriptors } => {
                if !descriptors.is_empty() {
                    step.kernel(RefKind::Locked, layer.zone_line());
                    descriptors.iter().for_each(|&page| step.kernel(RefKind::Write, layer.page_metadata(page)));
                }
                let Some(group) = group else { return };
                let Some(reservation) = layer.reservation(space, group) else { return };
                let pages = if *new { 1 << layer.reservations.as_ref().map_or(0, |of| of.config.order()) } else { 1 };
                // Each page of a new block is referred to by the reservation (`set_page_count`).
                for n in 0..pages {
                    step.kernel(RefKind::Write, layer.page_metadata(Pfn(reservation.block.0 + n)));
                }
                if let Some(leaf) = way(group).leaf() {
                    step.kernel(RefKind::Write, leaf);
                }
            }
            Reserve::GiveBack { groups } => {
                let pages = 1 << layer.reservations.as_ref().map_or(0, |of| of.config.order());
                for &(space, group) in groups {
                    let way = layer.part_way(space, group);
                    way.entries().iter().for_each(|&entry| step.kernel(RefKind::Read, entry));
                    if let (Some(leaf), Some(reservation)) = (way.leaf(), layer.reservation(space, group)) {
                        step.kernel(RefKind::Locked, leaf);
                        // `put_page` of what was not given out.
                        for n in (0..pages).filter(|n| reservation.given >> n & 1 == 0) {
                            step.kernel(RefKind::Locked, layer.page_metadata(Pfn(reservation.block.0 + n)));
                        }
                    }
                }
            }
        }
    }

    /// Carries a step out; says what to wait for if it must.
    pub(super) fn reserve(
        &mut self,
        os: &mut Os,
        cpu: usize,
        step: Reserve,
    ) -> Result<Result<State, BlockKey>, EngineError> {
        let (space, va) = (self.space.index, self.va);
        if let Reserve::GiveBack { groups } = step {
            for (index, group) in groups {
                self.layer(os).end_reservation(index, group, End::Pressure);
            }
            return Ok(Ok(self.begin_allocation(os)));
        }
        let (key, group) = (self.group_key(os), self.group(os).expect("the page has a group"));
        Ok(Ok(match step {
            Reserve::Look => {
                if let Some(pressure @ Pressure::Limit(_)) = self.layer(os).pressure(0) {
                    // The ordinary way knows what to do if none of the group's pages can leave.
                    self.plain = !self.layer(os).can_reclaim(pressure);
                    return Ok(Ok(if self.plain { State::Allocation } else { State::Reclaim { pressure } }));
                }
                if !os.locks.acquire(key, cpu) {
                    return Ok(Err(key));
                }
                self.look_further(os, cpu, group, key)
            }
            Reserve::Node { node } => {
                let layer = self.layer(os);
                if !layer.spaces[space as usize].part.link(&mut layer.mem, group, node) {
                    layer.free_frames(node, NODE_ORDER);
                }
                self.look_further(os, cpu, group, key)
            }
            Reserve::Block => {
                let layer = self.layer(os);
                if layer.reserve(space, group) {
                    let effects = layer.last_effects();
                    let descriptors =
                        if effects.zone_locks.is_empty() { Vec::new() } else { effects.descriptors.clone() };
                    State::Reserve(Reserve::Take { new: true, descriptors })
                } else {
                    self.go_plain(os, cpu, key)
                }
            }
            Reserve::Take { .. } => match self.layer(os).give_out(space, va) {
                Some(frame) => {
                    self.frame = frame;
                    os.locks.release(key, cpu);
                    State::Zeroing
                }
                None => self.go_plain(os, cpu, key),
            },
            Reserve::GiveBack { .. } => unreachable!("it was carried out above"),
        }))
    }

    /// With the leaf's lock: what is missing next.
    fn look_further(&mut self, os: &mut Os, cpu: usize, group: u64, key: BlockKey) -> State {
        let space = self.space.index;
        let layer = self.layer(os);
        let crowded = layer.is_crowded();
        if layer.reservation(space, group).is_some() {
            return State::Reserve(Reserve::Take { new: false, descriptors: Vec::new() });
        }
        if crowded {
            return self.go_plain(os, cpu, key);
        }
        if layer.part_way(space, group).leaf().is_some() {
            return State::Reserve(Reserve::Block);
        }
        let cpu_number = layer.acting_cpu;
        match layer.frames.alloc(NODE_ORDER, FramePurpose::KernelObject, cpu_number) {
            Some(node) => State::Reserve(Reserve::Node { node }),
            None => self.go_plain(os, cpu, key),
        }
    }

    fn go_plain(&mut self, os: &mut Os, cpu: usize, key: BlockKey) -> State {
        os.locks.release(key, cpu);
        self.plain = true;
        State::Allocation
    }

    /// Reservations that are to be given back before anything else is done for memory.
    pub(super) fn give_back(&self, os: &Os) -> Option<State> {
        let groups = os.layers[usize::from(self.space.layer)].reservations_to_end();
        (!groups.is_empty()).then_some(State::Reserve(Reserve::GiveBack { groups }))
    }

    /// Where a page is copied, its group's reservation ends.
    pub(super) fn leave_group(&self, layer: &mut Layer) {
        if let (Some(reservations), Work::Copy { .. }) = (&layer.reservations, self.work) {
            layer.end_reservation(self.space.index, reservations.group(self.va), End::Copied);
        }
    }

    /// References of what [`Self::leave_group`] does.
    pub(super) fn plan_leave_group(&self, layer: &Layer, step: &mut Step) {
        if let (Some(reservations), Work::Copy { .. }) = (&layer.reservations, self.work) {
            let group = reservations.group(self.va);
            let way = layer.part_way(self.space.index, group);
            way.entries().iter().for_each(|&entry: &PhysAddr| step.kernel(RefKind::Read, entry));
            if let (Some(leaf), Some(_)) = (way.leaf(), layer.reservation(self.space.index, group)) {
                step.kernel(RefKind::Locked, leaf);
            }
        }
    }
}

/// What a preset gives beyond references.
pub(super) fn charge(step: &mut Step, cycles: u32, instructions: u32) {
    step.cycles += Cycles::from(cycles);
    step.preset_cycles += Cycles::from(cycles);
    step.instructions += u64::from(instructions);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::page_fault::{Intent, PageFault};
    use crate::config::{Assembly, assemble};
    use crate::machine::simulation::{Placed, Simulation};

    #[test]
    fn giving_back_drops_a_reference_to_each_frame_that_was_not_given_out_and_to_no_other() {
        for pages in [2, 4, 8] {
            let placement = format!(r#"system.layers.native.placement={{"kind":"ptemagnet","group_pages":{pages}}}"#);
            let config =
                assemble(&Assembly { system: Some("radix"), set: &[placement], ..Assembly::default() }).unwrap();
            // A page of each of 16 groups.
            let spec = format!("stride:size={}KiB,stride={}KiB,accesses=1000", 64 * pages, 4 * pages);
            let source = pagelab_trace::workload::parse(&spec, 1).unwrap();
            let placed = Placed { source, cpus: vec![0], memory_limit: None };
            let mut simulation = Simulation::new(&config, vec![placed], Some(16)).unwrap();
            simulation.run(&mut |_| true).unwrap();
            let space = simulation.inputs[0].spaces().next().unwrap();
            let layer = &simulation.os.layers[usize::from(space.layer)];
            let groups = layer.reservations_to_end();
            assert_eq!((groups.len(), layer.reserved_frames()), (16, 16 * (pages - 1)));
            let va = layer.spaces[space.index as usize].vmas.iter().next().unwrap().start;
            let fault = Fault::new(&PageFault { space, va, intent: Intent::Store, reached: None }, 0);
            let mut step = Step::default();
            fault.plan_reserve(&simulation.os, layer, &Reserve::GiveBack { groups: groups.clone() }, &mut step);
            let locked = step.refs.iter().filter(|of| of.kind == RefKind::Locked).count();
            assert_eq!(locked as u64, 16 + layer.reserved_frames(), "each group's leaf, and each frame");
        }
    }
}
