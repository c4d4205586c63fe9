//! What a recording lacks: a sentence each.

use libc::pid_t;

/// Different losses that are kept.
const MOST: usize = 40;

#[derive(Debug, Default)]
pub struct Losses {
    found: Vec<(String, Vec<pid_t>)>,
}

impl Losses {
    pub fn add(&mut self, pid: pid_t, what: impl Into<String>) {
        let what = what.into();
        match self.found.iter_mut().find(|(known, _)| *known == what) {
            Some((_, pids)) => {
                if !pids.contains(&pid) {
                    pids.push(pid);
                }
            }
            None => {
                if self.found.len() < MOST {
                    self.found.push((what, vec![pid]));
                }
            }
        }
    }

    /// A sentence for each.
    pub fn sentences(&self) -> Vec<String> {
        let sentence = |(what, pids): &(String, Vec<pid_t>)| match pids.as_slice() {
            [] => what.clone(),
            [pid] => format!("process {pid}: {what}"),
            [pid, others @ ..] => format!("process {pid} and {} more: {what}", others.len()),
        };
        self.found.iter().map(sentence).collect()
    }
}
