//! Requests to a store of records: YCSB's core workloads A to F.

use super::{
    permutation::Permutation,
    popularity::Popularity,
    spec::{COUNT, Kind, Parameter, Preset, Values},
};
use crate::TraceError;
use crate::rng::{Rng, mix, scale};

pub(super) const MIX: Parameter = Parameter {
    name: "mix",
    kind: Kind::Choice(&["a", "b", "c", "d", "e", "f"]),
    default: Preset::Value("a"),
    meaning: "YCSB's workload: half reads and half updates (a), 5 % updates (b), reads alone (c), 5 % inserts (d), scans with \
              5 % inserts (e), half reads and half reads that are followed by an update of the record (f)",
};
pub(super) const DISTRIBUTION: Parameter = Parameter {
    name: "distribution",
    kind: Kind::Choice(&["uniform", "zipf", "latest"]),
    default: Preset::Derived("that of the mix: latest for d, zipf for the others"),
    meaning: "how popular records are: all alike; as Zipf's law has it, popular ones spread at random; the same, the newest \
              records the most popular",
};
pub(super) const RECORDS: Parameter = Parameter {
    name: "records",
    kind: Kind::Count { min: 1, max: MOST_RECORDS },
    default: Preset::Value("1M"),
    meaning: "records before the first request",
};
pub(super) const FIELDS: Parameter = Parameter {
    name: "fields",
    kind: Kind::Count { min: 1, max: 100 },
    default: Preset::Value("10"),
    meaning: "fields that a value consists of, all equally long",
};
pub(super) const SCAN: Parameter = Parameter {
    name: "scan",
    kind: Kind::Count { min: 1, max: 10_000 },
    default: Preset::Value("100"),
    meaning: "most records of a scan; each number from 1 on is equally likely",
};
pub(super) const INSERT_ORDER: Parameter = Parameter {
    name: "insertorder",
    kind: Kind::Choice(&["hashed", "ordered"]),
    default: Preset::Value("hashed"),
    meaning: "whether keys are hashed numbers, which scatters new and popular records; otherwise keys ascend",
};
pub(super) const OPERATIONS: Parameter = Parameter {
    name: "operations",
    kind: COUNT,
    default: Preset::Derived("200K, or as accesses demand"),
    meaning: "requests of all threads together",
};
pub(super) const ACCESSES_OF_OPERATIONS: Parameter = Parameter {
    name: "accesses",
    kind: COUNT,
    default: Preset::Derived("as many as the operations need"),
    meaning: "accesses of all threads together, instead of operations",
};

const MOST_RECORDS: u64 = 1 << 40;
const DEFAULT_OPERATIONS: u64 = 200_000;
/// Every request to a store makes more accesses than this.
const LEAST_ACCESSES: u64 = 4;
/// Bytes of a key: YCSB's `user` and a number of 20 digits.
pub(super) const KEY_BYTES: u64 = 24;

/// A key, represented by its position among all keys.
///
/// An initial record has its position among the initial records in key order. A later record follows the record at its
/// position and has a `sequence` of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub place: u64,
    pub sequence: u64,
}

impl Key {
    /// The key of an initial record.
    pub fn loaded(place: u64) -> Self {
        Self { place, sequence: 0 }
    }
}

/// A request to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Read(Key),
    /// Writes one field of a record.
    Update {
        key: Key,
        field: u64,
    },
    Insert(Key),
    /// Reads this many records in order from this key on.
    Scan {
        from: Key,
        records: u64,
    },
    /// Reads a record and then writes one field of it.
    ReadModifyWrite {
        key: Key,
        field: u64,
    },
}

/// Percentages of requests; the rest are reads that are followed by an update.
struct Shares {
    read: u64,
    update: u64,
    insert: u64,
    scan: u64,
}

impl Shares {
    /// The shares of a mix, and its distribution.
    fn parse(mix: &str) -> (Self, &'static str) {
        let shares = |read, update, insert, scan| Self { read, update, insert, scan };
        match mix {
            "a" => (shares(50, 50, 0, 0), "zipf"),
            "b" => (shares(95, 5, 0, 0), "zipf"),
            "c" => (shares(100, 0, 0, 0), "zipf"),
            "d" => (shares(95, 0, 5, 0), "latest"),
            "e" => (shares(0, 0, 5, 95), "zipf"),
            "f" => (shares(50, 0, 0, 0), "zipf"),
            other => panic!("no mix is called {other}"),
        }
    }
}

/// The keys of records by number; records are numbered in the order of their creation.
struct Keys {
    loaded: u64,
    /// Maps the number of an initial record to its position, and that of a later record to its position and sequence;
    /// none if keys ascend.
    hashed: Option<(Permutation, Permutation, u64)>,
}

