//! Fault traces on disk: reading returns what was written, and damage is an error.

use std::{fs, num::NonZeroU32, path::Path};

use crate::support::{fault, info};
use pagelab_faults::{
    Fault, FaultAccess, FaultKind, FaultTraceInfo, FaultTraceReader, FaultTraceWriter, LatencyOrigin, process,
};
use pagelab_trace::cases;
use proptest::{collection::vec, prelude::*};

fn write(path: &Path, faults: &[Fault], info: FaultTraceInfo) -> FaultTraceInfo {
    let mut writer = FaultTraceWriter::create(path).unwrap();
    faults.iter().for_each(|fault| writer.append(fault).unwrap());
    writer.finish(info).unwrap()
}

fn read(path: &Path) -> Result<(FaultTraceInfo, Vec<Fault>), String> {
    let mut reader = FaultTraceReader::open(path).map_err(|error| error.to_string())?;
    let (mut all, mut some) = (Vec::new(), Vec::new());
    while reader.next(&mut some).map_err(|error| error.to_string())? {
        all.append(&mut some);
    }
    Ok((reader.info().clone(), all))
}

fn kinds() -> impl Strategy<Value = FaultKind> {
    let accesses = [None, Some(FaultAccess::Read), Some(FaultAccess::Write), Some(FaultAccess::Instruction)];
    (prop::sample::select(accesses.to_vec()), any::<bool>(), any::<bool>())
        .prop_map(|(access, present, by_kernel)| FaultKind { access, present, by_kernel })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(rows in vec((0_u64..1 << 40, any::<u16>(), any::<u64>(), kinds(), any::<(u32, u32, u32)>()), 0..400)) {
        let folder = tempfile::tempdir().unwrap();
        let mut faults: Vec<_> = rows.into_iter().map(|(time_ns, core, address, kind, (process, thread, latency))| {
            Fault { time_ns, core, address, kind, process, thread, latency_ns: NonZeroU32::new(latency) }
        }).collect();
        faults.sort_by_key(|fault| fault.time_ns);
        let path = folder.path().join("a.faults");
        let written = write(&path, &faults, info(7, 1));
        let (read_info, read_faults) = read(&path).unwrap();
        prop_assert_eq!(&read_faults, &faults);
        prop_assert_eq!(&read_info, &written);
        prop_assert_eq!((read_info.faults, read_info.cores), (faults.len() as u64, faults.iter().map(|f| u32::from(f.core) + 1).max().unwrap_or(1)));
        prop_assert_eq!(read_info.duration_ns, faults.last().map_or(7, |fault| fault.time_ns.max(7)));
    }

    /// If bytes change, reading yields the same faults or a one-line error.
    #[test]
    fn damage_is_an_error(cuts in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), keep in any::<prop::sample::Index>(), truncate in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.faults");
        let faults: Vec<_> = (0..500).map(|n| fault(n * n, (n % 3) as u16, 1000 + n as u32)).collect();
        write(&path, &faults, info(1 << 20, 3));
        let mut bytes = fs::read(&path).unwrap();
        for (at, value) in cuts {
            let len = bytes.len();
            bytes[at.index(len)] ^= value;
        }
        if truncate {
            bytes.truncate(keep.index(bytes.len()));
        }
        fs::write(&path, &bytes).unwrap();
        match read(&path) {
            Ok((_, read)) => prop_assert_eq!(read, faults),
            Err(error) => prop_assert!(error.contains("a.faults"), "{}", error),
        }
    }
}

#[test]
fn a_million_faults_are_several_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.faults");
    let made = process::parse("poisson:rate=1200K,cores=12,seconds=1,latency_p95_ns=3200", 1).unwrap();
    let (described, faults): (_, Vec<_>) = (made.info(), made.collect());
    let written = write(&path, &faults, described);
    assert!(faults.len() > pagelab_faults::format::GROUP_ROWS && written.threads == 12 && written.processes == 1);
    assert!(matches!(&written.latency, LatencyOrigin::PerFault { how } if how.contains("lognormal")));
    let (_, read) = read(&path).unwrap();
    assert!(read == faults);
    let bytes = fs::metadata(&path).unwrap().len() as f64 / faults.len() as f64;
    assert!(bytes < 12.0, "{bytes} bytes per fault");
}

#[test]
fn faults_out_of_order_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.faults");
    let mut writer = FaultTraceWriter::create(&path).unwrap();
    writer.append(&fault(100, 0, 5)).unwrap();
    let backwards = writer.append(&fault(99, 1, 5)).unwrap_err().to_string();
    assert_eq!(backwards, "a fault at 99 ns follows one at 100 ns; faults must be sorted by time");
}

#[test]
fn a_trace_appears_when_it_is_whole_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.faults");
    let names = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let mut writer = FaultTraceWriter::create(&path).unwrap();
    writer.append(&fault(100, 0, 5)).unwrap();
    assert_eq!(names(), [&*format!("a.faults.{}.tmp", std::process::id())]);
    drop(writer);
    assert!(names().is_empty());
    write(&path, &[fault(1, 0, 1)], info(5, 1));
    assert_eq!(names(), ["a.faults"]);
    let error = FaultTraceWriter::create(&path).err().unwrap().to_string();
    assert!(error.contains("exists; name another output"), "{error}");
}

#[test]
fn what_is_no_fault_trace_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.faults");
    for (content, says) in [
        (&b""[..], "not a fault trace, which is a Parquet file"),
        (b"PAR1", "not a whole"),
        (b"hello, world", "reads text of perf"),
    ] {
        fs::write(&path, content).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
    }
    assert!(read(folder.path()).unwrap_err().contains("a folder; a fault trace is a file"));
}
