//! `pagerank`: ranks of a graph's vertices, gathered along the edges that lead to them.

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
use crate::{Access, TraceError};

/// Bytes of a score and of a contribution.
const SCORE: u64 = 4;
/// Share of a vertex's score that comes along edges (Brin and Page's damping factor).
const DAMPING: f32 = 0.85;

/// Models: the pull kernel, computed for real. Each iteration visits the vertices twice. First each vertex's score is
/// divided by its degree: score, two offsets, a store of the contribution. Then each vertex gathers: two offsets; for
/// each neighbour its number and (a random access) its contribution; the old score and a store of the new. Scores are
/// 4-byte floats and are initialised before the first iteration. In each of the two loops, free threads take the next
/// chunk of 16,384 vertices and are interleaved every 64 vertices.
///
/// Source: Beamer, Asanović, Patterson, "The GAP Benchmark Suite", 2015, kernel PR with its limits of 20 iterations and
/// a change of 1e-4.
///
/// Deviations: later versions of the suite update contributions while they are gathered, which needs one loop; here an
/// iteration uses only the previous one, so the scores do not depend on the number of threads. A Kronecker graph's edge
/// is stored at one of its ends only, which counts as its destination; the degree counts as the number of outgoing
/// edges.
pub(super) static WORKLOAD: Workload = Workload {
    name: "pagerank",
    summary: "PageRank that pulls contributions of neighbours, over a random graph in compressed sparse rows",
    origin: "GAP benchmark suite's pr on a uniformly random undirected graph, or an analogue of Graph500's (see `graph`)",
    parameters: &[
        VERTICES,
        DEGREE,
        GRAPH,
        INDEX,
        Parameter {
            name: "iterations",
            kind: COUNT,
            default: Preset::Derived("20, or as accesses demand"),
            meaning: "iterations at most",
        },
        Parameter {
            name: "tolerance",
            kind: Kind::Real { max: 1.0 },
            default: Preset::Derived("1e-4, or 0 if accesses are given"),
            meaning: "change of all scores together below which an iteration is the last",
        },
        ACCESSES_OF_WORK,
        THREADS,
        INITIALISE_GRAPH,
        GAP,
        ALIGN,
        SEED,
    ],
    build: |values| page_rank(values).map(|(layout, program)| program.into_plan(layout, values)),
};

fn page_rank(values: &Values) -> Result<(Layout, GraphProgram<PageRank>), TraceError> {
    let iterations = rounds(values, "iterations", 20)?;
    let endless = values.optional(ACCESSES_OF_WORK.name).is_some();
    let tolerance = match values.optional_real("tolerance") {
        Some(_) if endless => return Err(values.conflict("give tolerance or accesses, not both")),
        Some(tolerance) => tolerance,
        None if endless => 0.0,
        None => 1e-4,
    };
    build(values, |vertices, csr, layout| {
        let site = |number, bytes: u64| Site::new(OWN_SITES + number, bytes as u16, values.gap());
        Ok(PageRank {
            phase: Phase::Start,
            iterations,
            tolerance,
            change: 0.0,
            scores: Vec::new(),
            contributions: Vec::new(),
            deal: Deal::new(vertices, values.threads() as usize),
            csr,
            scores_addr: layout.map(0, vertices * SCORE)?,
            contributions_addr: layout.map(0, vertices * SCORE)?,
            score: site(0, SCORE),
            contribute: site(1, SCORE),
            gather: site(2, SCORE),
            old_score: site(3, SCORE),
            new_score: site(4, SCORE),
        })
    })
}

#[derive(Clone, Copy)]
enum Phase {
    Start,
    Contribute,
    Gather,
}

struct PageRank {
    phase: Phase,
    /// Number of iterations not yet begun.
    iterations: u64,
    tolerance: f64,
    /// Change of all scores in the current iteration.
    change: f64,
    scores: Vec<f32>,
    contributions: Vec<f32>,
    deal: Deal,
    csr: Csr,
    scores_addr: u64,
    contributions_addr: u64,
    score: Site,
    contribute: Site,
    gather: Site,
    old_score: Site,
    new_score: Site,
}

