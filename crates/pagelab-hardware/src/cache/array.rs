//! A set-associative array of line tags, each with a state: the storage of every cache level.
//!
//! Order of the ways: under LRU the words of a set are in recency order, the most recently used first and empty ways
//! last, so no ages are stored. Under the other policies a line stays in its way.
//!
//! Functions with a type parameter [`Ways`] have two bodies. With [`FixedShape`](super::ways::FixedShape) the caller
//! guarantees that [`Array::is`] is true; ways, policy and presence are then known at compile time. [`AnyWays`] works
//! for every array.

use super::block_bias::KeptBlocks;
use super::config::Level;
use super::index::SetIndex;
use super::replacement::Policy;
use super::ways::{
    ANY_SETS, AnyWays, BLOCK_TAGS, EMPTY, Masked, POWER_OF_TWO_SETS, STATE_MASK, TAG_LIMIT, Ways, move_to_front_any,
    push_front_any, remove_way,
};
use pagelab_base::addr::LineAddr;
use pagelab_base::host::{prefer_large_pages, prefetch};
use pagelab_base::rng::Rng;

/// Words per cache line of the host.
const HOST_LINE_WORDS: usize = 16;

/// State of a valid line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineState(u32);

impl LineState {
    /// Clean; other cores may hold it too.
    pub const SHARED: Self = Self(1);
    /// Clean; no other core holds it.
    pub const EXCLUSIVE: Self = Self(2);
    /// Written since it was fetched; no other core holds it.
    pub const MODIFIED: Self = Self(3);

    /// The state's bits in a word.
    #[inline(always)]
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// Where a line can be: its set, and the tag to compare.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetAndTag {
    set: u32,
    /// Index of the set's first word; 32 bits, so that the compiler sees that no sum overflows.
    base: u32,
    /// The tag above state bits of 0.
    wanted: u32,
}

/// A line that left the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    pub line: LineAddr,
    pub state: LineState,
    /// Cores that may hold it, if the array tracks presence.
    pub presence: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Array {
    words: Vec<u32>,
    /// Words to skip so that sets begin at a cache line of the host, if their length allows it.
    skip: usize,
    /// Words per set: the ways, rounded up to a multiple of 4 with ways that stay empty.
    stride: usize,
    ways: usize,
    index: SetIndex,
    policy: Policy,
    /// Cores that may hold each line, way by way; empty if the array does not track presence.
    presence: Vec<u64>,
    /// Whether it has the most common shape of an L1: 8 ways and a power of two of sets.
    masked_eight: bool,
    /// Whether [`Self::access`] always reports a miss, so that all accesses take the path for misses.
    is_watched: bool,
}

impl Array {
    /// An empty array of a validated `level`.
    pub fn new(level: &Level, keeps_presence: bool, rng: Rng) -> Self {
        let (sets, ways) = (level.sets() as usize, level.ways as usize);
        let stride = ways.next_multiple_of(4);
        let mut words = Vec::with_capacity(sets * stride + HOST_LINE_WORDS);
        prefer_large_pages(words.spare_capacity_mut());
        words.resize(sets * stride + HOST_LINE_WORDS, EMPTY);
        let skip = words.as_ptr().align_offset(HOST_LINE_WORDS * size_of::<u32>()).min(HOST_LINE_WORDS);
        let mut array = Self {
            words,
            skip,
            stride,
            ways,
            index: SetIndex::new(level.sets(), level.hash_bits),
            policy: Policy::new(level.policy, sets, ways, rng),
            presence: if keeps_presence { vec![0; sets * stride] } else { Vec::new() },
            masked_eight: false,
            is_watched: false,
        };
        array.masked_eight = array.is::<Masked<8>>();
        array
    }

    /// True if code for `W` can be used with this array: it has these ways, LRU replacement and no presence.
    pub fn is<W: Ways>(&self) -> bool {
        let plain = self.ways == W::N && self.stride == W::N && matches!(self.policy, Policy::Lru);
        let sets = match W::SETS {
            ANY_SETS => true,
            POWER_OF_TWO_SETS => self.index.is_masked(),
            sets => self.index.sets() == sets as u64 && self.index.rows() == sets as u64,
        };
        W::N == 0 || plain && self.presence.is_empty() && sets
    }

