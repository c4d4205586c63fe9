//! A Kronecker graph whose neighbours are computed on demand.

use super::graph::allocate;
use super::permutation::Permutation;
use crate::TraceError;
use crate::rng::Rng;

/// Number of vertices between two stored row starts.
const GRANULE: u64 = 16;

/// Models: the graph of Graph500's generator (R-MAT with A = 0.57, B = C = 0.19, D = 0.05, vertices renamed at random).
/// Only the start of every sixteenth row is stored. The degree of a vertex is its expected degree, rounded at random,
/// and its n-th neighbour is drawn again, with the same result, at every request. So 4 bytes of memory per vertex
/// suffice for graphs of any degree.
///
/// Deviations: an edge is stored at one of its ends only, so it is not found from the other; degrees do not vary around
/// their means. The distribution of what a search accesses first, and how often, is that of the real graph.
pub(super) struct Kronecker {
    scale: u32,
    /// Start of the rows 0, 16, 32 …, and the end of the last.
    starts: Vec<u64>,
    /// Mean degree of a vertex, by the number of ones in its number before renaming.
    means: Vec<f64>,
    names: Permutation,
    rng: Rng,
}

/// Probability that a bit of one end of an edge is 0.
const ZERO: f64 = 0.57 + 0.19;
/// The probability that a bit of the other end is 1: 0.25 (0.19 of 0.76) beside a 0, and 0.2083 (0.05 of 0.24) beside a
/// 1; in sixty-fourths 16 and 13.33.
const ONE_BESIDE_ZERO: u64 = 0b01_0000;
const ONE_BESIDE_ONE: u64 = 0b00_1101;

impl Kronecker {
    /// A graph of 2^`scale` vertices with `degree` neighbours on average.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(scale: u32, degree: u64, rng: &Rng) -> Result<Self, TraceError> {
        let vertices = 1_u64 << scale;
        let means = (0..=scale).map(|ones| {
            let (zeros, ones) = ((scale - ones) as i32, ones as i32);
            degree as f64 * (2.0 * ZERO).powi(zeros) * (2.0 - 2.0 * ZERO).powi(ones)
        });
        let mut graph = Self {
            scale,
            starts: allocate(vertices.div_ceil(GRANULE) + 1)?,
            means: means.collect(),
            names: Permutation::new(vertices, rng.clone()),
            rng: rng.clone(),
        };
        let mut sum = 0;
        for granule in 0..graph.starts.len() - 1 {
            graph.starts[granule] = sum;
            let first = granule as u64 * GRANULE;
            sum += (first..vertices.min(first + GRANULE)).map(|vertex| graph.degree(vertex)).sum::<u64>();
        }
        *graph.starts.last_mut().expect("there is a vertex") = sum;
        Ok(graph)
    }

    pub fn vertices(&self) -> u64 {
        1 << self.scale
    }

    /// Number of neighbours of all vertices together.
    pub fn entries(&self) -> u64 {
        *self.starts.last().expect("there is a vertex")
    }

    fn degree(&self, vertex: u64) -> u64 {
        let mean = self.means[self.names.invert(vertex).count_ones() as usize];
        let chance = (self.rng.peek(vertex) >> 11) as f64 / (1_u64 << 53) as f64;
        mean as u64 + u64::from(chance < mean.fract())
    }

    /// Range of the neighbours of `vertex`.
    pub fn row(&self, vertex: u32) -> std::ops::Range<u64> {
        let vertex = u64::from(vertex);
        let granule = vertex / GRANULE;
        let before = (granule * GRANULE..vertex).map(|before| self.degree(before)).sum::<u64>();
        let start = self.starts[granule as usize] + before;
        start..start + self.degree(vertex)
    }

    /// The neighbour of `vertex` at index `at`.
    pub fn neighbour(&self, vertex: u32, at: u64) -> u32 {
        let from = self.names.invert(u64::from(vertex));
        // Beyond the numbers with which the degrees were drawn.
        let random = |n: u64| self.rng.peek((1 << 40) + at * 6 + n);
        let (mut beside_zero, mut beside_one) = (0_u64, 0_u64);
        // Bits that are 1 with a probability in sixty-fourths; the least significant digit first.
        for digit in 0..6 {
            let coin = random(digit);
            let step = |bits: u64, odds: u64| if odds >> digit & 1 == 1 { bits | coin } else { bits & coin };
            beside_zero = step(beside_zero, ONE_BESIDE_ZERO);
            beside_one = step(beside_one, ONE_BESIDE_ONE);
        }
        let to = (!from & beside_zero | from & beside_one) & (self.vertices() - 1);
        self.names.apply(to) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Kronecker {
        Kronecker::new(14, 16, &Rng::for_thread(3, "test", 0)).unwrap()
    }

    #[test]
    fn rows_follow_each_other_and_have_the_degrees_of_the_model() {
        let graph = graph();
        let mut end = 0;
        let mut degrees = Vec::new();
        for vertex in 0..graph.vertices() as u32 {
            let row = graph.row(vertex);
            assert_eq!(row.start, end);
            end = row.end;
            degrees.push(row.end - row.start);
        }
        assert_eq!(end, graph.entries());
        let mean = end as f64 / graph.vertices() as f64;
        assert!((15.5..16.5).contains(&mean), "{mean}");
        degrees.sort_unstable();
        // 16 * 1.52^14 neighbours of the one vertex without a 1 bit, and many vertices without neighbours.
        assert!(degrees.last().unwrap().abs_diff(5623) < 5, "{:?}", degrees.last());
        assert!(degrees[degrees.len() / 4] <= 4, "{}", degrees[degrees.len() / 4]);
    }

    /// Edges end at vertices in proportion to the vertices' degrees.
    #[test]
    fn neighbours_are_popular_as_they_are_sociable() {
        let graph = graph();
        let mut reached = vec![0_u64; graph.vertices() as usize];
        for vertex in 0..graph.vertices() as u32 {
            graph.row(vertex).for_each(|at| reached[graph.neighbour(vertex, at) as usize] += 1);
        }
        let by_ones = |ones: u32| -> (u64, u64) {
            let has_ones = |v: &u64| graph.names.invert(*v).count_ones() == ones;
            let vertices: Vec<u64> = (0..graph.vertices()).filter(has_ones).collect();
            (vertices.iter().map(|v| graph.degree(*v)).sum(), vertices.iter().map(|v| reached[*v as usize]).sum())
        };
        for ones in 0..8 {
            let (out, into) = by_ones(ones);
            let ratio = into as f64 / out as f64;
            assert!((0.8..1.25).contains(&ratio), "{ones} ones: {out} out, {into} in");
        }
        assert_eq!(graph.neighbour(5, 100), graph.neighbour(5, 100));
    }
}
