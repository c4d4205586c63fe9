//! Shared by the workloads on a graph: parameters, the graph's arrays, threads, the source.

use std::collections::VecDeque;
use std::ops::Range;

use super::{
    array::{INITIALISE, initialise_step, share},
    graph::{AnyGraph, Graph, edges},
    kronecker::Kronecker,
    layout::{Layout, Site},
    program::{BATCH_ACCESSES, Initialise, MIN_RUN, Plan, Program},
    spec::{COUNT, Kind, Parameter, Preset, Values},
};
use crate::rng::Rng;
use crate::{Access, AccessKind, Batch, Segment, ThreadIx, TraceError};

pub(super) const VERTICES: Parameter = Parameter {
    name: "vertices",
    kind: Kind::Count { min: 1, max: 1 << 31 },
    default: Preset::Value("1M"),
    meaning: "vertices of the graph; the simulator stores it in memory, at most 16 bytes per vertex and 4 per neighbour",
};
pub(super) const DEGREE: Parameter = Parameter {
    name: "degree",
    kind: Kind::Count { min: 1, max: 1 << 20 },
    default: Preset::Value("8"),
    meaning: "neighbours of a vertex on average",
};
pub(super) const GRAPH: Parameter = Parameter {
    name: "graph",
    kind: Kind::Choice(&["uniform", "kronecker"]),
    default: Preset::Value("uniform"),
    meaning: "kronecker: Graph500's degrees and neighbours, drawn where they are looked at, so that an edge is \
              found from one of its ends only; vertices must be a power of two",
};
pub(super) const INDEX: Parameter = Parameter {
    name: "index",
    kind: Kind::Bytes { min: 4, max: 8 },
    default: Preset::Value("4"),
    meaning: "bytes of a vertex's number wherever the program stores one: 4 or 8",
};
pub(super) const ACCESSES_OF_WORK: Parameter = Parameter {
    name: "accesses",
    kind: COUNT,
    default: Preset::Derived("as many as the work takes"),
    meaning: "accesses of all threads together, including initialisation; the work is repeated as often as necessary",
};
pub(super) const INITIALISE_GRAPH: Parameter = Parameter {
    default: Preset::Value("yes"),
    meaning: "whether the graph's two arrays are first written from end to end, 8 bytes per store (pages: one store per page)",
    ..INITIALISE
};

/// Bytes of an offset into the array of neighbours.
const OFFSET: u64 = 8;
/// Bytes of each store that initialises an array.
const WORD: u64 = 8;

/// A workload's own sites: 2, and all from this number on.
pub(super) const OWN_SITES: u64 = 6;

/// The graph's two arrays in the program's memory, and the sites that access them.
pub(super) struct Csr {
    offsets: u64,
    neighbours: u64,
    /// Bytes of a vertex number.
    pub index: u64,
    fill: Site,
    row_begin: Site,
    row_end: Site,
    neighbour: Site,
}

impl Csr {
    /// The loads of the offsets that delimit the neighbours of `vertex`.
    #[inline]
    pub fn row(&self, vertex: u32) -> [Access; 2] {
        let entry = self.offsets + u64::from(vertex) * OFFSET;
        [self.row_begin.load(entry), self.row_end.load(entry + OFFSET)]
    }

    /// The load of the neighbour at index `at`.
    #[inline]
    pub fn neighbour(&self, at: u64) -> Access {
        self.neighbour.load(self.neighbours + at * self.index)
    }
}

/// The threads: whose turn it is, and what they must still write first.
pub(super) struct Team {
    pub threads: usize,
    turn: usize,
    /// One part per thread; all parts of an array are written before the next array.
    fills: VecDeque<Vec<Initialise>>,
}

impl Team {
    /// The thread whose turn it is; the turn passes to the next.
    pub fn take_turn(&mut self) -> usize {
        let thread = self.turn;
        self.turn = (self.turn + 1) % self.threads;
        thread
    }

    /// Lets the first thread begin.
    pub fn restart(&mut self) {
        self.turn = 0;
    }

    /// How a thread changes a word that others may change too: by compare-and-swap, unless it is alone.
    pub fn claim(&self) -> AccessKind {
        if self.threads > 1 { AccessKind::Modify } else { AccessKind::Store }
    }