    #[inline(always)]
    pub fn place<W: Ways>(&self, line: LineAddr) -> SetAndTag {
        debug_assert!(self.is::<W>());
        let (set, tag) = match W::SETS {
            ANY_SETS => self.index.split(line.0),
            POWER_OF_TWO_SETS => self.index.split_masked(line.0),
            sets => ((line.0 % sets as u64) as usize, (line.0 / sets as u64) as u32),
        };
        debug_assert!(self.index.join(set, tag) == line.0 && u64::from(tag) < TAG_LIMIT, "{line:?} exceeds the tags");
        let stride = if W::N > 0 { W::N } else { self.stride };
        SetAndTag { set: set as u32, base: (self.skip + set * stride) as u32, wanted: tag << 2 }
    }

    /// Where the line of a set with this tag can be.
    pub fn place_of(&self, set: usize, tag: u32) -> SetAndTag {
        SetAndTag { set: set as u32, base: (self.skip + set * self.stride) as u32, wanted: tag << 2 }
    }

    /// The line that can be at a place.
    pub fn line_at(&self, at: SetAndTag) -> LineAddr {
        LineAddr(self.index.join(at.set as usize, at.wanted >> 2))
    }

    pub fn sets(&self) -> u64 {
        self.index.sets()
    }

    pub fn ways(&self) -> usize {
        self.ways
    }

    #[inline(always)]
    fn set(&self, at: SetAndTag) -> &[u32] {
        &self.words[at.base as usize..][..self.stride]
    }

    #[inline(always)]
    fn set_mut(&mut self, at: SetAndTag) -> &mut [u32] {
        &mut self.words[at.base as usize..][..self.stride]
    }

    #[inline(always)]
    fn plain_set<W: Ways>(&mut self, at: SetAndTag) -> &mut [u32] {
        &mut self.words[at.base as usize..at.base as usize + W::N]
    }

    /// All sets of an array of shape [`FixedShape`](super::ways::FixedShape)`<N, SETS>`.
    #[inline(always)]
    pub fn table<const N: usize, const SETS: usize>(&mut self) -> &mut [[u32; N]; SETS] {
        let (sets, _) = self.words[self.skip..self.skip + SETS * N].as_chunks_mut::<N>();
        sets.try_into().expect("as many sets as were sliced")
    }

    /// The way that contains the line; changes nothing.
    #[inline(always)]
    pub fn find<W: Ways>(&self, at: SetAndTag) -> Option<usize> {
        if W::N > 0 {
            W::find(&self.words[at.base as usize..at.base as usize + W::N], at.wanted)
        } else {
            AnyWays::find(self.set(at), at.wanted)
        }
    }

    #[inline(always)]
    pub fn state(&self, at: SetAndTag, way: usize) -> LineState {
        LineState(self.words[at.base as usize + way] & STATE_MASK)
    }

    #[inline(always)]
    pub fn set_state(&mut self, at: SetAndTag, way: usize, state: LineState) {
        self.words[at.base as usize + way] = at.wanted | state.0;
    }

    /// Tells the policy about an access to the line at `way`; returns the way where the line is afterwards.
    #[inline(always)]
    pub fn promote<W: Ways>(&mut self, at: SetAndTag, way: usize) -> usize {
        if W::N > 0 {
            let set = self.plain_set::<W>(at);
            W::move_to_front(set, way, set[way]);
            return 0;
        }
        self.promote_any(at, way)
    }

    /// [`Self::promote`], and the line becomes modified.
    #[inline(always)]
    pub fn promote_modified<W: Ways>(&mut self, at: SetAndTag, way: usize) {
        if W::N > 0 {
            return W::move_to_front(self.plain_set::<W>(at), way, at.wanted | LineState::MODIFIED.0);
        }
        self.set_state(at, way, LineState::MODIFIED);
        self.promote_any(at, way);
    }

