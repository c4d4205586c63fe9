//! From accesses to the column chunks of a part.
//!
//! The pages are put together here rather than by the parquet crate's column writer, which hashes each value into a
//! general dictionary, packs indices at odd bit widths (that zstd then compresses badly) and copies more: at 24 bytes
//! an access, every pass over the data counts.

use bytes::Bytes;
use parquet::{
    basic::Encoding,
    column::{
        page::{CompressedPage, Page, PageWriter},
        writer::ColumnCloseResult,
    },
    errors::Result,
    file::{
        metadata::ColumnChunkMetaData,
        writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite},
    },
    schema::types::SchemaDescriptor,
};
use zstd::bulk::Compressor;

use super::{
    columns::{self, COUNT, GAP, KIND, KINDS, PC, SIZE, TID, VADDR},
    dictionary::{Addresses, FULL, SmallNumbers},
    meta::AccessCounts,
};
use crate::{Access, ThreadIx};

/// Accesses that all columns take in before the next ones: 24 KiB stay in the first-level cache.
const CHUNK_ROWS: usize = 1024;

/// A run of one thread, up to `end` in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub thread: ThreadIx,
    pub end: usize,
}

/// Encodes the pages of one part after the other.
pub(super) struct PartEncoder {
    compressor: Compressor<'static>,
    schema: SchemaDescriptor,
    chunks: [Chunk; COUNT],
    body: Vec<u8>,
    kinds: Vec<u8>,
    sizes: Indices<SmallNumbers>,
    gaps: Indices<SmallNumbers>,
    threads: Indices<SmallNumbers>,
    pcs: Indices<Addresses>,
    counts: AccessCounts,
    rows: u64,
}

impl PartEncoder {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(columns::ZSTD_LEVEL)?,
            schema: SchemaDescriptor::new(columns::SCHEMA.clone()),
            chunks: std::array::from_fn(|_| Chunk::new()),
            body: Vec::new(),
            kinds: Vec::new(),
            sizes: Indices::new(SmallNumbers::new()),
            gaps: Indices::new(SmallNumbers::new()),
            threads: Indices::new(SmallNumbers::new()),
            pcs: Indices::new(Addresses::new()),
            counts: AccessCounts::default(),
            rows: 0,
        })
    }

    /// Rows of the part so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn counts(&self) -> AccessCounts {
        self.counts
    }

    /// Sizes that occur in the part so far.
    pub(super) fn sizes(&self) -> &[u32] {
        self.sizes.dictionary.values()
    }

    /// Appends a page: `accesses`, not empty, in `runs`.
    pub(super) fn page(&mut self, accesses: &[Access], runs: &[Run]) -> Result<()> {
        let rows = accesses.len();
        self.body.clear();
        self.body.resize(rows * 8, 0);
        for (number, chunk) in accesses.chunks(CHUNK_ROWS).enumerate() {
            split_addresses(chunk, &mut self.body, rows, number * CHUNK_ROWS);
            self.kinds.extend(chunk.iter().map(columns::kind_index));
            self.sizes.extend(chunk.iter().map(|a| u32::from(a.size_bytes)));
            self.gaps.extend(chunk.iter().map(|a| a.gap));
            self.pcs.extend(chunk.iter().map(|a| a.pc));
            self.counts.instructions += chunk.iter().map(|a| u64::from(a.gap)).sum::<u64>();
        }
        self.chunks[VADDR].data_page(&mut self.compressor, Encoding::BYTE_STREAM_SPLIT, rows, &self.body)?;
        self.count_kinds();
        put_indices(&mut self.body, &self.kinds);
        self.kinds.clear();
        self.chunks[KIND].data_page(&mut self.compressor, Encoding::RLE_DICTIONARY, rows, &self.body)?;
        let size = |i: usize, body: &mut Vec<u8>| body.extend(u32::from(accesses[i].size_bytes).to_le_bytes());
        let gap = |i: usize, body: &mut Vec<u8>| body.extend(accesses[i].gap.to_le_bytes());
        let pc = |i: usize, body: &mut Vec<u8>| body.extend(accesses[i].pc.to_le_bytes());
        self.sizes.page(&mut self.chunks[SIZE], &mut self.compressor, &mut self.body, size)?;
        self.gaps.page(&mut self.chunks[GAP], &mut self.compressor, &mut self.body, gap)?;
        self.pcs.page(&mut self.chunks[PC], &mut self.compressor, &mut self.body, pc)?;
        for run in runs {
            let index = self.threads.dictionary.index_of(run.thread.0);
            self.threads.indices.resize(run.end, index);
        }
        let thread = |i: usize, body: &mut Vec<u8>| {
            let run = runs.partition_point(|run| run.end <= i);
            body.extend(runs[run].thread.0.to_le_bytes());
        };
        self.threads.page(&mut self.chunks[TID], &mut self.compressor, &mut self.body, thread)?;
        self.rows += rows as u64;
        Ok(())
    }

    fn count_kinds(&mut self) {
        // One pass a kind, summed in bytes, compiles to wide comparisons; a histogram would wait for its own counters.
        let in_chunk = |chunk: &[u8], index| chunk.iter().map(|&k| u8::from(k == index)).sum::<u8>();
        let count = |index: u8| self.kinds.chunks(128).map(|chunk| u64::from(in_chunk(chunk, index))).sum::<u64>();
        let by_index: [u64; KINDS.len()] = std::array::from_fn(|index| count(index as u8));
        let c = &mut self.counts;
        c.loads += by_index[0] + by_index[4];
        c.stores += by_index[1] + by_index[5];
        c.modifies += by_index[2] + by_index[6];
        c.fetches += by_index[3] + by_index[7];
        c.by_kernel += by_index[4..].iter().sum::<u64>();
    }

    /// Moves the part into `group` and begins the next one.
    pub(super) fn finish_part(&mut self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<()> {
        let words = |values: &[u32]| (values.iter().flat_map(|v| v.to_le_bytes()).collect(), values.len());
        let dictionaries: [(usize, (Vec<u8>, usize)); COUNT - 1] = [
            (KIND, words(&KINDS.map(u32::from))),
            (SIZE, words(self.sizes.dictionary.values())),
            (
                PC,
                (
                    self.pcs.dictionary.values().iter().flat_map(|v| v.to_le_bytes()).collect(),
                    self.pcs.dictionary.values().len(),
                ),
            ),
            (TID, words(self.threads.dictionary.values())),
            (GAP, words(self.gaps.dictionary.values())),
        ];
        for (column, chunk) in self.chunks.iter_mut().enumerate() {
            let chunk = std::mem::replace(chunk, Chunk::new());
            let dictionary = dictionaries.iter().find(|(of, _)| *of == column).map(|(_, values)| values);
            let (bytes, close) = chunk.finish(&mut self.compressor, self.rows, &self.schema, column, dictionary)?;
            group.append_column(&bytes, close)?;
        }
        self.sizes.dictionary.clear();
        self.gaps.dictionary.clear();
        self.threads.dictionary.clear();
        self.pcs.dictionary.clear();
        for plain in [&mut self.sizes.plain, &mut self.gaps.plain, &mut self.threads.plain, &mut self.pcs.plain] {
            *plain = false;
        }
        self.counts = AccessCounts::default();
        self.rows = 0;
        Ok(())
    }
}

