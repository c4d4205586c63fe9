//! A TLB level in which an entry of some array can cover several pages: where pages of 4 KiB are.

use arrayvec::ArrayVec;

use super::{AnyOrganisation, Cover, MOST_PAGES, Page, Run, TlbOrganisationConfig, key_asid, key_page};
use crate::translation_unit::Entry;
use pagelab_base::addr::{FRAME_SHIFT, PageSize, VirtAddr};
use pagelab_base::assoc::{AssocArray, Evicted};
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// The shape of an array.
#[derive(Clone, Copy, Debug)]
pub struct ArrayShape<'a> {
    /// Page sizes that it holds.
    pub pages: &'a [PageSize],
    /// Its entries.
    pub entries: u32,
    /// Ways per set.
    pub ways: u32,
}

impl<'a> ArrayShape<'a> {
    /// The shape of an array with these entries and ways.
    pub fn new(pages: &'a [PageSize], (entries, ways): (u32, u32)) -> Self {
        Self { pages, entries, ways }
    }

    /// Refuses an array that does not hold pages of a size.
    pub fn must_hold(&self, size: PageSize, design: &str, key: &str) -> Result<(), EngineError> {
        if self.pages.contains(&size) {
            return Ok(());
        }
        let held = self.pages.iter().map(|size| size.name()).collect::<Vec<_>>().join(", ");
        let what = format!("{design} is for arrays that hold {} pages, and this one holds {held}", size.name());
        Err(EngineError::config(key, what))
    }
}

/// An array of a level that has pages of 4 KiB.
#[derive(Clone, Debug)]
struct Part {
    /// Its index in the level.
    array: usize,
    /// What its entries cover.
    design: AnyOrganisation,
    /// Bits of storage of the array.
    storage_bits: u64,
}

