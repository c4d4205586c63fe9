//! Synthetic workloads: programs whose accesses are computed on the fly from a spec.
//!
//! A spec is `name` or `name:key=value,key=value`, such as `gups:size=2GiB,updates=25M`; sizes and counts are written
//! as in [`quantity`](crate::quantity). [`parse`] makes a [`Source`] from it, [`list`] documents all workloads. A
//! workload is one process: it maps a code page, its arrays and its files, starts its threads, makes its accesses and
//! exits. All except `bfs`, `pagerank` and `cc` compute addresses without holding the arrays, so a footprint of 32 GiB
//! costs nothing. Those three hold a graph, or with `graph=kronecker` a few words per vertex; `btree` and `lsm` hold
//! the keys of written records, `hash-table` 4 bytes per bucket and per record.
//!
//! Every access has the program counter of its site in the code (all within the one code page) and counts as `gap`
//! instructions. The stream contains data accesses only, no instruction fetches.
//!
//! | part | content |
//! |---|---|
//! | `layout` | addresses of the program's mappings, and their events |
//! | `program` | streams of accesses, threads, and the source made of them |
//! | `array` | shared by the workloads over one array |
//! | `graph_program` | shared by the workloads on a graph |
//! | `graph`, `kronecker` | the graphs themselves, as the simulator holds them |
//! | `store`, `ycsb` | shared by stores of records; the requests to them |
//! | `popularity` | the choice of an item for a request |
//! | `rng`, `permutation` | random numbers; a random order computed without a table |
//!
//! A new workload is one file with a `pub(super) static WORKLOAD` and one line in `WORKLOADS`.

mod array;
mod between;
mod bfs;
mod btree;
mod cc;
mod chase;
mod graph;
mod graph_program;
mod gups;
mod hash_table;
mod kronecker;
mod layout;
mod lsm;
mod mapped_read;
mod matmul;
mod memory;
mod pagerank;
mod permutation;
mod popularity;
mod program;
mod random;
mod semirandom;
mod seq;
mod store;
mod stride;
mod ycsb;
mod zipf;

use serde::Serialize;

use crate::{Source, TraceError, spec, suggestion::nearest};

pub use crate::spec::ParameterDoc;

use program::{Plan, Synthetic};
use spec::{Parameter, Values};

/// The workloads, in the order of lists.
static WORKLOADS: &[&Workload] = &[
    &seq::WORKLOAD,
    &stride::WORKLOAD,
    &random::WORKLOAD,
    &semirandom::WORKLOAD,
    &chase::WORKLOAD,
    &zipf::WORKLOAD,
    &mapped_read::WORKLOAD,
    &btree::WORKLOAD,
    &lsm::WORKLOAD,
    &hash_table::WORKLOAD,
    &gups::WORKLOAD,
    &matmul::WORKLOAD,
    &bfs::WORKLOAD,
    &pagerank::WORKLOAD,
    &cc::WORKLOAD,
];

/// A kind of workload: its documentation, and the function that builds it from the values of its parameters.
struct Workload {
    name: &'static str,
    summary: &'static str,
    origin: &'static str,
    parameters: &'static [Parameter],
    build: fn(&Values) -> Result<Plan, TraceError>,
}

/// Documentation of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadDoc {
    /// Its name in a spec.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Origin of the workload: a benchmark, a paper's section.
    pub origin: &'static str,
    /// Parameters that a spec can set.
    pub parameters: Vec<ParameterDoc>,
}

/// All workloads with their parameters.
pub fn list() -> Vec<WorkloadDoc> {
    let document = |workload: &&Workload| WorkloadDoc {
        name: workload.name,
        summary: workload.summary,
        origin: workload.origin,
        parameters: workload.parameters.iter().map(Parameter::document).collect(),
    };
    WORKLOADS.iter().map(document).collect()
}

