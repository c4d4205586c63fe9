//! `bfs`: breadth-first search of a random graph.

use super::{
    Workload,
    array::{INITIALISE, initialise_step, share},
    graph::{AnyGraph, Graph, allocate, edges},
    kronecker::Kronecker,
    layout::{Layout, Site},
    program::{BATCH_ACCESSES, Initialise, MIN_RUN, Plan, Program},
    rng::Rng,
    spec::{ALIGN, COUNT, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
};
use crate::{Access, AccessKind, Batch, Segment, ThreadIx, TraceError};

/// Bytes of an offset into the neighbours.
const OFFSET: u64 = 8;
/// Bytes that an initialising store writes.
const WORD: u64 = 8;
/// Vertices of the frontier that a thread takes at a time.
const CHUNK: usize = 64;
/// Parent of a vertex that the search has not reached.
const NONE: u32 = u32::MAX;

/// Models: a top-down level-synchronous search, as in Graph500's reference code. The graph is built and searched
/// for real, so the accesses are those of a program: for each vertex of the frontier, its entry in a queue and its
/// two offsets; for each of its neighbours, the neighbour's number and parent; for a new one, a store of the parent
/// (a compare-and-swap if there are several threads) and of the entry in the thread's own queue, which holds
/// the levels one after the other. Chunks of 64 vertices of the frontier go to the threads in turn. Before each
/// search the parents are reset.
///
/// Unlike the array workloads it holds the graph in memory: 8 bytes a vertex for offsets, 4 for its parent and 4 in
/// a queue, and 4 bytes for each of two ends of an edge; of a Kronecker graph, which is drawn where it is looked at, only
/// parents and queues. What the program's own arrays take is said by `index`, whatever the simulator holds.
pub(super) static WORKLOAD: Workload = Workload {
    name: "bfs",
    summary: "breadth-first search from random roots, level by level, over a random graph in compressed sparse rows",
    origin: "Graph500's kernel 2 on a uniformly random undirected graph, or an analogue of its own (see `graph`)",
    parameters: &[
        Parameter {
            name: "vertices",
            kind: Kind::Count { min: 1, max: 1 << 31 },
            default: Preset::Value("1M"),
            meaning: "vertices of the graph; it is held in memory, 16 bytes each and 4 more for each neighbour",
        },
        Parameter {
            name: "degree",
            kind: Kind::Count { min: 1, max: 1 << 20 },
            default: Preset::Value("8"),
            meaning: "neighbours of a vertex on average",
        },
        Parameter {
            name: "graph",
            kind: Kind::Choice(&["uniform", "kronecker"]),
            default: Preset::Value("uniform"),
            meaning: "kronecker: Graph500's degrees and neighbours, drawn where they are looked at, so that an edge is \
                      found from one of its ends only; vertices must be a power of two",
        },
        Parameter {
            name: "index",
            kind: Kind::Bytes { min: 4, max: 8 },
            default: Preset::Value("4"),
            meaning: "bytes of a vertex's number in neighbours, parents and queues: 4 or 8",
        },
        Parameter {
            name: "roots",
            kind: COUNT,
            default: Preset::Derived("1, or as accesses demand"),
            meaning: "searches, one after the other, each from a random vertex that has a neighbour",
        },
        Parameter {
            name: "accesses",
            kind: COUNT,
            default: Preset::Derived("as many as the searches take"),
            meaning: "accesses of all threads together, initialisation included, instead of roots",
        },
        THREADS,
        Parameter {
            default: Preset::Value("yes"),
            meaning: "whether the graph's two arrays are first written from end to end, 8 bytes a store (pages: one store a page)",
            ..INITIALISE
        },
        GAP,
        ALIGN,
        SEED,
    ],
    build,
};

fn build(values: &Values) -> Result<Plan, TraceError> {
    let (vertices, degree, threads) = (values.number("vertices"), values.number("degree"), values.threads());
    let accesses = values.optional("accesses");
    if accesses.is_some() && values.given("roots") {
        return Err(values.conflict("give roots or accesses, not both"));
    }
    let index = values.number("index");
    if index != 4 && index != 8 {
        return Err(values.refuse("index", "be 4 or 8"));
    }
    let graph_rng = Rng::new(values.seed(), "graph", 0);
    let kronecker = values.word("graph") == "kronecker";
    if kronecker && !vertices.is_power_of_two() {
        return Err(values.refuse("vertices", "be a power of two for a Kronecker graph"));
    }
    let offset_bytes = (vertices + 1) * OFFSET;
    // Degrees of a Kronecker graph are rounded at random; a sixteenth more holds them all.
    let entries = if kronecker { vertices * degree / 16 * 17 + 1024 } else { 2 * edges(vertices, degree) };
    let neighbour_bytes = (entries * index).max(index);
    let mut layout = Layout::new(values);
    let arrays = Arrays {
        offsets: layout.map(0, offset_bytes)?,
        neighbours: layout.map(0, neighbour_bytes)?,
        parents: layout.map(0, vertices * index)?,
        queues: (0..threads as u32).map(|t| layout.map(t, vertices * index)).collect::<Result<_, _>>()?,
    };
    let sites = Sites::new(values.gap(), index);
    let mut initialise = Vec::new();
    if let Some(step) = initialise_step(values, WORD) {
        for (array, bytes) in [(arrays.offsets, offset_bytes), (arrays.neighbours, neighbour_bytes)] {
            initialise.push(divide(sites.initialise, array, bytes, step, threads));
        }
    }
    let search = Search {
        vertices,
        degree,
        kronecker,
        entries,
        index,
        threads: threads as usize,
        roots: accesses.map_or(values.optional("roots").unwrap_or(1), |_| u64::MAX),
        left: accesses.unwrap_or(u64::MAX),
        graph_rng,
        root_rng: Rng::new(values.seed(), "roots", 0),
        graph: None,
        parents: Vec::new(),
        queues: vec![Queue::default(); threads as usize],
        at: Cursor::default(),
        initialise,
        turn: 0,
        arrays,
        sites,
    };
    Ok(Plan { layout, program: Box::new(search), accesses, threads: threads as u32 })
}

/// Stores of 8 bytes, `step` apart, to all of an array, its parts divided among the threads.
fn divide(site: Site, array: u64, bytes: u64, step: u64, threads: u64) -> Vec<Initialise> {
    // Arrays are mapped in whole pages, so the last word may be half used.
    let part = |thread| {
        let (begin, end) = share(bytes.div_ceil(step), thread, threads);
        Initialise::new(site, array + begin * step, step, end - begin)
    };
    (0..threads).map(part).collect()
}

/// Where the arrays lie.
struct Arrays {
    offsets: u64,
    neighbours: u64,
    parents: u64,
    /// One for each thread.
    queues: Vec<u64>,
}

/// The places in the code that access memory.
struct Sites {
    initialise: Site,
    reset: Site,
    frontier: Site,
    row_begin: Site,
    row_end: Site,
    neighbour: Site,
    parent: Site,
    claim: Site,
    push: Site,
}

impl Sites {
    fn new(gap: u32, index: u64) -> Self {
        let site = |number, bytes: u64| Site::new(number, bytes as u16, gap);
        Self {
            initialise: site(0, 8),
            reset: site(1, 8),
            frontier: site(2, index),
            row_begin: site(3, OFFSET),
            row_end: site(4, OFFSET),
            neighbour: site(5, index),
            parent: site(6, index),
            claim: site(7, index),
            push: site(8, index),
        }
    }
}

/// A thread's queue: vertices in the order in which it claimed them, of which `begin..end` are the current level
/// and those behind the next.
#[derive(Clone, Debug, Default)]
struct Queue {
    vertices: Vec<u32>,
    begin: usize,
    end: usize,
}

/// The next chunk of the frontier.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Whose queue it is in, and where.
    queue: usize,
    index: usize,
}