impl Algorithm for PageRank {
    fn prepare(&mut self, vertices: u64) -> Result<(), TraceError> {
        self.scores = allocate(vertices)?;
        self.contributions = allocate(vertices)?;
        Ok(())
    }

    fn step(&mut self, graph: &AnyGraph, team: &mut Team, out: &mut Vec<Access>) -> Step {
        if !matches!(self.phase, Phase::Start)
            && let Some((thread, vertices)) = self.deal.turn(team)
        {
            let contribute = matches!(self.phase, Phase::Contribute);
            for vertex in vertices {
                if contribute { self.contribute(graph, vertex, out) } else { self.gather(graph, vertex, out) }
            }
            return Step::Turn(thread);
        }
        self.phase = match self.phase {
            Phase::Contribute => {
                self.change = 0.0;
                Phase::Gather
            }
            Phase::Gather if self.change < self.tolerance => return Step::End,
            Phase::Start | Phase::Gather => {
                let Some(iterations) = self.iterations.checked_sub(1) else { return Step::End };
                self.iterations = iterations;
                if matches!(self.phase, Phase::Start) {
                    self.scores.fill(1.0 / graph.vertices() as f32);
                    team.fill(&self.csr, self.scores_addr, graph.vertices() * SCORE);
                }
                Phase::Contribute
            }
        };
        self.deal.restart(team);
        Step::Begun
    }
}

impl PageRank {
    fn contribute(&mut self, graph: &AnyGraph, vertex: u32, out: &mut Vec<Access>) {
        let (at, row) = (u64::from(vertex) * SCORE, graph.row(vertex));
        out.push(self.score.load(self.scores_addr + at));
        out.extend(self.csr.row(vertex));
        out.push(self.contribute.store(self.contributions_addr + at));
        // In a Kronecker graph a vertex can be a neighbour without having neighbours.
        let degree = (row.end - row.start).max(1);
        self.contributions[vertex as usize] = self.scores[vertex as usize] / degree as f32;
    }

