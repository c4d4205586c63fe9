//! `cc`: connected components of a graph.

use super::{
    Workload,
    graph::{AnyGraph, allocate},
    graph_program::{
        ACCESSES_OF_WORK, Algorithm, Csr, DEGREE, Deal, GRAPH, GraphProgram, INDEX, INITIALISE_GRAPH, OWN_SITES, Step,
        Team, VERTICES, build, rounds,
    },
    layout::{Layout, Site},
    spec::{ALIGN, COUNT, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
};
use crate::rng::Rng;
use crate::{Access, AccessKind, TraceError};

/// Number of neighbours of every vertex that Afforest links before it determines the largest component.
const NEIGHBOUR_ROUNDS: u64 = 2;
/// Number of vertices that it samples for that.
const SAMPLES: usize = 1024;

/// Models: components as trees of parents, computed for real; in the end every vertex has the component's smallest
/// vertex as its parent. First the parent of each vertex is set to itself. Links and hooks change a parent by
/// compare-and-swap if there are several threads.
///
/// - `afforest`: each vertex's first neighbour is linked with it (both parents; while they differ, the parent of the
///   larger one, and the grandparents if it has already changed). Then the trees are compressed (parent and grandparent
///   of each vertex, with a store while they differ). The same follows with the second neighbour. The most frequent
///   component of 1,024 random vertices is determined. Vertices outside it link the rest of their neighbours, and the
///   trees are compressed.
/// - `shiloach-vishkin`: every vertex is compared with every neighbour, and a root whose neighbour has a smaller parent
///   is hooked to that parent; then the trees are compressed. This repeats until nothing was hooked.
///
/// In each loop, free threads take the next chunk of 16,384 vertices and are interleaved every 64 vertices.
///
/// Source: Sutton, Ben-Nun, Barak, "Optimizing Parallel Graph Connectivity Computation via Subgraph Sampling", IPDPS
/// 2018; Shiloach, Vishkin, "An O(log n) parallel connectivity algorithm", 1982; both as in Beamer, Asanović,
/// Patterson, "The GAP Benchmark Suite", 2015, whose kernel CC is the first since version 1.3.
///
/// Deviations: two threads never change the same parent at the same time, so a compare-and-swap never fails. A
/// Kronecker graph's edge is stored at one of its ends only. This does not affect Shiloach and Vishkin's components,
/// but Afforest's may be split.
pub(super) static WORKLOAD: Workload = Workload {
    name: "cc",
    summary: "connected components by linking trees of parents, over a random graph in compressed sparse rows",
    origin: "GAP benchmark suite's cc on a uniformly random undirected graph, or an analogue of Graph500's (see `graph`)",
    parameters: &[
        VERTICES,
        DEGREE,
        GRAPH,
        INDEX,
        Parameter {
            name: "algorithm",
            kind: Kind::Choice(&["afforest", "shiloach-vishkin"]),
            default: Preset::Value("afforest"),
            meaning: "afforest skips most neighbours within the largest component; shiloach-vishkin processes all, repeatedly",
        },
        Parameter {
            name: "trials",
            kind: COUNT,
            default: Preset::Derived("1, or as accesses demand"),
            meaning: "times that the components are computed, from the beginning",
        },
        ACCESSES_OF_WORK,
        THREADS,
        INITIALISE_GRAPH,
        GAP,
        ALIGN,
        SEED,
    ],
    build: |values| components(values).map(|(layout, program)| program.into_plan(layout, values)),
};

fn components(values: &Values) -> Result<(Layout, GraphProgram<Components>), TraceError> {
    let trials = rounds(values, "trials", 1)?;
    build(values, |vertices, csr, layout| {
        let site = |number| Site::new(OWN_SITES + number, csr.index as u16, values.gap());
        Ok(Components {
            afforest: values.word("algorithm") == "afforest",
            trials,
            phase: Phase::Done,
            hooked: false,
            sample_rng: Rng::for_thread(values.seed(), "samples", 0),
            deal: Deal::new(vertices, values.threads() as usize),
            parents: Parents { by_vertex: Vec::new(), addr: layout.map(0, vertices * csr.index)?, index: csr.index },
            own: site(0),
            other: site(1),
            above: site(2),
            link: site(3),
            grandparent: site(4),
            compress: site(5),
            sample: site(6),
            csr,
        })
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Links the neighbour with this number.
    Link(u64),
    /// Compresses the trees after this many rounds of links.
    Compress(u64),
    Sample,
    /// Links the remaining neighbours of vertices outside this component.
    LinkRest(u32),
    CompressLast,
    Hook,
    CompressHooked,
    Done,
}

/// The algorithm's array: the parent of each vertex.
struct Parents {
    by_vertex: Vec<u32>,
    addr: u64,
    index: u64,
}

impl Parents {
    /// Returns the parent of `vertex` and appends its load at `site`. The number of `vertex` was loaded `distance`
    /// accesses before (0: it was not loaded).
    #[inline]
    fn load(&self, site: Site, vertex: u32, distance: usize, out: &mut Vec<Access>) -> u32 {
        out.push(site.load(self.at(vertex)).after(distance));
        self.by_vertex[vertex as usize]
    }

    /// Sets the parent of `vertex`; arguments as in [`Self::load`].
    fn set(&mut self, at: (Site, AccessKind), vertex: u32, distance: usize, parent: u32, out: &mut Vec<Access>) {
        let (site, kind) = at;
        out.push(site.access(kind, self.at(vertex)).after(distance));
        self.by_vertex[vertex as usize] = parent;
    }

    #[inline]
    fn at(&self, vertex: u32) -> u64 {
        self.addr + u64::from(vertex) * self.index
    }
}

struct Components {
    afforest: bool,
    /// Number of trials not yet begun.
    trials: u64,
    phase: Phase,
    /// Whether the round has hooked a root.
    hooked: bool,
    sample_rng: Rng,
    deal: Deal,
    parents: Parents,
    csr: Csr,
    own: Site,
    other: Site,
    above: Site,
    link: Site,
    grandparent: Site,
    compress: Site,
    sample: Site,
}

impl Algorithm for Components {
    fn prepare(&mut self, vertices: u64) -> Result<(), TraceError> {
        self.parents.by_vertex = allocate(vertices)?;
        Ok(())
    }

    fn step(&mut self, graph: &AnyGraph, team: &mut Team, out: &mut Vec<Access>) -> Step {
        match self.phase {
            Phase::Done => {
                let Some(trials) = self.trials.checked_sub(1) else { return Step::End };
                self.trials = trials;
                self.begin_trial(graph, team);
                return Step::Begun;
            }
            Phase::Sample => {
                let largest = self.sample(graph, out);
                self.enter(Phase::LinkRest(largest), team);
                return Step::Turn(0);
            }
            _ => {}
        }
        let Some((thread, vertices)) = self.deal.turn(team) else {
            self.enter(self.next_phase(), team);
            return Step::Begun;
        };
        let claim = team.claim();
        for vertex in vertices {
            match self.phase {
                Phase::Link(number) => self.link_some(graph, vertex, number, 1, claim, out),
                Phase::LinkRest(largest) => {
                    if self.parents.load(self.own, vertex, 0, out) != largest {
                        self.link_some(graph, vertex, NEIGHBOUR_ROUNDS, u64::MAX, claim, out);
                    }
                }
                Phase::Hook => self.hook(graph, vertex, claim, out),
                _ => self.compress(vertex, out),
            }
        }
        Step::Turn(thread)
    }
}

impl Components {
    fn begin_trial(&mut self, graph: &AnyGraph, team: &mut Team) {
        self.parents.by_vertex.iter_mut().zip(0..).for_each(|(parent, vertex)| *parent = vertex);
        team.fill(&self.csr, self.parents.addr, graph.vertices() * self.csr.index);
        self.enter(if self.afforest { Phase::Link(0) } else { Phase::Hook }, team);
    }

    fn enter(&mut self, phase: Phase, team: &mut Team) {
        self.phase = phase;
        self.hooked &= phase == Phase::CompressHooked;
        self.deal.restart(team);
    }

    /// The phase after all vertices have been handled.
    fn next_phase(&self) -> Phase {
        match self.phase {
            Phase::Link(number) => Phase::Compress(number + 1),
            Phase::Compress(NEIGHBOUR_ROUNDS) => Phase::Sample,
            Phase::Compress(rounds) => Phase::Link(rounds),
            Phase::LinkRest(_) => Phase::CompressLast,
            Phase::Hook => Phase::CompressHooked,
            Phase::CompressHooked if self.hooked => Phase::Hook,
            Phase::Sample | Phase::CompressLast | Phase::CompressHooked | Phase::Done => Phase::Done,
        }
    }

    /// Links `vertex` with `count` of its neighbours, from neighbour `first` on.
    fn link_some(
        &mut self,
        graph: &AnyGraph,
        vertex: u32,
        first: u64,
        count: u64,
        claim: AccessKind,
        out: &mut Vec<Access>,
    ) {
        let row = out.len();
        out.extend(self.csr.row(vertex));
        for at in graph.row(vertex).skip(first as usize).take(usize::try_from(count).unwrap_or(usize::MAX)) {
            out.push(self.csr.neighbour(at).after(out.len() - row));
            self.link(vertex, graph.neighbour(vertex, at), claim, out);
        }
    }

    /// Joins the trees of two vertices: puts the larger root under a vertex of the other tree.
    fn link(&mut self, vertex: u32, neighbour: u32, claim: AccessKind, out: &mut Vec<Access>) {
        let mut a = self.parents.load(self.own, vertex, 0, out);
        let mut b = self.parents.load(self.other, neighbour, 2, out);
        while a != b {
            let (low, high) = (a.min(b), a.max(b));
            let above = self.parents.load(self.above, high, 1, out);
            if above == low {
                return;
            }
            if above == high {
                return self.parents.set((self.link, claim), high, 2, low, out);
            }
            a = self.parents.load(self.grandparent, above, 1, out);
            b = self.parents.load(self.grandparent, low, 3, out);
        }
    }

    /// Makes the tree's root the parent of `vertex`.
    fn compress(&mut self, vertex: u32, out: &mut Vec<Access>) {
        let mut parent = self.parents.load(self.own, vertex, 0, out);
        let mut distance = 1;
        loop {
            let grandparent = self.parents.load(self.grandparent, parent, distance, out);
            if grandparent == parent {
                return;
            }
            self.parents.set((self.compress, AccessKind::Store), vertex, 0, grandparent, out);
            (parent, distance) = (grandparent, 2);
        }
    }

    /// The most frequent component of some random vertices; of several, the first.
    fn sample(&mut self, graph: &AnyGraph, out: &mut Vec<Access>) -> u32 {
        let mut seen: Vec<u32> = (0..SAMPLES)
            .map(|_| self.parents.load(self.sample, self.sample_rng.below(graph.vertices()) as u32, 0, out))
            .collect();
        seen.sort_unstable();
        let most = seen.chunk_by(|a, b| a == b).rev().max_by_key(|same| same.len());
        most.expect("there are samples")[0]
    }

    /// Hooks a root among `vertex` and its neighbours to the other vertex's parent if that is smaller.
    fn hook(&mut self, graph: &AnyGraph, vertex: u32, claim: AccessKind, out: &mut Vec<Access>) {
        let row = out.len();
        out.extend(self.csr.row(vertex));
        for at in graph.row(vertex) {
            out.push(self.csr.neighbour(at).after(out.len() - row));
            let a = self.parents.load(self.own, vertex, 0, out);
            let b = self.parents.load(self.other, graph.neighbour(vertex, at), 2, out);
            let (low, high) = (a.min(b), a.max(b));
            if low != high && self.parents.load(self.above, high, 1, out) == high {
                self.parents.set((self.link, claim), high, 2, low, out);
                self.hooked = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph_program::tests::{at_site, finish};
    use super::super::program::tests::{arrays, replay};
    use super::*;

    /// The smallest vertex of each vertex's component, propagated along edges until nothing changes.
    fn plain(graph: &AnyGraph) -> Vec<u32> {
        let mut component: Vec<u32> = (0..graph.vertices() as u32).collect();
        loop {
            let before = component.clone();
            for vertex in 0..graph.vertices() as u32 {
                for at in graph.row(vertex) {
                    let [a, b] = [vertex, graph.neighbour(vertex, at)].map(|v| v as usize);
                    let least = component[a].min(component[b]);
                    (component[a], component[b]) = (least, least);
                }
            }
            if component == before {
                return component;
            }
        }
    }

    #[test]
    fn components_are_those_of_a_plain_search() {
        for algorithm in ["afforest", "shiloach-vishkin"] {
            for graph in ["vertices=1", "vertices=3000,degree=1", "vertices=5000,degree=2", "vertices=2000,degree=7"] {
                for threads in [1, 3] {
                    let settings = format!("{graph},algorithm={algorithm},threads={threads},trials=2");
                    let (found, graph) = finish(&WORKLOAD, &settings, components);
                    assert_eq!(found.parents.by_vertex, plain(&graph), "{settings}");
                }
            }
        }
    }

    #[test]
    fn a_kronecker_graphs_components_are_whole_by_hooks_and_never_too_large() {
        let run = |algorithm| {
            let settings = format!("vertices=4096,graph=kronecker,degree=4,algorithm={algorithm}");
            let (found, graph) = finish(&WORKLOAD, &settings, components);
            (found.parents.by_vertex, plain(&graph))
        };
        let (hooked, whole) = run("shiloach-vishkin");
        assert_eq!(hooked, whole);
        let (linked, _) = run("afforest");
        let same = linked.iter().zip(&whole).filter(|(a, b)| a == b).count();
        assert!(linked.iter().zip(&whole).all(|(&a, &b)| whole[a as usize] == b), "never beyond a component");
        assert!(same > 3000, "{same} of 4096 in their whole component");
    }

    #[test]
    fn afforest_skips_most_of_the_neighbours() {
        let count = |algorithm: &str| {
            let spec = format!("cc:vertices=20000,degree=16,init=no,algorithm={algorithm}");
            at_site(&replay(&spec, 2).0, 5).count()
        };
        let (few, all) = (count("afforest"), count("shiloach-vishkin"));
        assert!((40_000..60_000).contains(&few), "two neighbours of each vertex and little more: {few}");
        assert!(all >= 2 * 320_000 && all % 320_000 == 0, "every neighbour, until a round that changes nothing: {all}");
    }

    #[test]
    fn parents_are_changed_as_threads_demand_and_all_threads_work() {
        for threads in [1, 4] {
            let (accesses, events) = replay(&format!("cc:vertices=8000,threads={threads},init=no"), 3);
            let parents = arrays(&events)[2];
            let kind = if threads > 1 { AccessKind::Modify } else { AccessKind::Store };
            let links: Vec<_> = at_site(&accesses, OWN_SITES + 3).collect();
            // A forest of n vertices in c trees has n - c links; a random graph of degree 8 has few isolated vertices.
            assert!((7900..8000).contains(&links.len()), "{}", links.len());
            assert!(links.iter().all(|(_, a)| a.kind == kind));
            for (_, access) in (0..7).flat_map(|number| at_site(&accesses, OWN_SITES + number)) {
                assert!((parents.0..parents.0 + 32_000).contains(&access.vaddr), "{access:x?}");
            }
            assert_eq!(at_site(&accesses, 1).count(), 4000, "parents are set, two a store");
            assert_eq!(at_site(&accesses, OWN_SITES + 6).count(), SAMPLES);
            for thread in 0..threads {
                let work = at_site(&accesses, 5).filter(|(t, _)| *t == thread).count();
                assert!(work * threads as usize > 8000, "{thread} of {threads}: {work}");
            }
        }
    }

    #[test]
    fn the_largest_component_is_the_one_that_most_samples_are_in() {
        let (mut found, graph) = finish(&WORKLOAD, "vertices=1000", components);
        for (rest, largest) in [(3, 900), (900, 3)] {
            found.parents.by_vertex = (0..1000).map(|vertex| if vertex % 4 == 0 { rest } else { largest }).collect();
            let mut out = Vec::new();
            assert_eq!(found.sample(&graph, &mut out), largest);
            assert_eq!(out.len(), SAMPLES);
        }
    }

    #[test]
    fn trials_repeat_the_same_work() {
        let once = replay("cc:vertices=1000,init=no,algorithm=shiloach-vishkin", 1).0;
        let twice = replay("cc:vertices=1000,init=no,algorithm=shiloach-vishkin,trials=2", 1).0;
        assert_eq!(twice, [once.clone(), once].concat());
        assert_eq!(replay("cc:vertices=1000,accesses=100K", 1).0.len(), 100_000);
    }
}
