//! `bfs`: breadth-first search of a random graph.

use super::{
    Workload,
    graph::{AnyGraph, allocate},
    graph_program::{
        ACCESSES_OF_WORK, Algorithm, Csr, DEGREE, GRAPH, GraphProgram, INDEX, INITIALISE_GRAPH, OWN_SITES, Step, Team,
        VERTICES, build, rounds,
    },
    layout::{Layout, Site},
    spec::{ALIGN, COUNT, GAP, Parameter, Preset, SEED, THREADS, Values},
};
use crate::rng::Rng;
use crate::{Access, TraceError};

/// Number of frontier vertices that a thread takes at once.
const CHUNK: usize = 64;
/// Parent of a vertex that the search has not reached yet.
const NONE: u32 = u32::MAX;

/// Models: a top-down level-synchronous search, as in Graph500's reference code. The graph is built and searched for
/// real, so the accesses are a program's: for each frontier vertex, its entry in a queue and its two offsets; for each
/// of its neighbours, the neighbour's number and parent; for a newly found neighbour, a store of the parent (a
/// compare-and-swap if there are several threads) and of the entry in the thread's own queue, which contains the levels
/// one after the other. Threads take chunks of 64 frontier vertices in turn. Before each search the parents are reset.
///
/// Unlike the array workloads, the simulator holds the graph in memory: per vertex 8 bytes for offsets, 4 for its
/// parent and 4 in a queue, and 4 bytes for each end of an edge. Of a Kronecker graph, whose neighbours are computed on
/// demand, it holds only parents and queues. `index` determines the size of the program's own arrays, whatever the
/// simulator holds.
pub(super) static WORKLOAD: Workload = Workload {
    name: "bfs",
    summary: "breadth-first search from random roots, level by level, over a random graph in compressed sparse rows",
    origin: "Graph500's kernel 2 on a uniformly random undirected graph, or an analogue of its own (see `graph`)",
    parameters: &[
        VERTICES,
        DEGREE,
        GRAPH,
        INDEX,
        Parameter {
            name: "roots",
            kind: COUNT,
            default: Preset::Derived("1, or as accesses demand"),
            meaning: "searches, one after the other, each from a random vertex that has a neighbour",
        },
        ACCESSES_OF_WORK,
        THREADS,
        INITIALISE_GRAPH,
        GAP,
        ALIGN,
        SEED,
    ],
    build: |values| search(values).map(|(layout, program)| program.into_plan(layout, values)),
};

fn search(values: &Values) -> Result<(Layout, GraphProgram<Search>), TraceError> {
    let roots = rounds(values, "roots", 1)?;
    build(values, |vertices, csr, layout| {
        let (index, threads) = (csr.index, values.threads());
        let site = |number| Site::new(number, index as u16, values.gap());
        Ok(Search {
            array_bytes: vertices * index,
            roots,
            root_rng: Rng::for_thread(values.seed(), "roots", 0),
            parents: Vec::new(),
            queues: vec![Queue::default(); threads as usize],
            at: Cursor::default(),
            parents_addr: layout.map(0, vertices * index)?,
            queue_addrs: (0..threads as u32).map(|t| layout.map(t, vertices * index)).collect::<Result<_, _>>()?,
            frontier: site(2),
            parent: site(OWN_SITES),
            claim: site(OWN_SITES + 1),
            push: site(OWN_SITES + 2),
            csr,
        })
    })
}

/// A thread's queue: vertices in the order in which it claimed them. `begin..end` is the current level; the next level
/// follows.
#[derive(Clone, Debug, Default)]
struct Queue {
    vertices: Vec<u32>,
    begin: usize,
    end: usize,
}

/// Position of the next chunk of the frontier.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// The queue, and the index in it.
    queue: usize,
    index: usize,
}

struct Search {
    /// Bytes of the parents, and of a queue.
    array_bytes: u64,
    /// Number of searches not yet begun.
    roots: u64,
    root_rng: Rng,
    parents: Vec<u32>,
    queues: Vec<Queue>,
    at: Cursor,
    csr: Csr,
    parents_addr: u64,
    /// One per thread.
    queue_addrs: Vec<u64>,
    frontier: Site,
    parent: Site,
    claim: Site,
    push: Site,
}

impl Algorithm for Search {
    fn prepare(&mut self, vertices: u64) -> Result<(), TraceError> {
        self.parents = allocate(vertices)?;
        Ok(())
    }

    fn step(&mut self, graph: &AnyGraph, team: &mut Team, out: &mut Vec<Access>) -> Step {
        if let Some(thread) = self.run_chunk(graph, team, out) {
            return Step::Turn(thread);
        }
        if !self.next_level(team) {
            let Some(roots) = self.roots.checked_sub(1) else { return Step::End };
            self.roots = roots;
            self.begin_search(graph, team);
        }
        Step::Begun
    }
}

