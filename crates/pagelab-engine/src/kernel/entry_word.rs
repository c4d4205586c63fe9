//! What a kernel keeps in the entry of a page that is not present.
//!
//! Models: the words that Linux calls swap entries: a kind and a number that means something to the word's owner.
//! Source: Linux include/linux/swapops.h (`swp_entry_t`, `swp_type`, `swp_offset`).
//! Deviations: no bits for what the page was (`pte_swp_exclusive`, `pte_swp_soft_dirty`).

/// Bits of a word that say of which kind it is.
const KIND_BITS: u32 = 3;
const SWAP: u64 = 1;

/// A slot of the swap area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// What stands in place of a translation. Each kind has an owner, who is told of every entry that has such a word from then on
/// and of every one that has it no more. What calls do to entries (`layer/words.rs`) is decided kind by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryWord {
    /// The page's contents are in a slot of the swap area ([`Swap`](crate::kernel::reclaim::Swap)), which counts the entries that say so.
    Swap(Slot),
}

impl EntryWord {
    /// As page tables hold it; never 0.
    pub fn to_bits(self) -> u64 {
        match self {
            Self::Swap(Slot(slot)) => u64::from(slot) << KIND_BITS | SWAP,
        }
    }

    /// What page tables hold; none for 0.
    pub fn of_bits(bits: u64) -> Option<Self> {
        match bits & ((1 << KIND_BITS) - 1) {
            0 if bits == 0 => None,
            SWAP => Some(Self::Swap(Slot((bits >> KIND_BITS) as u32))),
            kind => unreachable!("the kernel writes no words of kind {kind}: {bits:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_table::WORD_BITS;

    #[test]
    fn words_are_read_as_they_were_written() {
        for slot in [0, 1, 0x1234_5678, u32::MAX] {
            let word = EntryWord::Swap(Slot(slot));
            assert_eq!(EntryWord::of_bits(word.to_bits()), Some(word));
            assert!(word.to_bits() != 0 && word.to_bits() >> WORD_BITS == 0, "an entry has room for it");
        }
        assert_eq!(EntryWord::of_bits(0), None);
    }
}
