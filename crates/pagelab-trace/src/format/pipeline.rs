//! Encoding in two threads: one compresses the addresses of a page, the next one everything else, and writes the parts.
//!
//! ```text
//!  writer ──messages──▶ trace-addresses ──messages──▶ trace-parts ──▶ files
//!    ▲───────────────────── empty pages ───────────────────┘
//! ```
//!
//! There are two whatever is recorded, since all processes of a recording have one writer. Messages stay in their order,
//! so what is written does not depend on who is faster. A thread that fails is gone for the one before it, up to the writer.

use std::{
    io,
    panic::resume_unwind,
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use super::{
    compress::PlaneCompressor,
    encoder::Encoder,
    page::{Message, Page},
};
use crate::TraceError;

/// Messages in front of each thread. A page has at most 10 bytes a row.
const QUEUED: usize = 2;
/// Pages under way: those that wait, and one in the hands of each thread and of the writer.
const PAGES: usize = 2 * QUEUED + 3;

/// The threads, and the way to them.
pub(super) struct Pipeline {
    messages: SyncSender<Message>,
    empty: Receiver<Page>,
    addresses: JoinHandle<Result<(), TraceError>>,
    parts: JoinHandle<Result<Encoder, TraceError>>,
}

impl Pipeline {
    /// Starts the threads of the trace at `folder`.
    pub(super) fn start(folder: &Path) -> Result<Self, TraceError> {
        let failed = |error| TraceError::io(folder, error);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let (mut compressor, encoder) = (PlaneCompressor::new().map_err(failed)?, Encoder::new(folder.to_path_buf())?);
        let (messages, from_writer) = sync_channel(QUEUED);
        let (to_parts, from_addresses) = sync_channel(QUEUED);
        let (to_writer, empty) = sync_channel(PAGES);
        let parts = named("trace-parts").spawn(move || encoder.run(&from_addresses, &to_writer)).map_err(failed)?;
        let path = folder.to_path_buf();
        let compress = move || {
            compress_addresses(&mut compressor, &from_writer, &to_parts)
                .map_err(|error| TraceError::cannot_encode(path, error))
        };
        let addresses = named("trace-addresses").spawn(compress).map_err(failed)?;
        Ok(Self { messages, empty, addresses, parts })
    }

    /// A page without anything in it; one that was used before if there is one.
    pub(super) fn empty_page(&self) -> Page {
        self.empty.try_recv().unwrap_or_default()
    }

    /// Waits until there is room. False if a thread has ended, which [`stop`](Self::stop) tells the reason of.
    #[must_use]
    pub(super) fn send(&self, message: Message) -> bool {
        self.messages.send(message).is_ok()
    }

    /// Waits until all that was sent is written.
    ///
    /// # Errors
    /// That of the first thread that failed.
    pub(super) fn stop(self) -> Result<Encoder, TraceError> {
        let Self { messages, empty: _, addresses, parts } = self;
        drop(messages);
        // A thread that ends because another one has failed has no error of its own.
        let addresses = addresses.join().unwrap_or_else(|panic| resume_unwind(panic));
        let parts = parts.join().unwrap_or_else(|panic| resume_unwind(panic));
        addresses.and(parts)
    }
}

/// Passes messages on, pages with their addresses compressed, until there are no more or nobody takes them.
fn compress_addresses(
    compressor: &mut PlaneCompressor,
    messages: &Receiver<Message>,
    next: &SyncSender<Message>,
) -> io::Result<()> {
    for mut message in messages {
        if let Message::Page(Page { rows: rows @ 1.., planes, constant, compressed, .. }) = &mut message {
            compressor.compress(planes, *rows, constant, compressed)?;
        }
        if next.send(message).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever thread fails, the sender learns of it, and its error is the one that is told.
    #[test]
    fn the_error_of_either_thread_reaches_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        for (of_addresses, of_parts) in [(true, false), (false, true)] {
            let (messages, from_writer) = sync_channel(QUEUED);
            let (to_parts, from_addresses) = sync_channel(QUEUED);
            let (to_writer, empty) = sync_channel(PAGES);
            let encoder = Encoder::new(folder.path().to_path_buf()).unwrap();
            let parts = thread::spawn(move || match of_parts {
                true => from_addresses.recv().map_or(Ok(encoder), |_| Err(TraceError::usage("parts"))),
                false => encoder.run(&from_addresses, &to_writer),
            });
            let addresses = thread::spawn(move || match of_addresses {
                true => from_writer.recv().map_or(Ok(()), |_| Err(TraceError::usage("addresses"))),
                false => {
                    let mut compressor = PlaneCompressor::new().unwrap();
                    compress_addresses(&mut compressor, &from_writer, &to_parts).map_err(|_| unreachable!())
                }
            });
            let pipeline = Pipeline { messages, empty, addresses, parts };
            let sent = (0..100).take_while(|_| pipeline.send(Message::Page(Page::default()))).count();
            assert!(sent <= 2 * QUEUED + 2, "{sent} pages for threads that have ended");
            let error = pipeline.stop().err().expect("a thread has failed").to_string();
            assert_eq!(error, if of_addresses { "addresses" } else { "parts" });
        }
    }

    /// Nobody takes messages, so the writer has to wait after as many as there is room for.
    #[test]
    fn what_is_under_way_is_bounded() {
        let (messages, from_writer) = sync_channel(QUEUED);
        let (to_parts, from_addresses) = sync_channel(QUEUED);
        let thread = thread::spawn(move || {
            compress_addresses(&mut PlaneCompressor::new().unwrap(), &from_writer, &to_parts).unwrap();
        });
        let accepted = (0..100).take_while(|_| {
            // The thread takes what it can within this time.
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
