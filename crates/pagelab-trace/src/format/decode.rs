//! From the column chunks of a part to accesses: the inverse of `encode`.

use std::sync::Arc;

use bytes::Bytes;
use parquet::{
    basic::Encoding,
    column::page::{Page, PageReader},
    file::{metadata::ColumnChunkMetaData, serialized_reader::SerializedPageReader},
};

use super::{
    MAX_ACCESS_BYTES, MAX_PART_ROWS,
    columns::{self, GAP, KIND, NAMES, PC, SIZE, TID, VADDR},
    dictionary::MAX_VALUES,
    part::Part,
};
use crate::{Access, AccessKind, ThreadIx, TraceError};

/// Rows that are taken from all columns before the next ones; the scratch columns stay in the second-level cache.
const CHUNK_ROWS: usize = 4096;

/// Transposes a matrix of 8×8 bytes whose rows are the words, least significant byte first.
#[inline(always)]
pub(super) fn transpose(words: [u64; 8]) -> [u64; 8] {
    // Exchanges the off-diagonal blocks of a pair of rows. Written out below, because the compiler does not unroll
    // loops over the pairs, which takes three times as long.
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

/// A run of one thread, up to `end` in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub thread: ThreadIx,
    pub end: usize,
}

/// Decodes the pages of one part, in order.
pub(super) struct PartDecoder {
    part: Part,
    addresses: Column,
    /// Indices common to all columns of `sites`.
    site_indices: Column,
    thread_indices: Column,
    /// Accesses by index, all but the address.
    sites: Vec<Access>,
    threads: Vec<u32>,
    scratch: Box<Scratch>,
    rows_left: u64,
}

struct Scratch {
    vaddr: [u64; CHUNK_ROWS],
    site: [u16; CHUNK_ROWS],
    tid: [u32; CHUNK_ROWS],
}

impl PartDecoder {
    /// Reads the part and the dictionaries of its columns.
    pub(super) fn new(part: &Part) -> Result<Self, TraceError> {
        let (content, group) = part.read(&columns::SCHEMA)?;
        let rows = part.facts.rows as usize;
        if rows > MAX_PART_ROWS {
            return Err(part.corrupt(format!("{rows} rows, more than {MAX_PART_ROWS}")));
        }
        let shared = Arc::new(content.clone());
        let open = |index: usize| {
            let width = if index == VADDR || index == PC { 8 } else { 4 };
            let pages = SerializedPageReader::new(Arc::clone(&shared), group.column(index), rows, None);
            let pages = pages.map_err(|e| in_column(part, index, e.to_string()))?;
            Ok(Column { index, width, pages, dictionary_len: 0, page: Values::None })
        };
        let dictionary = |column: &mut Column| {
            let index = column.index;
            column.load_dictionary().map_err(|what| in_column(part, index, what))
        };
        let (mut pcs, mut threads) = (open(PC)?, open(TID)?);
        let mut sites: Vec<Access> =
            dictionary(&mut pcs)?.into_iter().map(|pc| Access { pc, ..Access::new(AccessKind::Load, 0, 1) }).collect();
        for index in [KIND, SIZE, GAP] {
            let values = dictionary(&mut open(index)?)?;
            if values.len() != sites.len()
                || pages_of(&content, group.column(index)) != pages_of(&content, group.column(PC))
            {
                return Err(in_column(part, index, "its dictionary indices are not those of pc".into()));
            }
            for (site, value) in sites.iter_mut().zip(values) {
                set(site, index, value as u32).map_err(|what| in_column(part, index, what))?;
            }
        }
        Ok(Self {
            part: part.clone(),
            addresses: open(VADDR)?,
            site_indices: pcs,
            threads: dictionary(&mut threads)?.into_iter().map(|thread| thread as u32).collect(),
            thread_indices: threads,
            sites,
            scratch: Box::new(Scratch { vaddr: [0; CHUNK_ROWS], site: [0; CHUNK_ROWS], tid: [0; CHUNK_ROWS] }),
            rows_left: rows as u64,
        })
    }

