//! Imports give what an independent script computes, and refuse what is malformed.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use crate::support::{Draw, Item, read};
use pagelab_trace::{
    AccessKind, EventKind, TraceError, TraceReader, case_seed, cases,
    import::{Compression, ImportFormat, ImportOptions, ImportProgress, ImportSummary, import},
};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import_samples").join(name)
}

fn quiet(_: ImportProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn rows(name: &str) -> Vec<Vec<u64>> {
    let text = fs::read_to_string(sample(name)).unwrap();
    text.lines().map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect()
}

/// What a trace holds, as the script writes it: accesses and mappings.
fn content(path: &Path) -> (Vec<Vec<u64>>, Vec<Vec<u64>>) {
    let (mut accesses, mut mappings) = (Vec::new(), Vec::new());
    for item in read(path).unwrap() {
        match item {
            Item::Access(thread, a) => {
                assert_eq!((thread.0, a.maker.is_kernel()), (0, false));
                accesses.push(vec![a.kind as u64, a.vaddr, u64::from(a.size_bytes), a.pc, u64::from(a.gap)]);
            }
            Item::Event(event) => {
                assert_eq!(event.position, 0);
                if let EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 } = event.kind {
                    assert!(prot.read && prot.write && flags.0 == 0x22);
                    mappings.push(vec![addr, len, u64::from(prot.execute)]);
                }
            }
        }
    }
    (accesses, mappings)
}

#[test]
fn samples_give_what_the_script_expects() {
    let dir = tempfile::tempdir().unwrap();
    for (name, base, format) in
        [("lackey.txt", "lackey", ImportFormat::Lackey), ("champsim.bin", "champsim", ImportFormat::ChampSim)]
    {
        let accesses = rows(&format!("{base}.accesses.csv"));
        let mappings = rows(&format!("{base}.mappings.csv"));
        let instructions: u64 = accesses.iter().map(|row| row[4]).sum();
        let fetches = accesses.iter().filter(|row| row[0] == AccessKind::Fetch as u64).count() as u64;
        for (suffix, compression) in
            [("", Compression::None), (".gz", Compression::Gzip), (".xz", Compression::Xz), (".zst", Compression::Zstd)]
        {
            for given in [ImportFormat::Auto, format] {
                let output = dir.path().join(format!("{name}{suffix}.{given:?}.trace"));
                let input = sample(&format!("{name}{suffix}"));
                let mut last = None;
                let summary = import(&input, &output, given, &ImportOptions::default(), &mut |progress| {
                    last = Some(progress);
                    ControlFlow::Continue(())
                })
                .unwrap();
                let size = fs::metadata(&input).unwrap().len();
                assert_eq!((summary.format, summary.compression), (format, compression));
                assert_eq!((summary.accesses, summary.fetches), (accesses.len() as u64, fetches), "{name}{suffix}");
                assert_eq!((summary.instructions, summary.cut_short), (instructions, false));
                assert_eq!((summary.mappings, summary.read_bytes), (mappings.len() as u64, size));
                let last = last.expect("progress is reported");
                assert_eq!((last.read_bytes, last.total_bytes), (size, Some(size)));
                assert_eq!(content(&output), (accesses.clone(), mappings.clone()), "{name}{suffix}");
                let reader = TraceReader::open(&output).unwrap();
                assert!(reader.meta().mappings_inferred && reader.meta().complete);
                assert_eq!(reader.access_counts().instructions, instructions);
                assert_eq!(reader.event_counts().threads_at_once, 1);
            }
        }
    }
}

fn import_bytes(bytes: &[u8], format: ImportFormat, options: &ImportOptions) -> Result<ImportSummary, TraceError> {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("input"), dir.path().join("out.trace"));
    fs::write(&input, bytes).unwrap();
    let result = import(&input, &output, format, options, &mut quiet);
    assert_eq!(output.exists(), result.is_ok(), "a failed import leaves nothing");
    result
}

