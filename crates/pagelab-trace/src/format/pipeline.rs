//! Encoding in two threads: one compresses the addresses of a page, the other everything else, and writes the parts.
//!
//! ```text
//!  writer ──messages──▶ trace-addresses ──messages──▶ trace-parts ──▶ files
//!    ▲───────────────────── empty pages ───────────────────┘
//! ```
//!
//! There are two threads however many processes are recorded, since all processes of a recording share one writer.
//! Messages stay in order, so the result does not depend on the threads' speed. If a thread fails, the threads before
//! it notice that it is gone, up to the writer.
//!
//! A host with few CPUs uses one thread for both: the program, the recorder and this thread occupy the CPUs, and two
//! threads would only wake each other (`benches/HISTORY.md`).

use std::{
    io,
    panic::resume_unwind,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use super::{
    compress::PlaneCompressor,
    encoder::{Encoder, EncoderProgress},
    page::{Message, Page},
    planes::Planes,
};
use crate::TraceError;

/// Messages queued for each thread. A page has at most 10 bytes per row.
const QUEUED: usize = 2;
/// Pages in use: the queued ones, and one for each thread and for the writer.
const PAGES: usize = 2 * QUEUED + 3;

/// Number of CPUs from which on a separate thread compresses addresses.
const CPUS_FOR_TWO: usize = 4;

/// The threads and their queues.
pub(super) struct Pipeline {
    messages: SyncSender<Message>,
    empty: Receiver<Page>,
    /// None if the other thread compresses addresses too.
    addresses: Option<JoinHandle<Result<(), TraceError>>>,
    parts: JoinHandle<Result<Encoder, TraceError>>,
    /// The encoder's progress.
    pub written: Arc<EncoderProgress>,
}

impl Pipeline {
    /// Starts the threads of the trace at `folder`.
    pub(super) fn start(folder: &Path, dependencies: bool) -> Result<Self, TraceError> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        if cpus < CPUS_FOR_TWO { Self::of_one(folder, dependencies) } else { Self::of_two(folder, dependencies) }
    }

    fn of_one(folder: &Path, dependencies: bool) -> Result<Self, TraceError> {
        let failed = |error| TraceError::io(folder, error);
        let mut compressor = PlaneCompressor::new().map_err(failed)?;
        let encoder = Encoder::new(folder.to_path_buf(), dependencies)?;
        let written = encoder.written();
        let (messages, from_writer) = sync_channel::<Message>(2 * QUEUED);
        let (to_writer, empty) = sync_channel(PAGES);
        let run = move || {
            let compressed = from_writer.into_iter().map(|message| compress_planes(&mut compressor, message));
            encoder.run(compressed, &to_writer)
        };
        let parts = thread::Builder::new().name("trace-encoder".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { messages, empty, addresses: None, parts, written })
    }

    fn of_two(folder: &Path, dependencies: bool) -> Result<Self, TraceError> {
        let failed = |error| TraceError::io(folder, error);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let mut compressor = PlaneCompressor::new().map_err(failed)?;
        let encoder = Encoder::new(folder.to_path_buf(), dependencies)?;
        let written = encoder.written();
        let (messages, from_writer) = sync_channel(QUEUED);
        let (to_parts, from_addresses) = sync_channel(QUEUED);
        let (to_writer, empty) = sync_channel(PAGES);
        let run = move || encoder.run(from_addresses.into_iter().map(Ok), &to_writer);
        let parts = named("trace-parts").spawn(run).map_err(failed)?;
        let path = folder.to_path_buf();
        let compress = move || {
            pass_on(&mut compressor, &from_writer, &to_parts).map_err(|error| TraceError::cannot_encode(path, error))
        };
        let addresses = Some(named("trace-addresses").spawn(compress).map_err(failed)?);
        Ok(Self { messages, empty, addresses, parts, written })
    }

    /// An empty page, reused if possible.
    pub(super) fn empty_page(&self) -> Page {
        self.empty.try_recv().unwrap_or_default()
    }

    /// Waits for room in the queue. Returns false if a thread has ended; [`stop`](Self::stop) then returns the reason.
    #[must_use]
    pub(super) fn send(&self, message: Message) -> bool {
        self.messages.send(message).is_ok()
    }

    /// Waits until everything sent is written.
    ///
    /// # Errors
    /// The error of the first thread that failed.
    pub(super) fn stop(self) -> Result<Encoder, TraceError> {
        let Self { messages, empty: _, addresses, parts, written: _ } = self;
        drop(messages);
        // A thread that ends because another one failed has no error of its own.
        let addresses = addresses.map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let parts = parts.join().unwrap_or_else(|panic| resume_unwind(panic));
        addresses.and(parts)
    }
}