    #[inline(never)]
    fn promote_any(&mut self, at: SetAndTag, way: usize) -> usize {
        match &mut self.policy {
            Policy::Lru => return self.promote_by_recency(at, way),
            Policy::KeepTables(kept) => {
                kept.promote(at.set as usize, way);
                return self.promote_by_recency(at, way);
            }
            Policy::TreePlru(tree) => tree.touch(at.set as usize, way),
            Policy::Random(_) => {}
            Policy::Srrip(srrip) => srrip.hit(at.set as usize, way),
            Policy::KeepBlocks(kept) => kept.hit(at.set as usize, way),
        }
        way
    }

    #[inline]
    fn promote_by_recency(&mut self, at: SetAndTag, way: usize) -> usize {
        if !self.presence.is_empty() {
            let presence = self.presence_of(at);
            move_to_front_any(presence, way, presence[way]);
        }
        let set = self.set_mut(at);
        AnyWays::move_to_front(set, way, set[way]);
        0
    }

    /// Tells the policy about a look-up, before it is made.
    #[inline(always)]
    pub fn note_look_up<W: Ways>(&mut self, by_walk: bool) {
        if W::N == 0
            && let Policy::KeepTables(kept) = &mut self.policy
        {
            kept.look_up(by_walk);
        }
    }

    /// Tells the policy that the line that was filled or promoted last is of a page table.
    #[inline(always)]
    pub fn note_table<W: Ways>(&mut self, at: SetAndTag) {
        if W::N == 0
            && let Policy::KeepTables(kept) = &mut self.policy
        {
            kept.mark_first(at.set as usize);
        }
    }

    /// How often a line of data was replaced since the least recently used one was of a page table.
    pub fn tables_kept(&self) -> Option<u64> {
        match &self.policy {
            Policy::KeepTables(kept) => Some(kept.kept()),
            Policy::Lru | Policy::TreePlru(_) | Policy::Random(_) | Policy::Srrip(_) | Policy::KeepBlocks(_) => None,
        }
    }

    /// The policy, if it keeps blocks of translations.
    pub fn kept_blocks(&self) -> Option<&KeptBlocks> {
        match &self.policy {
            Policy::KeepBlocks(kept) => Some(kept),
            Policy::Lru | Policy::TreePlru(_) | Policy::Random(_) | Policy::Srrip(_) | Policy::KeepTables(_) => None,
        }
    }

    /// Says to a policy that keeps blocks of translations whether the TLB misses often.
    pub fn set_misses_often(&mut self, often: bool) {
        if let Policy::KeepBlocks(kept) = &mut self.policy {
            kept.set_misses_often(often);
        }
    }

    /// Makes [`Self::access`] report a miss for every access.
    pub fn watch(&mut self) {
        (self.masked_eight, self.is_watched) = (false, true);
    }

    /// Look-up and promotion in one step, for a load or store without side effects; a write makes the line modified.
    /// Returns false, with nothing changed, if the line is absent or if a write finds it shared.
    #[inline(always)]
    pub fn access(&mut self, line: LineAddr, write: bool) -> bool {
        if !self.masked_eight {
            return !self.is_watched && self.access_any(line, write);
        }
        let at = self.place::<Masked<8>>(line);
        let set = self.plain_set::<Masked<8>>(at);
        // An empty way differs in the tag as well. For an equal tag the difference is the state.
        let state = set[0] ^ at.wanted;
        if state <= STATE_MASK {
            if write {
                if state == LineState::SHARED.0 {
                    return false;
                }
                set[0] = at.wanted | LineState::MODIFIED.0;
            }
            return true;
        }
        let Some(way) = Masked::<8>::find(set, at.wanted) else { return false };
        let mut word = set[way];
        if write {
            if word & STATE_MASK == LineState::SHARED.0 {
                return false;
            }
            word |= LineState::MODIFIED.0;
        }
        Masked::<8>::move_to_front(set, way, word);
        true
    }