    /// Appends the next page's accesses to `accesses` and its runs, counted from the page's begin, to `runs`, which is
    /// empty. False at the end of the part.
    pub(super) fn next_page(&mut self, accesses: &mut Vec<Access>, runs: &mut Vec<Run>) -> Result<bool, TraceError> {
        if self.rows_left == 0 {
            return Ok(false);
        }
        let mut rows = None;
        for column in [&mut self.addresses, &mut self.site_indices, &mut self.thread_indices] {
            let of = column.next_page().map_err(|what| in_column(&self.part, column.index, what))?;
            if *rows.get_or_insert(of) != of {
                let what = format!("a page of {of} rows where the other columns have {}", rows.unwrap_or(0));
                return Err(in_column(&self.part, column.index, what));
            }
        }
        let rows = rows.unwrap_or(0);
        if rows == 0 || rows as u64 > self.rows_left {
            return Err(self.part.corrupt(format!("a page of {rows} rows with {} to come", self.rows_left)));
        }
        self.rows_left -= rows as u64;
        accesses.reserve(rows);
        let mut first = 0;
        while first < rows {
            let len = CHUNK_ROWS.min(rows - first);
            let s = &mut *self.scratch;
            self.addresses.addresses(first, &mut s.vaddr[..len]);
            self.site_indices.indices(first, &mut s.site[..len]);
            let rows = s.vaddr[..len].iter().zip(&s.site[..len]);
            accesses.extend(rows.map(|(&vaddr, &site)| Access { vaddr, ..self.sites[usize::from(site)] }));
            self.append_runs(first, len, runs);
            first += len;
        }
        Ok(true)
    }

    fn append_runs(&mut self, first: usize, len: usize, runs: &mut Vec<Run>) {
        let s = &mut *self.scratch;
        self.thread_indices.indices(first, &mut s.site[..len]);
        for (tid, &index) in s.tid.iter_mut().zip(&s.site[..len]) {
            *tid = self.threads[usize::from(index)];
        }
        append_runs(&s.tid[..len], first, runs);
    }
}

/// The bytes of a column's data pages. Its place in the file was checked.
fn pages_of<'a>(content: &'a Bytes, column: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    let dictionary = column.dictionary_page_offset()?;
    let end = dictionary.checked_add(column.compressed_size())?;
    content.get(usize::try_from(column.data_page_offset()).ok()?..usize::try_from(end).ok()?)
}

