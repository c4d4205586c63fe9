//! A source that a simulation and its clones read, each at its own pace.
//!
//! Batches that some clone has not read yet are kept; with one reader, none is.

use pagelab_base::error::EngineError;
use pagelab_trace::calls::CallStacks;
use pagelab_trace::{Batch, Source};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// State that the readers share.
struct Shared {
    source: Box<dyn Source>,
    /// Batches that some reader has not taken yet, and the number of the first one.
    kept: VecDeque<Arc<Batch>>,
    first: u64,
    /// By reader: the number of the batch that it takes next; `None` once the reader has been dropped.
    next: Vec<Option<u64>>,
}

impl Shared {
    fn readers(&self) -> impl Iterator<Item = u64> + '_ {
        self.next.iter().copied().flatten()
    }

    /// Drops batches that all readers have taken.
    fn trim(&mut self) {
        let least = self.readers().min().unwrap_or(u64::MAX);
        while self.first < least && self.kept.pop_front().is_some() {
            self.first += 1;
        }
    }
}

/// One reader of a source. A clone continues at the same place.
pub struct Feed {
    shared: Arc<Mutex<Shared>>,
    reader: usize,
}

impl Feed {
    /// The first reader of a source that has not been read yet.
    pub fn new(source: Box<dyn Source>) -> Self {
        let shared = Shared { source, kept: VecDeque::new(), first: 0, next: vec![Some(0)] };
        Self { shared: Arc::new(Mutex::new(shared)), reader: 0 }
    }

    /// After a panic in another reader the state is consistent: a batch is kept or given out in one step.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Source::enable_call_stacks`].
    pub fn enable_call_stacks(&mut self) -> Result<Option<Arc<CallStacks>>, EngineError> {
        Ok(self.lock().source.enable_call_stacks()?)
    }

    /// The next batch, `None` at the end. Reuses the memory of `free` if nothing else refers to it.
    pub fn next_batch(&mut self, mut free: Arc<Batch>) -> Result<Option<Arc<Batch>>, EngineError> {
        let mut shared = self.lock();
        let number = shared.next[self.reader].expect("it reads");
        let kept = shared.kept.get((number - shared.first) as usize).cloned();
        let batch = match kept {
            Some(batch) => batch,
            None => {
                if Arc::get_mut(&mut free).is_none() {
                    free = Arc::default();
                }
                let batch = Arc::get_mut(&mut free).expect("nobody else has it");
                if !shared.source.next_batch(batch)? {
                    return Ok(None);
                }
                batch.validate(&shared.source.info().name)?;
                if shared.readers().count() > 1 {
                    shared.kept.push_back(free.clone());
                } else {
                    shared.first += 1;
                }
                free
            }
        };
        shared.next[self.reader] = Some(number + 1);
        shared.trim();
        Ok(Some(batch))
    }
}

impl Clone for Feed {
    fn clone(&self) -> Self {
        let mut shared = self.lock();
        let next = shared.next[self.reader];
        shared.next.push(next);
        let reader = shared.next.len() - 1;
        drop(shared);
        Self { shared: self.shared.clone(), reader }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut shared = self.lock();
        shared.next[self.reader] = None;
        shared.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_trace::workload;

    #[test]
    fn copies_read_the_same_and_nothing_is_kept_longer_than_needed() {
        let open = || Feed::new(workload::parse("seq:size=16MiB,accesses=2M", 1).unwrap());
        let rest = |feed: &mut Feed| -> Vec<Batch> {
            let next = || feed.next_batch(Arc::default()).unwrap();
            std::iter::from_fn(next).map(|batch| (*batch).clone()).collect()
        };
        let whole = rest(&mut open());
        assert!(whole.len() > 4, "{} batches", whole.len());
        let mut first = open();
        first.next_batch(Arc::default()).unwrap().unwrap();
        assert_eq!(first.lock().kept.len(), 0);
        let mut second = first.clone();
        second.next_batch(Arc::default()).unwrap().unwrap();
        let mut third = second.clone();
        assert_eq!(first.lock().kept.len(), 1, "the first has not taken it yet");
        assert_eq!(rest(&mut first), whole[1..]);
        assert_eq!(rest(&mut second), whole[2..]);
        assert_eq!(first.lock().kept.len(), whole.len() - 2);
        drop(second);
        third.next_batch(Arc::default()).unwrap().unwrap();
        assert_eq!(first.lock().kept.len(), whole.len() - 3);
        drop(third);
        assert_eq!(first.lock().kept.len(), 0);
    }
}
