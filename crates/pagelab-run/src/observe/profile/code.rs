//! Paging costs by instruction.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Cost;

/// An instruction: its place in the file that it was mapped from, or else its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instruction {
    /// The file that the instruction was mapped from; `None` if there is none, or if the trace does not know it.
    pub file: Option<Arc<str>>,
    /// Bytes from the start of the file, or the virtual address; 0 without a file if the trace does not know it.
    pub offset: u64,
}

/// Costs by instruction, see the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    /// Files by the address of their name's text; equal names may appear more than once.
    files: FxHashMap<usize, Arc<str>>,
    costs: FxHashMap<(usize, u64), Cost>,
}

/// Key of instructions without a file.
const NO_FILE: usize = 0;

impl Code {
    pub fn count(&mut self, at: &Instruction, cost: &Cost) {
        let file = at.file.as_ref().map_or(NO_FILE, |file| {
            let text = file.as_ptr() as usize;
            self.files.entry(text).or_insert_with(|| Arc::clone(file));
            text
        });
        self.costs.entry((file, at.offset)).or_default().add(cost);
    }

    /// Instructions with their costs, the most expensive first.
    pub fn in_order(self) -> Vec<(Instruction, Cost)> {
        // The same file may appear under two texts.
        let mut sums: FxHashMap<Instruction, Cost> = FxHashMap::default();
        for ((file, offset), cost) in self.costs {
            sums.entry(Instruction { file: self.files.get(&file).cloned(), offset }).or_default().add(&cost);
        }
        let mut sorted: Vec<_> = sums.into_iter().collect();
        sorted.sort_unstable_by(|(a, x), (b, y)| y.cycles().cmp(&x.cycles()).then_with(|| a.cmp(b)));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_named_by_two_texts_is_one() {
        let mut code = Code::default();
        let cost = |cycles| Cost { walks: 1, translation_cycles: cycles, ..Cost::default() };
        for cycles in [5, 7] {
            code.count(&Instruction { file: Some("a".into()), offset: 8 }, &cost(cycles));
        }
        code.count(&Instruction { file: None, offset: 8 }, &cost(20));
        let sorted = code.in_order();
        assert_eq!(sorted.len(), 2);
        assert_eq!(sorted[0].0.file, None);
        assert_eq!(sorted[1].1, Cost { walks: 2, translation_cycles: 12, ..Cost::default() });
    }
}
