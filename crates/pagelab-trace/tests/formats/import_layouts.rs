//! Inputs that were once misread in silence: each is read as what it is, or refused with what would decide it.

use std::fs;

use crate::support::{Item, read};
use pagelab_trace::{
    AccessKind, TraceError, TraceReader,
    import::{ImportFormat, ImportOptions, ImportSummary, import},
};

const LOAD: u64 = AccessKind::Load as u64;
const STORE: u64 = AccessKind::Store as u64;
const FETCH: u64 = AccessKind::Fetch as u64;

struct Imported {
    summary: ImportSummary,
    /// Kind, address and process of each access.
    accesses: Vec<(u64, u64)>,
    notes: Vec<String>,
    losses: Vec<String>,
}

fn import_with(bytes: &[u8], format: ImportFormat, options: &ImportOptions) -> Result<Imported, TraceError> {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("input"), dir.path().join("out.trace"));
    fs::write(&input, bytes).unwrap();
    let result = import(&input, &output, format, options, &mut |_| std::ops::ControlFlow::Continue(()));
    assert_eq!(output.exists(), result.is_ok(), "a failed import leaves nothing");
    let summary = result?;
    let accesses = read(&output).unwrap().into_iter().filter_map(|item| match item {
        Item::Access(_, access) => Some((access.kind as u64, access.vaddr)),
        Item::Event(_) => None,
    });
    let meta = TraceReader::open(&output).unwrap().meta().clone();
    Ok(Imported { summary, accesses: accesses.collect(), notes: meta.notes, losses: meta.losses })
}

fn import_auto(bytes: &[u8]) -> Imported {
    import_with(bytes, ImportFormat::Auto, &ImportOptions::default()).unwrap()
}

