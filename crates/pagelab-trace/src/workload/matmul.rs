//! `matmul`: the product of two square matrices.

use super::{
    Workload,
    array::{INITIALISE, initialise_step, portion, share},
    layout::{Layout, Site},
    program::{Initialise, Plan, Stream, Worker, plan},
    spec::{ALIGN, COUNT, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
};
use crate::{Access, TraceError};

const DOUBLE: u64 = 8;

/// Models: `c[i][j] = Σ a[i][k] × b[k][j]` over row-major matrices of doubles, with loops in the order i, j, k and the
/// sum in a register; with `block`, the same inside tiles of three outer loops, each adding to c. Each thread has an
/// equal share of the rows of c.
pub(super) static WORKLOAD: Workload = Workload {
    name: "matmul",
    summary: "multiplies two n × n matrices of doubles: rows of a against columns of b",
    origin: "the matrix multiplication of the software page walk cache paper (section 5.3), n = 100 to 1000",
    parameters: &[
        Parameter {
            name: "n",
            kind: Kind::Count { min: 1, max: 1 << 20 },
            default: Preset::Value("500"),
            meaning: "rows and columns; the product takes 2n³ loads and n² stores",
        },
        Parameter {
            name: "block",
            kind: Kind::Count { min: 0, max: 1 << 20 },
            default: Preset::Value("0"),
            meaning: "rows and columns of a tile, 0: no tiles; each tile of k loads and stores c once more",
        },
        Parameter {
            name: "accesses",
            kind: COUNT,
            default: Preset::Derived("as many as the product takes"),
            meaning: "accesses of all threads together, after which they stop before the product is done",
        },
        THREADS,
        Parameter {
            default: Preset::Value("yes"),
            meaning: "whether a and b are first written, 2n² stores beyond the accesses of the product",
            ..INITIALISE
        },
        GAP,
        ALIGN,
        Parameter { meaning: "has no effect: nothing is random", ..SEED },
    ],
    build,
};

fn build(values: &Values) -> Result<Plan, TraceError> {
    let (n, threads) = (values.number("n"), values.threads());
    let block = Some(values.number("block")).filter(|&block| block > 0);
    let mut layout = Layout::new(values);
    let mut map = || layout.map(0, n * n * DOUBLE);
    let [a, b, c] = [map()?, map()?, map()?];
    let site = |number| Site::new(number, DOUBLE as u16, values.gap());
    let workers = (0..threads).map(|thread| {
        let (first, end) = share(n, thread, threads);
        let rows = end - first;
        let fill = |matrix, number, step| {
            let stores = (rows * n * DOUBLE).div_ceil(step);
            Initialise::new(site(number), matrix + first * n * DOUBLE, step, stores)
        };
        let step = initialise_step(values, DOUBLE);
        let initialise = step.map_or_else(Vec::new, |step| vec![fill(a, 4, step), fill(b, 5, step)]);
        let of_c = block.map_or(1, |block| 2 * n.div_ceil(block));
        let accesses = 2 * rows * n * n + of_c * rows * n;
        let accesses =
            values.optional("accesses").map_or(accesses, |limit| portion(limit, thread, threads).min(accesses));
        let size = block.unwrap_or(n.max(rows));
        let loops = Loops::new([first, 0, 0], [end, n, n], size);
        let stream = Product {
            n,
            a,
            b,
            c,
            sites: std::array::from_fn(|s| site(s as u64)),
            blocked: block.is_some(),
            loops,
            place: Place::Start,
        };
        Worker { initialise, stream, accesses }
    });
    let workers = workers.collect();
    Ok(plan(layout, workers))
}

/// The three loops over i, j and k, inside the three loops over tiles.
struct Loops {
    first: [u64; 3],
    end: [u64; 3],
    size: u64,
    /// Start of the current tile.
    tile: [u64; 3],
    at: [u64; 3],
}

impl Loops {
    fn new(first: [u64; 3], end: [u64; 3], size: u64) -> Self {
        Self { first, end, size, tile: first, at: first }
    }

    /// End of the current tile in one dimension.
    fn tile_end(&self, dimension: usize) -> u64 {
        (self.tile[dimension] + self.size).min(self.end[dimension])
    }

    /// Advances to the next i and j, and after the last to the next tile; after the last tile the product starts again.
    fn advance(&mut self) {
        self.at[2] = self.tile[2];
        for dimension in [1, 0] {
            self.at[dimension] += 1;
            if self.at[dimension] < self.tile_end(dimension) {
                return;
            }
            self.at[dimension] = self.tile[dimension];
        }
        for dimension in [2, 1, 0] {
            self.tile[dimension] += self.size;
            if self.tile[dimension] < self.end[dimension] {
                break;
            }
            self.tile[dimension] = self.first[dimension];
        }
        self.at = self.tile;
    }
}

/// Progress of the work on one element of c.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before its first product; a blocked loop loads c here.
    Start,
    /// Among the products.
    Sum,
}

struct Product {
    n: u64,
    a: u64,
    b: u64,
    c: u64,
    /// Loads of a, b and c, store of c.
    sites: [Site; 4],
    blocked: bool,
    loops: Loops,
    place: Place,
}