struct Search {
    vertices: u64,
    degree: u64,
    kronecker: bool,
    /// Places that the neighbours have.
    entries: u64,
    /// Bytes of a vertex's number.
    index: u64,
    threads: usize,
    /// Searches yet to begin.
    roots: u64,
    /// Accesses yet to make.
    left: u64,
    graph_rng: Rng,
    root_rng: Rng,
    /// Built before the first access, so that parsing a spec is cheap.
    graph: Option<AnyGraph>,
    parents: Vec<u32>,
    queues: Vec<Queue>,
    at: Cursor,
    /// Arrays yet to be written, a part for each thread; all parts of one before the next.
    initialise: Vec<Vec<Initialise>>,
    /// The thread whose turn is next.
    turn: usize,
    arrays: Arrays,
    sites: Sites,
}

impl Program for Search {
    fn next(&mut self, batch: &mut Batch) -> Result<(), TraceError> {
        let graph = match self.graph.take() {
            Some(graph) => graph,
            None => {
                let graph = if self.kronecker {
                    let graph = Kronecker::new(self.vertices.ilog2(), self.degree, &self.graph_rng)?;
                    assert!(graph.entries() <= self.entries, "the neighbours do not fit their array");
                    AnyGraph::Drawn(graph)
                } else {
                    AnyGraph::Stored(Graph::random(self.vertices, self.degree, &self.graph_rng)?)
                };
                self.parents = allocate(self.vertices)?;
                graph
            }
        };
        batch.accesses.clear();
        while batch.accesses.len() < BATCH_ACCESSES && self.left > 0 {
            let begin = batch.accesses.len();
            let Some(thread) = self.run(&graph, &mut batch.accesses) else { break };
            let made = (batch.accesses.len() - begin) as u64;
            batch.accesses.truncate(begin + made.min(self.left) as usize);
            self.left = self.left.saturating_sub(made);
            batch.close_run(thread);
        }
        self.graph = Some(graph);
        debug_assert!(batch.segments.iter().all(|s| matches!(s, Segment::Run { .. })));
        Ok(())
    }
}