/// If the message is a page, compresses the addresses and dependencies of its accesses.
fn compress_planes(compressor: &mut PlaneCompressor, mut message: Message) -> io::Result<Message> {
    if let Message::Page(Page { rows: rows @ 1.., addresses, waits, .. }) = &mut message {
        for Planes { varying, constant, compressed } in [Some(addresses), waits.as_mut()].into_iter().flatten() {
            compressor.compress(varying, *rows, constant, compressed)?;
        }
    }
    Ok(message)
}

/// Passes messages on with compressed addresses until there are no more or the receiver is gone.
fn pass_on(
    compressor: &mut PlaneCompressor,
    messages: &Receiver<Message>,
    next: &SyncSender<Message>,
) -> io::Result<()> {
    for message in messages {
        if next.send(compress_planes(compressor, message)?).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{OpenPage, PAGE_ROWS, page::FullPage};
    use crate::{Access, AccessKind};

    /// If either thread fails, the sender fails with that thread's error.
    #[test]
    fn the_error_of_either_thread_reaches_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        for (of_addresses, of_parts) in [(true, false), (false, true)] {
            let (messages, from_writer) = sync_channel(QUEUED);
            let (to_parts, from_addresses) = sync_channel(QUEUED);
            let (to_writer, empty) = sync_channel(PAGES);
            let encoder = Encoder::new(folder.path().to_path_buf(), false).unwrap();
            let written = encoder.written();
            let parts = thread::spawn(move || match of_parts {
                true => from_addresses.recv().map_or(Ok(encoder), |_| Err(TraceError::usage("parts"))),
                false => encoder.run(from_addresses.into_iter().map(Ok), &to_writer),
            });
            let addresses = thread::spawn(move || match of_addresses {
                true => from_writer.recv().map_or(Ok(()), |_| Err(TraceError::usage("addresses"))),
                false => {
                    let mut compressor = PlaneCompressor::new().unwrap();
                    pass_on(&mut compressor, &from_writer, &to_parts).map_err(|_| unreachable!())
                }
            });
            let pipeline = Pipeline { messages, empty, addresses: Some(addresses), parts, written };
            let sent = (0..100).take_while(|_| pipeline.send(Message::Page(Page::default()))).count();
            assert!(sent <= 2 * QUEUED + 2, "{sent} pages for threads that have ended");
            let error = pipeline.stop().err().expect("a thread has failed").to_string();
            assert_eq!(error, if of_addresses { "addresses" } else { "parts" });
        }
    }

    /// One thread and two threads write the same files.
    #[test]
    fn one_thread_writes_what_two_write() {
        let written = |start: fn(&Path, bool) -> Result<Pipeline, TraceError>| {
            let folder = tempfile::tempdir().unwrap();
            let pipeline = start(folder.path(), true).unwrap();
            let mut open = OpenPage::new(3 * PAGE_ROWS, true);
            for n in 0..7 * PAGE_ROWS as u64 {
                let access = Access { pc: n % 90, ..Access::new(AccessKind::Load, n * n % 0x7f_ffff, 8) };
                open.append(&[access.after(n as usize % 300)], &[]);
                if open.is_full() {
                    let FullPage { ended_before, page, ended_after } = open.take(pipeline.empty_page());
                    let messages = [
                        ended_before.map(Message::EndOfPart),
                        Some(Message::Page(page)),
                        ended_after.map(Message::EndOfPart),
                    ];
                    messages.into_iter().flatten().for_each(|message| assert!(pipeline.send(message)));
                }
            }
            open.finish_part().into_iter().for_each(|part| assert!(pipeline.send(Message::EndOfPart(part))));
            pipeline.stop().unwrap().finish().hash
        };
        assert_eq!(written(Pipeline::of_one), written(Pipeline::of_two));
    }

    /// Nothing receives the messages, so the writer waits once the queue is full.
    #[test]
    fn work_in_progress_is_bounded() {
        let (messages, from_writer) = sync_channel(QUEUED);
        let (to_parts, from_addresses) = sync_channel(QUEUED);
        let thread = thread::spawn(move || {
            pass_on(&mut PlaneCompressor::new().unwrap(), &from_writer, &to_parts).unwrap();
        });
        let accepted = (0..100).take_while(|_| {
            // The thread receives what it can within this time.
            (0..50).any(|_| {
                let sent = messages.try_send(Message::Page(Page::default())).is_ok();
                if !sent {
                    thread::sleep(std::time::Duration::from_millis(2));
                }
                sent
            })
        });
        assert_eq!(accepted.count(), 2 * QUEUED + 1);
        drop(from_addresses);
        drop(messages);
        thread.join().unwrap();
    }
}