/// Writes byte `k` of each address to `planes[k * rows + first ..]`, `rows` being the rows of the page.
fn split_addresses(accesses: &[Access], planes: &mut [u8], rows: usize, first: usize) {
    let mut planes = planes.chunks_exact_mut(rows);
    let planes: [&mut [u8]; 8] =
        std::array::from_fn(|_| &mut planes.next().expect("8 planes")[first..first + accesses.len()]);
    let mut planes = planes.map(|plane| plane.as_chunks_mut::<8>());
    let (eights, rest) = accesses.as_chunks::<8>();
    for (number, eight) in eights.iter().enumerate() {
        let words = super::decode::transpose(std::array::from_fn(|i| eight[i].vaddr));
        for ((plane, _), word) in planes.iter_mut().zip(words) {
            plane[number] = word.to_le_bytes();
        }
    }
    for (number, access) in rest.iter().enumerate() {
        for ((_, plane), byte) in planes.iter_mut().zip(access.vaddr.to_le_bytes()) {
            plane[number] = byte;
        }
    }
}

/// The indices of a page being filled, and the dictionary they point into.
struct Indices<D> {
    dictionary: D,
    indices: Vec<u16>,
    /// The dictionary has overflown: this page and the rest of the part are plain.
    plain: bool,
}

trait Dictionary {
    type Value;
    fn len(&self) -> usize;
    fn index_of(&mut self, value: Self::Value) -> u16;
}

impl Dictionary for SmallNumbers {
    type Value = u32;
    fn len(&self) -> usize {
        self.values().len()
    }
    #[inline(always)]
    fn index_of(&mut self, value: u32) -> u16 {
        self.index_of(value)
    }
}

impl Dictionary for Addresses {
    type Value = u64;
    fn len(&self) -> usize {
        self.values().len()
    }
    #[inline(always)]
    fn index_of(&mut self, value: u64) -> u16 {
        self.index_of(value)
    }
}

impl<D: Dictionary> Indices<D> {
    fn new(dictionary: D) -> Self {
        Self { dictionary, indices: Vec::new(), plain: false }
    }

    #[inline(always)]
    fn extend(&mut self, values: impl ExactSizeIterator<Item = D::Value>) {
        self.indices.extend(values.map(|value| self.dictionary.index_of(value)));
    }