#[track_caller]
fn refused(bytes: &[u8], options: &ImportOptions, expected: &[&str]) {
    let error = import_with(bytes, ImportFormat::Auto, options).err().expect("refused").to_string();
    for part in expected {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

impl Imported {
    #[track_caller]
    fn notes_say(&self, part: &str) {
        assert!(self.notes.iter().any(|note| note.contains(part)), "{:?} do not say {part:?}", self.notes);
    }
}

fn entries(items: &[(u16, u16, u64)]) -> Vec<u8> {
    let entry = |&(kind, size, value): &(u16, u16, u64)| {
        [&kind.to_le_bytes()[..], &size.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    items.iter().flat_map(entry).collect()
}

/// A DynamoRIO thread's file with `items` in it, of x86-64 and the newest version.
fn thread_file(items: &[(u16, u16, u64)]) -> Vec<u8> {
    let begin = [(25, 0, 7), (28, 12, 7), (28, 9, 0x40), (22, 0, 9), (24, 0, 9), (28, 2, 1000)];
    [entries(&begin), entries(items), entries(&[(23, 0, 9), (26, 0, 0)])].concat()
}

const KERNEL: u64 = 0xffff_ffff_8100_0000;

#[test]
fn the_kernel_s_parts_of_dynamorio_s_traces_are_left_out_and_counted() {
    let user = |number: u64| [(10, 4, 0x40_0000 + 4 * number), (0, 8, 0x60_0000 + 4096 * number)];
    // Low addresses, as the markers alone decide.
    let kernel = [(10, 4, 0x70_0000), (1, 8, 0x80_0000), (0, 8, 0x80_1000)];
    for (begin, end) in [(27, 28), (34, 35), (43, 44)] {
        let part = [&[(28, begin, 1)][..], &kernel, &[(28, end, 1)]].concat();
        let items: Vec<_> = (0..5).flat_map(|number| [&user(number)[..], &part].concat()).collect();
        let imported = import_auto(&thread_file(&items));
        let summary = &imported.summary;
        assert_eq!((summary.instructions, summary.accesses - summary.fetches), (5, 5), "{begin}");
        assert_eq!(summary.left_out, 15, "5 instructions, 5 stores, 5 loads");
        imported.notes_say("15 instructions and accesses of the kernel were left out");
    }
}

#[test]
fn interrupts_within_system_calls_and_each_other_end_where_the_last_one_ends() {
    let items = [
        (10, 4, 0x40_0000),
        (28, 27, 1), // a system call
        (10, 4, 0x70_0000),
        (28, 43, 0), // an interrupt in it, and one in that
        (10, 4, 0x70_0100),
        (28, 43, 0),
        (10, 4, 0x70_0200),
        (28, 44, 0),
        (0, 8, 0x80_0000),
        (28, 44, 0),
        (0, 8, 0x80_1000),
        (28, 28, 1),
        (10, 4, 0x40_0004),
        (0, 8, 0x60_0000),
    ];
    let imported = import_auto(&thread_file(&items));
    assert_eq!((imported.summary.instructions, imported.summary.left_out), (2, 5));
    assert_eq!(imported.accesses, [(FETCH, 0x40_0000), (LOAD, 0x60_0000)]);
    // The same without the system call around them.
    let alone: Vec<_> =
        items.into_iter().filter(|item| !matches!(item, (28, 27 | 28, _) | (_, _, 0x70_0000))).collect();
    let imported = import_auto(&thread_file(&alone));
    assert_eq!((imported.summary.instructions, imported.summary.left_out), (2, 3));
    assert_eq!(imported.accesses, [(FETCH, 0x40_0000), (LOAD, 0x80_1000), (LOAD, 0x60_0000)]);
}

/// A whole-system trace does not mark every way into the kernel and back.
#[test]
fn instructions_of_the_kernel_s_half_need_no_marker() {
    let items = [
        (10, 4, 0x40_0000),
        (10, 4, KERNEL),
        (0, 8, 0x60_0000), // the kernel reads the program's memory
        (10, 4, 0x40_0004),
        (0, 8, 0x61_0000),
        (28, 43, 0),
        (10, 4, KERNEL),
        (10, 4, 0x40_0008), // back without a marker
        (0, 8, 0x62_0000),
    ];
    let imported = import_auto(&thread_file(&items));
    assert_eq!((imported.summary.instructions, imported.summary.left_out), (3, 3));
    assert_eq!(imported.accesses, [(FETCH, 0x40_0000), (LOAD, 0x61_0000), (LOAD, 0x62_0000)]);
}

#[test]
fn a_trace_of_the_kernel_alone_is_refused_with_what_was_left_out() {
    let sequence = [(28, 34, 1), (10, 4, KERNEL), (0, 8, 0xffff_8880_0000_1000), (28, 35, 1)];
    refused(&thread_file(&sequence), &ImportOptions::default(), &["no instructions", "2 records were left out"]);
    let items = [(10, 4, 0x40_0000), (0, 8, 0x1000)];
    let version = [entries(&[(25, 0, 8), (22, 0, 9), (24, 0, 9)]), entries(&items)].concat();
    refused(&version, &ImportOptions::default(), &["offset 0", "version 8", "1 to 7 are known"]);
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn text(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// Packets of gem5: command, address, flags and requestor of each.
fn packets(requestors: &[(u64, &str)], packets: &[(u64, u64, u64, u64)]) -> Vec<u8> {
    let framed = |content: Vec<u8>| [varint(content.len() as u64), content].concat();
    let mut header = [text(1, b"system.monitor"), number(2, 0), number(3, 1_000_000_000_000)].concat();
    for (key, name) in requestors {
        header.extend(text(4, &[number(1, *key), text(2, name.as_bytes())].concat()));
    }
    let mut bytes = [&b"gem5"[..], &framed(header)].concat();
    for (index, &(command, address, flags, requestor)) in packets.iter().enumerate() {
        let fields = [(1, index as u64), (2, command), (3, address), (4, 8), (5, flags), (6, requestor)];
        bytes.extend(framed(fields.into_iter().flat_map(|(field, value)| number(field, value)).collect()));
    }
    bytes
}

#[test]
fn requests_of_gem5_s_walkers_and_prefetchers_are_left_out() {
    let names = [
        (1, "system.cpu.data"),
        (2, "system.cpu.mmu.dtb.walker"),
        (3, "system.cpu.itb_walker"),
        (4, "system.l2.prefetcher"),
    ];
    let trace = packets(
        &names,
        &[
            (1, 0x1000, 0x200, 2),       // by a physical address, as on x86 and RISC-V
            (1, 0x2000, 0x2000_0000, 1), // a walk by its flag, as on ARM
            (4, 0x3000, 0, 2),           // a walker writes an accessed bit
            (1, 0x4000, 0, 3),
            (24, 0x5000, 0, 4), // a prefetch below its cache
            (1, 0x1_0000, 0, 1),
            (1, 0x6000, 0x200, 9), // a requestor without a name
            (4, 0x2_0000, 0, 1),
        ],
    );
    let imported = import_auto(&trace);
    assert_eq!(imported.accesses, [(LOAD, 0x1_0000), (STORE, 0x2_0000)]);
    assert_eq!((imported.summary.left_out, imported.summary.threads), (6, 1));
    imported.notes_say("6 requests were left out");
    let walks = packets(&names, &[(1, 0x1000, 0x200, 2), (1, 0x2000, 0, 3)]);
    refused(&walks, &ImportOptions::default(), &["nothing to replay", "2 requests", "page walkers", "a CPU's port"]);
}

#[test]
fn requestors_of_gem5_that_are_no_cpu_are_named() {
    let names = [(1, "system.cpu.data"), (2, "system.ide"), (3, "system.tgen")];
    let trace = packets(&names, &[(1, 0x1000, 0, 1), (4, 0x2000, 0, 2), (1, 0x3000, 0, 3)]);
    let imported = import_auto(&trace);
    assert_eq!(imported.summary.threads, 3);
    imported.notes_say("no CPU's became threads of their own: system.ide, system.tgen");
    let alone = import_auto(&packets(&names, &[(1, 0x1000, 0, 1)]));
    assert!(!alone.notes.iter().any(|note| note.contains("threads of their own")), "{:?}", alone.notes);
}

#[test]
fn a_text_of_several_processes_says_so() {
    let several = import_auto(
        b"==21== Lackey\n==21== Command: sh\nI  04001000,3\n S 1ffefff000,8\n--22-- note\n==22== Lackey\nI  04001000,3\n S \
          1ffefff000,8\n",
    );
    several.notes_say("2 processes, taken for one");
    let [loss] = &several.losses[..] else { panic!("not one loss: {:?}", several.losses) };
    assert!(loss.contains("several processes (21, 22), whose accesses cannot be told apart"), "{loss}");
    assert!(loss.contains("--log-file=lackey.%p"), "{loss}");
    assert!(!several.notes.iter().any(|note| note.contains("one process, one thread")), "{:?}", several.notes);
    let one = import_auto(b"==21== Lackey\nI  04001000,3\n S 1ffefff000,8\n==21== done\n");
    one.notes_say("one process, one thread");
    assert!(one.losses.is_empty(), "{:?}", one.losses);
}

#[test]
fn addresses_wider_than_page_tables_are_refused_or_lose_their_tags() {
    let (as_is, untagged) = (ImportOptions::default(), ImportOptions { remove_tags: true, ..ImportOptions::default() });
    let text = b"I  00400000,3\n L 100000001000,8\n S 5a00100000001000,8\n";
    refused(text, &as_is, &["line 3", "0x5a00100000001000", "--remove-tags", "0x100000001000"]);
    let imported = import_with(text, ImportFormat::Auto, &untagged).unwrap();
    assert_eq!(imported.accesses, [(FETCH, 0x40_0000), (LOAD, 0x1000_0000_1000), (STORE, 0x1000_0000_1000)]);
    assert_eq!(imported.summary.mappings, 2);
    imported.notes_say("taken for a tag and removed");

    // The same page with four tags, as AArch64 has them.
    let tagged: Vec<_> = (0..4)
        .flat_map(|tag| [(10, 4, 0x40_0000 + 4 * tag), (0, 8, tag * 0x1100_0000_0000_0000 + 0x7f00_0000_1000)])
        .collect();
    refused(&thread_file(&tagged), &as_is, &["offset 108", "0x11007f0000001000"]);
    let imported = import_with(&thread_file(&tagged), ImportFormat::Auto, &untagged).unwrap();
    assert!(imported.accesses.iter().all(|&(kind, address)| kind == FETCH || address == 0x7f00_0000_1000));

    for (bytes, place) in [
        (&b"LD 0x9a00000000001000\n"[..], "line 1"),
        (b"t 1/2 5.1: mem-stores:     7f0000001000     55e000001000\nt 1/2 5.1: mem-stores: b40000007f001000     55e000001000\n", "line 2"),
        (&packets(&[(1, "cpu.data")], &[(1, 0x9a00_0000_0000_1000, 0, 1)]), "offset"),
    ] {
        refused(bytes, &as_is, &[place, "--remove-tags"]);
        import_with(bytes, ImportFormat::Auto, &untagged).unwrap();
    }
}

#[test]
fn addresses_of_the_kernel_s_half_are_refused_or_left_out() {
    let text =
        b"I  00400000,3\n L 100000001000,8\n L ffff100000001000,8\nI  ffffffff81000000,3\n L 100000002000,8\nI  \
                 00400003,3\n S 100000003000,8\n";
    refused(text, &ImportOptions::default(), &["line 3", "0xffff100000001000", "--leave-out-kernel"]);
    let without = ImportOptions { leave_out_kernel: true, ..ImportOptions::default() };
    let imported = import_with(text, ImportFormat::Auto, &without).unwrap();
    // What an instruction of the kernel accesses is the kernel's, wherever it is.
    assert_eq!(imported.accesses, [(FETCH, 0x40_0000), (LOAD, 0x1000_0000_1000), (STORE, 0x1000_0000_3000)]);
    assert_eq!((imported.summary.instructions, imported.summary.left_out), (2, 3));
}

#[test]
fn samples_of_perf_without_an_address_are_refused() {
    let options = ImportOptions::default();
    let source = "|OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A";
    for line in [
        format!("app 41/41 [000] 10.000001:  1 memory:  68100142 {source}  55e0c0001100 main+0x10 (/app)\n"),
        // An instruction's address alone, and with a physical one.
        "app 41/41 10.000001:  1 cpu-clock:      55e0c0001100\n".to_owned(),
        "app 41/41 10.000001:  1 cpu-clock:      55e0c0001100 main+0x10 (/app)\n".to_owned(),
        "app 41/41 10.000001:  1 mem-loads:      55e0c0001100       10a0c00010\n".to_owned(),
    ] {
        refused(
            line.as_bytes(),
            &options,
            &["line 1", "without the address of its data", "perf script -F", "--fields"],
        );
    }
    // A weight has the columns of an address.
    let weights = "app 41/41 10.000001: mem-loads:              233     55e0c0001100\n";
    refused(weights.as_bytes(), &options, &["address of the data, of an instruction, or a weight", "--fields"]);
    let mixed = format!("{weights}app 41/41 10.000001: mem-loads:     7f0000a01000     55e0c0001100\n");
    assert_eq!(import_auto(mixed.as_bytes()).accesses[1], (LOAD, 0x233));
    refused(b"a 1/2 5.1: page-faults: 7f0000001000\n", &options, &["may be the address", "--fields comm,pid"]);
    let chain = b"a 1/2 5.1: page-faults:     7f0000001000 \n\t    55e0c0001100 main+0x10 (/app)\n\n";
    refused(chain, &options, &["line 2", "call chain", "perf script -G"]);
}

#[test]
fn fields_of_perf_are_read_by_their_names() {
    let with = |names: &str| ImportOptions { fields: Some(names.to_owned()), ..ImportOptions::default() };
    let import = |text: &str, names: &str| import_with(text.as_bytes(), ImportFormat::Auto, &with(names));
    let bare = import("7f0000001000\n7f0000002000\n", "addr").unwrap();
    assert_eq!((bare.accesses.len(), bare.summary.threads), (2, 1));
    let processes = import("a 7 7f0000001000\na 8 7f0000001000\n", "comm,pid,addr").unwrap();
    assert_eq!((processes.summary.processes, processes.summary.threads), (2, 2));
    let weighted =
        import("a 1/2 5.1: mem-loads:  123456 233 401000\n", "comm,pid,tid,time,event,addr,weight,ip").unwrap();
    assert_eq!(weighted.accesses, [(FETCH, 0x40_1000), (LOAD, 0x12_3456)]);
    for (text, names, part) in [
        ("a 1/2 10\n", "comm,ip", "without addr"),
        ("a 1/2 10\n", "comm,address", "\"address\" is no field"),
        ("a 1/2 10\n", "comm,pid,tid,time,addr", "line 1"),
    ] {
        let error = import(text, names).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
    let other = import_with(b"I  10,2\n", ImportFormat::Lackey, &with("addr")).err().unwrap().to_string();
    assert!(other.contains("--fields is of perf's text, not of format lackey"), "{other}");
}

#[test]
fn operations_of_perf_samples_come_from_words_or_names() {
    let line = |op: &str, address: u64| {
        format!(
            "   app 41/41 [000] 10.000001:  1 memory:  {address:x}  4440068100142 |OP {op}|LVL L1 hit|SNP None|TLB Walker \
             hit|LCK No|BLK  N/A|AFF PRED  55e0c0001100 main+0x10 (/app)\n"
        )
    };
    let text =
        [line("STORE SIMD", 0xffff_9000_1000), line("STORE", 0xffff_9000_2000), line("PFETCH", 0xffff_9000_3000)];
    let imported = import_auto(text.concat().as_bytes());
    assert_eq!(imported.accesses[1..], [(STORE, 0xffff_9000_1000), (STORE, 0xffff_9000_2000)]);
    assert_eq!(imported.summary.left_out, 1, "the prefetch");
    let capitals = b"a 1/2 5.1: MEM_INST_RETIRED.ALL_STORES:     7f0000001000     55e0c0001100\n";
    assert_eq!(import_auto(capitals).accesses[1].0, STORE);
    let fault = b"a 1/2 5.1: page-faults:     7f0000001000     55e0c0001100\n";
    import_auto(fault).notes_say("1 sample does not tell whether it loads or stores");
}

#[test]
fn records_of_uncertain_size_need_the_format() {
    // Six instructions of which nothing is known: records of 64 bytes or of 96.
    refused(&[0; 384], &ImportOptions::default(), &["64 bytes", "96", "--record-bytes"]);
    let of_size = |bytes| ImportOptions { record_bytes: Some(bytes), ..ImportOptions::default() };
    let mut known = [0; 192];
    for record in 0..2u64 {
        known[record as usize * 96..][..8].copy_from_slice(&(0x40_0000 + record * 8192).to_le_bytes());
        known[record as usize * 96 + 56..][..8].copy_from_slice(&0x60_0000u64.to_le_bytes());
    }
    let imported = import_with(&known, ImportFormat::Auto, &of_size(96)).unwrap();
    assert_eq!((imported.summary.format, imported.summary.instructions), (ImportFormat::CloudSuite, 2));
    for (options, format, part) in [
        (of_size(80), ImportFormat::Auto, "--record-bytes 80"),
        (of_size(96), ImportFormat::Lackey, "not of format lackey"),
        (of_size(96), ImportFormat::ChampSim, "not of format champsim"),
    ] {
        let error = import_with(&known, format, &options).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
    refused(b"2 408000\n0 10019\n", &ImportOptions::default(), &["Dinero", "--format ramulator"]);
    assert!(import_with(b"2 408000\n0 10019\n", ImportFormat::Ramulator, &ImportOptions::default()).is_ok());
}

#[test]
fn a_format_that_is_asked_for_against_the_content_is_noted() {
    let imported = import_with(b"0x12345680 R\n", ImportFormat::Ramulator, &ImportOptions::default()).unwrap();
    assert!(!imported.notes.iter().any(|note| note.contains("as asked for")), "{:?}", imported.notes);
    let lackey_at_first = b"I  10,2\n L 1000,8\n";
    let error =
        import_with(lackey_at_first, ImportFormat::Ramulator, &ImportOptions::default()).err().unwrap().to_string();
    assert!(error.contains("looks like lackey"), "{error}");
}
