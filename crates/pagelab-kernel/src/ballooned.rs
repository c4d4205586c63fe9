//! Pages in a guest's memory balloon, as its kernel keeps them. The thread that inflates the balloon adds them
//! ([`crate::threads::balloon`]); a kernel without memory may take some back.

use pagelab_base::addr::Pfn;

/// Pages that a kernel without memory takes back at a time (Linux `VIRTIO_BALLOON_OOM_NR_PAGES`).
pub const PAGES_PER_DEFLATION: usize = 256;

pagelab_base::counters! {
    /// How often a kernel took pages back.
    pub struct DeflationCounters {
        deflations: u64 as count("oom", "Times that a guest without memory took pages back from its balloon (deflate_on_oom)");
        deflated: u64 as count("deflated", "Pages that guests took back from their balloons");
    }
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct BalloonPages {
    /// In the order in which they were added.
    frames: Vec<Pfn>,
    /// The host's cycles for each page that is taken back; `None` if the kernel takes none back.
    pub deflation_page_cycles: Option<u32>,
    /// How often pages were taken back.
    pub counters: DeflationCounters,
}

impl BalloonPages {
    /// Number of pages in the balloon.
    pub fn pages(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Adds a page of which the host knows.
    pub fn add(&mut self, frame: Pfn) {
        self.frames.push(frame);
    }

    /// Takes up to this many pages out, the youngest ones, in the order in which they were added.
    pub fn take(&mut self, pages: u64) -> Vec<Pfn> {
        self.frames.split_off(self.frames.len().saturating_sub(pages as usize))
    }

    /// Takes the youngest pages out, for a kernel that has no memory left (Linux `virtio_balloon_oom_notify`,
    /// `balloon_page_dequeue`); none if it may not. They are in the order in which Linux frees them.
    pub fn deflate(&mut self) -> Vec<Pfn> {
        if self.deflation_page_cycles.is_none() || self.frames.is_empty() {
            return Vec::new();
        }
        let pages = self.take(PAGES_PER_DEFLATION as u64);
        self.counters.deflations += 1;
        self.counters.deflated += pages.len() as u64;
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_pages_leave_first() {
        let mut balloon = BalloonPages::default();
        (0..300).for_each(|n| balloon.add(Pfn(n)));
        assert!(balloon.deflate().is_empty(), "only if it may");
        assert_eq!(balloon.take(2), [Pfn(298), Pfn(299)]);
        [298, 299].map(Pfn).into_iter().for_each(|frame| balloon.add(frame));
        balloon.deflation_page_cycles = Some(0);
        assert_eq!(balloon.deflate(), (44..300).map(Pfn).collect::<Vec<_>>());
        assert_eq!(balloon.deflate(), (0..44).map(Pfn).collect::<Vec<_>>());
        assert!(balloon.deflate().is_empty());
        assert_eq!((balloon.pages(), balloon.counters), (0, DeflationCounters { deflations: 2, deflated: 300 }));
    }
}