#[track_caller]
fn refused(bytes: &[u8], format: ImportFormat, expected: &[&str]) {
    let error = import_bytes(bytes, format, &ImportOptions::default()).unwrap_err().to_string();
    for part in expected {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn malformed_lines_are_named() {
    refused(b"I  12,3\n L 10,8\n L zz,8\n", ImportFormat::Auto, &["line 3: expected `I  ADDR,SIZE`", "\" L zz,8\""]);
    refused(b"LD 10\nST 0x20\nLD zz\n", ImportFormat::Ramulator, &["line 3", "expected `LD ADDR`", "\"LD zz\""]);
    refused(b"LD 10\n1 2 3\n", ImportFormat::Ramulator, &["line 2", "another kind"]);
    refused(b"R 0,1,2,3\n", ImportFormat::Auto, &["line 1", "a place in DRAM"]);
    refused(
        b"t 1/2 3.000004: page-faults:     7f0000001000\nsome text\n",
        ImportFormat::Auto,
        &["line 2", "perf script -F"],
    );
    refused(b"I  12,3\n L 0x10,8\n", ImportFormat::Lackey, &["line 2", "without 0x"]);
    refused(b"I  12,0\n L 10,8\n", ImportFormat::Lackey, &["line 1", "0 bytes"]);
    refused(b"I  12,3\n L 10,999999999\n", ImportFormat::Auto, &["line 2", "999999999", "at most 16384", "no x86"]);
    refused(b"I  12,3\n S 10,16385\n", ImportFormat::Auto, &["line 2", "16385", "at most 16384"]);
    refused(b"I  12,3\n L ffffffffffffffff,8\n", ImportFormat::Lackey, &["line 2", "the kernel's half"]);
    refused(b"I  12,30000\n", ImportFormat::Lackey, &["line 1", "instruction of 30000 bytes"]);
}

/// Prose, or another tool's text, is no trace with a few lines of the program in it.
#[test]
fn a_text_of_which_most_is_not_lackey_s_is_refused() {
    let said = ["line 2: expected `I  ADDR,SIZE`", "found \"Dear reader,\"", "1 are lackey's and 2 are not"];
    refused(b"I  12,3\nDear reader,\nall is well\n", ImportFormat::Auto, &said);
    // As many are not more.
    assert_eq!(
        import_bytes(b"I  12,3\nDear reader,\n", ImportFormat::Auto, &ImportOptions::default()).unwrap().left_out,
        1
    );
    let perf = b"t 1/2 3.000004: page-faults: 10a000 401000\nt 1/2 3.000005: page-faults: 20a000 401000\n";
    refused(
        perf,
        ImportFormat::Lackey,
        &["line 1", "0 are lackey's and 2 are not", "read as lackey, but it looks like perf"],
    );
    refused(
        perf,
        ImportFormat::Ramulator,
        &["line 1", "expected `LD ADDR`", "read as ramulator, but it looks like perf"],
    );
    let wrong = import_bytes(b"some text\n", ImportFormat::Perf, &ImportOptions::default()).unwrap_err().to_string();
    assert!(!wrong.contains("looks like"), "{wrong}");
}

#[test]
fn a_single_line_is_reported_in_the_singular() {
    let text = b"I  12,3\n L 10,0\nhello\n";
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("input"), dir.path().join("out.trace"));
    fs::write(&input, text).unwrap();
    import(&input, &output, ImportFormat::Auto, &ImportOptions::default(), &mut quiet).unwrap();
    let notes = TraceReader::open(&output).unwrap().meta().notes.clone();
    for said in ["1 access of 0 bytes was left out", "1 line that is not lackey's was left out, line 3: \"hello\""] {
        assert!(notes.iter().any(|note| note == said), "{notes:?}");
    }
}

/// What the program writes between lackey's lines, or before one of them, costs nothing and is counted.
#[test]
fn lines_of_the_program_are_left_out_and_counted() {
    let long = [b"==".to_vec(), vec![b'x'; 9000]].concat();
    let text = [b"==1== Lackey\nhello\nI  12,3\n50 % L 10,8\nhello again\n", &long[..], b"\nI  15,2\n"].concat();
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("input"), dir.path().join("out.trace"));
    fs::write(&input, text).unwrap();
    let summary = import(&input, &output, ImportFormat::Auto, &ImportOptions::default(), &mut quiet).unwrap();
    // The line of 9002 bytes comes in two pieces, of which the first is Valgrind's.
    assert_eq!((summary.instructions, summary.accesses, summary.left_out), (2, 3, 3));
    let notes = TraceReader::open(&output).unwrap().meta().notes.clone();
    let said = "3 lines that are not lackey's were left out, the first is line 2: \"hello\"".to_owned();
    assert!(notes.contains(&said), "{notes:?}");
}

