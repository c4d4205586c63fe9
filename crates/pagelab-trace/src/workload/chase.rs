//! `chase`: each node contains the address of the next.

use super::{
    Workload,
    array::{self, ACCESSES_OF_PASSES, INITIALISE, PASSES, Part, REGIONS, SIZE_1G, width},
    layout::Site,
    permutation::Permutation,
    program::Stream,
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
};
use crate::Access;
use crate::rng::Rng;

const NODE: Parameter = Parameter {
    name: "node",
    kind: Kind::Bytes { min: 8, max: 1 << 40 },
    default: Preset::Value("64"),
    meaning: "bytes of a node; its first 8 hold the pointer",
};

pub(super) static WORKLOAD: Workload = Workload {
    name: "chase",
    summary: "follows pointers through the nodes of an array in one random cycle that visits each node once",
    origin: "the pointer chase of memory-latency benchmarks (lat_mem_rd of lmbench, with a random order); the cycle \
             is computed, not stored",
    parameters: &[SIZE_1G, NODE, PASSES, ACCESSES_OF_PASSES, THREADS, REGIONS, INITIALISE, GAP, ALIGN, SEED],
    build: |values| {
        let node = values.number(NODE.name);
        array::build(values, node, |part| Chase::new(values, part, node))
    },
};

/// The walk visits the nodes in a random order and forms a cycle through all of them. Threads that share the array
/// enter the same cycle at evenly spaced positions.
struct Chase {
    base: u64,
    node: u64,
    nodes: u64,
    order: Permutation,
    at: u64,
    /// Distance to the load of the next pointer: 0 for the first, which the program was given.
    distance: usize,
    site: Site,
}

impl Chase {
    fn new(values: &Values, part: &Part, node: u64) -> Self {
        let nodes = part.bytes / node;
        let stream = if part.shared { 0 } else { part.thread };
        Self {
            base: part.base,
            node,
            nodes,
            order: Permutation::new(nodes, Rng::for_thread(values.seed(), "chase", stream)),
            at: part.share(nodes).0 % nodes,
            distance: 0,
            site: Site::new(0, width(node), values.gap()),
        }
    }
}

impl Stream for Chase {
    fn fill(&mut self, out: &mut [Access]) -> usize {
        let (base, node, nodes, site, mut at) = (self.base, self.node, self.nodes, self.site, self.at);
        for slot in out.iter_mut() {
            *slot = site.load(base + self.order.apply(at) * node).after(self.distance);
            self.distance = 1;
            at = if at + 1 == nodes { 0 } else { at + 1 };
        }
        self.at = at;
        out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, replay};
    use super::Access;

    #[test]
    fn a_period_visits_every_node_once_and_repeats() {
        for (spec, nodes) in [("chase:size=1M,passes=2", 1 << 14), ("chase:size=1000,node=10,passes=2", 100)] {
            let (accesses, events) = replay(spec, 4);
            let base = arrays(&events)[0].0;
            assert_eq!(accesses.len(), 2 * nodes);
            let (first, second) = accesses.split_at(nodes);
            let nodes_of = |pass: &[(u32, Access)]| pass.iter().map(|(_, a)| a.vaddr).collect::<Vec<_>>();
            assert!(nodes_of(first) == nodes_of(second), "each node has one successor");
            let mut offsets: Vec<_> = first.iter().map(|(_, a)| a.vaddr - base).collect();
            assert!(offsets.windows(2).filter(|w| w[0] < w[1]).count() < nodes * 6 / 10, "the order is random");
            offsets.sort_unstable();
            let node = offsets[1];
            assert!(offsets.iter().enumerate().all(|(i, &o)| o == i as u64 * node));
        }
    }

    #[test]
    fn threads_share_one_cycle_or_have_their_own() {
        let (shared, _) = replay("chase:size=64K,threads=4,regions=shared", 4);
        let visited: std::collections::HashSet<_> = shared.iter().map(|(_, a)| a.vaddr).collect();
        assert_eq!((shared.len(), visited.len()), (1024, 1024), "together one pass");
        let (own, events) = replay("chase:size=64K,threads=2", 4);
        let bases = arrays(&events);
        let walk = |t: u32| {
            own.iter().filter(|(s, _)| *s == t).map(|(_, a)| a.vaddr - bases[t as usize].0).collect::<Vec<_>>()
        };
        assert_eq!(walk(0).len(), 1024);
        assert_ne!(walk(0), walk(1));
    }
}
