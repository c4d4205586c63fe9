//! From accesses to the column chunks of a part.
//!
//! The pages are put together here rather than by the parquet crate's column writer, which hashes each value into a
//! general dictionary, packs indices at odd bit widths (that zstd then compresses badly) and copies more: at 24 bytes
//! an access, every pass over the data counts.

use std::io::Write;

use bytes::Bytes;
use parquet::{
    basic::{Encoding, Type},
    column::{
        page::{CompressedPage, Page, PageWriter},
        writer::ColumnCloseResult,
    },
    errors::Result,
    file::{
        metadata::ColumnChunkMetaData,
        writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite},
    },
    schema::types::{ColumnDescPtr, SchemaDescriptor},
};

use super::{
    columns::{self, COUNT, GAP, KIND, KINDS, PC, SIZE, TID, VADDR},
    compress::PageCompressor,
    dictionary::Site,
    meta::AccessCounts,
    page::{self, PartDictionaries},
};

/// Encodes the pages of one part after the other.
pub(super) struct PartEncoder {
    compressor: PageCompressor,
    schema: SchemaDescriptor,
    addresses: Pages,
    /// Common to the columns of a [`Site`].
    sites: Pages,
    threads: Pages,
    planes: Vec<u8>,
    indices: Vec<u16>,
    body: Vec<u8>,
    counts: AccessCounts,
    rows: u64,
}

impl PartEncoder {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            compressor: PageCompressor::new()?,
            schema: SchemaDescriptor::new(columns::SCHEMA.clone()),
            addresses: Pages::default(),
            sites: Pages::default(),
            threads: Pages::default(),
            planes: Vec::new(),
            indices: Vec::new(),
            body: Vec::new(),
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

    /// Appends a page, which is not empty.
    pub(super) fn page(&mut self, page: &page::Page) -> Result<()> {
        let addresses = page.addresses();
        let rows = addresses.len();
        let varying = varying_bytes(addresses);
        self.planes.resize(rows * 8, 0);
        split_addresses(addresses, &mut self.planes);
        let constant = &addresses[0].to_le_bytes()[varying..];
        let planes = self.compressor.compress_planes(&self.planes[..rows * varying], rows, constant)?;
        self.addresses.push(planes, Encoding::BYTE_STREAM_SPLIT, rows, rows * 8)?;
        put_indices(&mut self.body, page.sites());
        self.sites.push(self.compressor.compress(&self.body)?, Encoding::RLE_DICTIONARY, rows, self.body.len())?;
        self.indices.clear();
        for run in &page.runs {
            self.indices.resize(run.end, run.thread);
        }
        put_indices(&mut self.body, &self.indices);
        self.threads.push(self.compressor.compress(&self.body)?, Encoding::RLE_DICTIONARY, rows, self.body.len())?;
        self.counts.add(&page.counts);
        self.rows += rows as u64;
        Ok(())
    }

    /// Moves the part into `group` and begins the next one.
    pub(super) fn finish_part(
        &mut self,
        dictionaries: &PartDictionaries,
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    ) -> Result<()> {
        let PartDictionaries { sites, threads } = dictionaries;
        let words = |value: fn(&Site) -> u32| sites.iter().flat_map(|site| value(site).to_le_bytes()).collect();
        for pages in [&mut self.addresses, &mut self.sites, &mut self.threads] {
            pages.bytes.flush()?;
        }
        for column in 0..COUNT {
            let (pages, dictionary): (_, Option<Vec<u8>>) = match column {
                VADDR => (&self.addresses, None),
                TID => (&self.threads, Some(threads.iter().flat_map(|thread| thread.0.to_le_bytes()).collect())),
                PC => (&self.sites, Some(sites.iter().flat_map(|site| site.pc.to_le_bytes()).collect())),
                SIZE => (&self.sites, Some(words(|site| u32::from(site.size_bytes())))),
                GAP => (&self.sites, Some(words(|site| site.gap()))),
                KIND => (&self.sites, Some(words(|site| u32::from(KINDS[site.kind_index()])))),
                _ => unreachable!("{column} of {COUNT} columns"),
            };
            let of = self.schema.column(column);
            let memory = std::mem::take(&mut self.body);
            let (bytes, close) = pages.column(memory, &mut self.compressor, self.rows, of, dictionary.as_deref())?;
            group.append_column(&bytes, close)?;
            self.body = Vec::from(bytes);
        }
        for pages in [&mut self.addresses, &mut self.sites, &mut self.threads] {
            pages.clear()?;
        }
        self.counts = AccessCounts::default();
        self.rows = 0;
        Ok(())
    }
}

/// Number of lower bytes beyond which all addresses are the same.
fn varying_bytes(addresses: &[u64]) -> usize {
    let different = addresses.iter().fold(0, |all, address| all | (address ^ addresses[0]));
    (u64::BITS - different.leading_zeros()).div_ceil(8) as usize
}