    /// [`Self::access`] for any array, watched or not.
    #[inline(never)]
    pub fn access_any(&mut self, line: LineAddr, write: bool) -> bool {
        self.access_as::<AnyWays>(line, write)
    }

    /// [`Self::access`] for an array of these ways, watched or not.
    #[inline(always)]
    pub fn access_as<W: Ways>(&mut self, line: LineAddr, write: bool) -> bool {
        let at = self.place::<W>(line);
        let Some(way) = self.find::<W>(at) else { return false };
        if !write {
            self.promote::<W>(at, way);
            return true;
        }
        let is_owned = self.state(at, way) != LineState::SHARED;
        if is_owned {
            self.promote_modified::<W>(at, way);
        }
        is_owned
    }

    /// Inserts a line that is absent: in the lowest empty way if there is one, otherwise instead of the policy's
    /// victim.
    #[inline(always)]
    pub fn fill<W: Ways>(&mut self, at: SetAndTag, state: LineState, presence: u64) -> Option<Evicted> {
        if W::N > 0 {
            let out = W::push_front(self.plain_set::<W>(at), at.wanted | state.0);
            return self.evicted::<W>(at, out, 0);
        }
        self.fill_any(at, state, presence)
    }

    #[inline(never)]
    fn fill_any(&mut self, at: SetAndTag, state: LineState, presence: u64) -> Option<Evicted> {
        let word = at.wanted | state.0;
        if !self.policy.is_recency() {
            return self.fill_in_place(at, word, presence);
        }
        if let Some(way) = self.take_victim(at) {
            return self.fill_instead(at, way, word, presence);
        }
        let mut evicted_presence = 0;
        if !self.presence.is_empty() {
            evicted_presence = push_front_any(self.presence_of(at), presence);
        }
        let ways = self.ways;
        let out = AnyWays::push_front(&mut self.set_mut(at)[..ways], word);
        self.evicted::<AnyWays>(at, out, evicted_presence)
    }

    /// The way that a policy in recency order frees, if that need not be the last one.
    #[inline]
    fn take_victim(&mut self, at: SetAndTag) -> Option<usize> {
        let (ways, base) = (self.ways, at.base as usize);
        let Policy::KeepTables(kept) = &mut self.policy else { return None };
        let set = &self.words[base..base + ways];
        let empty = set.iter().position(|&word| word == EMPTY);
        let way = empty.unwrap_or_else(|| kept.take_victim(at.set as usize, ways));
        kept.insert(at.set as usize, way);
        Some(way)
    }

    /// Inserts a line in the first way; that of `way` leaves.
    fn fill_instead(&mut self, at: SetAndTag, way: usize, word: u32, presence: u64) -> Option<Evicted> {
        let mut evicted_presence = 0;
        if !self.presence.is_empty() {
            let all = self.presence_of(at);
            evicted_presence = all[way];
            move_to_front_any(all, way, presence);
        }
        let set = self.set_mut(at);
        let out = set[way];
        move_to_front_any(set, way, word);
        self.evicted::<AnyWays>(at, out, evicted_presence)
    }

    fn fill_in_place(&mut self, at: SetAndTag, word: u32, presence: u64) -> Option<Evicted> {
        let empty = AnyWays::find(self.set(at), EMPTY).filter(|&way| way < self.ways);
        let way = empty.unwrap_or_else(|| match &mut self.policy {
            Policy::Lru | Policy::KeepTables(_) => unreachable!("kept in recency order"),
            Policy::TreePlru(tree) => tree.victim(at.set as usize),
            Policy::Random(rng) => rng.below(self.ways as u64) as usize,
            Policy::Srrip(srrip) => srrip.victim(at.set as usize),
            Policy::KeepBlocks(kept) => kept.victim(at.set as usize),
        });
        let is_block = u64::from(at.wanted >> 2) >= TAG_LIMIT - BLOCK_TAGS;
        match &mut self.policy {
            Policy::TreePlru(tree) => tree.touch(at.set as usize, way),
            Policy::Srrip(srrip) => srrip.fill(at.set as usize, way),
            Policy::KeepBlocks(kept) => kept.fill(at.set as usize, way, is_block),
            Policy::Lru | Policy::KeepTables(_) | Policy::Random(_) => {}
        }
        let mut evicted_presence = 0;
        if !self.presence.is_empty() {
            evicted_presence = std::mem::replace(&mut self.presence_of(at)[way], presence);
        }
        let out = std::mem::replace(&mut self.set_mut(at)[way], word);
        self.evicted::<AnyWays>(at, out, evicted_presence)
    }