impl Keys {
    fn new(values: &Values, loaded: u64, room: u64) -> Self {
        let order = |purpose, len: u64| Permutation::new(len.max(1), Rng::for_thread(values.seed(), purpose, 0));
        let hashed = values.word(INSERT_ORDER.name) == "hashed";
        let hashed =
            hashed.then(|| (order("loaded keys", loaded), order("later keys", room), mix(values.seed() ^ loaded)));
        Self { loaded, hashed }
    }

    fn key(&self, number: u64) -> Key {
        match (&self.hashed, number.checked_sub(self.loaded)) {
            (None, _) => Key::loaded(number),
            (Some((places, ..)), None) => Key::loaded(places.apply(number)),
            (Some((_, sequences, salt)), Some(later)) => {
                Key { place: scale(mix(later ^ salt), self.loaded), sequence: 1 + sequences.apply(later) }
            }
        }
    }
}

/// Draws requests.
///
/// Zipf's law covers the initial records ([`Popularity::draw`]). YCSB draws from the records that it expects at the
/// end, and draws again if it hits one that does not exist yet.
pub(super) struct Requests {
    shares: Shares,
    popularity: Popularity,
    keys: Keys,
    /// Current and maximum number of records.
    records: u64,
    most: u64,
    fields: u64,
    scan: u64,
    rng: Rng,
    operations: u64,
}

impl Requests {
    /// # Errors
    /// If both operations and accesses are given.
    pub fn new(values: &Values) -> Result<Self, TraceError> {
        let (operations, accesses) = (values.optional(OPERATIONS.name), values.optional(ACCESSES_OF_OPERATIONS.name));
        let (operations, at_most) = match (operations, accesses) {
            (Some(_), Some(_)) => return Err(values.conflict("give operations or accesses, not both")),
            (None, Some(accesses)) => (u64::MAX, accesses / LEAST_ACCESSES + 1),
            (operations, None) => {
                let operations = operations.unwrap_or(DEFAULT_OPERATIONS);
                (operations, operations)
            }
        };
        let (shares, law) = Shares::parse(values.word(MIX.name));
        let law = if values.given(DISTRIBUTION.name) { values.word(DISTRIBUTION.name) } else { law };
        let loaded = values.number(RECORDS.name);
        let room = room(at_most, shares.insert);
        Ok(Self {
            shares,
            popularity: Popularity::new(values, law, loaded),
            keys: Keys::new(values, loaded, room),
            records: loaded,
            most: loaded + room,
            fields: if values.has(FIELDS.name) { values.number(FIELDS.name) } else { 1 },
            scan: values.number(SCAN.name),
            rng: Rng::for_thread(values.seed(), "requests", 0),
            operations,
        })
    }

    /// Records that are there before the first request.
    pub fn loaded(&self) -> u64 {
        self.keys.loaded
    }

    /// Records that are inserted at most.
    pub fn room(&self) -> u64 {
        self.most - self.keys.loaded
    }

    /// The next request; none after the last.
    pub fn next(&mut self) -> Option<Request> {
        self.operations = self.operations.checked_sub(1)?;
        let choice = self.rng.below(100);
        let Shares { read, update, insert, scan } = self.shares;
        if choice < insert && self.records < self.most {
            self.records += 1;
            return Some(Request::Insert(self.keys.key(self.records - 1)));
        }
        let number = self.popularity.draw(&mut self.rng, self.records);
        let key = self.keys.key(number);
        let choice = choice.saturating_sub(insert);
        Some(if choice < read {
            Request::Read(key)
        } else if choice < read + scan {
            Request::Scan { from: key, records: 1 + self.rng.below(self.scan) }
        } else {
            let field = self.rng.below(self.fields);
            if choice < read + scan + update {
                Request::Update { key, field }
            } else {
                Request::ReadModifyWrite { key, field }
            }
        })
    }
}