#[test]
fn accesses_of_no_bytes_are_left_out_and_counted() {
    let text = b"I  12,3\n L 7ffcc5a5dbc0,0\n L 7ffcc5a5dbc0,16384\nI  15,2\n S 10,0\n";
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("input"), dir.path().join("out.trace"));
    fs::write(&input, text).unwrap();
    let summary = import(&input, &output, ImportFormat::Auto, &ImportOptions::default(), &mut quiet).unwrap();
    // A fetch, 16 KiB in pieces of 4 KiB, and the fetch that counts the last instruction.
    assert_eq!((summary.accesses, summary.empty_accesses, summary.instructions), (6, 2, 2));
    let notes = TraceReader::open(&output).unwrap().meta().notes.clone();
    assert!(notes.contains(&"2 accesses of 0 bytes were left out".to_owned()), "{notes:?}");
    let whole =
        import(sample("lackey.txt"), dir.path().join("b"), ImportFormat::Auto, &ImportOptions::default(), &mut quiet);
    assert_eq!(whole.unwrap().empty_accesses, 0);
}

#[test]
fn malformed_records_are_named() {
    let good = fs::read(sample("champsim.bin")).unwrap();
    refused(&good[..64 * 7 + 13], ImportFormat::Auto, &["offset 448", "13 bytes left, expected a whole record"]);
    let mut bad = good.clone();
    bad[64 * 5 + 9] = 7;
    refused(&bad, ImportFormat::ChampSim, &["offset 320", "branch_taken is 7, expected 0 or 1"]);
    let mut bad = good;
    bad[64 * 2 + 32..][..8].fill(0xff);
    refused(&bad, ImportFormat::Auto, &["offset 128", "0xffffffffffffffff", "the kernel's half"]);
}