impl Stream for Product {
    fn unit(&self) -> usize {
        2
    }

    fn fill(&mut self, out: &mut [Access]) -> usize {
        let row_bytes = self.n * DOUBLE;
        let [load_a, load_b, load_c, store_c] = self.sites;
        let mut filled = 0;
        while out.len() - filled >= 2 {
            let [i, j, k] = self.loops.at;
            let c = self.c + i * row_bytes + j * DOUBLE;
            if self.place == Place::Start && self.blocked {
                out[filled] = load_c.load(c);
                filled += 1;
            }
            self.place = Place::Sum;
            let (pairs, _) = out[filled..].as_chunks_mut::<2>();
            let left = (self.loops.tile_end(2) - k) as usize;
            let count = left.min(pairs.len());
            let (a, b) = (self.a + i * row_bytes + k * DOUBLE, self.b + k * row_bytes + j * DOUBLE);
            for (pair, index) in pairs[..count].iter_mut().zip(0..) {
                *pair = [load_a.load(a + index * DOUBLE), load_b.load(b + index * row_bytes)];
            }
            filled += 2 * count;
            self.loops.at[2] += count as u64;
            if count == left && filled < out.len() {
                out[filled] = store_c.store(c);
                filled += 1;
                self.loops.advance();
                self.place = Place::Start;
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, pages, replay};
    use crate::{Access, AccessKind};

    /// The accesses of textbook loops.
    fn textbook(n: u64, block: Option<u64>, [a, b, c]: [u64; 3]) -> Vec<(u64, AccessKind)> {
        let mut expected = Vec::new();
        let size = block.unwrap_or(n);
        let tiles = || (0..n).step_by(size as usize);
        for (ii, jj, kk) in tiles().flat_map(|i| tiles().flat_map(move |j| tiles().map(move |k| (i, j, k)))) {
            for i in ii..n.min(ii + size) {
                for j in jj..n.min(jj + size) {
                    if block.is_some() {
                        expected.push((c + (i * n + j) * 8, AccessKind::Load));
                    }
                    for k in kk..n.min(kk + size) {
                        expected.push((a + (i * n + k) * 8, AccessKind::Load));
                        expected.push((b + (k * n + j) * 8, AccessKind::Load));
                    }
                    expected.push((c + (i * n + j) * 8, AccessKind::Store));
                }
            }
        }
        expected
    }

    fn seen(accesses: &[(u32, Access)]) -> Vec<(u64, AccessKind)> {
        accesses.iter().map(|(_, a)| (a.vaddr, a.kind)).collect()
    }

    #[test]
    fn the_loops_are_the_textbook_s() {
        for (n, block) in [(1, None), (7, None), (40, None), (40, Some(8)), (41, Some(8)), (9, Some(20)), (6, Some(1))]
        {
            let block_size = block.unwrap_or(0);
            let (accesses, events) = replay(&format!("matmul:n={n},block={block_size},init=no"), 0);
            let bases: Vec<u64> = arrays(&events).iter().map(|a| a.0).collect();
            assert_eq!(seen(&accesses), textbook(n, block, bases.try_into().unwrap()), "n {n}, block {block:?}");
        }
    }

    #[test]
    fn counts_and_footprint() {
        let (accesses, events) = replay("matmul:n=100", 0);
        assert_eq!(accesses.len(), 2 * 100 * 100 * 100 + 100 * 100 + 2 * 100 * 100);
        assert_eq!(pages(&accesses), 3 * 20);
        let bases = arrays(&events);
        let initial: Vec<u64> = accesses[..20_000].iter().map(|(_, a)| a.vaddr).collect();
        let expected: Vec<u64> = bases[..2].iter().flat_map(|m| (0..10_000).map(|i| m.0 + 8 * i)).collect();
        assert_eq!(initial, expected);
        let source = crate::workload::parse("matmul:n=1000,init=no", 0).unwrap();
        assert_eq!(source.info().accesses, Some(2_001_000_000));
    }

    #[test]
    fn threads_have_rows_of_their_own() {
        for block in [0, 5] {
            let (accesses, events) = replay(&format!("matmul:n=17,block={block},threads=3,init=no"), 0);
            let (single, _) = replay(&format!("matmul:n=17,block={block},init=no"), 0);
            let c = arrays(&events)[2].0;
            let mut row_of = [None; 17];
            for (thread, access) in accesses.iter().filter(|(_, a)| a.kind == AccessKind::Store) {
                let owner = row_of[((access.vaddr - c) / (17 * 8)) as usize].get_or_insert(*thread);
                assert_eq!(owner, thread);
            }
            assert_eq!(row_of.iter().flatten().count(), 17);
            let sorted = |accesses| {
                let mut seen: Vec<_> = seen(accesses).into_iter().map(|(v, k)| (v, k as u8)).collect();
                seen.sort_unstable();
                seen
            };
            assert_eq!(sorted(&accesses), sorted(&single));
        }
        assert_eq!(replay("matmul:n=30,accesses=1001,init=no", 0).0.len(), 1001);
    }
}
