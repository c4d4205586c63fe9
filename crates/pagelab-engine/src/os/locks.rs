//! Locks that activities hold.

use crate::activity::BlockKey;

/// The keys held now and by which CPU. Few are held at a time, at most a handful a CPU, so a list is searched.
#[derive(Debug, Default)]
pub struct Locks {
    held: Vec<(BlockKey, usize)>,
    /// Keys released since the last [`Self::take_released`], for waking waiters.
    released: Vec<BlockKey>,
}

impl Locks {
    /// Takes the key for a CPU; false if another CPU holds it.
    pub fn acquire(&mut self, key: BlockKey, cpu: usize) -> bool {
        if let Some(&(_, holder)) = self.held.iter().find(|(held, _)| *held == key) {
            assert_ne!(holder, cpu, "{key:?} is held by this CPU already");
            return false;
        }
        self.held.push((key, cpu));
        true
    }

    pub fn release(&mut self, key: BlockKey, cpu: usize) {
        let at = self.held.iter().position(|&held| held == (key, cpu));
        self.held.swap_remove(at.expect("only a holder releases"));
        self.released.push(key);
    }

    pub fn any_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Calls `wake` for each key released since the last call.
    pub fn take_released(&mut self, wake: impl FnMut(BlockKey)) {
        self.released.drain(..).for_each(wake);
    }
}
