//! Per-CPU batches: charges to a memory cgroup, pages for the LRU lists, and counts of mapped pages.
//!
//! Source: Linux mm/memcontrol.c (`consume_stock`, `drain_stock`), mm/swap.c (`folio_batch_add`, `lru_add_fn`),
//! mm/memory.c (`add_mm_counter_fast`, `check_sync_rss_stat`), lib/percpu_counter.c (`percpu_counter_add_batch`).
//! Deviations: with one CPU, each fault writes the counters of the address space, and no batch is kept. A CPU's batch
//! of counts goes to the space of the fault that finds it full.

use crate::layer::{AddressSpace, CpuLine, Layer};
use crate::memory::page_metadata;
use crate::reclaim::GroupId;
use pagelab_base::addr::Pfn;
use pagelab_base::ids::CpuId;
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{RefKind, Step};

impl Layer {
    /// Plans the references of charging `pages` to a group: the CPU's stock of charged pages and, if that is
    /// insufficient, the counters of the cgroups.
    pub fn plan_charge(&self, cpu: CpuId, group: GroupId, pages: u32, step: &mut Step) {
        step.kernel_independent(RefKind::Write, self.data.cpu_line(cpu, CpuLine::Charge));
        let stock = &self.data.cpus[cpu];
        if stock.charged_to != group && stock.charged > 0 {
            step.take_lock(LockKind::Memcg, self.data.cgroup_line(stock.charged_to));
        }
        if stock.charged_to != group || stock.charged < pages {
            step.take_lock(LockKind::Memcg, self.data.cgroup_line(group));
        }
    }

    /// Uses charged pages of the CPU's stock, or charges at least `batch` more.
    pub fn consume_charge(&mut self, cpu: CpuId, group: GroupId, pages: u32, batch: u32) {
        let stock = &mut self.data.cpus[cpu];
        if stock.charged_to != group {
            // The stock of another group is returned (`drain_stock`).
            (stock.charged_to, stock.charged) = (group, 0);
        }
        if stock.charged < pages {
            stock.charged += batch.max(pages);
        }
        stock.charged -= pages;
    }

    /// Plans the references of adding a page to the CPU's batch for the LRU lists; if the batch is full, also the
    /// lists' lock and the pages.
    pub fn plan_gather(&self, cpu: CpuId, group: GroupId, batch: u32, step: &mut Step) {
        step.kernel_independent(RefKind::Write, self.data.cpu_line(cpu, CpuLine::Lru));
        if self.has_full_batch(cpu, batch) {
            step.take_lock(LockKind::Lru, self.data.lru_line(group));
            self.batch(cpu).iter().for_each(|&page| step.kernel_independent(RefKind::Write, page_metadata(page)));
        }
    }

    /// Whether the CPU's batch for the LRU lists is full.
    pub fn has_full_batch(&self, cpu: CpuId, batch: u32) -> bool {
        self.data.cpus[cpu].lru.len() >= batch as usize
    }

    /// The pages of the CPU's batch for the LRU lists.
    pub fn batch(&self, cpu: CpuId) -> &[Pfn] {
        &self.data.cpus[cpu].lru
    }

    /// Plans the references of counting a page that a fault maps: the CPU's own counter and, if `batch` pages are in
    /// it, that of the address space.
    pub fn plan_count(&self, cpu: CpuId, space: &AddressSpace, batch: u32, step: &mut Step) {
        if !self.has_several_cpus() {
            return step.kernel_independent(RefKind::Write, space.counter_line());
        }
        step.kernel_independent(RefKind::Write, self.data.cpu_line(cpu, CpuLine::Resident));
        if self.data.cpus[cpu].counted >= batch {
            step.take_lock(LockKind::Rss, space.counter_line());
        }
    }

    /// Counts mapped pages on a CPU.
    pub fn count_resident(&mut self, cpu: CpuId, pages: u32, batch: u32) {
        let counted = &mut self.data.cpus[cpu].counted;
        *counted = if *counted >= batch { pages } else { *counted + pages };
    }

    /// Adds a page to the CPU's batch.
    pub fn gather(&mut self, cpu: CpuId, frame: Pfn, batch: u32) {
        let lru = &mut self.data.cpus[cpu].lru;
        if lru.len() >= batch as usize {
            lru.clear();
        }
        lru.push(frame);
    }
}
