//! Decodes the column chunks of a part to accesses: the inverse of `encode`.

use std::sync::Arc;

use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding},
    column::page::{Page, PageReader},
    file::{metadata::ColumnChunkMetaData, serialized_reader::SerializedPageReader},
};
use zstd::bulk::Decompressor;

use super::{
    MAX_ACCESS_BYTES, MAX_PART_ROWS,
    columns::{self, GAP, KIND, NAMES, PC, SIZE, TID, VADDR, WAITS},
    dictionary::MAX_VALUES,
    last_waits::LastWaits,
    part::Part,
};
use crate::library_panics::as_errors;
use crate::{Access, AccessKind, Branches, Maker, ThreadIx, TraceError};

/// Transposes a matrix of 8×8 bytes whose rows are the words, least significant byte first.
#[inline(always)]
fn transpose(words: [u64; 8]) -> [u64; 8] {
    // Exchanges the off-diagonal blocks of a pair of rows. Written out below, because the compiler does not unroll
    // loops over the pairs, which would take three times as long.
    #[inline(always)]
    fn exchange<const BITS: u32>(upper: u64, lower: u64, mask: u64) -> (u64, u64) {
        (upper & mask | (lower & mask) << BITS, (upper >> BITS) & mask | lower & !mask)
    }
    let [a, b, c, d, e, f, g, h] = words;
    let blocks_of_4 = 0x0000_0000_ffff_ffff;
    let (a, e) = exchange::<32>(a, e, blocks_of_4);
    let (b, f) = exchange::<32>(b, f, blocks_of_4);
    let (c, g) = exchange::<32>(c, g, blocks_of_4);
    let (d, h) = exchange::<32>(d, h, blocks_of_4);
    let blocks_of_2 = 0x0000_ffff_0000_ffff;
    let (a, c) = exchange::<16>(a, c, blocks_of_2);
    let (b, d) = exchange::<16>(b, d, blocks_of_2);
    let (e, g) = exchange::<16>(e, g, blocks_of_2);
    let (f, h) = exchange::<16>(f, h, blocks_of_2);
    let bytes = 0x00ff_00ff_00ff_00ff;
    let (a, b) = exchange::<8>(a, b, bytes);
    let (c, d) = exchange::<8>(c, d, bytes);
    let (e, f) = exchange::<8>(e, f, bytes);
    let (g, h) = exchange::<8>(g, h, bytes);
    [a, b, c, d, e, f, g, h]
}

/// A run of accesses of one thread, up to `end` in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub thread: ThreadIx,
    pub end: usize,
}

/// Memory that is reused from part to part. Freed memory would return to the system and cost page faults when it is
/// allocated again: more than a third of the time.
pub(super) struct Memory {
    zstd: Decompressor<'static>,
    /// Accesses without their address, by index; those beyond the dictionary are of other parts.
    sites: Box<[Access; MAX_VALUES]>,
    /// Memory for the columns.
    bodies: [Vec<u8>; 4],
    last_waits: LastWaits,
}

impl Memory {
    pub(super) fn new() -> std::io::Result<Self> {
        let sites = vec![Access::new(AccessKind::Load, 0, 1); MAX_VALUES].into_boxed_slice();
        Ok(Self {
            zstd: Decompressor::new()?,
            sites: sites.try_into().expect("as many as there are"),
            bodies: Default::default(),
            last_waits: LastWaits::new(),
        })
    }
}

/// Decodes the pages of one part, in order.
pub(super) struct PartDecoder {
    part: Part,
    addresses: Column,
    /// Indices that all columns of `sites` share.
    site_indices: Column,
    thread_indices: Column,
    /// None if dependencies are not needed.
    waits: Option<Column>,
    last_waits: LastWaits,
    zstd: Decompressor<'static>,
    sites: Box<[Access; MAX_VALUES]>,
    threads: Vec<u32>,
    rows_left: u64,
}