    fn gather(&mut self, graph: &AnyGraph, vertex: u32, out: &mut Vec<Access>) {
        let row = out.len();
        out.extend(self.csr.row(vertex));
        let mut sum = 0.0;
        for at in graph.row(vertex) {
            let neighbour = graph.neighbour(vertex, at);
            let contribution = self.contributions_addr + u64::from(neighbour) * SCORE;
            out.push(self.csr.neighbour(at).after(out.len() - row));
            out.push(self.gather.load(contribution).after(1));
            sum += self.contributions[neighbour as usize];
        }
        let score = self.scores_addr + u64::from(vertex) * SCORE;
        out.extend([self.old_score.load(score), self.new_score.store(score)]);
        let new = (1.0 - DAMPING) / graph.vertices() as f32 + DAMPING * sum;
        self.change += f64::from((new - self.scores[vertex as usize]).abs());
        self.scores[vertex as usize] = new;
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph_program::tests::{at_site, finish};
    use super::super::program::tests::{arrays, replay};
    use super::*;

    /// Scores by the definition, from a list of edges, in double precision.
    fn plain(graph: &AnyGraph, iterations: u64) -> Vec<f64> {
        let count = graph.vertices() as usize;
        let edges: Vec<(usize, usize)> = (0..count as u32)
            .flat_map(|v| graph.row(v).map(move |at| (graph.neighbour(v, at) as usize, v as usize)))
            .collect();
        let degrees: Vec<_> = (0..count as u32).map(|v| graph.row(v).count().max(1) as f64).collect();
        let mut scores = vec![1.0 / count as f64; count];
        for _ in 0..iterations {
            let mut next = vec![0.15 / count as f64; count];
            edges.iter().for_each(|&(from, to)| next[to] += 0.85 * scores[from] / degrees[from]);
            scores = next;
        }
        scores
    }

    #[test]
    fn scores_are_those_of_the_definition() {
        let kronecker = "vertices=4096,graph=kronecker,threads=2";
        for (settings, iterations) in
            [("vertices=500,degree=6", 1), ("vertices=3000,degree=3,threads=3", 7), (kronecker, 3)]
        {
            let settings = format!("{settings},tolerance=0,iterations={iterations}");
            let (ranked, graph) = finish(&WORKLOAD, &settings, page_rank);
            let plain = plain(&graph, iterations);
            let spread = plain.iter().copied().fold(0.0, f64::max) / plain.iter().copied().fold(1.0, f64::min);
            assert!(spread > 3.0, "{settings}: the vertices differ, by {spread}");
            for (score, plain) in ranked.scores.iter().zip(&plain) {
                assert!((f64::from(*score) / plain - 1.0).abs() < 1e-5, "{settings}: {score} {plain}");
            }
        }
    }

    #[test]
    fn an_isolated_vertex_harms_nobody() {
        let (ranked, graph) = finish(&WORKLOAD, "vertices=100,degree=1,graph=uniform", page_rank);
        let alone = (0..100).find(|&v| graph.row(v).is_empty()).expect("a sparse graph has one");
        assert!((ranked.scores[alone as usize] - 0.0015).abs() < 1e-7);
        assert!(ranked.scores.iter().all(|score| score.is_finite()));
    }

    #[test]
    fn it_ends_when_scores_settle() {
        let iterations = |settings: &str| {
            let (ranked, _) = finish(&WORKLOAD, &format!("vertices=2000,iterations=1000,{settings}"), page_rank);
            1000 - ranked.iterations
        };
        let (loose, tight) = (iterations("tolerance=0.01"), iterations("tolerance=1e-5"));
        assert!(loose > 1 && tight > loose + 3, "{loose} {tight}");
        // The change shrinks per iteration at least by the damping factor: 0.85^71 is below 1e-5.
        assert!(tight < 72, "{tight}");
    }

    #[test]
    fn accesses_are_those_of_the_loops() {
        for (threads, graph) in [(1, "uniform"), (3, "kronecker")] {
            let settings = format!("vertices=4096,threads={threads},graph={graph},iterations=2,tolerance=0,init=no");
            let (accesses, events) = replay(&format!("pagerank:{settings}"), 7);
            let arrays = arrays(&events);
            let neighbours = at_site(&accesses, 5).count();
            assert!(neighbours > 50_000, "{neighbours}");
            let graph = finish(&WORKLOAD, &settings, page_rank).1;
            let ends = (0..4096).flat_map(|v| graph.row(v).map(move |at| (v, at)));
            let ends = ends.map(|(v, at)| u64::from(graph.neighbour(v, at)));
            let mut expected: Vec<_> = ends.flat_map(|end| [end, end]).collect();
            let gathers = at_site(&accesses, OWN_SITES + 2);
            let mut gathered: Vec<_> = gathers.map(|(_, a)| (a.vaddr - arrays[3].0) / SCORE).collect();
            expected.sort_unstable();
            gathered.sort_unstable();
            assert!(gathered == expected, "the contribution of each end of an edge is loaded once an iteration");
            assert_eq!(accesses.len(), 2048 + 2 * 4096 * (4 + 4) + 2 * neighbours);
            let written = |number, array: usize| {
                let mut at: Vec<_> = at_site(&accesses, number).map(|(_, a)| (a.vaddr - arrays[array].0) / 4).collect();
                at.sort_unstable();
                at.chunk_by(|a, b| a == b).all(|same| same.len() == 2) && at.len() == 8192 && at[8191] == 4095
            };
            assert!(written(OWN_SITES + 1, 3), "each contribution is stored once an iteration");
            assert!(written(OWN_SITES + 4, 2), "each score is stored once an iteration");
            for thread in 0..threads {
                let work = at_site(&accesses, 5).filter(|(t, _)| *t == thread).count();
                assert!(work * threads as usize * 2 > neighbours, "{thread} of {threads}: {work} of {neighbours}");
            }
        }
    }

    #[test]
    fn accesses_may_be_more_than_the_scores_need() {
        assert_eq!(replay("pagerank:vertices=100,accesses=200K", 1).0.len(), 200_000);
        let error = crate::workload::parse("pagerank:tolerance=0.1,accesses=2", 0).err().unwrap().to_string();
        assert_eq!(error, "pagerank: give tolerance or accesses, not both");
    }
}