    /// Makes the threads write a whole array before their next turns.
    pub fn fill(&mut self, csr: &Csr, array: u64, bytes: u64) {
        self.divide(csr.fill, array, bytes, WORD);
    }

    /// Divides stores of 8 bytes, `step` apart, to a whole array among the threads.
    fn divide(&mut self, site: Site, array: u64, bytes: u64, step: u64) {
        // Arrays are mapped in whole pages, so the last word may be used partially.
        let part = |thread| {
            let (begin, end) = share(bytes.div_ceil(step), thread, self.threads as u64);
            Initialise::new(site, array + begin * step, step, end - begin)
        };
        self.fills.push_back((0..self.threads as u64).map(part).collect());
    }

    /// Appends stores of the next thread to the array that is being written.
    fn run_fill(&mut self, out: &mut Vec<Access>) -> Option<usize> {
        while !self.fills.is_empty() {
            for _ in 0..self.threads {
                let thread = self.take_turn();
                let begin = out.len();
                out.resize(begin + MIN_RUN, Access::new(AccessKind::Store, 0, 1));
                let filled = self.fills[0][thread].fill(&mut out[begin..]);
                out.truncate(begin + filled);
                if filled > 0 {
                    return Some(thread);
                }
            }
            self.fills.pop_front();
        }
        None
    }
}

/// Distributes all vertices like OpenMP's dynamic schedule: a thread that has finished its chunk takes the next.
pub(super) struct Deal {
    vertices: u32,
    next: u32,
    chunk: u32,
    /// The rest of each thread's chunk.
    left: Vec<Range<u32>>,
}

impl Deal {
    /// Vertices per chunk in the GAP benchmark's loops, unless there are too few for all threads.
    const CHUNK: u32 = 16_384;
    /// Vertices per turn of a thread.
    const TURN: u32 = 64;

    pub fn new(vertices: u64, threads: usize) -> Self {
        let vertices = u32::try_from(vertices).expect("limited by its kind");
        let chunk = Self::CHUNK.min(vertices.div_ceil(threads as u32));
        Self { vertices, next: 0, chunk, left: vec![0..0; threads] }
    }

    /// Restarts at the first vertex, with the first thread.
    pub fn restart(&mut self, team: &mut Team) {
        self.next = 0;
        team.restart();
    }

    /// The next thread and its vertices for this turn; none when all are done.
    pub fn turn(&mut self, team: &mut Team) -> Option<(usize, Range<u32>)> {
        for _ in 0..team.threads {
            let thread = team.take_turn();
            let left = &mut self.left[thread];
            if Range::is_empty(left) {
                *left = self.next..self.vertices.min(self.next + self.chunk);
                self.next = left.end;
            }
            if !Range::is_empty(left) {
                let begin = left.start;
                left.start = left.end.min(begin + Self::TURN);
                return Some((thread, begin..left.start));
            }
        }
        None
    }
}

/// The result of a step of an algorithm.
pub(super) enum Step {
    /// It has appended at least one access of this thread.
    Turn(usize),
    /// It has begun a new part: the next step continues after the stores that [`Team::fill`] requested.
    Begun,
    /// It has ended, and further calls return the same.
    End,
}

/// An algorithm on a graph, computed for real.
pub(super) trait Algorithm: Send {
    /// Allocates its memory, before the first step.
    fn prepare(&mut self, vertices: u64) -> Result<(), TraceError>;

    /// Does a part of the work and appends its accesses.
    fn step(&mut self, graph: &AnyGraph, team: &mut Team, out: &mut Vec<Access>) -> Step;
}

/// A program that runs an algorithm on a graph in compressed sparse rows.
pub(super) struct GraphProgram<A> {
    vertices: u64,
    degree: u64,
    kronecker: bool,
    /// Number of elements of the array of neighbours.
    entries: u64,
    rng: Rng,
    /// Built before the first access, so that parsing a spec is cheap.
    graph: Option<AnyGraph>,
    team: Team,
    /// Number of accesses not yet made.
    left: u64,
    algorithm: A,
}

