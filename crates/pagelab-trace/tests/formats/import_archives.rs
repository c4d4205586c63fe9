//! Compressed files and archives are read as what they hold, and damaged ones are errors.

use std::{
    fs,
    io::{Cursor, Write},
    ops::ControlFlow,
};

use crate::support::Draw;
use pagelab_trace::{
    TraceError, case_seed, cases,
    import::{Compression, ImportFormat, ImportOptions, ImportSummary, import},
};

fn import_file(name: &str, bytes: &[u8], options: &ImportOptions) -> Result<ImportSummary, TraceError> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(name), bytes).unwrap();
    let output = dir.path().join("out.trace");
    let result =
        import(dir.path().join(name), &output, ImportFormat::Auto, options, &mut |_| ControlFlow::Continue(()));
    assert_eq!(output.exists(), result.is_ok(), "a failed import leaves nothing");
    result
}

fn import_bytes(bytes: &[u8]) -> Result<ImportSummary, TraceError> {
    import_file("input", bytes, &ImportOptions::default())
}

#[track_caller]
fn refused(bytes: &[u8], expected: &[&str]) {
    let error = import_bytes(bytes).unwrap_err().to_string();
    for part in expected {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

/// A thread's file of DynamoRIO with a load at each of `times`.
fn thread_file(thread: u64, times: &[u64]) -> Vec<u8> {
    let begin = [(25, 0, 7), (22, 0, thread), (24, 0, 1)];
    let loads = times.iter().flat_map(|&time| [(28, 2, time), (10, 4, 0x40_0000), (0, 8, 0x60_0000 + 4096 * time)]);
    let entry = |(kind, size, value): (u16, u16, u64)| {
        [&kind.to_le_bytes()[..], &size.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    begin.into_iter().chain(loads).flat_map(entry).collect()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.into_inner().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn lz4_and_snappy_are_decompressed_frame_by_frame() {
    let plain = import_bytes(&thread_file(5, &[1, 2, 3])).unwrap();
    let whole = thread_file(5, &[1, 2, 3]);
    let (front, back) = whole.split_at(40);
    for (compression, bytes) in [
        (Compression::Lz4, lz4(&whole)),
        (Compression::Lz4, [lz4(front), lz4(back)].concat()),
        (Compression::Snappy, snappy(&whole)),
        (Compression::Snappy, [snappy(front), snappy(back)].concat()),
    ] {
        let summary = import_bytes(&bytes).unwrap();
        assert_eq!((summary.compression, summary.format), (compression, ImportFormat::Drmemtrace));
        assert_eq!(summary.content_hash, plain.content_hash);
        for len in [11, bytes.len() / 2, bytes.len() - 5] {
            refused(&bytes[..len], &[]);
        }
    }
    refused(&[lz4(&whole), b"junk".to_vec()].concat(), &["what follows is no lz4 data"]);
    let mut damaged = snappy(&whole);
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    refused(&damaged, &["damaged or cut-off snappy data"]);
}

#[test]
fn an_archive_of_one_file_is_that_file() {
    let text = b"I  00401000,3\n L 1ffefff000,8\n";
    let plain = import_bytes(text).unwrap().content_hash;
    for bytes in
        [tar(&[("lackey.txt", text)]), xz(&tar(&[("folder/lackey.txt", text)])), tar(&[("l.txt.xz", &xz(text))])]
    {
        let summary = import_bytes(&bytes).unwrap();
        assert_eq!((summary.format, summary.content_hash), (ImportFormat::Lackey, plain.clone()));
    }
    let wrong = tar(&[("folder/lackey.txt", b"I  00401000,3\n L zz,8\n")]);
    refused(&wrong, &["input/folder/lackey.txt", "line 2"]);
    let text_and_more: [(&str, &[u8]); 2] = [("a.txt", text), ("b.txt", text)];
    refused(&tar(&text_and_more), &["2 files", "\"a.txt\"", "unpack it"]);
    refused(&tar(&[]), &["input"]);
}

#[test]
fn an_archive_of_dynamorio_s_folder_has_a_thread_per_file() {
    let (first, second) = (thread_file(5, &[1, 3, 5]), thread_file(6, &[2, 4]));
    let (first, second) = (lz4(&first), zip(&[("chunk.0000", &second)]));
    let files: [(&str, &[u8]); 3] = [
        ("drmemtrace.app.1.dir/trace/drmemtrace.app.5.trace.lz4", &first),
        ("drmemtrace.app.1.dir/trace/drmemtrace.app.6.trace.zip", &second),
        ("drmemtrace.app.1.dir/raw/modules.log", b"no trace"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let unpacked = folder.path().join("drmemtrace.app.1.dir");
    let output = folder.path().join("out.trace");
    let progress = &mut |_| ControlFlow::Continue(());
    let expected = import(unpacked, output, ImportFormat::Auto, &ImportOptions::default(), progress).unwrap();
    assert_eq!((expected.threads, expected.accesses - expected.fetches), (2, 5));
    for bytes in [tar(&files), xz(&tar(&files)), zip(&files)] {
        let summary = import_bytes(&bytes).unwrap();
        assert_eq!((summary.threads, summary.content_hash), (2, expected.content_hash.clone()));
    }
    let elsewhere: [(&str, &[u8]); 2] = [("a/x.5.trace", &first), ("b/x.6.trace", &second)];
    refused(&tar(&elsewhere), &["several folders"]);
}

/// Names in an archive lead nowhere else.
#[test]
fn files_outside_of_an_archive_s_folder_are_refused() {
    let mut bytes = tar(&[("xx/evil.trace", b"no")]);
    bytes[..2].copy_from_slice(b"..");
    // The header's sum of bytes, in octal.
    let sum: u32 = bytes[..512]
        .iter()
        .enumerate()
        .map(|(at, &byte)| if (148..156).contains(&at) { 32 } else { u32::from(byte) })
        .sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    // Where the archive is unpacked is a folder in there.
    let outside = std::env::temp_dir().join("evil.trace");
    _ = fs::remove_file(&outside);
    refused(&bytes, &["\"../evil.trace\"", "outside of its folder"]);
    assert!(!outside.exists());
}

#[test]
fn an_import_that_is_stopped_while_it_unpacks_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("a.tar"), dir.path().join("a.trace"));
    fs::write(&input, tar(&[("lackey.txt", b"I  00401000,3\n L 1ffefff000,8\n")])).unwrap();
    let stopped =
        import(&input, &output, ImportFormat::Auto, &ImportOptions::default(), &mut |_| ControlFlow::Break(()));
    assert!(stopped.unwrap_err().to_string().contains("interrupted"));
    assert!(!output.exists());
}

#[test]
fn damaged_archives_never_panic() {
    let mut draw = Draw(case_seed(99));
    let thread = thread_file(5, &[1, 2, 3]);
    let files: [(&str, &[u8]); 2] = [("t/a.5.trace", &thread), ("t/a.6.trace", &thread)];
    for whole in [tar(&files), zip(&files), lz4(&thread), snappy(&thread)] {
        for _ in 0..cases(40_u32) {
            let mut bytes = whole.clone();
            for _ in 0..=draw.below(3) {
                let at = draw.below(bytes.len() as u64) as usize;
                bytes[at] = draw.next() as u8;
            }
            if draw.below(3) == 0 {
                bytes.truncate(draw.below(bytes.len() as u64) as usize);
            }
            let _ = import_bytes(&bytes);
        }
    }
}
