//! Imports bytes as a format; what is imported must read back whole.

use std::{fs, ops::ControlFlow, path::PathBuf, sync::OnceLock};

use pagelab_trace::{
    Batch, Source, TraceReader,
    import::{Format, ImportOptions, import},
};

fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap().keep())
}

/// Not used by every target.
#[allow(dead_code)]
pub fn check(data: &[u8], format: Format) {
    check_with(data, format, &ImportOptions::default());
}

/// With options, except limits.
pub fn check_with(data: &[u8], format: Format, options: &ImportOptions) {
    let (input, output) = (folder().join("input"), folder().join("out.trace"));
    fs::write(&input, data).unwrap();
    let options = ImportOptions { max_accesses: Some(100_000), max_records: Some(100_000), ..options.clone() };
    let result = import(&input, &output, format, &options, &mut |_| ControlFlow::Continue(()));
    let Ok(summary) = result else {
        assert!(!output.exists(), "a failed import left something");
        return;
    };
    let mut reader = TraceReader::open(&output).unwrap();
    let (mut batch, mut accesses, mut instructions) = (Batch::default(), 0, 0);
    while reader.next_batch(&mut batch).unwrap() {
        accesses += batch.accesses.len() as u64;
        instructions += batch.accesses.iter().map(|access| u64::from(access.gap)).sum::<u64>();
    }
    assert_eq!((accesses, instructions), (summary.accesses, summary.instructions));
    fs::remove_dir_all(&output).unwrap();
}