/// Maps the graph, and then what `make` maps for the algorithm, given the number of vertices.
pub(super) fn build<A: Algorithm>(
    values: &Values,
    make: impl FnOnce(u64, Csr, &mut Layout) -> Result<A, TraceError>,
) -> Result<(Layout, GraphProgram<A>), TraceError> {
    let (vertices, degree) = (values.number(VERTICES.name), values.number(DEGREE.name));
    let index = values.number(INDEX.name);
    if index != 4 && index != 8 {
        return Err(values.refuse(INDEX.name, "4 or 8"));
    }
    let kronecker = values.word(GRAPH.name) == "kronecker";
    if kronecker && !vertices.is_power_of_two() {
        return Err(values.refuse(VERTICES.name, "a power of two for a Kronecker graph"));
    }
    let offset_bytes = (vertices + 1) * OFFSET;
    // Degrees of a Kronecker graph are rounded at random; a sixteenth more is sufficient.
    let entries = if kronecker { vertices * degree / 16 * 17 + 1024 } else { 2 * edges(vertices, degree) };
    let neighbour_bytes = (entries * index).max(index);
    let mut layout = Layout::new(values);
    let site = |number, bytes: u64| Site::new(number, bytes as u16, values.gap());
    let csr = Csr {
        offsets: layout.map(0, offset_bytes)?,
        neighbours: layout.map(0, neighbour_bytes)?,
        index,
        fill: site(1, WORD),
        row_begin: site(3, OFFSET),
        row_end: site(4, OFFSET),
        neighbour: site(5, index),
    };
    let mut team = Team { threads: values.threads() as usize, turn: 0, fills: VecDeque::new() };
    if let Some(step) = initialise_step(values, WORD) {
        for (array, bytes) in [(csr.offsets, offset_bytes), (csr.neighbours, neighbour_bytes)] {
            team.divide(site(0, WORD), array, bytes, step);
        }
    }
    let program = GraphProgram {
        vertices,
        degree,
        kronecker,
        entries,
        rng: Rng::for_thread(values.seed(), "graph", 0),
        graph: None,
        team,
        left: values.optional(ACCESSES_OF_WORK.name).unwrap_or(u64::MAX),
        algorithm: make(vertices, csr, &mut layout)?,
    };
    Ok((layout, program))
}

/// Number of repetitions: as `rounds` says, or unlimited if the number of accesses is given.
pub(super) fn rounds(values: &Values, rounds: &str, default: u64) -> Result<u64, TraceError> {
    match values.optional(ACCESSES_OF_WORK.name) {
        Some(_) if values.given(rounds) => Err(values.conflict(&format!("give {rounds} or accesses, not both"))),
        Some(_) => Ok(u64::MAX),
        None => Ok(values.optional(rounds).unwrap_or(default)),
    }
}

impl<A: Algorithm + 'static> GraphProgram<A> {
    pub fn into_plan(self, layout: Layout, values: &Values) -> Plan {
        let accesses = values.optional(ACCESSES_OF_WORK.name);
        Plan { layout, threads: self.team.threads as u32, program: Box::new(self), accesses, dependencies: true }
    }
}

impl<A: Algorithm> GraphProgram<A> {
    fn build_graph(&self) -> Result<AnyGraph, TraceError> {
        if !self.kronecker {
            return Ok(AnyGraph::Stored(Graph::random(self.vertices, self.degree, &self.rng)?));
        }
        let graph = Kronecker::new(self.vertices.ilog2(), self.degree, &self.rng)?;
        assert!(graph.entries() <= self.entries, "the neighbours do not fit their array");
        Ok(AnyGraph::Drawn(graph))
    }

    /// Appends the next run and returns its thread; none at the end.
    fn run(&mut self, graph: &AnyGraph, out: &mut Vec<Access>) -> Option<usize> {
        loop {
            if let Some(thread) = self.team.run_fill(out) {
                return Some(thread);
            }
            match self.algorithm.step(graph, &mut self.team, out) {
                Step::Turn(thread) => return Some(thread),
                Step::Begun => {}
                Step::End => return None,
            }
        }
    }
}

