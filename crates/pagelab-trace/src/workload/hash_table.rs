//! `hash-table`: a hash table of records in anonymous memory, under YCSB's requests.

use std::collections::HashMap;

use super::{
    Workload,
    layout::{Layout, Site},
    memory::reserve,
    popularity::THETA,
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS, Values},
    store::{LOAD, Store, plan, touch},
    ycsb::{
        ACCESSES_OF_OPERATIONS, DISTRIBUTION, FIELDS, INSERT_ORDER, KEY_BYTES, Key, MIX, OPERATIONS, RECORDS, Request,
        Requests, SCAN,
    },
};
use crate::rng::{mix, scale};
use crate::{Access, AccessKind, Batch, ThreadIx, TraceError};

/// Models: an in-memory cache such as memcached: an array of pointers, one per bucket, and items in slabs of 1 MiB.
/// Colliding items are in a chain, the newest first. The table is really searched: a get reads the bucket, then the
/// pointer and the key of each item of the chain up to the record, and at last the value, line by line. An update
/// writes one field in place. An insert writes an item behind the last one and links it at the head of its chain.
///
/// With `load=yes` the program inserts all records first, in the order of their items. So slabs are first touched from
/// end to end, and the buckets at random. Otherwise the table is full when the program starts.
///
/// Source: memcached (items.h: `item` of 48 bytes with an 8-byte CAS; assoc.c: `assoc_find`, `assoc_insert`; slabs of
/// `settings.slab_page_size`); Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, for requests.
///
/// Parameters: `buckets` and `value`; `mix`, `distribution`, `theta`, `fields`, `insertorder` and `operations` are
/// YCSB's.
///
/// Deviations: all slabs are one mapping, as with preallocated memory. The table does not grow. An update of memcached
/// writes a new item and frees the old one; here it writes in place, as Redis does with strings. There are no LRU
/// lists, no locks, no expiry, no network. A hash table has no order, so there are no scans (`mix=e`).
pub(super) static WORKLOAD: Workload = Workload {
    name: "hash-table",
    summary: "a hash table with chains in anonymous memory: really searched, read and changed, under YCSB's requests",
    origin: "items and chains as in memcached; requests of YCSB's core workloads A to D and F (Cooper et al., SoCC 2010)",
    parameters: &[
        RECORDS,
        Parameter {
            name: "value",
            kind: Kind::Bytes { min: 1, max: 512 << 10 },
            default: Preset::Value("1000B"),
            meaning: "bytes of each record's value",
        },
        FIELDS,
        MIX,
        DISTRIBUTION,
        THETA,
        SCAN,
        INSERT_ORDER,
        Parameter {
            name: "buckets",
            kind: Kind::Count { min: 1, max: 1 << 32 },
            default: Preset::Derived("the least power of two with at most 1.5 records per bucket at the start"),
            meaning: "buckets of the table",
        },
        LOAD,
        OPERATIONS,
        ACCESSES_OF_OPERATIONS,
        THREADS,
        GAP,
        ALIGN,
        SEED,
    ],
    build: |values| {
        let (layout, requests, store) = store(values)?;
        Ok(plan(values, layout, requests, store))
    },
};

/// Bytes of an item before its key, and the offset of the pointer to the next item in it.
const HEADER_BYTES: u64 = 56;
const NEXT: u64 = 16;
const POINTER_BYTES: u64 = 8;
const SLAB_BYTES: u64 = 1 << 20;
/// Most items: their numbers have 32 bits.
const MOST_ITEMS: u64 = (1 << 32) - 1;
/// The end of a chain.
const NONE: u32 = u32::MAX;

/// Sites in the program's code.
struct Sites {
    bucket: Site,
    next: Site,
    key: Site,
    value: Site,
    write_value: Site,
    write_item: Site,
    write_bucket: Site,
}

/// The table, as the simulator holds it.
struct HashTable {
    /// Newest item of each bucket.
    heads: Vec<u32>,
    /// The next older item of the same bucket, by item.
    older: Vec<u32>,
    /// Items of records that were inserted after loading.
    inserted: HashMap<Key, u32>,
    /// Records that are loaded; item n holds the record at position n.
    loaded: u32,
    salt: u64,
    buckets_base: u64,
    items_base: u64,
    items_per_slab: u64,
    value: u64,
    field_bytes: u64,
    sites: Sites,
}

