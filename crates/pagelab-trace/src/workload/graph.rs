//! A random graph in compressed sparse rows.

use super::{kronecker::Kronecker, memory::reserve};
use crate::TraceError;
use crate::rng::{Rng, scale};

/// The neighbours of vertex v are `neighbours[offsets[v]..offsets[v + 1]]`; an edge is stored at both ends.
pub(super) struct Graph {
    pub offsets: Vec<u64>,
    pub neighbours: Vec<u32>,
}

/// Number of edges of a graph whose vertices have `degree` neighbours on average.
pub(super) fn edges(vertices: u64, degree: u64) -> u64 {
    vertices * degree / 2
}

impl Graph {
    /// A graph whose edges have uniformly random ends (Erdős and Rényi's model with a fixed number of edges; loops and
    /// repeated edges stay, as in Graph500). `vertices` is 1 to 2^32.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn random(vertices: u64, degree: u64, rng: &Rng) -> Result<Self, TraceError> {
        let edges = edges(vertices, degree);
        let ends = |edge| {
            let random = rng.peek(edge);
            let end = |half: u64| scale(half << 32, vertices) as usize;
            (end(random >> 32), end(random & 0xffff_ffff))
        };
        // The larger array first: if it does not fit, no memory has been used yet.
        let mut neighbours = allocate::<u32>(2 * edges)?;
        let mut offsets = allocate::<u64>(vertices + 2)?;
        // The edges are drawn twice, to count and to place them, instead of being stored. The counts are two entries
        // ahead, so that placing, which moves each entry to the end of its row, leaves the offsets where they belong.
        for (a, b) in (0..edges).map(ends) {
            offsets[a + 2] += 1;
            offsets[b + 2] += 1;
        }
        let mut sum = 0;
        for offset in &mut offsets {
            sum += *offset;
            *offset = sum;
        }
        let mut place = |from: usize, to: usize| {
            let slot = &mut offsets[from + 1];
            neighbours[*slot as usize] = to as u32;
            *slot += 1;
        };
        for (a, b) in (0..edges).map(ends) {
            place(a, b);
            place(b, a);
        }
        offsets.pop();
        Ok(Self { offsets, neighbours })
    }

    pub fn vertices(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Range of the neighbours of `vertex`.
    pub fn row(&self, vertex: u32) -> std::ops::Range<u64> {
        self.offsets[vertex as usize]..self.offsets[vertex as usize + 1]
    }
}

/// The graph of a workload.
pub(super) enum AnyGraph {
    Stored(Graph),
    Drawn(Kronecker),
}

impl AnyGraph {
    pub fn vertices(&self) -> u64 {
        match self {
            Self::Stored(graph) => graph.vertices(),
            Self::Drawn(graph) => graph.vertices(),
        }
    }

    /// Range of the neighbours of `vertex`.
    pub fn row(&self, vertex: u32) -> std::ops::Range<u64> {
        match self {
            Self::Stored(graph) => graph.row(vertex),
            Self::Drawn(graph) => graph.row(vertex),
        }
    }

    /// The neighbour of `vertex` at index `at`, which lies in its row.
    #[inline]
    pub fn neighbour(&self, vertex: u32, at: u64) -> u32 {
        match self {
            Self::Stored(graph) => graph.neighbours[at as usize],
            Self::Drawn(graph) => graph.neighbour(vertex, at),
        }
    }
}

/// An array of zeros.
///
/// # Errors
/// If there is not enough memory.
pub(super) fn allocate<T: Clone + Default>(len: u64) -> Result<Vec<T>, TraceError> {
    let mut array = reserve(len, "a graph's array", "fewer vertices or a lower degree")?;
    array.resize(len as usize, T::default());
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_both_ends_of_every_edge() {
        for (vertices, degree) in [(1, 1), (1, 4), (2, 1), (1000, 8), (1001, 7)] {
            let graph = Graph::random(vertices, degree, &Rng::for_thread(1, "test", 0)).unwrap();
            assert_eq!(graph.vertices(), vertices);
            assert_eq!(graph.neighbours.len() as u64, 2 * (vertices * degree / 2));
            assert_eq!((graph.offsets[0], graph.row(vertices as u32 - 1).end), (0, graph.neighbours.len() as u64));
            let mut pairs = Vec::new();
            for vertex in 0..vertices as u32 {
                let row = &graph.neighbours[graph.row(vertex).start as usize..graph.row(vertex).end as usize];
                pairs.extend(row.iter().map(|&neighbour| (vertex, neighbour)));
            }
            let mut turned: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            pairs.sort_unstable();
            turned.sort_unstable();
            assert_eq!(pairs, turned);
        }
    }

    #[test]
    fn too_large_an_array_is_an_error() {
        for len in [1 << 48, 1 << 59, u64::MAX] {
            let error = allocate::<u64>(len).unwrap_err().to_string();
            assert!(error.contains("take fewer vertices"), "{error}");
        }
    }

    /// Degrees of a random graph follow Poisson's law: the variance is the mean.
    #[test]
    fn ends_are_uniform() {
        let graph = Graph::random(100_000, 8, &Rng::for_thread(2, "test", 0)).unwrap();
        let degrees = (0..100_000).map(|v| (graph.row(v).end - graph.row(v).start) as f64);
        let variance = degrees.map(|d| (d - 8.0).powi(2)).sum::<f64>() / 1e5;
        assert!((7.7..8.3).contains(&variance), "{variance}");
    }
}