impl Search {
    /// Appends the next run, of the thread returned; none at the end.
    fn run(&mut self, graph: &AnyGraph, out: &mut Vec<Access>) -> Option<ThreadIx> {
        loop {
            if let Some(thread) = self.run_initialise(out) {
                return Some(thread);
            }
            if let Some(thread) = self.run_chunk(graph, out) {
                return Some(thread);
            }
            if self.next_level() {
                continue;
            }
            self.roots = self.roots.checked_sub(1)?;
            self.begin_search(graph);
        }
    }

    /// The part of the thread whose turn it is of the array that is being written.
    fn run_initialise(&mut self, out: &mut Vec<Access>) -> Option<ThreadIx> {
        while let Some(parts) = self.initialise.first_mut() {
            for _ in 0..self.threads {
                let thread = self.turn;
                self.turn = (self.turn + 1) % self.threads;
                let begin = out.len();
                out.resize(begin + MIN_RUN, Access::new(AccessKind::Store, 0, 1));
                let filled = parts[thread].fill(&mut out[begin..]);
                out.truncate(begin + filled);
                if filled > 0 {
                    return Some(ThreadIx(thread as u32));
                }
            }
            self.initialise.remove(0);
        }
        None
    }

    /// Forgets the last search and puts a root into the first thread's queue; the reset of the parents comes first.
    fn begin_search(&mut self, graph: &AnyGraph) {
        self.parents.fill(NONE);
        let bytes = self.vertices * self.index;
        self.initialise.push(divide(self.sites.reset, self.arrays.parents, bytes, WORD, self.threads as u64));
        let root = root(graph, &mut self.root_rng);
        self.parents[root as usize] = root;
        for queue in &mut self.queues {
            queue.vertices.clear();
            (queue.begin, queue.end) = (0, 0);
        }
        self.queues[0].vertices.push(root);
        (self.queues[0].end, self.at, self.turn) = (1, Cursor::default(), 0);
    }

    /// Makes what the threads pushed the frontier; false if that is nothing.
    fn next_level(&mut self) -> bool {
        for queue in &mut self.queues {
            (queue.begin, queue.end) = (queue.end, queue.vertices.len());
        }
        (self.at, self.turn) = (Cursor { queue: 0, index: self.queues[0].begin }, 0);
        self.queues.iter().any(|queue| queue.begin < queue.end)
    }

    /// A chunk of the frontier, worked off by the thread whose turn it is; none at the level's end.
    fn run_chunk(&mut self, graph: &AnyGraph, out: &mut Vec<Access>) -> Option<ThreadIx> {
        while self.at.index >= self.queues[self.at.queue].end {
            let queue = self.at.queue + 1;
            self.at = Cursor { queue, index: self.queues.get(queue)?.begin };
        }
        let Cursor { queue, index } = self.at;
        let end = self.queues[queue].end.min(index + CHUNK);
        self.at.index = end;
        let thread = self.turn;
        self.turn = (self.turn + 1) % self.threads;
        for index in index..end {
            let vertex = self.queues[queue].vertices[index];
            out.push(self.sites.frontier.load(self.arrays.queues[queue] + index as u64 * self.index));
            self.visit(graph, vertex, thread, out);
        }
        Some(ThreadIx(thread as u32))
    }