#[test]
fn inputs_that_are_no_trace_are_refused() {
    refused(b"", ImportFormat::Auto, &["empty"]);
    refused(b"", ImportFormat::Lackey, &["empty"]);
    refused(b"==1== only Valgrind's words\n", ImportFormat::Lackey, &["no instructions and no accesses"]);
    // An instruction whose address is 0 is no fetch.
    refused(&[0; 64], ImportFormat::ChampSim, &["an instruction and no accesses"]);
    refused(&[0; 96], ImportFormat::CloudSuite, &["an instruction and no accesses"]);
    let unknown = "no trace of a format that is known (drmemtrace, gem5, lackey";
    refused(b"\nsome text\n", ImportFormat::Auto, &[unknown, "its first line is \"some text\""]);
    refused(&[0xee; 1000], ImportFormat::Auto, &["no trace of a format that is known (drmemtrace, gem5, lackey"]);
    for suffix in ["gz", "xz", "zst"] {
        let whole = fs::read(sample(&format!("lackey.txt.{suffix}"))).unwrap();
        let name = if suffix == "zst" { "zstd" } else { suffix };
        let name = if name == "gz" { "gzip" } else { name };
        refused(&whole[..whole.len() / 2 - 7], ImportFormat::Auto, &["damaged or cut-off", name]);
        let followed = [&whole[..], b"junk"].concat();
        refused(&followed, ImportFormat::Auto, &[&format!("what follows is no {name} data; remove it")]);
        let plain = import_bytes(&whole, ImportFormat::Auto, &ImportOptions::default()).unwrap();
        let twice =
            import_bytes(&[&whole[..], &whole].concat(), ImportFormat::Auto, &ImportOptions::default()).unwrap();
        assert!(twice.accesses > plain.accesses, "{suffix}");
        let mut damaged = whole.clone();
        let middle = whole.len() / 3;
        damaged[middle..middle + 16].fill(0x55);
        assert!(import_bytes(&damaged, ImportFormat::Auto, &ImportOptions::default()).is_err(), "{suffix}");
    }
    let dir = tempfile::tempdir().unwrap();
    let folder =
        import(dir.path(), dir.path().join("x.trace"), ImportFormat::Auto, &ImportOptions::default(), &mut quiet);
    assert!(folder.unwrap_err().to_string().contains("a folder without traces of threads"));
    fs::create_dir(dir.path().join("raw")).unwrap();
    let raw = import(dir.path(), dir.path().join("x.trace"), ImportFormat::Auto, &ImportOptions::default(), &mut quiet);
    assert!(raw.unwrap_err().to_string().contains("`drrun -t drcachesim -indir`"));
    let twice = fs::read(sample("lackey.txt.gz")).unwrap();
    refused(&zstd::encode_all(&twice[..], 0).unwrap(), ImportFormat::Auto, &["gzip data within zstd data"]);
    let missing =
        import(dir.path().join("no"), dir.path().join("x"), ImportFormat::Auto, &ImportOptions::default(), &mut quiet);
    assert!(matches!(missing.unwrap_err(), TraceError::Io { path, .. } if path.ends_with("no")));
}