impl Part {
    fn new(
        path: &str,
        array: usize,
        (shape, config): (&ArrayShape<'_>, &TlbOrganisationConfig),
    ) -> Result<Self, EngineError> {
        let design = AnyOrganisation::new(config, shape, &format!("{path}.{array}.organisation"))?;
        let storage_bits = u64::from(shape.entries) * design.entry_bits();
        Ok(Self { array, design, storage_bits })
    }
}

/// The way of pages of 4 KiB through a level.
#[derive(Clone, Debug)]
pub struct OrganisedLevel {
    /// The array that lists them.
    base: Part,
    /// An array that does not list them, but takes the runs for which the other one would need several entries.
    runs: Option<Part>,
    /// The pages of the entry that was evicted last, but its first one.
    evicted: ArrayVec<Entry, { MOST_PAGES as usize - 1 }>,
}

impl OrganisedLevel {
    /// For a level whose arrays have these shapes and organisations; `None` if all have an entry per page. `path` is
    /// the level's configuration key. Errors: impossible parameters, or an array that an organisation is not for.
    pub fn new(path: &str, arrays: &[(ArrayShape<'_>, &TlbOrganisationConfig)]) -> Result<Option<Self>, EngineError> {
        let (mut base, mut runs) = (None, None::<Part>);
        for (array, (shape, config)) in arrays.iter().enumerate() {
            let lists = shape.pages.contains(&PageSize::Size4K);
            if !lists && config.is_of_pages() {
                continue;
            }
            let part = Part::new(path, array, (shape, config))?;
            if lists {
                base = Some(part);
            } else if let Some(earlier) = runs.replace(part) {
                let what = format!(
                    "{path}.{}.organisation={} already takes the runs of 4K pages, so {} is not possible here; allowed \
                     is pages",
                    earlier.array,
                    earlier.design.name(),
                    config.name()
                );
                return Err(EngineError::config(format!("{path}.{array}.organisation"), what));
            }
        }
        if arrays.iter().all(|(_, config)| config.is_of_pages()) {
            return Ok(None);
        }
        let Some(base) = base else {
            let array = runs.map_or(0, |part| part.array);
            let what = "no array of the level lists 4K, for pages without a run; list it here or in another array";
            return Err(EngineError::config(format!("{path}.{array}.organisation"), what));
        };
        Ok(Some(Self { base, runs, evicted: ArrayVec::new() }))
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        [&self.base].into_iter().chain(&self.runs)
    }

    /// The translation of a page; a hit counts as a use.
    pub fn look_up(&self, arrays: &mut [AssocArray], page: Page) -> Option<Translation> {
        self.parts().find_map(|part| part.design.look_up(&mut arrays[part.array], page))
    }

    /// The entry that covers a page; does not count as a use.
    pub fn find(&self, arrays: &[AssocArray], page: Page) -> Option<Cover> {
        self.parts().find_map(|part| part.design.find(&arrays[part.array], page)).map(|(_, cover)| cover)
    }

    /// Inserts a page of 4 KiB; returns the first page of the entry that was evicted.
    pub fn fill(&mut self, arrays: &mut [AssocArray], page: Page, translation: Translation, run: Run) -> Option<Entry> {
        let mut cover = self.base.design.cover(page, translation, run);
        let range = self.runs.as_ref().map(|runs| runs.design.cover(page, translation, run));
        let (taking, leaving) = match (range.filter(|range| range.count() > cover.count()), &mut self.runs) {
            (Some(range), Some(runs)) => {
                cover = range;
                (runs, Some(&mut self.base))
            }
            (_, runs) => (&mut self.base, runs.as_mut()),
        };
        // A page is in one array.
        if let Some(part) = leaving {
            part.design.drop_pages(&mut arrays[part.array], page.asid, cover.first, cover.last());
        }
        let evicted = taking.design.fill(&mut arrays[taking.array], page, translation, run);
        self.pages_of(evicted)
    }

    /// The first page of an evicted entry; the others are kept for [`Self::take_evicted`].
    pub fn pages_of(&mut self, evicted: Option<Evicted>) -> Option<Entry> {
        self.evicted.clear();
        let Evicted { key, value } = evicted?;
        let Some(cover) = Cover::from_entry(key, value) else {
            let (first, _) = key_page(key);
            return Some(Entry {
                asid: key_asid(key),
                va: VirtAddr(first),
                translation: Translation::from_word(value),
            });
        };
        let mut pages = cover.each().map(|page| {
            let (va, translation) = (VirtAddr(page.vpn << FRAME_SHIFT), cover.translation(page));
            Entry { asid: page.asid, va, translation }
        });
        let first = pages.next();
        self.evicted.extend(pages);
        first
    }

    /// The other pages of the entry whose first page the last fill has returned.
    pub fn take_evicted(&mut self) -> ArrayVec<Entry, { MOST_PAGES as usize - 1 }> {
        self.evicted.take()
    }

    /// Drops the pages `first..=last` of a space.
    pub fn drop_pages(&mut self, arrays: &mut [AssocArray], asid: Asid, first: u64, last: u64) {
        for part in [&mut self.base].into_iter().chain(&mut self.runs) {
            part.design.drop_pages(&mut arrays[part.array], asid, first, last);
        }
    }

    /// Its statistics, whose names begin with those of the designs.
    pub fn measures(&self) -> Vec<Measure> {
        self.parts().flat_map(measures_of).collect()
    }
}

fn measures_of(part: &Part) -> Vec<Measure> {
    let (name, counts) = (part.design.name(), part.design.counts());
    vec![
        Measure::count(format!("{name}.fills"), counts.fills, "Translations of 4 KiB pages that were inserted"),
        Measure::count(
            format!("{name}.filled_pages"),
            counts.pages,
            "Pages that the entries of these translations then covered; divided by the fills, pages per entry",
        ),
        Measure::count(
            format!("{name}.shrunk"),
            counts.shrunk,
            "Entries that lost pages which changed, or moved to other entries, and kept others",
        ),
        Measure::state(
            format!("{name}.storage_bits"),
            part.storage_bits,
            "bits",
            "Bits of storage of the array in all cores in use (an estimate: 102 for an entry of one page)",
        ),
    ]
}