impl PartDecoder {
    /// Reads the part and the dictionaries of its columns. `has_waits` tells whether there is a column of dependencies,
    /// `wants_waits` whether it is decoded.
    pub(super) fn new(part: &Part, memory: Memory, has_waits: bool, wants_waits: bool) -> Result<Self, TraceError> {
        let (content, group) = part.read(columns::schema(has_waits))?;
        let rows = part.facts.rows as usize;
        if rows > MAX_PART_ROWS {
            return Err(part.corrupt(format!("{rows} rows, more than {MAX_PART_ROWS}")));
        }
        let Memory { mut zstd, mut sites, bodies: [of_addresses, of_sites, of_threads, of_waits], last_waits } = memory;
        let shared = Arc::new(content.clone());
        let open = |index: usize, body: Vec<u8>| {
            Column::open(index, &shared, group.column(index), rows, body).map_err(|what| in_column(part, index, what))
        };
        let mut dictionary = |column: &mut Column| {
            let index = column.index;
            column.load_dictionary(&mut zstd).map_err(|what| in_column(part, index, what))
        };
        let (mut pcs, mut threads) = (open(PC, of_sites)?, open(TID, of_threads)?);
        let values = dictionary(&mut pcs)?;
        let count = values.len();
        for (site, pc) in sites.iter_mut().zip(values) {
            site.pc = pc;
        }
        for index in [KIND, SIZE, GAP] {
            let values = dictionary(&mut open(index, Vec::new())?)?;
            if values.len() != count || pages_of(&content, group.column(index)) != pages_of(&content, group.column(PC))
            {
                return Err(in_column(part, index, "its dictionary indices are not those of pc".into()));
            }
            for (site, value) in sites.iter_mut().zip(values) {
                set(site, index, value as u32).map_err(|what| in_column(part, index, what))?;
            }
        }
        let thread_numbers = dictionary(&mut threads)?.into_iter().map(|thread| thread as u32).collect();
        Ok(Self {
            part: part.clone(),
            addresses: open(VADDR, of_addresses)?,
            waits: (has_waits && wants_waits).then(|| open(WAITS, of_waits)).transpose()?,
            site_indices: pcs,
            thread_indices: threads,
            zstd,
            sites,
            last_waits,
            threads: thread_numbers,
            rows_left: rows as u64,
        })
    }

    pub(super) fn into_memory(self) -> Memory {
        let of_waits = self.waits.map_or_else(Vec::new, |waits| waits.body);
        let bodies = [self.addresses.body, self.site_indices.body, self.thread_indices.body, of_waits];
        Memory { zstd: self.zstd, sites: self.sites, bodies, last_waits: self.last_waits }
    }

    /// Replaces `accesses` by the next page's and `branches` by those before them, if known, and appends the page's
    /// runs, counted from its start, to `runs`, which is empty. Returns false at the end of the part.
    pub(super) fn next_page(
        &mut self,
        accesses: &mut Vec<Access>,
        branches: &mut Vec<Branches>,
        runs: &mut Vec<Run>,
    ) -> Result<bool, TraceError> {
        if self.rows_left == 0 {
            return Ok(false);
        }
        let mut rows = None;
        for column in
            [&mut self.addresses, &mut self.site_indices, &mut self.thread_indices].into_iter().chain(&mut self.waits)
        {
            let in_page = column.next_page(&mut self.zstd).map_err(|what| in_column(&self.part, column.index, what))?;
            if *rows.get_or_insert(in_page) != in_page {
                let what = format!("a page of {in_page} rows where the other columns have {}", rows.unwrap_or(0));
                return Err(in_column(&self.part, column.index, what));
            }
        }
        let rows = rows.unwrap_or(0);
        if rows == 0 || rows as u64 > self.rows_left {
            return Err(self.part.corrupt(format!("a page of {rows} rows with {} to come", self.rows_left)));
        }
        self.rows_left -= rows as u64;
        // The old content is overwritten.
        accesses.resize(rows, self.sites[0]);
        let (planes, sites) = (&self.addresses.body, &self.sites);
        match self.site_indices.indices() {
            Indices::Repeated(index) => join(planes, |_| &sites[usize::from(index)], accesses),
            Indices::Bytes(bytes) => join(planes, |row| &sites[usize::from(bytes[row])], accesses),
            Indices::Pairs(pairs) => join(planes, |row| &sites[usize::from(u16::from_le_bytes(pairs[row]))], accesses),
        }
        branches.clear();
        if let Some(waits) = &self.waits {
            branches.resize(rows, Branches::NONE);
            let (planes, last) = (&waits.body, &mut self.last_waits);
            last.begin(self.site_indices.dictionary_len);
            match self.site_indices.indices() {
                Indices::Repeated(index) => set_dependencies(planes, |_| index, last, accesses, branches),
                Indices::Bytes(bytes) => set_dependencies(planes, |row| bytes[row].into(), last, accesses, branches),
                Indices::Pairs(pairs) => {
                    set_dependencies(planes, |row| u16::from_le_bytes(pairs[row]), last, accesses, branches)
                }
            }
        }
        let threads = &self.threads;
        match self.thread_indices.indices() {
            Indices::Repeated(index) => runs.push(Run { thread: ThreadIx(threads[usize::from(index)]), end: rows }),
            Indices::Bytes(bytes) => put_runs(bytes.iter().map(|&byte| threads[usize::from(byte)]), runs),
            Indices::Pairs(pairs) => {
                put_runs(pairs.iter().map(|&pair| threads[usize::from(u16::from_le_bytes(pair))]), runs);
            }
        }
        Ok(true)
    }
}