    /// Writes the page of the indices taken in; `put_plain` appends the value of a row as plain bytes.
    fn page(
        &mut self,
        chunk: &mut Chunk,
        compressor: &mut Compressor<'_>,
        body: &mut Vec<u8>,
        put_plain: impl Fn(usize, &mut Vec<u8>),
    ) -> Result<()> {
        let rows = self.indices.len();
        self.plain |= self.dictionary.len() == FULL as usize && self.indices.contains(&FULL);
        let encoding = if self.plain {
            body.clear();
            (0..rows).for_each(|row| put_plain(row, body));
            Encoding::PLAIN
        } else {
            put_indices(body, &self.indices);
            Encoding::RLE_DICTIONARY
        };
        self.indices.clear();
        chunk.data_page(compressor, encoding, rows, body)
    }
}

/// Sets `body` to a page of dictionary indices: the bit width, then one run of the RLE/bit-packing hybrid, repeated
/// if all indices are equal, else packed at 8 or 16 bits (padded to whole groups of eight).
fn put_indices<I: Copy + PartialEq + Into<u16>>(body: &mut Vec<u8>, indices: &[I]) {
    body.clear();
    let first: u16 = indices[0].into();
    if indices.iter().all(|&i| i == indices[0]) {
        body.push(16);
        put_varint(body, (indices.len() as u64) << 1);
        body.extend(first.to_le_bytes());
        return;
    }
    let groups = indices.len().div_ceil(8);
    let wide = indices.iter().fold(0, |all, &i| all | i.into()) > 255u16;
    body.push(if wide { 16 } else { 8 });
    put_varint(body, (groups as u64) << 1 | 1);
    // Sized first and then filled: appending value by value checks for room each time.
    let begin = body.len();
    if wide {
        body.resize(begin + groups * 16, 0);
        for (pair, &index) in body[begin..].as_chunks_mut::<2>().0.iter_mut().zip(indices) {
            *pair = index.into().to_le_bytes();
        }
    } else {
        body.resize(begin + groups * 8, 0);
        for (byte, &index) in body[begin..].iter_mut().zip(indices) {
            *byte = index.into() as u8;
        }
    }
}

fn put_varint(body: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        body.push(value as u8 | 0x80);
        value >>= 7;
    }
    body.push(value as u8);
}

/// The pages of one column of the part being written.
struct Chunk {
    pages: TrackedWrite<Vec<u8>>,
    uncompressed_bytes: usize,
    encodings: Vec<Encoding>,
}

impl Chunk {
    fn new() -> Self {
        Self { pages: TrackedWrite::new(Vec::new()), uncompressed_bytes: 0, encodings: Vec::new() }
    }

    fn data_page(
        &mut self,
        compressor: &mut Compressor<'_>,
        encoding: Encoding,
        rows: usize,
        body: &[u8],
    ) -> Result<()> {
        let page = Page::DataPage {
            buf: Bytes::from(compressor.compress(body)?),
            num_values: rows as u32,
            encoding,
            // No column is nested or null, so there are no levels and their encoding means nothing.
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let page = CompressedPage::new(page, body.len());
        self.uncompressed_bytes += SerializedPageWriter::new(&mut self.pages).write_page(page)?.uncompressed_size;
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
        Ok(())
    }

    /// The chunk's bytes, the dictionary (its values and their number) before the data, and its meta data.
    fn finish(
        mut self,
        compressor: &mut Compressor<'_>,
        rows: u64,
        schema: &SchemaDescriptor,
        column: usize,
        dictionary: Option<&(Vec<u8>, usize)>,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        let mut whole = TrackedWrite::new(Vec::new());
        if let Some((values, count)) = dictionary {
            let page = Page::DictionaryPage {
                buf: Bytes::from(compressor.compress(values)?),
                num_values: *count as u32,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            let page = CompressedPage::new(page, values.len());
            self.uncompressed_bytes += SerializedPageWriter::new(&mut whole).write_page(page)?.uncompressed_size;
            self.encodings.push(Encoding::PLAIN);
        }
        let mut whole = whole.into_inner()?;
        let data_offset = whole.len() as i64;
        whole.extend(self.pages.into_inner()?);
        let metadata = ColumnChunkMetaData::builder(schema.column(column))
            .set_compression(columns::compression())
            .set_encodings(self.encodings)
            .set_total_compressed_size(whole.len() as i64)
            .set_total_uncompressed_size(self.uncompressed_bytes as i64)
            .set_num_values(rows as i64)
            .set_data_page_offset(data_offset)
            .set_dictionary_page_offset(dictionary.map(|_| 0))
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: whole.len() as u64,
            rows_written: rows,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((Bytes::from(whole), close))
    }
}
