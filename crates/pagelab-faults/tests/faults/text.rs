//! Text of perf and ftrace: valid text becomes faults, errors contain the line number, and nothing panics.

use std::{fs, path::Path};

use pagelab_faults::{Fault, FaultKind, FaultTraceInfo, LatencyOrigin, text};
use pagelab_trace::cases;
use proptest::{collection::vec, prelude::*};

fn read(content: &[u8], cores: Option<u32>) -> Result<(FaultTraceInfo, Vec<Fault>), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("faults.txt");
    fs::write(&path, content).unwrap();
    let mut faults = Vec::new();
    let read = text::read(&path, cores, &mut |fault| {
        faults.push(fault);
        Ok(())
    });
    read.map(|info| (info, faults)).map_err(|error| error.to_string())
}

const PERF: &str = "\
    cc1 70/70 [001]  10.000001500: exceptions:page_fault_user: address=0x7000 ip=0x1 error_code=0x6\n\
    cc1 70/71 [000]  10.000001400: exceptions:page_fault_user: address=0x8000 ip=0x1 error_code=0x14\n\
    cc1 70/71 [000]  10.000003000: sched:sched_switch: prev=1\n\
    swapper 0/0 [000]  10.000003000: PERF_RECORD_LOST lost 3\n\
    cc1 70/70 [001]  10.000004500: minor-faults:u:   9000\n";

#[test]
fn perf_script_is_read() {
    let content = PERF.lines().filter(|line| !line.contains("71 [000]  10.000001400")).collect::<Vec<_>>().join("\n");
    let (info, faults) = read(content.as_bytes(), Some(4)).unwrap();
    let times: Vec<_> = faults.iter().map(|f| (f.time_ns, f.core, f.process, f.thread, f.address)).collect();
    assert_eq!(times, [(0, 1, 70, 70, 0x7000), (3000, 1, 70, 70, 0x9000)]);
    assert_eq!((faults[0].kind, faults[1].kind), (FaultKind::FIRST_WRITE, FaultKind::default()));
    assert_eq!((info.cores, info.lost, info.faults, info.duration_ns), (4, 3, 2, 3000));
    assert_eq!(info.latency, LatencyOrigin::Unknown);
    assert!(info.notes.iter().any(|note| note == "1 lines of other events were left out"), "{:?}", info.notes);
}

#[test]
fn ftrace_is_read_plain_and_compressed() {
    let content = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/5   #P:2\n#\n\
        ls-25270   [001] d....  1270.192648: page_fault_user: address=0x7f38 ip=0x7f38 error_code=0x14\n\
        CPU:0 [LOST 4 EVENTS]\n\
        a b-c-7   [000] d....  1270.192660: page_fault_user: address=0x5000 ip=0x1 error_code=0x7\n";
    let (info, faults) = read(content.as_bytes(), None).unwrap();
    assert_eq!((info.cores, info.lost, faults.len(), info.duration_ns), (2, 6, 2, 12_000));
    assert!((faults[1].thread, faults[1].kind.present) == (7, true));
    let other_core = content.replace("[000]", "[002]");
    let error = read(other_core.as_bytes(), None).unwrap_err();
    assert!(error.contains("line 7 of this ftrace text: core 2 of a machine with cores 0 to 1"), "{error}");
}

#[test]
fn errors_name_the_line_and_what_would_be_right() {
    let line = |core: &str, time: &str| format!("a 1/1 [{core}] {time}: minor-faults: 7000\n");
    for (content, says) in [
        (
            line("000", "2.0") + &line("001", "2.5") + &line("000", "1.999999999"),
            "line 3 of this perf script text: time runs backwards on core 0, from 2.000000000 s to 1.999999999 s; expected",
        ),
        (
            line("000", "2.0") + &line("001", "1.5"),
            "line 2 of this perf script text: 1.500000000 s is before the first fault",
        ),
        (line("000", "2.0") + "rubbish\n", "line 2 of this perf script text: expected `command pid/tid"),
        (line("70000", "2.0"), "line 1 of this perf script text: core 70000 of a machine with cores 0 to 65535"),
        (line("000", "2.0") + &"x".repeat(70_000), "line 2 of this perf script text: longer than 65536 bytes"),
        ("# nothing\n".to_owned(), "no page fault in it; expected is text of perf script or ftrace"),
        (String::new(), "no page fault in it"),
        ("\u{7f}ELF\0\0".to_owned(), "this is not text; expected is text of perf script"),
    ] {
        let error = read(content.as_bytes(), None).unwrap_err();
        assert!(error.contains(says) && error.contains("faults.txt"), "{error}");
    }
    let error = read(line("004", "2.0").as_bytes(), Some(4)).unwrap_err();
    assert!(error.contains("core 4 of a machine with cores 0 to 3"), "{error}");
    assert!(text::read(Path::new("/nowhere"), None, &mut |_| Ok(())).is_err());
}

/// Words of valid lines, and others.
fn word() -> impl Strategy<Value = String> {
    let known = [
        "cc1",
        "70/71",
        "70",
        "-",
        "cc1-70",
        "(70)",
        "[001]",
        "[99999999999]",
        "10.5:",
        "10.:",
        "99999999999.9:",
        "d....",
        "exceptions:page_fault_user:",
        "page_fault_user:",
        "minor-faults:u:",
        "address=0x7000",
        "address=0x",
        "address=é",
        "error_code=0x6",
        "error_code=0xffffffffffffffffff",
        "7f00",
        "PERF_RECORD_LOST",
        "lost",
        "3",
        "CPU:1",
        "[LOST",
        "#",
        "# tracer: nop\n",
        "# entries-in-buffer/entries-written:",
        "5/3",
        "#P:0",
        "#P:2",
        "\n",
        ":",
        "é\u{0}",
    ];
    prop_oneof![10 => prop::sample::select(known.map(str::to_owned).to_vec()), 1 => "\\PC{0,8}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(words in vec(word(), 0..40)) {
        let content = words.join(" ");
        if let Err(error) = read(content.as_bytes(), None) {
            prop_assert!(error.contains("faults.txt"), "{}", error);
        }
    }

    #[test]
    fn bytes_do_not_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes, None);
    }

    /// One changed byte in valid text: faults, or an error with a line number, or an error that the text has no faults.
    #[test]
    fn changed_text_does_not_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = PERF.as_bytes().to_vec();
        let len = bytes.len();
        bytes[at.index(len)] = byte;
        if let Err(error) = read(&bytes, None) {
            let known = ["line ", "no page fault", "this is not text"];
            prop_assert!(known.iter().any(|part| error.contains(part)), "{}", error);
        }
    }
}