impl<A: Algorithm> Program for GraphProgram<A> {
    fn next(&mut self, batch: &mut Batch) -> Result<(), TraceError> {
        let graph = match self.graph.take() {
            Some(graph) => graph,
            None => {
                let graph = self.build_graph()?;
                self.algorithm.prepare(self.vertices)?;
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
            batch.close_run(ThreadIx(thread as u32));
        }
        self.graph = Some(graph);
        debug_assert!(batch.segments.iter().all(|s| matches!(s, Segment::Run { .. })));
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::workload::{Workload, program::tests::replay};

    /// The algorithm after all its accesses, and the graph.
    pub fn finish<A: Algorithm>(
        workload: &Workload,
        settings: &str,
        build: impl Fn(&Values) -> Result<(Layout, GraphProgram<A>), TraceError>,
    ) -> (A, AnyGraph) {
        let values = Values::parse(workload.name, workload.parameters, settings, 7).unwrap();
        let (_, mut program) = build(&values).unwrap();
        let mut batch = Batch::default();
        loop {
            batch.segments.clear();
            program.next(&mut batch).unwrap();
            if batch.segments.is_empty() {
                return (program.algorithm, program.graph.unwrap());
            }
        }
    }

    pub fn at_site(accesses: &[(u32, Access)], number: u64) -> impl Iterator<Item = &(u32, Access)> {
        let pc = Site::new(number, 1, 1).pc;
        accesses.iter().filter(move |(_, a)| a.pc == pc)
    }

    #[test]
    fn every_vertex_is_dealt_once_and_all_threads_have_work() {
        for (vertices, threads) in [(1, 1), (5, 8), (1000, 3), (100_000, 2), (100_000, 5)] {
            let mut team = Team { threads, turn: 0, fills: VecDeque::new() };
            let mut deal = Deal::new(vertices, threads);
            for _ in 0..2 {
                deal.restart(&mut team);
                let mut by_thread = vec![Vec::new(); threads];
                while let Some((thread, range)) = deal.turn(&mut team) {
                    assert!((1..=64).contains(&range.len()));
                    by_thread[thread].extend(range);
                }
                let least = by_thread.iter().map(Vec::len).min().unwrap();
                assert!(least as u64 * 2 >= vertices / threads as u64, "{vertices} {threads}: {least}");
                let mut all = by_thread.concat();
                all.sort_unstable();
                assert_eq!(all, (0..vertices as u32).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_chunk_stays_with_its_thread() {
        let mut team = Team { threads: 2, turn: 0, fills: VecDeque::new() };
        let mut deal = Deal::new(100_000, 2);
        let turns: Vec<_> = (0..4).map(|_| deal.turn(&mut team).unwrap()).collect();
        assert_eq!(turns, [(0, 0..64), (1, 16_384..16_448), (0, 64..128), (1, 16_448..16_512)]);
    }

    /// Rows are read from the offsets, neighbours from the other array, whatever the algorithm.
    #[test]
    fn the_graph_is_read_where_it_was_written() {
        for spec in ["bfs:vertices=512", "pagerank:vertices=512,iterations=1", "cc:vertices=512"] {
            for graph in ["uniform", "kronecker"] {
                let (accesses, _) = replay(&format!("{spec},graph={graph},index=8,degree=20,threads=2"), 3);
                let written: std::collections::HashSet<u64> = at_site(&accesses, 0).map(|(_, a)| a.vaddr).collect();
                let mut reads = 0;
                for (_, access) in [3, 4, 5].into_iter().flat_map(|site| at_site(&accesses, site)) {
                    assert!(written.contains(&access.vaddr), "{spec}: {access:x?}");
                    reads += 1;
                }
                assert!(reads > 1024, "{spec}: {reads}");
            }
        }
    }

    #[test]
    fn impossible_graphs_are_refused() {
        for workload in ["bfs", "pagerank", "cc"] {
            let error = |settings| workload_error(&format!("{workload}:{settings}"));
            assert_eq!(error("index=6"), format!("{workload}: index=6: must be 4 or 8"));
            let power = "must be a power of two for a Kronecker graph";
            assert_eq!(error("vertices=1000,graph=kronecker"), format!("{workload}: vertices=1000: {power}"));
        }
        for (spec, rounds) in [("bfs", "roots"), ("pagerank", "iterations"), ("cc", "trials")] {
            let error = workload_error(&format!("{spec}:{rounds}=2,accesses=9"));
            assert_eq!(error, format!("{spec}: give {rounds} or accesses, not both"));
        }
    }

    fn workload_error(spec: &str) -> String {
        crate::workload::parse(spec, 0).err().expect("it must be refused").to_string()
    }
}