/// The bytes of a column's data pages. Its position in the file was checked.
fn pages_of<'a>(content: &'a Bytes, column: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    let dictionary = column.dictionary_page_offset()?;
    let end = dictionary.checked_add(column.compressed_size())?;
    content.get(usize::try_from(column.data_page_offset()).ok()?..usize::try_from(end).ok()?)
}

/// Sets the column `index` of `site` to `value`, which may be out of range.
fn set(site: &mut Access, index: usize, value: u32) -> Result<(), String> {
    match index {
        KIND => {
            (site.kind, site.maker) =
                columns::kind_of(value).ok_or_else(|| format!("{value} is not a kind of access"))?;
        }
        SIZE => {
            let allowed = u16::try_from(value).ok().filter(|size| (1..=MAX_ACCESS_BYTES).contains(size));
            site.size_bytes = allowed.ok_or_else(|| format!("{value} bytes, expected 1 to {MAX_ACCESS_BYTES}"))?;
        }
        _ => site.gap = value,
    }
    Ok(())
}

fn in_column(part: &Part, index: usize, what: String) -> TraceError {
    part.corrupt(format!("column {}: {what}", NAMES[index]))
}

/// Appends the runs of equal numbers in `threads`.
fn put_runs(threads: impl Iterator<Item = u32>, runs: &mut Vec<Run>) {
    for (row, thread) in threads.enumerate() {
        match runs.last_mut() {
            Some(last) if last.thread.0 == thread => last.end = row + 1,
            _ => runs.push(Run { thread: ThreadIx(thread), end: row + 1 }),
        }
    }
}

/// The pages of a column, and the current one.
struct Column {
    index: usize,
    /// Bytes of a plain value.
    width: usize,
    pages: SerializedPageReader<Bytes>,
    dictionary_len: usize,
    /// The current page.
    body: Vec<u8>,
    layout: Layout,
}

/// Layout of a page's values in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// The first bytes of all values, then their second bytes, and so on; before the first page, nothing.
    Split,
    /// One dictionary index for all rows.
    Repeated(u16),
    /// As many dictionary indices of one byte, from `at` on.
    Bytes { at: usize, rows: usize },
    /// As many dictionary indices of two bytes, from `at` on.
    Pairs { at: usize, rows: usize },
}