/// Parses `spec`. `seed` is the default of its parameter `seed`.
///
/// # Errors
/// [`TraceError::Usage`] with the unknown workload or parameter or the wrong value, and what is allowed.
pub fn parse(spec: &str, seed: u64) -> Result<Box<dyn Source>, TraceError> {
    let spec = spec.trim();
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let name = name.trim();
    let workload = WORKLOADS.iter().find(|w| w.name == name).ok_or_else(|| {
        let known: Vec<_> = WORKLOADS.iter().map(|w| w.name).collect();
        let meant = nearest(name, known.iter().copied()).map_or(String::new(), |near| format!("did you mean {near}? "));
        TraceError::usage(format!("unknown workload '{name}'; {meant}known are {}", known.join(", ")))
    })?;
    let values = Values::parse(workload.name, workload.parameters, settings, seed)?;
    let plan = (workload.build)(&values)?;
    Ok(Box::new(Synthetic::new(spec, plan)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;

    fn error(spec: &str) -> String {
        parse(spec, 0).err().unwrap_or_else(|| panic!("'{spec}' must be refused")).to_string()
    }

    #[test]
    fn every_workload_is_documented_and_builds_with_its_defaults() {
        let docs = list();
        assert_eq!(docs.len(), WORKLOADS.len());
        for doc in &docs {
            let source = parse(doc.name, 1).unwrap();
            assert_eq!(source.info().name, doc.name);
            assert_eq!(source.info().threads, 1);
            assert!(!doc.summary.is_empty() && !doc.summary.contains('\n') && !doc.origin.is_empty());
            for parameter in &doc.parameters {
                assert!(!parameter.meaning.is_empty() && !parameter.default.is_empty(), "{parameter:?}");
                assert_eq!(doc.parameters.iter().filter(|p| p.name == parameter.name).count(), 1, "{parameter:?}");
            }
            for common in ["accesses", "threads", "gap", "align", "seed"] {
                assert!(doc.parameters.iter().any(|p| p.name == common), "{} lacks {common}", doc.name);
            }
        }
        let json = serde_json::to_value(&docs).unwrap();
        assert_eq!(json[0]["parameters"][0]["name"], "size");
    }

    #[test]
    fn mistakes_name_what_is_allowed() {
        assert_eq!(
            error("gupps:size=1G"),
            "unknown workload 'gupps'; did you mean gups? known are seq, stride, random, semirandom, chase, zipf, mapped-read, btree, lsm, hash-table, gups, matmul, bfs, pagerank, cc"
        );
        assert!(error("quicksort").starts_with("unknown workload 'quicksort'; known are seq, "));
        let unknown = error("gups:sizes=1G");
        assert!(
            unknown.starts_with("gups: unknown parameter 'sizes'; did you mean size? known are size, updates, "),
            "{unknown}"
        );
        assert!(error("gups:size").contains("gups: 'size' is not key=value"));
        assert!(error("gups:size=1G,size=2G").contains("size is given twice"));
        assert!(error("gups:size=fast").contains("gups: size=fast: 'fast' is not a size"));
        assert!(error("gups:size=3GiB").contains("gups: size=3GiB: must be a power of two"));
        assert!(error("random:size=0").contains("random: size=0: must be 1B to"));
        assert!(error("random:write=1.5").contains("random: write=1.5: must be 0 to 1"));
        assert!(error("random:write=some").contains("must be 0 to 1"));
        assert!(error("random:regions=mine").contains("random: regions=mine: must be own or apart or shared"));
        assert!(error("random:threads=0").contains("threads=0: must be 1 to"));
        assert!(error("random:align=3M").contains("align=3M: must be a power of two"));
        assert!(error("random:size=64TiB,threads=2").contains("do not fit"));
        assert_eq!(error("stride:size=1M,stride=2M"), "stride: size=1M: must be at least one element of 2MiB");
        assert!(error("stride:passes=4e18").contains("passes=4e18: must be small enough"));
        assert!(error("seq:passes=2,accesses=5").contains("seq: give passes or accesses, not both"));
        assert!(error("seq:seed=-1").contains("seed=-1: '-1' is not a count"));
    }

    /// The accesses of each thread.
    fn by_thread(spec: &str) -> std::collections::BTreeMap<u32, Vec<crate::Access>> {
        let mut source = parse(spec, 1).unwrap();
        let (mut batch, mut threads) = (Batch::default(), std::collections::BTreeMap::<_, Vec<_>>::new());
        while source.next_batch(&mut batch).unwrap() {
            let mut begin = 0;
            for segment in &batch.segments {
                if let crate::Segment::Run { thread, end } = segment {
                    threads.entry(thread.0).or_default().extend_from_slice(&batch.accesses[begin..*end]);
                    begin = *end;
                }
            }
        }
        threads
    }

    #[test]
    fn an_access_depends_on_a_load_of_its_thread() {
        for (spec, dependent) in [
            ("chase:size=64K,threads=2,init=pages", 0.9),
            ("bfs:vertices=2K,degree=8,threads=2", 0.5),
            ("pagerank:vertices=2K,degree=8,iterations=2", 0.5),
            ("cc:vertices=2K,degree=8", 0.3),
            ("cc:vertices=2K,degree=8,algorithm=shiloach-vishkin", 0.3),
            ("gups:size=1MiB,updates=1K", 0.0),
        ] {
            assert!(parse(spec, 1).unwrap().info().dependencies);
            let (mut all, mut waiting) = (0, 0);
            for accesses in by_thread(spec).values() {
                for (n, access) in accesses.iter().enumerate() {
                    if let Some(distance) = access.maker.producer() {
                        let producer = accesses[n.checked_sub(distance as usize).expect("it is there")];
                        assert_eq!(
                            producer.kind,
                            crate::AccessKind::Load,
                            "{spec}: {n} waits for {distance} before it"
                        );
                        waiting += 1;
                    }
                }
                all += accesses.len();
            }
            let share = f64::from(waiting) / all as f64;
            assert!(share >= dependent && (dependent > 0.0) == (waiting > 0), "{spec}: {share}");
        }
        assert!(!parse("btree", 1).unwrap().info().dependencies, "it does not tell");
    }

    #[test]
    fn specs_may_have_spaces_and_empty_ends() {
        for spec in ["seq", "seq:", " seq : size = 1M , step=64, "] {
            assert!(parse(spec, 0).is_ok(), "{spec}");
        }
    }
}