    #[inline(always)]
    fn evicted<W: Ways>(&self, at: SetAndTag, word: u32, presence: u64) -> Option<Evicted> {
        let (set, tag) = (at.set as usize, word >> 2);
        (word != EMPTY).then(|| Evicted {
            line: LineAddr(match W::SETS {
                ANY_SETS => self.index.join(set, tag),
                POWER_OF_TWO_SETS => self.index.join_masked(set, tag),
                sets => u64::from(tag) * sets as u64 + set as u64,
            }),
            state: LineState(word & STATE_MASK),
            presence,
        })
    }

    /// Removes the line at `way` without telling the policy. Returns its state.
    #[inline(never)]
    pub fn remove(&mut self, at: SetAndTag, way: usize) -> LineState {
        let (ways, lru) = (self.ways, self.policy.is_recency());
        if let Policy::KeepTables(kept) = &mut self.policy {
            kept.remove(at.set as usize, way);
        }
        let set = &mut self.set_mut(at)[..ways];
        let word = if lru { remove_way(set, way, EMPTY) } else { std::mem::replace(&mut set[way], EMPTY) };
        if !self.presence.is_empty() {
            let presence = self.presence_of(at);
            if lru {
                remove_way(presence, way, 0);
            } else {
                presence[way] = 0;
            }
        }
        LineState(word & STATE_MASK)
    }

    /// The state of `line` if it is present.
    #[inline(always)]
    pub fn state_of<W: Ways>(&self, line: LineAddr) -> Option<LineState> {
        let at = self.place::<W>(line);
        self.find::<W>(at).map(|way| self.state(at, way))
    }

    /// Removes `line` if it is present.
    #[inline(always)]
    pub fn remove_line<W: Ways>(&mut self, line: LineAddr) -> Option<LineState> {
        let at = self.place::<W>(line);
        let way = self.find::<W>(at)?;
        Some(self.remove(at, way))
    }

    #[inline(always)]
    fn presence_of(&mut self, at: SetAndTag) -> &mut [u64] {
        let first = at.base as usize - self.skip;
        &mut self.presence[first..first + self.ways]
    }

    pub fn presence(&mut self, at: SetAndTag, way: usize) -> &mut u64 {
        &mut self.presence_of(at)[way]
    }

    /// Prefetches on the host the words that an access to `line` will read.
    #[inline(always)]
    pub fn hint(&self, line: LineAddr) {
        let at = self.place::<AnyWays>(line);
        prefetch(&self.words, at.base as usize);
        if self.stride > HOST_LINE_WORDS {
            prefetch(&self.words, at.base as usize + HOST_LINE_WORDS.min(self.stride - 1));
            if self.stride > 2 * HOST_LINE_WORDS {
                prefetch(&self.words, at.base as usize + self.stride - 1);
            }
        }
    }

    /// The lines present and their states, set by set in way order.
    pub fn lines(&self) -> impl Iterator<Item = (LineAddr, LineState)> {
        let sets = self.words[self.skip..].chunks_exact(self.stride).take(self.index.sets() as usize);
        sets.enumerate().flat_map(move |(set, words)| {
            let valid = words.iter().filter(|&&word| word != EMPTY);
            valid.map(move |word| (LineAddr(self.index.join(set, word >> 2)), LineState(word & STATE_MASK)))
        })
    }
}