/// Room for the inserts among `operations`, of which they are `percent` on average: eight standard deviations more than
/// that.
fn room(operations: u64, percent: u64) -> u64 {
    if percent == 0 {
        return 0;
    }
    let mean = operations.min(MOST_RECORDS) * percent / 100;
    (mean + 8 * mean.isqrt() + 64).min(operations)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::workload::Workload;

    /// All requests under `settings`, and how many records there are then.
    pub fn requests(workload: &Workload, settings: &str) -> (Vec<Request>, u64) {
        let values = Values::parse(workload.name, workload.parameters, settings, 7).unwrap();
        let mut requests = Requests::new(&values).unwrap();
        let all = std::iter::from_fn(|| requests.next()).collect();
        (all, requests.records)
    }

    fn make_requests(settings: &str) -> (Vec<Request>, u64) {
        requests(&crate::workload::btree::WORKLOAD, settings)
    }

    #[test]
    fn mixes_are_ycsb_s() {
        for (mix, expected) in [
            ("a", [50.0_f64, 50.0, 0.0, 0.0, 0.0]),
            ("b", [95.0, 5.0, 0.0, 0.0, 0.0]),
            ("c", [100.0, 0.0, 0.0, 0.0, 0.0]),
            ("d", [95.0, 0.0, 5.0, 0.0, 0.0]),
            ("e", [0.0, 0.0, 5.0, 95.0, 0.0]),
            ("f", [50.0, 0.0, 0.0, 0.0, 50.0]),
        ] {
            let (requests, records) = make_requests(&format!("mix={mix},operations=40K,records=1000"));
            let mut counts = [0_f64; 5];
            for request in &requests {
                let kind = match request {
                    Request::Read(_) => 0,
                    Request::Update { .. } => 1,
                    Request::Insert(_) => 2,
                    Request::Scan { .. } => 3,
                    Request::ReadModifyWrite { .. } => 4,
                };
                counts[kind] += 100.0 / 40_000.0;
            }
            assert_eq!(requests.len(), 40_000);
            assert_eq!((counts[2] * 400.0).round() as u64, records - 1000, "{mix}");
            for (count, expected) in counts.iter().zip(expected) {
                // Four standard deviations of a half are one percent.
                assert!((count - expected).abs() < 1.0 && (expected > 0.0 || *count == 0.0), "{mix}: {counts:?}");
            }
        }
    }

    /// Reads of the most popular record, and of the 10 most popular ones, of 1000.
    #[test]
    fn records_are_as_popular_as_the_laws_say() {
        let weight = |r: i32| f64::from(r).powf(-0.99);
        let sum: f64 = (1..=1000).map(weight).sum();
        let zipf = [weight(1) / sum, (1..=10).map(weight).sum::<f64>() / sum];
        for (distribution, expected) in [("uniform", [0.001, 0.01]), ("zipf", zipf), ("latest", zipf)] {
            let settings = format!("mix=c,distribution={distribution},operations=100K,records=1000");
            let mut counts = HashMap::new();
            for request in make_requests(&format!("{settings},insertorder=ordered")).0 {
                let Request::Read(key) = request else { panic!("{request:?}") };
                *counts.entry(key.place).or_insert(0) += 1;
            }
            let mut sorted: Vec<u32> = counts.values().copied().collect();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            let shares = [1, 10].map(|n| f64::from(sorted[..n].iter().sum::<u32>()) / 1e5);
            for (share, expected) in shares.iter().zip(expected) {
                // The largest of a thousand equal counts of 100 are near 135.
                let slack = if distribution == "uniform" { 0.4 } else { 0.03 };
                assert!((share / expected - 1.0).abs() < slack, "{distribution}: {shares:?}, not {expected}");
            }
            if distribution == "latest" {
                assert_eq!(sorted[0], counts[&999], "the last record is the most popular");
            }
            // Hashing moves records and leaves them as popular as they were.
            let mut hashed = HashMap::new();
            for request in make_requests(&settings).0 {
                let Request::Read(key) = request else { panic!("{request:?}") };
                *hashed.entry(key.place).or_insert(0) += 1;
            }
            let mut hashed: Vec<u32> = hashed.into_values().collect();
            hashed.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(hashed, sorted, "{distribution}");
        }
    }

    #[test]
    fn inserted_keys_are_new_and_become_the_most_popular() {
        for order in ["hashed", "ordered"] {
            let (requests, _) = make_requests(&format!("mix=d,records=500,operations=20K,insertorder={order}"));
            let mut known: HashSet<Key> = (0..500).map(Key::loaded).collect();
            let (mut newest, mut hits) = (None, 0);
            for request in requests {
                match request {
                    Request::Insert(key) => {
                        assert!(known.insert(key), "{key:?} is not new");
                        assert_eq!(order == "ordered", key.sequence == 0);
                        newest = Some(key);
                    }
                    Request::Read(key) => {
                        assert!(known.contains(&key), "{key:?} is not there");
                        hits += u32::from(newest == Some(key));
                    }
                    Request::Update { .. } | Request::Scan { .. } | Request::ReadModifyWrite { .. } => {
                        panic!("{request:?}")
                    }
                }
            }
            // 1 / H(500, 0.99) of 19,000 reads.
            assert!((2500..3000).contains(&hits), "{hits}");
        }
    }

    #[test]
    fn later_keys_fall_anywhere() {
        let (requests, _) = make_requests("mix=d,records=1000,operations=200K");
        let mut places = [0; 10];
        for request in requests {
            if let Request::Insert(key) = request {
                places[(key.place / 100) as usize] += 1;
            }
        }
        assert!(places.iter().all(|count| (850..1150).contains(count)), "{places:?}");
    }
}
