//! Extended state of a thread: vectors, masks and the shapes of tiles, as `XSAVE` stores them.

use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

/// Bytes of the legacy area and the header behind it.
const LEGACY_BYTES: usize = 512;
const HEADER_BYTES: usize = 64;
/// Bytes of an XMM register, and where the first one is in the legacy area.
const XMM_BYTES: usize = 16;
const FIRST_XMM: usize = 160;

/// Components of the state by their numbers.
const SSE: usize = 1;
const AVX: usize = 2;
const MASKS: usize = 5;
const UPPER_ZMM: usize = 6;
const HIGH_ZMM: usize = 7;
const TILE_SHAPES: usize = 17;
const COMPONENTS: usize = 63;

/// Where the components of the state are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Offset and bytes by component; no bytes for one that the processor lacks.
    components: Vec<(usize, usize)>,
    /// A bit for each component that is aligned to 64 bytes in the compacted form.
    aligned: u64,
    pub bytes: usize,
}

impl Layout {
    /// That of this machine's processor.
    pub fn of_this_machine() -> &'static Self {
        static LAYOUT: OnceLock<Layout> = OnceLock::new();
        LAYOUT.get_or_init(|| {
            if __cpuid_count(0, 0).eax < 0xd {
                return Self::new(&[], 0);
            }
            let found: Vec<(usize, usize, usize)> = (2..COMPONENTS)
                .map(|number| (number, __cpuid_count(0xd, number as u32)))
                .filter(|(_, facts)| facts.eax != 0 && facts.ecx & 1 == 0)
                .map(|(number, facts)| (number, facts.ebx as usize, facts.eax as usize))
                .collect();
            let aligned = (2..COMPONENTS).filter(|number| __cpuid_count(0xd, *number as u32).ecx & 2 != 0);
            Self::new(&found, aligned.fold(0, |bits, number| bits | 1 << number))
        })
    }

    /// From number, offset and bytes of each component behind the header.
    pub fn new(found: &[(usize, usize, usize)], aligned: u64) -> Self {
        let mut components = vec![(0, 0); COMPONENTS];
        components[0] = (0, FIRST_XMM);
        components[SSE] = (FIRST_XMM, 16 * XMM_BYTES);
        for &(number, offset, bytes) in found {
            components[number] = (offset, bytes);
        }
        let bytes = components.iter().map(|(offset, bytes)| offset + bytes).max().unwrap_or(0);
        Self { components, aligned, bytes: bytes.max(LEGACY_BYTES + HEADER_BYTES) }
    }

    /// Bytes from the start of an area of `XSAVE` up to the end of these components, with legacy area and header.
    pub fn area_bytes(&self, wanted: u64, compacted: bool) -> u64 {
        let begin = LEGACY_BYTES + HEADER_BYTES;
        let parts = self.components.iter().enumerate().skip(2);
        let parts = parts.filter(|(number, part)| wanted >> number & 1 != 0 && part.1 != 0);
        let end = if compacted {
            parts.fold(begin, |end, (number, (_, bytes))| {
                let is_aligned = self.aligned >> number & 1 != 0;
                (if is_aligned { end.next_multiple_of(64) } else { end }) + bytes
            })
        } else {
            parts.fold(begin, |end, (_, (offset, bytes))| end.max(offset + bytes))
        };
        end as u64
    }
}

/// The state of a stopped thread.
#[derive(Clone, Copy, Debug)]
pub struct Extended<'a> {
    pub layout: &'a Layout,
    /// As in the standard form of `XSAVE`.
    pub bytes: &'a [u8],
}

impl Extended<'_> {
    /// Bytes of a component; none if it has its initial value, which is zeros.
    fn component(&self, number: usize) -> Option<&[u8]> {
        let present = u64::from_le_bytes(*self.bytes.get(LEGACY_BYTES..)?.first_chunk()?);
        let (offset, bytes) = self.layout.components[number];
        (present >> number & 1 != 0).then(|| self.bytes.get(offset..offset + bytes)).flatten()
    }

    /// A mask register.
    pub fn mask(&self, number: usize) -> u64 {
        let word = self.component(MASKS).and_then(|masks| masks.get(number * 8..)?.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Element `index`, of `size` bytes (at most 8), of a vector register.
    pub fn element(&self, register: usize, index: usize, size: usize) -> u64 {
        let at = index * size;
        let (part, offset) = match (register, at) {
            (16.., _) => (HIGH_ZMM, (register - 16) * 64 + at),
            (_, ..16) => (SSE, register * 16 + at),
            (_, ..32) => (AVX, register * 16 + at - 16),
            _ => (UPPER_ZMM, register * 32 + at - 32),
        };
        let bytes = self.component(part).and_then(|bytes| bytes.get(offset..offset + size));
        bytes.map_or(0, |bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// First row, rows and bytes per row of a tile.
    pub fn tile(&self, number: usize) -> (u64, u64, u64) {
        let Some(shapes) = self.component(TILE_SHAPES) else { return (0, 0, 0) };
        let byte = |at: usize| shapes.get(at).copied().map_or(0, u64::from);
        (byte(1), byte(48 + number), byte(16 + 2 * number) | byte(17 + 2 * number) << 8)
    }
}