impl Search {
    /// Begins a search: resets the parents, then puts a root into the first thread's queue.
    fn begin_search(&mut self, graph: &AnyGraph, team: &mut Team) {
        self.parents.fill(NONE);
        team.fill(&self.csr, self.parents_addr, self.array_bytes);
        let root = root(graph, &mut self.root_rng);
        self.parents[root as usize] = root;
        for queue in &mut self.queues {
            queue.vertices.clear();
            (queue.begin, queue.end) = (0, 0);
        }
        self.queues[0].vertices.push(root);
        (self.queues[0].end, self.at) = (1, Cursor::default());
        team.restart();
    }

    /// Makes the vertices found by the threads the new frontier; false if there are none.
    fn next_level(&mut self, team: &mut Team) -> bool {
        for queue in &mut self.queues {
            (queue.begin, queue.end) = (queue.end, queue.vertices.len());
        }
        self.at = Cursor { queue: 0, index: self.queues[0].begin };
        team.restart();
        self.queues.iter().any(|queue| queue.begin < queue.end)
    }

    /// Handles a chunk of the frontier by the next thread; returns the thread, none at the level's end.
    fn run_chunk(&mut self, graph: &AnyGraph, team: &mut Team, out: &mut Vec<Access>) -> Option<usize> {
        while self.at.index >= self.queues[self.at.queue].end {
            let queue = self.at.queue + 1;
            self.at = Cursor { queue, index: self.queues.get(queue)?.begin };
        }
        let Cursor { queue, index } = self.at;
        let end = self.queues[queue].end.min(index + CHUNK);
        self.at.index = end;
        let thread = team.take_turn();
        for index in index..end {
            let vertex = self.queues[queue].vertices[index];
            out.push(self.frontier.load(self.queue_addrs[queue] + index as u64 * self.csr.index));
            self.visit(graph, vertex, thread, team, out);
        }
        Some(thread)
    }

    /// Visits all neighbours of `vertex` and claims the new ones for `thread`.
    fn visit(&mut self, graph: &AnyGraph, vertex: u32, thread: usize, team: &Team, out: &mut Vec<Access>) {
        let claim = team.claim();
        let queue = &mut self.queues[thread].vertices;
        // The vertex was read from the queue just before.
        let row = out.len();
        let [begin, end] = self.csr.row(vertex);
        out.extend([begin.after(1), end.after(2)]);
        for at in graph.row(vertex) {
            let neighbour = graph.neighbour(vertex, at);
            let parent = self.parents_addr + u64::from(neighbour) * self.csr.index;
            out.push(self.csr.neighbour(at).after(out.len() - row));
            out.push(self.parent.load(parent).after(1));
            if self.parents[neighbour as usize] == NONE {
                self.parents[neighbour as usize] = vertex;
                let slot = self.queue_addrs[thread] + queue.len() as u64 * self.csr.index;
                queue.push(neighbour);
                out.extend([self.claim.access(claim, parent).after(2), self.push.store(slot)]);
            }
        }
    }
}

