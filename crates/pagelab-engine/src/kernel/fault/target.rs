//! Faults in kernels that keep mappings contiguous ([`crate::kernel::placement::ca_paging`]): the way to the frame that continues the mapping's.
//!
//! A fault reads its mapping's offset and goes for the frame there. Where there is no offset, or that frame is taken, it chooses a
//! place under the zone's lock and goes for the frame in it. What cannot be served so goes the ordinary way.

use super::reserve::charge;
use super::work::Work;
use super::{Fault, State};
use crate::base::addr::PhysAddr;
use crate::base::step::{RefKind, Step};
use crate::kernel::fault::stage::Stage;
use crate::kernel::layer::Layer;
use crate::kernel::os::Os;
use crate::kernel::placement::ca_paging::Offset;
use crate::kernel::reclaim::Pressure;
use crate::kernel::vma::Vma;

/// A step on the way to the frame at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Look the offset up and take its frame.
    Target,
    /// Choose a place and take the frame there. The frame at the offset that `failed`, if there was one, is taken.
    Place { failed: Option<Offset> },
}

impl Fault {
    /// Whether the page's frame may be chosen.
    pub(super) fn has_place(&self, os: &Os) -> bool {
        let layer = &os.layers[usize::from(self.space.layer)];
        let kind = matches!(self.work, Work::Fresh | Work::SwapIn);
        layer.ca_paging.is_some() && !self.plain && kind && self.private_anonymous(layer).is_some()
    }

    fn mapping_of<'a>(&self, layer: &'a Layer) -> &'a Vma {
        self.private_anonymous(layer).expect("mappings do not change during a fault")
    }

    fn offset(&self, layer: &Layer) -> Option<Offset> {
        let offsets = &layer.spaces[self.space.index as usize].offsets;
        offsets.find(self.page, self.mapping_of(layer).range())
    }

    /// The line of a mapping's offsets: another one than that of its lock.
    fn offsets_line(&self, layer: &Layer) -> PhysAddr {
        layer.spaces[self.space.index as usize].object_line(self.mapping_of(layer).start.0 + 1)
    }

    pub(super) fn plan_aim(&self, os: &Os, layer: &Layer, aim: &Aim, step: &mut Step) {
        let config = &layer.ca_paging.as_ref().expect("the layer has offsets").config;
        charge(step, config.cycles, config.instructions);
        let allocation = os.costs.fault.all()[Stage::Allocation as usize];
        match aim {
            Aim::Target => {
                step.kernel(RefKind::Read, self.offsets_line(layer));
                if let Some(offset) = self.offset(layer) {
                    charge(step, allocation.cycles, allocation.instructions);
                    let target = offset.target(self.page);
                    // Whether it is free, if it is memory at all.
                    if layer.frame_allocator().frames().contains(&target) {
                        step.kernel(RefKind::Read, layer.page_metadata(target));
                    }
                }
            }
            Aim::Place { .. } => {
                charge(step, allocation.cycles, allocation.instructions);
                step.kernel(RefKind::Locked, layer.zone_line());
                let (mapping, mut looked) = (self.mapping_of(layer).range(), Vec::new());
                let from = if self.offset(layer).is_some() { self.page } else { mapping.start };
                layer.find_place(from, mapping, &mut looked);
                looked.into_iter().for_each(|run| step.kernel(RefKind::Read, layer.page_metadata(run)));
                step.kernel(RefKind::Write, self.offsets_line(layer));
            }
        }
    }

    /// Carries a step out.
    pub(super) fn aim(&mut self, os: &mut Os, aim: Aim) -> State {
        let (space, page, order) = (self.space.index, self.page, self.order);
        if let Some(state) = self.make_room(os) {
            return state;
        }
        let layer = self.layer(os);
        if let Some(Pressure::Limit(_)) = layer.pressure(order) {
            return self.go_ordinary();
        }
        let offset = self.offset(self.layer(os));
        match aim {
            Aim::Target => {}
            // Another fault of the mapping has chosen meanwhile.
            Aim::Place { failed } if offset != failed => {}
            Aim::Place { .. } => {
                let mapping = self.mapping_of(self.layer(os)).range();
                if !self.layer(os).place(space, page, mapping) {
                    return self.go_ordinary();
                }
            }
        }
        let layer = self.layer(os);
        let target = self.offset(layer).map(|offset| offset.target(page));
        if let Some(target) = target.filter(|&target| layer.take_target(target, order)) {
            self.frame = target;
            return State::Refill { descriptors: layer.last_effects().descriptors.clone() };
        }
        match aim {
            Aim::Target => State::Aim(Aim::Place { failed: offset }),
            Aim::Place { .. } => self.go_ordinary(),
        }
    }

    fn go_ordinary(&mut self) -> State {
        self.plain = true;
        State::Allocation
    }
}