fn store(values: &Values) -> Result<(Layout, Requests, HashTable), TraceError> {
    let (value, fields) = (values.number("value"), values.number(FIELDS.name));
    if fields > value {
        return Err(values.refuse(FIELDS.name, &format!("at most {value}, one for each byte of the value")));
    }
    if values.word(MIX.name) == "e" {
        return Err(values.refuse(MIX.name, "a, b, c, d or f: a hash table has no order to scan"));
    }
    let requests = Requests::new(values)?;
    let items = requests.loaded() + requests.room();
    if items > MOST_ITEMS {
        return Err(values.refuse(RECORDS.name, &format!("at most {MOST_ITEMS} with those that are inserted")));
    }
    let default = (requests.loaded() * 2).div_ceil(3).next_power_of_two();
    let buckets = values.optional("buckets").unwrap_or(default);
    let items_per_slab = SLAB_BYTES / item_bytes(value);
    let mut layout = Layout::new(values);
    let buckets_base = layout.map(0, buckets * POINTER_BYTES)?;
    let items_base = layout.map(0, items.div_ceil(items_per_slab) * SLAB_BYTES)?;
    let mut heads = reserve(buckets, "the buckets", "fewer records or buckets")?;
    heads.resize(buckets as usize, NONE);
    let site = |number, bytes: u64| Site::new(number, bytes as u16, values.gap());
    let mut table = HashTable {
        heads,
        older: reserve(items, "the items' chains", "fewer records")?,
        inserted: HashMap::new(),
        loaded: requests.loaded() as u32,
        salt: mix(values.seed() ^ requests.loaded()),
        buckets_base,
        items_base,
        items_per_slab,
        value,
        field_bytes: value / fields,
        sites: Sites {
            bucket: site(0, POINTER_BYTES),
            next: site(1, POINTER_BYTES),
            key: site(2, KEY_BYTES),
            value: site(3, 64),
            write_value: site(4, 64),
            write_item: site(5, 64),
            write_bucket: site(6, POINTER_BYTES),
        },
    };
    if !values.is_yes(LOAD.name) {
        (0..table.loaded).for_each(|_| _ = table.link());
    }
    Ok((layout, requests, table))
}

/// Bytes of an item: header, key and value, aligned as memcached aligns them.
fn item_bytes(value: u64) -> u64 {
    (HEADER_BYTES + KEY_BYTES + value).next_multiple_of(8)
}

impl HashTable {
    fn bucket(&self, item: u32) -> usize {
        scale(mix(u64::from(item) ^ self.salt), self.heads.len() as u64) as usize
    }

    fn bucket_addr(&self, bucket: usize) -> u64 {
        self.buckets_base + bucket as u64 * POINTER_BYTES
    }

    fn item_addr(&self, item: u32) -> u64 {
        let (slab, at) = (u64::from(item) / self.items_per_slab, u64::from(item) % self.items_per_slab);
        self.items_base + slab * SLAB_BYTES + at * item_bytes(self.value)
    }

    fn value_addr(&self, item: u32) -> u64 {
        self.item_addr(item) + HEADER_BYTES + KEY_BYTES
    }

    /// Links a new item at the head of its chain; returns its number.
    fn link(&mut self) -> u32 {
        let item = self.older.len() as u32;
        let bucket = self.bucket(item);
        self.older.push(std::mem::replace(&mut self.heads[bucket], item));
        item
    }

    fn item(&self, key: Key) -> u32 {
        let loaded = key.sequence == 0 && key.place < u64::from(self.loaded);
        if loaded { key.place as u32 } else { self.inserted[&key] }
    }

    /// Walks the chain to the item of `key`.
    fn search(&self, key: Key, out: &mut Vec<Access>) -> u32 {
        let item = self.item(key);
        let bucket = self.bucket(item);
        out.push(self.sites.bucket.load(self.bucket_addr(bucket)));
        let mut at = self.heads[bucket];
        loop {
            out.push(self.sites.next.load(self.item_addr(at) + NEXT));
            touch(self.sites.key, AccessKind::Load, self.item_addr(at) + HEADER_BYTES, KEY_BYTES, out);
            if at == item {
                return item;
            }
            at = self.older[at as usize];
        }
    }

    fn read(&self, key: Key, out: &mut Vec<Access>) {
        let item = self.search(key, out);
        touch(self.sites.value, AccessKind::Load, self.value_addr(item), self.value, out);
    }

    fn update(&self, key: Key, field: u64, out: &mut Vec<Access>) {
        let item = self.search(key, out);
        let at = self.value_addr(item) + field * self.field_bytes;
        touch(self.sites.write_value, AccessKind::Store, at, self.field_bytes, out);
    }

