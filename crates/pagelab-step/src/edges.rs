//! Which thread lets another go on: creation, joins and futexes, as the Valgrind tool finds them (`edges.c`).
//!
//! Which wake a wait was woken by follows from the order of calls: it was under way at some time while the wait was, on
//! the same address, with bits in common, and has threads left to wake. Of several the oldest is taken. A wake counts
//! from before its call, since threads that it wakes may run before it returns.

use libc::pid_t;

use crate::stream::{Record, Stream};

/// The wake of a thread's end.
const NOBODY: pid_t = 0;
/// Newer than `libc`.
const FUTEX_LOCK_PI2: i32 = 13;
const ANY_BIT: u32 = u32::MAX;
/// Wakes that are kept.
const MOST_WAKES: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Wake {
    number: u32,
    by: pid_t,
    address: u64,
    bits: u32,
    /// Threads that it may still have woken.
    left: u64,
    /// When its call returned; 0 before.
    ended: u64,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    tid: pid_t,
    address: u64,
    /// The futex that it may have been moved to.
    moved_to: u64,
    bits: u32,
    began: u64,
}

/// The waits and wakes of a process.
#[derive(Debug, Default)]
pub struct Edges {
    wakes: Vec<Wake>,
    waits: Vec<Wait>,
    last_number: u32,
    /// Counts calls as they begin and return.
    now: u64,
}

fn operation(arguments: &[u64; 6]) -> i32 {
    arguments[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

impl Edges {
    fn number(&mut self, stream: &mut Stream) -> u32 {
        self.last_number += 1;
        stream.send(&Record::Wake { number: self.last_number });
        self.last_number
    }

    fn add_wake(&mut self, by: pid_t, address: u64, bits: u32, count: u64) {
        if self.wakes.len() == MOST_WAKES {
            self.wakes.remove(0);
        }
        // The kernel wakes one before it counts.
        let left = (count as i32).max(1) as u64;
        self.wakes.push(Wake { number: self.last_number, by, address, bits, left, ended: 0 });
    }

    fn wake(&mut self, by: pid_t, address: u64, bits: u32, count: u64, stream: &mut Stream) {
        self.number(stream);
        self.add_wake(by, address, bits, count);
    }

    fn wait(&mut self, tid: pid_t, address: u64, moved_to: u64, bits: u32) {
        self.waits.retain(|wait| wait.tid != tid);
        self.waits.push(Wait { tid, address, moved_to, bits, began: self.now });
    }

    /// A call of futex begins.
    pub fn before(&mut self, tid: pid_t, arguments: &[u64; 6], stream: &mut Stream) {
        self.now += 1;
        let [address, _, count, _, other, bits] = *arguments;
        match operation(arguments) {
            libc::FUTEX_WAIT | libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => self.wait(tid, address, address, ANY_BIT),
            libc::FUTEX_WAIT_BITSET => self.wait(tid, address, address, bits as u32),
            libc::FUTEX_WAIT_REQUEUE_PI => self.wait(tid, address, other, ANY_BIT),
            libc::FUTEX_WAKE => self.wake(tid, address, ANY_BIT, count, stream),
            libc::FUTEX_WAKE_BITSET => self.wake(tid, address, bits as u32, count, stream),
            libc::FUTEX_UNLOCK_PI => self.wake(tid, address, ANY_BIT, 1, stream),
            libc::FUTEX_WAKE_OP => {
                self.wake(tid, address, ANY_BIT, count, stream);
                self.add_wake(tid, other, ANY_BIT, arguments[3]);
            }
            libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_CMP_REQUEUE_PI => {
                self.wake(tid, address, ANY_BIT, count, stream);
                self.waits.iter_mut().filter(|wait| wait.address == address).for_each(|wait| wait.moved_to = other);
            }
            _ => {}
        }
    }

    /// A call of futex has returned.
    pub fn after(&mut self, tid: pid_t, arguments: &[u64; 6], result: i64, stream: &mut Stream) {
        self.now += 1;
        match operation(arguments) {
            libc::FUTEX_WAIT
            | libc::FUTEX_LOCK_PI
            | FUTEX_LOCK_PI2
            | libc::FUTEX_WAIT_BITSET
            | libc::FUTEX_WAIT_REQUEUE_PI => self.end_wait(tid, result == 0, stream),
            // Returns 0 whether or not somebody has waited.
            libc::FUTEX_UNLOCK_PI => self.end_wakes(tid, u64::from(result >= 0)),
            _ => self.end_wakes(tid, result.max(0) as u64),
        }
    }

    fn end_wakes(&mut self, by: pid_t, woken: u64) {
        for wake in self.wakes.iter_mut().filter(|wake| wake.by == by && wake.ended == 0) {
            wake.ended = self.now;
            wake.left = wake.left.min(woken);
        }
        self.wakes.retain(|wake| wake.left > 0);
    }

    fn end_wait(&mut self, tid: pid_t, was_woken: bool, stream: &mut Stream) {
        let Some(at) = self.waits.iter().position(|wait| wait.tid == tid) else { return };
        let wait = self.waits.swap_remove(at);
        let fits = |wake: &Wake| {
            (wake.address == wait.address || wake.address == wait.moved_to)
                && wake.bits & wait.bits != 0
                && (wake.ended == 0 || wake.ended > wait.began)
                && wake.by != tid
        };
        let Some(at) = self.wakes.iter().position(fits).filter(|_| was_woken) else { return };
        stream.send(&Record::Woken { number: self.wakes[at].number });
        self.wakes[at].left -= 1;
        if self.wakes[at].left == 0 {
            self.wakes.remove(at);
        }
    }

    /// A thread makes another, whose end clears the word at `clears`, unless that is 0. Returns the number of the wake.
    pub fn thread_made(&mut self, clears: u64, stream: &mut Stream) -> u32 {
        // The word is another thread's from now on.
        self.wakes.retain(|wake| wake.by != NOBODY || wake.address != clears || clears == 0);
        self.number(stream)
    }

    /// A thread ends; the kernel wakes one that waits for the word at `clears`.
    pub fn thread_ends(&mut self, tid: pid_t, clears: u64, stream: &mut Stream) {
        self.waits.retain(|wait| wait.tid != tid);
        if clears != 0 {
            self.wake(NOBODY, clears, ANY_BIT, 1, stream);
        }
    }
}