/// Sets the column `index` of `site` to `value`, which may not be allowed there.
fn set(site: &mut Access, index: usize, value: u32) -> Result<(), String> {
    match index {
        KIND => {
            (site.kind, site.by_kernel) =
                columns::kind_of(value).ok_or_else(|| format!("{value} is no kind of access"))?;
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

/// Appends the runs of equal numbers in `tids`, the rows from `first` of a page.
fn append_runs(tids: &[u32], first: usize, runs: &mut Vec<Run>) {
    let mut begin = 0;
    while begin < tids.len() {
        let thread = tids[begin];
        let len = tids[begin..].iter().position(|&t| t != thread).unwrap_or(tids.len() - begin);
        begin += len;
        let end = first + begin;
        match runs.last_mut() {
            // It goes on from the chunk before.
            Some(last) if last.thread.0 == thread => last.end = end,
            _ => runs.push(Run { thread: ThreadIx(thread), end }),
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
    page: Values,
}

/// The values of a page.
enum Values {
    None,
    /// One dictionary index for all rows.
    Repeated(u16),
    /// Dictionary indices of one byte.
    Bytes(Bytes),
    /// Dictionary indices of two bytes.
    Pairs(Bytes),
    /// First bytes of all values, then their second bytes, and so on.
    Split(Bytes),
}

impl Column {
    fn read_page(&mut self) -> Result<Option<Page>, String> {
        self.pages.get_next_page().map_err(|e| e.to_string())
    }

    /// Reads the dictionary page, which comes first.
    fn load_dictionary(&mut self) -> Result<Vec<u64>, String> {
        let Some(Page::DictionaryPage { buf, num_values, encoding, .. }) = self.read_page()? else {
            return Err("no dictionary page".into());
        };
        let count = num_values as usize;
        if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY)
            || buf.len() != count * self.width
            || count > MAX_VALUES
        {
            return Err(format!("a dictionary of {count} values in {} bytes of {encoding:?}", buf.len()));
        }
        self.dictionary_len = count;
        let value = |bytes: &[u8]| bytes.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b));
        Ok(buf.chunks_exact(self.width).map(value).collect())
    }

    /// Goes to the next page and returns its rows.
    fn next_page(&mut self) -> Result<usize, String> {
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
        self.page = match encoding {
            Encoding::BYTE_STREAM_SPLIT if self.index == VADDR => {
                if buf.len() != rows * self.width {
                    return Err(format!("a page of {rows} rows in {} bytes", buf.len()));
                }
                Values::Split(buf)
            }
            Encoding::RLE_DICTIONARY if self.index != VADDR => indices(&buf, rows, self.dictionary_len)?,
            other => return Err(format!("pages of encoding {other} are not used in this format version")),
        };
        Ok(rows)
    }

    /// Writes the dictionary indices of the rows from `first`.
    fn indices(&self, first: usize, out: &mut [u16]) {
        let len = out.len();
        match &self.page {
            Values::Repeated(index) => out.fill(*index),
            Values::Bytes(bytes) => {
                for (out, &index) in out.iter_mut().zip(&bytes[first..first + len]) {
                    *out = u16::from(index);
                }
            }
            Values::Pairs(bytes) => {
                for (out, pair) in out.iter_mut().zip(bytes[first * 2..].as_chunks::<2>().0) {
                    *out = u16::from_le_bytes(*pair);
                }
            }
            Values::None | Values::Split(_) => unreachable!("refused by next_page"),
        }
    }

    /// Writes the addresses of the rows from `first`.
    fn addresses(&self, first: usize, out: &mut [u64]) {
        match &self.page {
            Values::Split(bytes) => join_bytes(bytes, first, out),
            _ => unreachable!("refused by next_page"),
        }
    }
}

/// Joins the bytes of the values from `first` of a page of byte streams.
fn join_bytes(planes: &[u8], first: usize, out: &mut [u64]) {
    let rows = planes.len() / 8;
    let planes: [&[u8]; 8] = std::array::from_fn(|k| &planes[k * rows + first..][..out.len()]);
    let (eights, rest) = out.as_chunks_mut::<8>();
    let whole = eights.len() * 8;
    for (number, eight) in eights.iter_mut().enumerate() {
        let at = number * 8;
        *eight =
            transpose(std::array::from_fn(|k| u64::from_le_bytes(planes[k][at..at + 8].try_into().expect("8 bytes"))));
    }
    for (i, value) in rest.iter_mut().enumerate() {
        *value = u64::from_le_bytes(std::array::from_fn(|k| planes[k][whole + i]));
    }
}

/// A page of `rows` dictionary indices in one run, each below `len`.
fn indices(body: &Bytes, rows: usize, len: usize) -> Result<Values, String> {
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
            Ok(Values::Repeated(index))
        }
        (8, true) if count * 8 == padded as u64 && body.len() == at + padded => {
            let bytes = body.slice(at..at + rows);
            in_range(u16::from(bytes.iter().fold(0, |max: u8, &i| max.max(i))))?;
            Ok(Values::Bytes(bytes))
        }
        (16, true) if count * 8 == padded as u64 && body.len() == at + padded * 2 => {
            let bytes = body.slice(at..at + rows * 2);
            in_range(bytes.as_chunks::<2>().0.iter().fold(0, |max: u16, pair| max.max(u16::from_le_bytes(*pair))))?;
            Ok(Values::Pairs(bytes))
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
        let page = |bytes: &[u8], rows, len| indices(&Bytes::copy_from_slice(bytes), rows, len);
        assert!(matches!(page(&[16, 6, 2, 0], 3, 3), Ok(Values::Repeated(2))));
        assert!(matches!(page(&[8, 3, 0, 1, 2, 0, 0, 0, 0, 0], 3, 3), Ok(Values::Bytes(b)) if b[..] == [0, 1, 2]));
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
            assert!(page(bytes, rows, len).is_err(), "{bytes:?}");
        }
    }
}
