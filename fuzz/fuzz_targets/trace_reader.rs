//! Reads a small trace, one of whose files has the fuzzer's content.
#![no_main]

use std::{fs, path::PathBuf, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use pagelab_trace::{
    Access, AccessKind, Batch, Event, EventKind, MapFlags, ProcessIx, Protection, Source, ThreadIx, TraceMeta,
    TraceReader, TraceWriter, format,
};

const FILES: [&str; 3] = ["accesses-000000.parquet", "events-000000.parquet", "trace.json"];

/// The folder of the trace and the content that its files had at first.
fn trace() -> &'static (PathBuf, [Vec<u8>; 3]) {
    static TRACE: OnceLock<(PathBuf, [Vec<u8>; 3])> = OnceLock::new();
    TRACE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap().keep().join("t.trace");
        let mut writer = TraceWriter::create(&folder, TraceMeta::new(vec!["prog".into()])).unwrap();
        let event = |kind| Event { position: 0, process: ProcessIx(0), thread: ThreadIx(0), kind };
        writer.event(event(EventKind::ThreadStart { os_tid: 1 })).unwrap();
        let (prot, flags) = (Protection::READ_WRITE, MapFlags::anonymous_private());
        let file = Some("/lib/x".into());
        writer.event(event(EventKind::Mmap { addr: 4096, len: 8192, prot, flags, file, file_offset: 0 })).unwrap();
        for thread in 0..2 {
            let access = |i: u64| Access {
                pc: 0x400 + i % 7,
                gap: (i % 3) as u32,
                ..Access::new(AccessKind::from_code((i % 4) as u8).unwrap(), 4096 + i * 8, 8)
            };
            let accesses: Vec<_> = (0..100).map(access).collect();
            writer.append(ThreadIx(thread), &accesses).unwrap();
        }
        writer.finish().unwrap();
        let contents = FILES.map(|name| fs::read(folder.join(name)).unwrap());
        if let Some(seeds) = std::env::var_os("PAGELAB_FUZZ_SEEDS") {
            for (selector, content) in contents.iter().enumerate() {
                let seed = [&[selector as u8], content.as_slice()].concat();
                fs::write(PathBuf::from(&seeds).join(FILES[selector]), seed).unwrap();
            }
        }
        (folder, contents)
    })
}

fuzz_target!(|data: &[u8]| {
    let (folder, contents) = trace();
    let Some((selector, content)) = data.split_first() else {
        return;
    };
    let chosen = usize::from(*selector) % FILES.len();
    fs::write(folder.join(FILES[chosen]), content).unwrap();
    if let Ok(mut reader) = TraceReader::open(folder) {
        let mut batch = Batch::default();
        while let Ok(true) = reader.next_batch(&mut batch) {}
    }
    let _ = (format::info(folder), format::head(folder, 50));
    fs::write(folder.join(FILES[chosen]), &contents[chosen]).unwrap();
});
