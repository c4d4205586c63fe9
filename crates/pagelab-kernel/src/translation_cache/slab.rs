//! Memory of translation caches: objects of one size, several per frame or several frames each, as from a slab cache.

use std::collections::{BTreeMap, BTreeSet};

use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::memory::PhysMem;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Slab {
    object_bytes: u64,
    free: BTreeSet<PhysAddr>,
    /// First frame of each block → objects in use.
    blocks: BTreeMap<Pfn, u64>,
    in_use: u64,
    /// Largest number of objects in use at a time.
    pub peak_in_use: u64,
}

impl Slab {
    /// An allocator for objects of `bytes`, rounded up to a power of two as by `kmalloc`.
    pub fn new(bytes: u64) -> Self {
        let object_bytes = bytes.next_power_of_two().max(LINE_BYTES);
        Self { object_bytes, free: BTreeSet::new(), blocks: BTreeMap::new(), in_use: 0, peak_in_use: 0 }
    }

    /// Size of an object in bytes, a power of two.
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// Bytes of the objects in use.
    pub fn bytes_in_use(&self) -> u64 {
        self.in_use * self.object_bytes
    }

    /// Order of the blocks that it allocates.
    pub fn order(&self) -> u32 {
        self.object_bytes.div_ceil(FRAME_BYTES).ilog2()
    }

    /// Number of 4 KiB frames in its blocks.
    pub fn frames(&self) -> u64 {
        (self.blocks.len() as u64) << self.order()
    }

    /// Allocates an object, all zero, from a new block of `take` if no other block has room. `None` if `take` returns
    /// none.
    pub fn alloc(&mut self, mem: &mut PhysMem, take: impl FnOnce(u32) -> Option<Pfn>) -> Option<PhysAddr> {
        if self.free.is_empty() {
            let block = take(self.order())?;
            (0..1 << self.order()).for_each(|n| mem.create(block + n));
            self.blocks.insert(block, 0);
            self.free.extend(self.objects(block));
        }
        let object = self.free.pop_first()?;
        *self.blocks.get_mut(&self.block(object)).expect("its block is there") += 1;
        self.in_use += 1;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        Some(object)
    }

    /// Frees an object, and passes its block to `release` if that was the last object in it.
    pub fn free(&mut self, mem: &mut PhysMem, object: PhysAddr, release: impl FnOnce(Pfn)) {
        self.wipe(mem, object);
        self.in_use -= 1;
        let block = self.block(object);
        let used = self.blocks.get_mut(&block).expect("its block is there");
        *used -= 1;
        self.free.insert(object);
        if self.blocks[&block] == 0 {
            self.blocks.remove(&block);
            self.objects(block).for_each(|object| _ = self.free.remove(&object));
            (0..1 << self.order()).for_each(|n| mem.destroy(block + n));
            release(block);
        }
    }

    /// Zeroes an object.
    pub fn wipe(&self, mem: &mut PhysMem, object: PhysAddr) {
        (0..self.object_bytes).step_by(8).for_each(|at| mem.write(object + at, 0));
    }

    fn objects(&self, block: Pfn) -> impl Iterator<Item = PhysAddr> + use<> {
        let (first, bytes) = (block.addr().0, FRAME_BYTES << self.order());
        (first..first + bytes).step_by(self.object_bytes as usize).map(PhysAddr)
    }

    fn block(&self, object: PhysAddr) -> Pfn {
        // Blocks do not overlap, so it is the last one that begins at or before the object.
        *self.blocks.range(..=object.pfn()).next_back().expect("its block is there").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_share_frames_and_their_last_frees_them() {
        for (bytes, object, order, a_block) in
            [(480, 512, 0, 8), (24, 64, 0, 64), (4096, 4096, 0, 1), (30_720, 32_768, 3, 1)]
        {
            let (mut slab, mut mem, mut next) = (Slab::new(bytes), PhysMem::default(), 8);
            assert_eq!((slab.object_bytes(), slab.order()), (object, order));
            let mut take = |order: u32| {
                let pfn = Pfn(next);
                next += 1 << order;
                Some(pfn)
            };
            let objects: Vec<_> = (0..a_block + 1).map(|_| slab.alloc(&mut mem, &mut take).unwrap()).collect();
            assert!(objects.windows(2).all(|pair| pair[1].0 - pair[0].0 == object), "they follow each other");
            assert_eq!((slab.frames(), slab.bytes_in_use()), (2 << order, (a_block + 1) * object));
            mem.write(objects[0], 7);
            let mut released = Vec::new();
            objects.iter().for_each(|&address| slab.free(&mut mem, address, |block| released.push(block.0)));
            assert_eq!(released, [8, 8 + (1 << order)]);
            assert_eq!((slab.frames(), slab.bytes_in_use(), mem.frames_in_use()), (0, 0, 0));
            assert_eq!(slab.alloc(&mut mem, |_| None), None);
            assert_eq!(slab.peak_in_use, a_block + 1);
        }
    }

    #[test]
    fn an_object_comes_back_empty() {
        let (mut slab, mut mem) = (Slab::new(64), PhysMem::default());
        let [first, _] = [0, 1].map(|_| slab.alloc(&mut mem, |_| Some(Pfn(3))).unwrap());
        mem.write(first + 56, 7);
        slab.free(&mut mem, first, |_| unreachable!("the other one is in use"));
        assert_eq!(slab.alloc(&mut mem, |_| None), Some(first));
        assert_eq!(mem.read(first + 56), 0);
    }
}