/// Writes byte `k` of each address to plane `k`.
fn split_addresses(addresses: &[u64], planes: &mut [u8]) {
    let mut planes = planes.chunks_exact_mut(addresses.len());
    let mut planes: [_; 8] = std::array::from_fn(|_| planes.next().expect("8 planes").as_chunks_mut::<8>());
    let (eights, rest) = addresses.as_chunks::<8>();
    for (number, eight) in eights.iter().enumerate() {
        for ((plane, _), word) in planes.iter_mut().zip(super::decode::transpose(*eight)) {
            plane[number] = word.to_le_bytes();
        }
    }
    for (number, address) in rest.iter().enumerate() {
        for ((_, plane), byte) in planes.iter_mut().zip(address.to_le_bytes()) {
            plane[number] = byte;
        }
    }
}

/// Sets `body` to a page of dictionary indices: the bit width, then one run of the RLE/bit-packing hybrid, repeated
/// if all indices are equal, else packed at 8 or 16 bits (padded to whole groups of eight).
fn put_indices(body: &mut Vec<u8>, indices: &[u16]) {
    body.clear();
    if indices.iter().all(|&i| i == indices[0]) {
        body.push(16);
        put_varint(body, (indices.len() as u64) << 1);
        body.extend(indices[0].to_le_bytes());
        return;
    }
    let groups = indices.len().div_ceil(8);
    let wide = indices.iter().fold(0, |all, &i| all | i) > 255;
    body.push(if wide { 16 } else { 8 });
    put_varint(body, (groups as u64) << 1 | 1);
    // Sized first and then filled: appending value by value checks for room each time.
    let begin = body.len();
    if wide {
        body.resize(begin + groups * 16, 0);
        for (pair, &index) in body[begin..].as_chunks_mut::<2>().0.iter_mut().zip(indices) {
            *pair = index.to_le_bytes();
        }
    } else {
        body.resize(begin + groups * 8, 0);
        for (byte, &index) in body[begin..].iter_mut().zip(indices) {
            *byte = index as u8;
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

/// Pages of the part being written that hold the data of a column, or of several.
struct Pages {
    bytes: TrackedWrite<Vec<u8>>,
    uncompressed_bytes: usize,
    encoding: Encoding,
}

impl Default for Pages {
    fn default() -> Self {
        Self { bytes: TrackedWrite::new(Vec::new()), uncompressed_bytes: 0, encoding: Encoding::PLAIN }
    }
}

impl Pages {
    fn push(&mut self, compressed: &[u8], encoding: Encoding, rows: usize, uncompressed_bytes: usize) -> Result<()> {
        let page = Page::DataPage {
            buf: Bytes::copy_from_slice(compressed),
            num_values: rows as u32,
            encoding,
            // No column is nested or null, so there are no levels and their encoding means nothing.
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let page = CompressedPage::new(page, uncompressed_bytes);
        self.uncompressed_bytes += SerializedPageWriter::new(&mut self.bytes).write_page(page)?.uncompressed_size;
        self.encoding = encoding;
        Ok(())
    }

    /// Begins the next part in the same memory.
    fn clear(&mut self) -> Result<()> {
        let mut memory = std::mem::take(self).bytes.into_inner()?;
        memory.clear();
        self.bytes = TrackedWrite::new(memory);
        Ok(())
    }

    /// A column of `rows` values: the dictionary's plain values, if it has one, before the data, and its meta data.
    /// Put together in `memory`.
    fn column(
        &self,
        mut memory: Vec<u8>,
        compressor: &mut PageCompressor,
        rows: u64,
        column: ColumnDescPtr,
        dictionary: Option<&[u8]>,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        memory.clear();
        let mut whole = TrackedWrite::new(memory);
        let mut uncompressed_bytes = self.uncompressed_bytes;
        let mut encodings = vec![self.encoding];
        if let Some(values) = dictionary {
            let value_bytes = if column.physical_type() == Type::INT64 { 8 } else { 4 };
            let page = Page::DictionaryPage {
                buf: Bytes::copy_from_slice(compressor.compress(values)?),
                num_values: (values.len() / value_bytes) as u32,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            let page = CompressedPage::new(page, values.len());
            uncompressed_bytes += SerializedPageWriter::new(&mut whole).write_page(page)?.uncompressed_size;
            encodings.push(Encoding::PLAIN);
        }
        let mut whole = whole.into_inner()?;
        let data_offset = whole.len() as i64;
        whole.extend_from_slice(self.bytes.inner());
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(columns::compression())
            .set_encodings(encodings)
            .set_total_compressed_size(whole.len() as i64)
            .set_total_uncompressed_size(uncompressed_bytes as i64)
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