/// A random vertex; if it has no neighbour, the next vertex that has one.
fn root(graph: &AnyGraph, rng: &mut Rng) -> u32 {
    let first = rng.below(graph.vertices());
    let candidates = (first..graph.vertices()).chain(0..first).map(|vertex| vertex as u32);
    candidates.clone().find(|&vertex| !graph.row(vertex).is_empty()).unwrap_or(first as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet, VecDeque};

    use super::super::graph::{Graph, edges};
    use super::super::graph_program::tests::at_site;
    use super::super::kronecker::Kronecker;
    use super::super::program::tests::{arrays, replay};
    use super::*;
    use crate::AccessKind;

    const LOAD_NEIGHBOUR: u64 = 5;
    const CLAIM: u64 = 7;
    const PUSH: u64 = 8;

    /// Distances from the root by a simple search.
    fn distances(graph: &AnyGraph, root: u32) -> HashMap<u32, u32> {
        let mut distance = HashMap::from([(root, 0)]);
        let mut queue = VecDeque::from([root]);
        while let Some(vertex) = queue.pop_front() {
            for index in graph.row(vertex) {
                let neighbour = graph.neighbour(vertex, index);
                if !distance.contains_key(&neighbour) {
                    distance.insert(neighbour, distance[&vertex] + 1);
                    queue.push_back(neighbour);
                }
            }
        }
        distance
    }

    #[test]
    fn the_search_reaches_what_a_plain_search_reaches_and_touches_each_edge_once() {
        for (vertices, degree, threads) in [(2000, 3, 1), (2000, 3, 3), (5000, 8, 2), (40, 1, 4), (1, 1, 1), (1, 6, 2)]
        {
            let spec = format!("bfs:vertices={vertices},degree={degree},threads={threads}");
            let (accesses, events) = replay(&spec, 6);
            let graph = AnyGraph::Stored(Graph::random(vertices, degree, &Rng::for_thread(6, "graph", 0)).unwrap());
            let root = root(&graph, &mut Rng::for_thread(6, "roots", 0));
            let distance = distances(&graph, root);
            let arrays = arrays(&events);
            let [neighbours, parents] = [arrays[1].0, arrays[2].0];

            let claimed: Vec<u32> = at_site(&accesses, CLAIM).map(|(_, a)| ((a.vaddr - parents) / 4) as u32).collect();
            let reached: HashSet<u32> = claimed.iter().copied().chain([root]).collect();
            assert_eq!(reached.len(), claimed.len() + 1, "{spec}: a vertex is claimed once");
            assert_eq!(reached, distance.keys().copied().collect(), "{spec}");
            // Level-synchronous: vertices are claimed in order of distance.
            assert!(claimed.windows(2).all(|w| distance[&w[0]] <= distance[&w[1]]), "{spec}");

            let touched: Vec<u64> =
                at_site(&accesses, LOAD_NEIGHBOUR).map(|(_, a)| (a.vaddr - neighbours) / 4).collect();
            let rows: HashSet<u64> = reached.iter().flat_map(|&v| graph.row(v)).collect();
            assert_eq!(touched.len(), rows.len(), "{spec}");
            assert_eq!(touched.into_iter().collect::<HashSet<_>>(), rows, "{spec}");

            // Per vertex one queue entry, two offsets, one claim and push (not the root); per row entry two.
            let search = 5 * reached.len() - 2 + 2 * rows.len();
            let offset_words = vertices as usize + 1;
            let neighbour_words = (2 * edges(vertices, degree) as usize).max(1).div_ceil(2);
            let parent_words = (vertices as usize).div_ceil(2);
            assert_eq!(accesses.len(), search + offset_words + neighbour_words + parent_words, "{spec}");
        }
    }

    #[test]
    fn queue_entries_are_read_where_they_were_pushed() {
        let (accesses, events) = replay("bfs:vertices=5000,degree=8,threads=3,init=no", 1);
        let queues: Vec<_> = arrays(&events)[3..].iter().map(|a| a.0).collect();
        let pushed: HashSet<u64> = at_site(&accesses, PUSH).map(|(_, a)| a.vaddr).collect();
        let read: Vec<u64> = at_site(&accesses, 2).map(|(_, a)| a.vaddr).collect();
        assert_eq!(read[0], queues[0], "the root");
        assert_eq!(read[1..].iter().copied().collect::<HashSet<_>>(), &pushed - &HashSet::from([queues[0]]));
        for (thread, access) in at_site(&accesses, PUSH) {
            assert!((access.vaddr - queues[*thread as usize]) < 20_000, "a thread pushes to its own queue");
        }
        for thread in 0..3 {
            let work = at_site(&accesses, LOAD_NEIGHBOUR).filter(|(t, _)| *t == thread).count();
            assert!((10_000..17_000).contains(&work), "{thread}: {work} of 40000");
        }
        assert!(at_site(&accesses, CLAIM).all(|(_, a)| a.kind == AccessKind::Modify));
    }

    #[test]
    fn a_kronecker_graph_is_searched_as_it_is_drawn() {
        for index in [4_u64, 8] {
            let spec = format!("bfs:vertices=4096,degree=16,graph=kronecker,index={index},threads=2,init=no");
            let (accesses, events) = replay(&spec, 6);
            let graph = AnyGraph::Drawn(Kronecker::new(12, 16, &Rng::for_thread(6, "graph", 0)).unwrap());
            let distance = distances(&graph, root(&graph, &mut Rng::for_thread(6, "roots", 0)));
            let [neighbours, parents] = [1, 2].map(|array| arrays(&events)[array].0);
            let claimed = at_site(&accesses, CLAIM).map(|(_, a)| ((a.vaddr - parents) / index) as u32);
            assert_eq!(claimed.collect::<HashSet<_>>().len() + 1, distance.len());
            assert!(distance.len() > 2000, "most vertices hang together: {}", distance.len());
            let last = at_site(&accesses, LOAD_NEIGHBOUR).map(|(_, a)| a.vaddr - neighbours).max().unwrap();
            assert!(last < arrays(&events)[1].1, "within its array");
        }
    }

    #[test]
    fn roots_and_accesses_limit_the_work() {
        let one = replay("bfs:vertices=1000,init=no", 3).0;
        let three = replay("bfs:vertices=1000,roots=3,init=no", 3).0;
        assert_eq!(three[..one.len()], one);
        let resets = at_site(&three, 1).count();
        assert_eq!(resets, 3 * 500);
        let limited = replay("bfs:vertices=1000,accesses=23456,init=no", 3).0;
        assert_eq!(limited.len(), 23_456);
        assert_eq!(limited[..one.len()], one);
        assert!(one.iter().all(|(_, a)| a.kind != AccessKind::Modify));
    }
}
