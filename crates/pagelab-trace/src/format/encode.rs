//! Encodes accesses to the column chunks of a part.
//!
//! Pages are assembled here instead of by the parquet crate's column writer, which hashes each value into a general
//! dictionary, packs indices at odd bit widths (which zstd compresses badly) and copies more: with 24 bytes per access,
//! every pass over the data counts.

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
    columns::{self, GAP, KIND, KINDS, PC, SIZE, TID, VADDR, WAITS},
    compress::IndexCompressor,
    dictionary::Site,
    indices,
    meta::AccessCounts,
    page::{self, PartDictionaries},
};

/// Encodes the pages of one part after the other.
pub(super) struct PartEncoder {
    compressor: IndexCompressor,
    schema: SchemaDescriptor,
    addresses: Pages,
    /// None if the trace has no dependencies.
    waits: Option<Pages>,
    /// Shared by the columns of a [`Site`].
    sites: Pages,
    threads: Pages,
    threads_of_rows: Vec<u16>,
    body: Vec<u8>,
    counts: AccessCounts,
    rows: u64,
}

impl PartEncoder {
    pub(super) fn new(dependencies: bool) -> std::io::Result<Self> {
        Ok(Self {
            compressor: IndexCompressor::new()?,
            schema: SchemaDescriptor::new(columns::schema(dependencies).clone()),
            addresses: Pages::default(),
            waits: dependencies.then(Pages::default),
            sites: Pages::default(),
            threads: Pages::default(),
            threads_of_rows: Vec::new(),
            body: Vec::new(),
            counts: AccessCounts::default(),
            rows: 0,
        })
    }

    /// Number of rows of the part so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn counts(&self) -> AccessCounts {
        self.counts
    }

    /// Appends a nonempty page whose planes are compressed.
    pub(super) fn page(&mut self, page: &page::Page) -> Result<()> {
        let rows = page.rows;
        self.addresses.push(&page.addresses.compressed, Encoding::BYTE_STREAM_SPLIT, rows, rows * 8)?;
        if let (Some(pages), Some(waits)) = (&mut self.waits, &page.waits) {
            pages.push(&waits.compressed, Encoding::BYTE_STREAM_SPLIT, rows, rows * 4)?;
        }
        self.sites.push(self.compressor.compress(&page.sites)?, Encoding::RLE_DICTIONARY, rows, page.sites.len())?;
        match page.runs.as_slice() {
            [run] => indices::put_repeated(&mut self.body, run.thread, rows),
            runs => {
                self.threads_of_rows.clear();
                runs.iter().for_each(|run| self.threads_of_rows.resize(run.end, run.thread));
                indices::put(&mut self.body, &self.threads_of_rows);
            }
        }
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
        let words = |value: fn(&Site) -> u32| plain(sites.iter().map(|site| value(site).to_le_bytes()));
        for pages in [&mut self.addresses, &mut self.sites, &mut self.threads].into_iter().chain(&mut self.waits) {
            pages.bytes.flush()?;
        }
        for column in 0..self.schema.num_columns() {
            let (pages, dictionary): (_, Option<Vec<u8>>) = match column {
                VADDR => (&self.addresses, None),
                TID => (&self.threads, Some(plain(threads.iter().map(|thread| thread.0.to_le_bytes())))),
                PC => (&self.sites, Some(plain(sites.iter().map(|site| site.pc.to_le_bytes())))),
                SIZE => (&self.sites, Some(words(|site| u32::from(site.size_bytes())))),
                GAP => (&self.sites, Some(words(|site| site.gap()))),
                KIND => (&self.sites, Some(words(|site| u32::from(KINDS[site.kind_index()])))),
                WAITS => (self.waits.as_ref().expect("it is a column of traces that tell"), None),
                _ => unreachable!("{column} of {} columns", self.schema.num_columns()),
            };
            let descriptor = self.schema.column(column);
            let memory = std::mem::take(&mut self.body);
            let (bytes, close) =
                pages.column(memory, &mut self.compressor, self.rows, descriptor, dictionary.as_deref())?;
            group.append_column(&bytes, close)?;
            self.body = Vec::from(bytes);
        }
        for pages in [&mut self.addresses, &mut self.sites, &mut self.threads].into_iter().chain(&mut self.waits) {
            pages.clear()?;
        }
        self.counts = AccessCounts::default();
        self.rows = 0;
        Ok(())
    }
}

/// Values as they are stored, one after the other.
fn plain<const N: usize>(values: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    values.collect::<Vec<_>>().into_flattened()
}

/// Pages of the current part that contain the data of one or several columns.
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
            // No column is nested or null, so there are no levels, and their encoding is irrelevant.
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

    /// A column of `rows` values: its dictionary's plain values, if it has one, then the data, and its meta data.
    /// Assembled in `memory`.
    fn column(
        &self,
        mut memory: Vec<u8>,
        compressor: &mut IndexCompressor,
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