    /// Writes a new item and links it.
    fn insert(&mut self, out: &mut Vec<Access>) -> u32 {
        let item = self.link();
        let bytes = HEADER_BYTES + KEY_BYTES + self.value;
        touch(self.sites.write_item, AccessKind::Store, self.item_addr(item), bytes, out);
        let bucket = self.bucket_addr(self.bucket(item));
        out.push(self.sites.bucket.load(bucket));
        out.push(self.sites.next.store(self.item_addr(item) + NEXT));
        out.push(self.sites.write_bucket.store(bucket));
        item
    }
}

impl Store for HashTable {
    fn serve(&mut self, request: Request, out: &mut Vec<Access>) {
        match request {
            Request::Read(key) => self.read(key, out),
            Request::Update { key, field } => self.update(key, field, out),
            Request::Insert(key) => {
                let item = self.insert(out);
                self.inserted.insert(key, item);
            }
            Request::Scan { .. } => unreachable!("mixes with scans are refused"),
            Request::ReadModifyWrite { key, field } => {
                self.read(key, out);
                self.update(key, field, out);
            }
        }
    }

    fn load(&mut self, out: &mut Vec<Access>) -> bool {
        if self.older.len() as u32 == self.loaded {
            return false;
        }
        self.insert(out);
        true
    }

    fn maintain(&mut self, _: &mut Batch, _: ThreadIx) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, replay};
    use super::*;

    fn table(settings: &str) -> (Requests, HashTable) {
        let values = Values::parse(WORKLOAD.name, WORKLOAD.parameters, settings, 7).unwrap();
        let (_, requests, table) = store(&values).unwrap();
        (requests, table)
    }

    #[test]
    fn a_get_reads_its_chain_up_to_the_record_and_the_whole_value() {
        let (_, table) = table("records=3000,buckets=1000,value=100B");
        let mut out = Vec::new();
        for place in 0..3000 {
            out.clear();
            table.read(Key::loaded(place), &mut out);
            let item = place as u32;
            let chain =
                std::iter::successors(Some(table.heads[table.bucket(item)]), |&at| Some(table.older[at as usize]));
            let passed = 1 + chain.take_while(|&at| at != item).count();
            let pointers = out.iter().filter(|a| a.pc == table.sites.next.pc).count();
            assert_eq!(pointers, passed, "{place}");
            let value: u64 = out.iter().filter(|a| a.pc == table.sites.value.pc).map(|a| u64::from(a.size_bytes)).sum();
            assert_eq!(value, 100);
        }
    }

    #[test]
    fn items_fill_their_slabs_and_none_crosses_an_edge() {
        let (_, table) = table("records=5000,value=1000B");
        assert_eq!(item_bytes(1000), 1080);
        assert_eq!((table.items_per_slab, table.heads.len()), (970, 4096));
        for item in 0..5000 {
            let (at, end) = (table.item_addr(item), table.item_addr(item) + 1080);
            assert_eq!((at - table.items_base) / SLAB_BYTES, (end - 1 - table.items_base) / SLAB_BYTES);
        }
        let (_, events) = replay("hash-table:records=5000,operations=1", 7);
        let sizes: Vec<u64> = arrays(&events).into_iter().map(|(_, len)| len).collect();
        assert_eq!(sizes, [4096 * 8, 6 << 20]);
    }

    #[test]
    fn inserted_records_are_served_and_the_newest_comes_first() {
        for order in ["hashed", "ordered"] {
            let (mut requests, mut table) =
                table(&format!("records=100,buckets=7,mix=d,operations=5000,insertorder={order}"));
            let mut out = Vec::new();
            while let Some(request) = requests.next() {
                table.serve(request, &mut out);
            }
            assert!(table.inserted.len() > 200);
            for (&key, &item) in &table.inserted {
                assert_eq!(table.search(key, &mut out), item);
            }
            let newest = table.older.len() as u32 - 1;
            assert_eq!(table.heads[table.bucket(newest)], newest);
        }
    }

    #[test]
    fn loading_touches_slabs_from_end_to_end() {
        let (accesses, events) = replay("hash-table:records=5000,operations=1,load=yes", 7);
        let items = arrays(&events)[1];
        let pages: Vec<u64> = accesses
            .iter()
            .map(|(_, a)| a.vaddr & !4095)
            .filter(|page| *page >= items.0 && *page < items.0 + items.1)
            .collect();
        let mut first: Vec<u64> = Vec::new();
        for page in pages {
            if !first.contains(&page) {
                first.push(page);
            }
        }
        assert!(first.is_sorted() && first.len() > 1200, "{} pages", first.len());
    }

    #[test]
    fn scans_are_refused() {
        let error = crate::workload::parse("hash-table:mix=e", 0).err().unwrap().to_string();
        assert!(error.contains("a hash table has no order"), "{error}");
    }
}
