//! From the column chunks of a part to accesses: the inverse of `encode`.

use std::sync::Arc;

use bytes::Bytes;
use parquet::{
    basic::Encoding,
    column::page::{Page, PageReader},
    file::serialized_reader::SerializedPageReader,
};

use super::{
    MAX_ACCESS_BYTES, MAX_PART_ROWS,
    columns::{self, COUNT, GAP, KIND, NAMES, PC, SIZE, TID, VADDR},
    encode::Run,
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

/// Decodes the pages of one part, in order.
pub(super) struct PartDecoder {
    part: Part,
    columns: [Column; COUNT],
    kinds: Vec<(AccessKind, bool)>,
    scratch: Box<Scratch>,
    rows_left: u64,
}

struct Scratch {
    vaddr: [u64; CHUNK_ROWS],
    pc: [u64; CHUNK_ROWS],
    gap: [u32; CHUNK_ROWS],
    size: [u32; CHUNK_ROWS],
    kind: [u32; CHUNK_ROWS],
    tid: [u32; CHUNK_ROWS],
}

impl PartDecoder {
    /// Reads the part and the dictionaries of its columns.
    pub(super) fn new(part: &Part) -> Result<Self, TraceError> {
        let (content, group) = part.read(&columns::SCHEMA)?;
        let content = Arc::new(content);
        let mut columns: [Column; COUNT] = std::array::from_fn(|_| Column::default());
        for (index, column) in columns.iter_mut().enumerate() {
            let rows = part.facts.rows as usize;
            let pages = SerializedPageReader::new(Arc::clone(&content), group.column(index), rows, None);
            column.pages = Some(pages.map_err(|e| in_column(part, index, e.to_string()))?);
        }
        let mut decoder = Self {
            part: part.clone(),
            columns,
            kinds: Vec::new(),
            scratch: Box::new(Scratch {
                vaddr: [0; CHUNK_ROWS],
                pc: [0; CHUNK_ROWS],
                gap: [0; CHUNK_ROWS],
                size: [0; CHUNK_ROWS],
                kind: [0; CHUNK_ROWS],
                tid: [0; CHUNK_ROWS],
            }),
            rows_left: part.facts.rows,
        };
        if decoder.rows_left > MAX_PART_ROWS as u64 {
            return Err(part.corrupt(format!("{} rows, more than {MAX_PART_ROWS}", part.facts.rows)));
        }
        decoder.load_dictionaries()?;
        Ok(decoder)
    }

    /// Takes in the dictionary pages, which come first, and checks what must hold for every value.
    fn load_dictionaries(&mut self) -> Result<(), TraceError> {
        for index in [KIND, SIZE, PC, TID, GAP] {
            let width = if index == PC { 8 } else { 4 };
            self.columns[index].load_dictionary(width).map_err(|what| in_column(&self.part, index, what))?;
        }
        for &value in &self.columns[KIND].dictionary {
            let kind = columns::kind_of(value as u32)
                .ok_or_else(|| in_column(&self.part, KIND, format!("{value} is no kind of access")))?;
            self.kinds.push(kind);
        }
        for &value in &self.columns[SIZE].dictionary {
            check_size(value as u32).map_err(|what| in_column(&self.part, SIZE, what))?;
        }
        Ok(())
    }

    /// Appends the next page's accesses to `accesses` and its runs, counted from the page's begin, to `runs`, which is
    /// empty. False at the end of the part.
    pub(super) fn next_page(&mut self, accesses: &mut Vec<Access>, runs: &mut Vec<Run>) -> Result<bool, TraceError> {
        if self.rows_left == 0 {
            return Ok(false);
        }
        let mut rows = None;
        for (index, column) in self.columns.iter_mut().enumerate() {
            let of = column.next_page(index).map_err(|what| in_column(&self.part, index, what))?;
            if *rows.get_or_insert(of) != of {
                let what = format!("a page of {of} rows where the other columns have {}", rows.unwrap_or(0));
                return Err(in_column(&self.part, index, what));
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
            self.chunk(first, len, accesses)?;
            append_runs(&self.scratch.tid[..len], first, runs);
            first += len;
        }
        Ok(true)
    }

    fn chunk(&mut self, first: usize, len: usize, accesses: &mut Vec<Access>) -> Result<(), TraceError> {
        let s = &mut *self.scratch;
        let c = &self.columns;
        c[VADDR].words(first, &mut s.vaddr[..len]);
        c[PC].words(first, &mut s.pc[..len]);
        c[GAP].values(first, &mut s.gap[..len]);
        c[SIZE].values(first, &mut s.size[..len]);
        c[TID].values(first, &mut s.tid[..len]);
        // Kinds stay indices: they select from the checked dictionary.
        c[KIND].indices(first, &mut s.kind[..len]);
        if matches!(c[SIZE].page, Values::Plain(_)) {
            for &size in &s.size[..len] {
                check_size(size).map_err(|what| in_column(&self.part, SIZE, what))?;
            }
        }
        let mut kinds = [(AccessKind::Load, false); 256];
        for (slot, kind) in kinds.iter_mut().zip(&self.kinds) {
            *slot = *kind;
        }
        let rows = s.vaddr[..len].iter().zip(&s.pc[..len]).zip(&s.gap[..len]).zip(&s.size[..len]).zip(&s.kind[..len]);
        accesses.extend(rows.map(|((((&vaddr, &pc), &gap), &size), &kind)| {
            let (kind, by_kernel) = kinds[kind as u8 as usize];
            Access { vaddr, pc, gap, size_bytes: size as u16, kind, by_kernel }
        }));
        Ok(())
    }
}

fn in_column(part: &Part, index: usize, what: String) -> TraceError {
    part.corrupt(format!("column {}: {what}", NAMES[index]))
}

fn check_size(size: u32) -> Result<(), String> {
    if (1..=u32::from(MAX_ACCESS_BYTES)).contains(&size) {
        return Ok(());
    }
    Err(format!("{size} bytes, expected 1 to {MAX_ACCESS_BYTES}"))
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

/// A column, its dictionary and its current page.
#[derive(Default)]
struct Column {
    pages: Option<SerializedPageReader<Bytes>>,
    /// Values by index.
    dictionary: Vec<u64>,
    page: Values,
}

/// The values of a page.
#[derive(Default)]
enum Values {
    #[default]
    None,
    /// One dictionary index for all rows.
    Repeated(u16),
    /// Dictionary indices of one byte.
    Bytes(Bytes),
    /// Dictionary indices of two bytes.
    Pairs(Bytes),
    /// The values themselves, little-endian.
    Plain(Bytes),
    /// First bytes of all values, then their second bytes, and so on.
    Split(Bytes),
}

impl Column {
    fn read_page(&mut self) -> Result<Option<Page>, String> {
        let pages = self.pages.as_mut().expect("set when the decoder is made");
        pages.get_next_page().map_err(|e| e.to_string())
    }

    /// Takes in the dictionary page, of values of `width` bytes.
    fn load_dictionary(&mut self, width: usize) -> Result<(), String> {
        let Some(Page::DictionaryPage { buf, num_values, encoding, .. }) = self.read_page()? else {
            return Err("no dictionary page".into());
        };
        let count = num_values as usize;
        if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY)
            || buf.len() != count * width
            || count > usize::from(u16::MAX)
        {
            return Err(format!("a dictionary of {count} values in {} bytes of {encoding:?}", buf.len()));
        }
        let value = |bytes: &[u8]| bytes.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b));
        self.dictionary = buf.chunks_exact(width).map(value).collect();
        Ok(())
    }

    /// Goes to the next page and returns its rows; `column` says which encodings it may have.
    fn next_page(&mut self, column: usize) -> Result<usize, String> {
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
        let whole = |width: usize| {
            if buf.len() == rows * width {
                Ok(buf.clone())
            } else {
                Err(format!("a page of {rows} rows in {} bytes", buf.len()))
            }
        };
        let width = if column == VADDR || column == PC { 8 } else { 4 };
        self.page = match encoding {
            Encoding::BYTE_STREAM_SPLIT if column == VADDR => Values::Split(whole(width)?),
            Encoding::PLAIN if column != KIND => Values::Plain(whole(width)?),
            Encoding::RLE_DICTIONARY if column != VADDR => indices(&buf, rows, self.dictionary.len())?,
            other => return Err(format!("pages of encoding {other} are not used in this format version")),
        };
        Ok(rows)
    }

    /// Writes the dictionary indices of the rows from `first`.
    fn indices(&self, first: usize, out: &mut [u32]) {
        let len = out.len();
        match &self.page {
            Values::Repeated(index) => out.fill(u32::from(*index)),
            Values::Bytes(bytes) => {
                for (out, &index) in out.iter_mut().zip(&bytes[first..first + len]) {
                    *out = u32::from(index);
                }
            }
            Values::Pairs(bytes) => {
                for (out, pair) in out.iter_mut().zip(bytes[first * 2..].as_chunks::<2>().0) {
                    *out = u32::from(u16::from_le_bytes(*pair));
                }
            }
            Values::None | Values::Plain(_) | Values::Split(_) => unreachable!("refused by next_page"),
        }
    }

    /// Writes the 32-bit values of the rows from `first`.
    fn values(&self, first: usize, out: &mut [u32]) {
        match &self.page {
            Values::Repeated(index) => out.fill(self.dictionary[usize::from(*index)] as u32),
            Values::Plain(bytes) => {
                for (out, word) in out.iter_mut().zip(bytes[first * 4..].as_chunks::<4>().0) {
                    *out = u32::from_le_bytes(*word);
                }
            }
            _ => {
                self.indices(first, out);
                for value in out {
                    *value = self.dictionary[*value as usize] as u32;
                }
            }
        }
    }

    /// Writes the 64-bit values of the rows from `first`.
    fn words(&self, first: usize, out: &mut [u64]) {
        let len = out.len();
        match &self.page {
            Values::Repeated(index) => out.fill(self.dictionary[usize::from(*index)]),
            Values::Bytes(bytes) => {
                for (out, &index) in out.iter_mut().zip(&bytes[first..first + len]) {
                    *out = self.dictionary[usize::from(index)];
                }
            }
            Values::Pairs(bytes) => {
                for (out, pair) in out.iter_mut().zip(bytes[first * 2..].as_chunks::<2>().0) {
                    *out = self.dictionary[usize::from(u16::from_le_bytes(*pair))];
                }
            }
            Values::Plain(bytes) => {
                for (out, word) in out.iter_mut().zip(bytes[first * 8..].as_chunks::<8>().0) {
                    *out = u64::from_le_bytes(*word);
                }
            }
            Values::Split(bytes) => join_bytes(bytes, first, out),
            Values::None => unreachable!("refused by next_page"),
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