enum Indices<'a> {
    Repeated(u16),
    Bytes(&'a [u8]),
    Pairs(&'a [[u8; 2]]),
}

impl Column {
    fn open(
        index: usize,
        content: &Arc<Bytes>,
        column: &ColumnChunkMetaData,
        rows: usize,
        body: Vec<u8>,
    ) -> Result<Self, String> {
        if !matches!(column.compression(), Compression::ZSTD(_)) {
            return Err(format!("compressed by {}, not by zstd", column.compression()));
        }
        // The parquet crate's reader would decompress into new memory for each page.
        let raw = column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build();
        let pages = as_errors(|| SerializedPageReader::new(Arc::clone(content), &raw?, rows, None))?;
        let width = if index == VADDR || index == PC { 8 } else { 4 };
        Ok(Self { index, width, pages, dictionary_len: 0, body, layout: Layout::Split })
    }

    /// Whether its values are byte streams rather than indices into a dictionary.
    fn is_split(&self) -> bool {
        matches!(self.index, VADDR | WAITS)
    }

    fn read_page(&mut self) -> Result<Option<Page>, String> {
        as_errors(|| self.pages.get_next_page())
    }

    /// Decompresses `compressed` into the body, which may have at most `most` bytes.
    fn decompress(&mut self, zstd: &mut Decompressor<'_>, compressed: &[u8], most: usize) -> Result<(), String> {
        self.body.clear();
        self.body.reserve(most);
        zstd.decompress_to_buffer(compressed, &mut self.body).map_err(|e| e.to_string())?;
        Ok(())
    }

    /// Reads the dictionary page, which comes first.
    fn load_dictionary(&mut self, zstd: &mut Decompressor<'_>) -> Result<Vec<u64>, String> {
        let Some(Page::DictionaryPage { buf, num_values, encoding, .. }) = self.read_page()? else {
            return Err("no dictionary page".into());
        };
        let count = num_values as usize;
        if count > MAX_VALUES {
            return Err(format!("a dictionary of {count} values"));
        }
        self.decompress(zstd, &buf, count * self.width)?;
        if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY) || self.body.len() != count * self.width {
            return Err(format!("a dictionary of {count} values in {} bytes of {encoding:?}", self.body.len()));
        }
        self.dictionary_len = count;
        let value = |bytes: &[u8]| bytes.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b));
        Ok(self.body.chunks_exact(self.width).map(value).collect())
    }

    /// Goes to the next page and returns its rows.
    fn next_page(&mut self, zstd: &mut Decompressor<'_>) -> Result<usize, String> {
        let Some(page) = self.read_page()? else {
            return Err("a page is missing".into());
        };
        let Page::DataPage { buf, num_values, encoding, .. } = page else {
            return Err(format!("unexpected page of type {}", page.page_type()));
        };
        let rows = num_values as usize;
        if rows > MAX_PART_ROWS {
            return Err(format!("a page of {rows} rows"));
        }
        self.layout = match encoding {
            Encoding::BYTE_STREAM_SPLIT if self.is_split() => {
                self.decompress(zstd, &buf, rows * self.width)?;
                if self.body.len() != rows * self.width {
                    return Err(format!("a page of {rows} rows in {} bytes", self.body.len()));
                }
                Layout::Split
            }
            Encoding::RLE_DICTIONARY if !self.is_split() => {
                self.decompress(zstd, &buf, MAX_INDEX_HEADER_BYTES + rows.next_multiple_of(8) * 2)?;
                index_layout(&self.body, rows, self.dictionary_len)?
            }
            other => return Err(format!("pages of encoding {other} are not used in this format version")),
        };
        Ok(rows)
    }

    /// The dictionary indices of the current page.
    fn indices(&self) -> Indices<'_> {
        match self.layout {
            Layout::Repeated(index) => Indices::Repeated(index),
            Layout::Bytes { at, rows } => Indices::Bytes(&self.body[at..at + rows]),
            Layout::Pairs { at, rows } => Indices::Pairs(self.body[at..at + rows * 2].as_chunks().0),
            Layout::Split => unreachable!("refused by next_page"),
        }
    }
}

/// Builds the accesses of a page from the byte streams of their addresses and from the site of each row.
#[inline(always)]
fn join<'a>(planes: &[u8], site: impl Fn(usize) -> &'a Access, accesses: &mut [Access]) {
    let rows = accesses.len();
    let planes: [&[u8]; 8] = std::array::from_fn(|k| &planes[k * rows..][..rows]);
    let (eights, rest) = accesses.as_chunks_mut::<8>();
    let whole = eights.len() * 8;
    let words = planes.map(|plane| plane.as_chunks::<8>().0);
    for (number, eight) in eights.iter_mut().enumerate() {
        let addresses = transpose(std::array::from_fn(|k| u64::from_le_bytes(words[k][number])));
        for (i, (access, vaddr)) in eight.iter_mut().zip(addresses).enumerate() {
            *access = Access { vaddr, ..*site(number * 8 + i) };
        }
    }
    for (row, access) in (whole..).zip(rest) {
        let vaddr = u64::from_le_bytes(planes.map(|plane| plane[row]));
        *access = Access { vaddr, ..*site(row) };
    }
}