    /// Looks at all neighbours of `vertex` and claims the new ones for `thread`.
    fn visit(&mut self, graph: &AnyGraph, vertex: u32, thread: usize, out: &mut Vec<Access>) {
        let (arrays, sites) = (&self.arrays, &self.sites);
        let claim = if self.threads > 1 { AccessKind::Modify } else { AccessKind::Store };
        let queue = &mut self.queues[thread].vertices;
        let entry = arrays.offsets + u64::from(vertex) * OFFSET;
        let row = graph.row(vertex);
        out.extend([sites.row_begin.load(entry), sites.row_end.load(entry + OFFSET)]);
        for at in row {
            let neighbour = graph.neighbour(vertex, at);
            let parent = arrays.parents + u64::from(neighbour) * self.index;
            out.extend([sites.neighbour.load(arrays.neighbours + at * self.index), sites.parent.load(parent)]);
            if self.parents[neighbour as usize] == NONE {
                self.parents[neighbour as usize] = vertex;
                let slot = arrays.queues[thread] + queue.len() as u64 * self.index;
                queue.push(neighbour);
                out.extend([sites.claim.access(claim, parent), sites.push.store(slot)]);
            }
        }
    }
}

/// A random vertex, or the next after it that has a neighbour if it has none.
fn root(graph: &AnyGraph, rng: &mut Rng) -> u32 {
    let first = rng.below(graph.vertices());
    let candidates = (first..graph.vertices()).chain(0..first).map(|vertex| vertex as u32);
    candidates.clone().find(|&vertex| !graph.row(vertex).is_empty()).unwrap_or(first as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet, VecDeque};

    use super::super::program::tests::{arrays, replay};
    use super::*;

    const LOAD_NEIGHBOUR: u64 = 5;
    const CLAIM: u64 = 7;
    const PUSH: u64 = 8;

    fn at_site(accesses: &[(u32, Access)], number: u64) -> impl Iterator<Item = &(u32, Access)> {
        let pc = Site::new(number, 1, 1).pc;
        accesses.iter().filter(move |(_, a)| a.pc == pc)
    }

    /// Distances from the root by the plainest search there is.
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
            let graph = AnyGraph::Stored(Graph::random(vertices, degree, &Rng::new(6, "graph", 0)).unwrap());
            let root = root(&graph, &mut Rng::new(6, "roots", 0));
            let distance = distances(&graph, root);
            let arrays = arrays(&events);
            let [neighbours, parents] = [arrays[1].0, arrays[2].0];

            let claimed: Vec<u32> = at_site(&accesses, CLAIM).map(|(_, a)| ((a.vaddr - parents) / 4) as u32).collect();
            let reached: HashSet<u32> = claimed.iter().copied().chain([root]).collect();
            assert_eq!(reached.len(), claimed.len() + 1, "{spec}: a vertex is claimed once");
            assert_eq!(reached, distance.keys().copied().collect(), "{spec}");
            // Level-synchronous: claims come in order of distance.
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
            let graph = AnyGraph::Drawn(Kronecker::new(12, 16, &Rng::new(6, "graph", 0)).unwrap());
            let distance = distances(&graph, root(&graph, &mut Rng::new(6, "roots", 0)));
            let [neighbours, parents] = [1, 2].map(|array| arrays(&events)[array].0);
            let claimed = at_site(&accesses, CLAIM).map(|(_, a)| ((a.vaddr - parents) / index) as u32);
            assert_eq!(claimed.collect::<HashSet<_>>().len() + 1, distance.len());
            assert!(distance.len() > 2000, "most vertices hang together: {}", distance.len());
            let last = at_site(&accesses, LOAD_NEIGHBOUR).map(|(_, a)| a.vaddr - neighbours).max().unwrap();
            assert!(last < arrays(&events)[1].1, "within its array");
        }
        assert!(crate::workload::parse("bfs:vertices=1000,graph=kronecker", 0).is_err());
        assert!(crate::workload::parse("bfs:index=6", 0).is_err());
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
        assert!(crate::workload::parse("bfs:roots=1,accesses=2", 0).is_err());
    }
}