/// Either page of an instruction that crosses into another may be the new one.
#[test]
fn an_instruction_on_a_new_page_is_fetched() {
    for (text, fetches) in [
        (&b"I  2000,4\nI  1fff,3\n L 5000,8\n"[..], 2),
        (b"I  1000,4\nI  1fff,3\n L 5000,8\n", 2),
        (b"I  1fff,3\nI  2000,4\nI  1000,4\n L 5000,8\n", 1),
    ] {
        let summary = import_bytes(text, ImportFormat::Lackey, &ImportOptions::default()).unwrap();
        assert_eq!(summary.fetches, fetches, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn names_are_known_or_listed() {
    assert_eq!(ImportFormat::from_name("champsim").unwrap(), ImportFormat::ChampSim);
    assert_eq!(ImportFormat::from_name("auto").unwrap(), ImportFormat::Auto);
    assert!(ImportFormat::from_name("dinero").unwrap_err().to_string().contains("auto, drmemtrace, gem5, lackey"));
    assert_eq!(Compression::from_name("zstd").unwrap(), Compression::Zstd);
    assert!(Compression::from_name("rar").unwrap_err().to_string().contains("gzip, xz, bzip2, zstd, lz4, snappy, zip"));
}

#[test]
fn an_interrupted_import_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.trace");
    fs::create_dir(&output).unwrap();
    let options = ImportOptions::default();
    let result = import(sample("lackey.txt"), &output, ImportFormat::Auto, &options, &mut |_| ControlFlow::Break(()));
    assert!(result.unwrap_err().to_string().contains("interrupted"));
    assert_eq!(fs::read_dir(&output).unwrap().count(), 0, "the folder was there before and stays, empty");

    fs::write(output.join("precious"), "x").unwrap();
    let result = import(sample("lackey.txt"), &output, ImportFormat::Auto, &options, &mut quiet);
    assert!(result.unwrap_err().to_string().contains("exists and is not empty"));
    assert!(output.join("precious").exists());
}

#[test]
fn options_are_followed() {
    let options = ImportOptions { max_accesses: Some(100), ..ImportOptions::default() };
    let lackey = fs::read(sample("lackey.txt")).unwrap();
    let summary = import_bytes(&lackey, ImportFormat::Auto, &options).unwrap();
    assert_eq!((summary.accesses, summary.cut_short), (100, true));
    let options = ImportOptions { max_records: Some(50), ..ImportOptions::default() };
    let summary = import_bytes(&lackey, ImportFormat::Auto, &options).unwrap();
    assert_eq!((summary.records, summary.cut_short), (50, true));

    for (merge_gap_bytes, mappings) in [(0, 3), (4096, 2), (1 << 20, 1)] {
        let options = ImportOptions { merge_gap_bytes, ..ImportOptions::default() };
        let summary = import_bytes(b"I  1000,4\n L 5000,8\n L 7000,8\n", ImportFormat::Auto, &options).unwrap();
        assert_eq!(summary.mappings, mappings, "gaps up to {merge_gap_bytes}");
    }

    let options = ImportOptions { assumed_size_bytes: 64, ..ImportOptions::default() };
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.trace");
    import(sample("champsim.bin"), &output, ImportFormat::Auto, &options, &mut quiet).unwrap();
    let (accesses, _) = content(&output);
    assert!(accesses.iter().all(|row| row[2] == if row[0] == AccessKind::Fetch as u64 { 1 } else { 64 }));
    for size in [0, 4097] {
        let options = ImportOptions { assumed_size_bytes: size, ..ImportOptions::default() };
        assert!(import_bytes(&lackey, ImportFormat::Auto, &options).unwrap_err().to_string().contains("1 to 4096"));
    }
}

/// The fuzz targets' seeds of each format.
fn seeds() -> Vec<(ImportFormat, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut seeds = Vec::new();
    for (format, name, _) in ImportFormat::KNOWN {
        let of_format = fs::read_dir(folder.join(format!("import_{}", name.replace('-', "_")))).unwrap();
        seeds.extend(of_format.map(|seed| (*format, seed.unwrap().path())));
    }
    seeds.sort_by_key(|(_, path)| path.clone());
    seeds
}

#[test]
fn seeds_are_recognised_and_read_back_whole() {
    for (format, path) in seeds() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out.trace");
        let summary = import(&path, &output, ImportFormat::Auto, &ImportOptions::default(), &mut quiet).unwrap();
        assert_eq!(summary.format, format, "{}", path.display());
        let of_accesses = read(&output).unwrap().into_iter().filter_map(|item| match item {
            Item::Access(_, access) => Some(u64::from(access.gap)),
            Item::Event(_) => None,
        });
        let gaps: Vec<u64> = of_accesses.collect();
        assert_eq!(
            (gaps.len() as u64, gaps.iter().sum()),
            (summary.accesses, summary.instructions),
            "{}",
            path.display()
        );
    }
}

/// Whatever happens to the bytes, there is a result or an error and no panic.
#[test]
fn damaged_inputs_never_panic() {
    let mut draw = Draw(case_seed(77));
    let samples = ["lackey.txt", "champsim.bin", "lackey.txt.gz", "champsim.bin.xz", "lackey.txt.zst"];
    let inputs = samples.map(|name| (ImportFormat::Auto, sample(name))).into_iter().chain(seeds());
    let options = ImportOptions { max_records: Some(10_000), max_accesses: Some(10_000), ..ImportOptions::default() };
    for (format, path) in inputs {
        let whole = fs::read(path).unwrap();
        for _ in 0..cases(25_u32) {
            let mut bytes = whole.clone();
            for _ in 0..=draw.below(3) {
                let at = draw.below(bytes.len() as u64) as usize;
                // Another byte, an extreme one, one more, or one less.
                match draw.below(4) {
                    0 => bytes[at] = draw.next() as u8,
                    1 => bytes[at] = [0, 0xff, 0x7f, 0x80][draw.below(4) as usize],
                    2 => bytes.insert(at, draw.next() as u8),
                    _ if bytes.len() > 1 => _ = bytes.remove(at),
                    _ => {}
                }
            }
            if draw.below(3) == 0 {
                bytes.truncate(draw.below(bytes.len() as u64) as usize);
            }
            let _ = import_bytes(&bytes, format, &options);
        }
    }
}