/// Sets what a page's accesses, and the branches before them, depend on, from the byte streams of the stored words.
#[inline(always)]
fn set_dependencies(
    planes: &[u8],
    site: impl Fn(usize) -> u16,
    last: &mut LastWaits,
    accesses: &mut [Access],
    branches: &mut [Branches],
) {
    let rows = accesses.len();
    let planes: [&[u8]; 4] = std::array::from_fn(|k| &planes[k * rows..][..rows]);
    let mut set_dependencies = |row: usize, stored: u32, access: &mut Access, branches: &mut Branches| {
        let word = last.restore(site(row), stored);
        if !access.maker.is_kernel() {
            access.maker = Maker::after((word & 0xff).into());
        }
        *branches = columns::branches_of(word);
    };
    let ((eights, rest), (branches_of_eights, branches_of_rest)) =
        (accesses.as_chunks_mut::<8>(), branches.as_chunks_mut::<8>());
    let whole = eights.len() * 8;
    let words = planes.map(|plane| plane.as_chunks::<8>().0);
    for (number, (eight, branches)) in eights.iter_mut().zip(branches_of_eights).enumerate() {
        let bytes = words.map(|words| words[number]);
        for (i, (access, branches)) in eight.iter_mut().zip(branches).enumerate() {
            set_dependencies(number * 8 + i, u32::from_le_bytes(bytes.map(|plane| plane[i])), access, branches);
        }
    }
    for (row, (access, branches)) in (whole..).zip(rest.iter_mut().zip(branches_of_rest)) {
        set_dependencies(row, u32::from_le_bytes(planes.map(|plane| plane[row])), access, branches);
    }
}

/// Maximum number of bytes before the indices of a page: their width, and the header of their run.
const MAX_INDEX_HEADER_BYTES: usize = 1 + 5;

/// Position of `rows` dictionary indices in a page, which must be one run; each index is below `len`.
fn index_layout(body: &[u8], rows: usize, len: usize) -> Result<Layout, String> {
    let wrong = || format!("a page of {rows} dictionary indices that is not one run of whole bytes");
    let bit_width = *body.first().ok_or_else(wrong)?;
    let mut header = 0u64;
    let mut at = 1;
    loop {
        let byte = *body.get(at).ok_or_else(wrong)?;
        header |= u64::from(byte & 0x7f) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
        if at > 5 {
            return Err(wrong());
        }
    }
    let (packed, count) = (header & 1 == 1, header >> 1);
    let padded = rows.div_ceil(8) * 8;
    let in_range = |max: u16| match max {
        max if usize::from(max) >= len => Err(format!("dictionary index {max} of {len}")),
        _ => Ok(()),
    };
    // Folds over values become wide instructions; `Iterator::max` over references does not.
    match (bit_width, packed) {
        (16, false) if count == rows as u64 && body.len() == at + 2 => {
            let index = u16::from_le_bytes([body[at], body[at + 1]]);
            in_range(index)?;
            Ok(Layout::Repeated(index))
        }
        (8, true) if count * 8 == padded as u64 && body.len() == at + padded => {
            let bytes = &body[at..at + rows];
            in_range(u16::from(bytes.iter().fold(0, |max: u8, &i| max.max(i))))?;
            Ok(Layout::Bytes { at, rows })
        }
        (16, true) if count * 8 == padded as u64 && body.len() == at + padded * 2 => {
            let bytes = &body[at..at + rows * 2];
            in_range(bytes.as_chunks::<2>().0.iter().fold(0, |max: u16, pair| max.max(u16::from_le_bytes(*pair))))?;
            Ok(Layout::Pairs { at, rows })
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_moves_byte_k_of_word_i_to_byte_i_of_word_k() {
        let words: [u64; 8] = std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|k| (i * 8 + k) as u8)));
        let expected: [u64; 8] =
            std::array::from_fn(|k| u64::from_le_bytes(std::array::from_fn(|i| (i * 8 + k) as u8)));
        assert_eq!(transpose(words), expected);
        assert_eq!(transpose(expected), words);
    }

    #[test]
    fn pages_of_indices_must_fit_their_header() {
        assert_eq!(index_layout(&[16, 6, 2, 0], 3, 3), Ok(Layout::Repeated(2)));
        assert_eq!(index_layout(&[8, 3, 0, 1, 2, 0, 0, 0, 0, 0], 3, 3), Ok(Layout::Bytes { at: 2, rows: 3 }));
        for (bytes, rows, len) in [
            (&[][..], 1, 1),
            (&[16], 1, 1),
            (&[16, 6, 2], 3, 3),                     // cut off
            (&[16, 6, 2, 0], 4, 3),                  // other row count
            (&[16, 6, 3, 0], 3, 3),                  // index beyond the dictionary
            (&[8, 3, 0, 1, 2, 0, 0, 0, 0], 3, 3),    // a byte short
            (&[8, 3, 0, 1, 3, 0, 0, 0, 0, 0], 3, 3), // index beyond the dictionary
            (&[4, 3, 0, 1, 2, 0], 3, 3),             // other width
            (&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], 3, 3),
        ] {
            assert!(index_layout(bytes, rows, len).is_err(), "{bytes:?}");
        }
    }
}
