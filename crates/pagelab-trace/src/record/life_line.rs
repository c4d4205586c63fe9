//! Connections without data that tie processes to the recorder: when the recorder's end of a process's life line is
//! closed, for example because the recorder was killed, the kernel kills the process. Otherwise Valgrind would continue
//! without a recorder.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The recorder's ends. Dropping them kills the remaining processes.
#[derive(Debug, Default)]
pub(super) struct LifeLines(Vec<OwnedFd>);

impl LifeLines {
    /// Keeps an end: after closing its stream, a process needs a moment until it closes its life line or ends.
    pub(super) fn hold(&mut self, end: OwnedFd) {
        self.wait(Duration::ZERO);
        self.0.push(end);
    }

    pub(super) fn extend(&mut self, ends: impl IntoIterator<Item = OwnedFd>) {
        self.0.extend(ends);
    }

    /// Waits at most this long until all processes have closed their ends.
    pub(super) fn wait(&mut self, limit: Duration) {
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            // That the other end is closed is always reported.
            let mut polled: Vec<PollFd<'_>> = self.0.iter().map(|end| PollFd::new(end, PollFlags::empty())).collect();
            if !polled.is_empty() && poll(&mut polled, Some(&timeout)).is_ok() {
                let mut closed =
                    polled.iter().map(|end| end.revents().contains(PollFlags::HUP)).collect::<Vec<_>>().into_iter();
                self.0.retain(|_| closed.next() != Some(true));
            }
            if self.0.is_empty() || left.is_zero() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn ends_are_held_until_the_other_side_is_closed() {
        let (mine, theirs) = UnixStream::pair().unwrap();
        let (other, others) = UnixStream::pair().unwrap();
        let mut lines = LifeLines::default();
        lines.hold(mine.into());
        lines.hold(other.into());
        lines.wait(Duration::from_millis(1));
        assert_eq!(lines.0.len(), 2);
        drop(theirs);
        lines.wait(Duration::ZERO);
        assert_eq!(lines.0.len(), 1);
        drop(others);
        lines.wait(Duration::from_secs(60));
        assert!(lines.0.is_empty());
    }
}
