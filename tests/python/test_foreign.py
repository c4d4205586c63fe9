"""Traces of other tools, made by scripts of this file or by the tools: imported, run, exported, imported again."""

import bz2
import gzip
import json
import lzma
import shutil
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest
from conftest import Pagelab, assert_fails

LOAD, STORE, MODIFY, FETCH = range(4)

Row = tuple[int, int, int, int, int, int]


def rows(trace: Path) -> list[Row]:
    """Kind, address, size, pc, thread and gap of every access."""
    table = pl.read_parquet(sorted(trace.glob("accesses-*.parquet")))
    return list(table.select("kind", "vaddr", "size", "pc", "tid", "gap").iter_rows())


def about(pagelab: Pagelab, trace: str) -> dict[str, object]:
    return json.loads(pagelab("trace", "info", trace, "--json").stdout)  # type: ignore[no-any-return]


def entries(items: Iterable[tuple[int, int, int]]) -> bytes:
    return b"".join(struct.pack("<HHQ", *item) for item in items)


def test_threads_of_dynamorio_take_turns_by_their_times(pagelab: Pagelab, tmp_path: Path) -> None:
    begin = [(25, 0, 5), (28, 12, 5), (28, 9, 0x40)]
    first = [
        *begin,
        *[(22, 0, 501), (24, 0, 500), (28, 10, 64), (28, 2, 1000), (28, 3, 1)],
        *[(47, 3, 0xC3), (10, 3, 0x401000), (0, 8, 0x7FFC0000), (17, 2, 0x0204)],
        *[(28, 2, 3000), (28, 3, 1), (1, 4, 0x7FFC0008), (2, 64, 0x9000), (28, 21, 0)],
    ]
    # A chunk says the time again.
    rest = [(28, 22, 12), (28, 2, 3000), (28, 3, 1), (29, 2, 0x401003), (0, 1, 0x7FFC0010), (23, 0, 501), (26, 0, 0)]
    second = [*begin, (22, 0, 502), (24, 0, 500), (28, 2, 2000), (49, 2, 0x402000), (1, 16, 0x7FFD0000), (26, 0, 0)]
    folder = tmp_path / "drmemtrace.sort.500.1.dir" / "trace"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "drmemtrace.sort.501.trace.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chunk.0000", entries(first))
        archive.writestr("chunk.0001", entries(rest))
    (folder / "drmemtrace.sort.502.trace.gz").write_bytes(gzip.compress(entries(second)))
    (folder / "cpu_schedule.bin.zip").write_bytes(b"not of a thread")

    done = pagelab("trace", "import", "drmemtrace.sort.500.1.dir", "-o", "d.trace")
    assert done.returncode == 0, done.stderr
    assert "accesses from drmemtrace, 2 threads, 1 record left out" in done.stdout
    assert rows(tmp_path / "d.trace") == [
        (FETCH, 0x401000, 3, 0x401000, 0, 1),
        (LOAD, 0x7FFC0000, 8, 0x401000, 0, 0),
        (FETCH, 0x402000, 2, 0x402000, 1, 1),
        (STORE, 0x7FFD0000, 16, 0x402000, 1, 0),
        # A bundle of two instructions, of 4 and 2 bytes, is before this store.
        (STORE, 0x7FFC0008, 4, 0x401007, 0, 2),
        (LOAD, 0x7FFC0010, 1, 0x401003, 0, 0),
    ]
    facts = about(pagelab, "d.trace")
    assert facts["event_counts"]["by_kind"]["thread_exit"] == 1  # type: ignore[index]
    assert facts["event_counts"]["processes"] == 1  # type: ignore[index]
    single = pagelab("trace", "import", str(folder / "drmemtrace.sort.502.trace.gz"), "-o", "one.trace")
    assert single.returncode == 0, single.stderr
    assert len(rows(tmp_path / "one.trace")) == 2


def test_archives_are_bounded_and_checked(pagelab: Pagelab, tmp_path: Path) -> None:
    data = entries([(25, 0, 5), (22, 0, 1), (24, 0, 1), (28, 2, 9), (10, 4, 0x1000), (0, 8, 0x2000)])

    def archive(name: str, members: dict[str, bytes]) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as file:
            for member, content in members.items():
                file.writestr(member, content)
        return tmp_path / name

    archive("gap.zip", {"chunk.0000": data, "chunk.0002": data})
    assert_fails(pagelab("trace", "import", "gap.zip"), 1, "gap.zip", "chunk.0001 is missing")
    archive("two.zip", {"a.txt": b"I  10,2\n", "b.txt": b"I  10,2\n"})
    assert_fails(pagelab("trace", "import", "two.zip"), 1, "two.zip", "no chunk.NNNN")
    archive("empty.zip", {})
    assert_fails(pagelab("trace", "import", "empty.zip"), 1, "empty.zip", "no file")
    lying = archive("lying.zip", {"chunk.0000": data})
    content = bytearray(lying.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 0xFFFFFFF0)
    lying.write_bytes(content)
    assert_fails(pagelab("trace", "import", "lying.zip"), 1, "lying.zip", "chunk.0000", "size or its CRC-32")

    # A gigabyte of loads in a megabyte: the limit ends it early, whatever there is.
    bomb = entries([(25, 0, 5), (22, 0, 1), (24, 0, 1), (28, 2, 9)]) + entries([(0, 8, 0x2000)]) * 10_000_000
    archive("bomb.zip", {"chunk.0000": bomb})
    done = pagelab("trace", "import", "bomb.zip", "--max", "1000")
    assert done.returncode == 0, done.stderr
    assert "996 accesses from drmemtrace, where it was stopped" in done.stdout
    archive("text.zip", {"trace.txt": b"LD 0x1000\nST 0x2000\n"})
    assert "2 accesses from ramulator" in pagelab("trace", "import", "text.zip", "-o", "text.trace").stdout


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    out = b""
    for key, value in fields:
        if isinstance(value, bytes):
            out += varint(key << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(key << 3) + varint(value)
    return out


def framed(content: bytes) -> bytes:
    return varint(len(content)) + content


def test_packets_of_gem5(pagelab: Pagelab, tmp_path: Path) -> None:
    names = {0: b"writebacks", 5: b"system.cpu0.data", 6: b"system.cpu0.inst", 7: b"system.cpu1.data"}
    header = message(
        (1, b"system.monitor"), (2, 0), (3, 10**12), *((4, message((1, k), (2, v))) for k, v in names.items())
    )
    packets = [
        # tick, command, address, size, flags, requestor, pc
        (10, 1, 0x10001000, 4, 0x100, 6, 0),
        (20, 1, 0x20000000, 8, 0, 5, 0x10001000),
        (30, 4, 0x20000040, 64, 0, 7, 0),
        (40, 2, 0x20000000, 8, 0, 5, 0),
        (50, 7, 0x20000000, 64, 0, 0, 0),
        (60, 1, 0x30000000, 8, 0x20000000, 5, 0),
        (70, 34, 0xFFFF_FFFF_F000 - 64, 8, 0, 5, 0x10001004),
    ]
    content = b"gem5" + framed(header)
    for packet in packets:
        fields = [(key, value) for key, value in zip(range(1, 8), packet, strict=True) if key < 7 or value]
        content += framed(message(*fields) + varint(20 << 3 | 5) + b"more")
    (tmp_path / "mon.trc.gz").write_bytes(gzip.compress(content))
    done = pagelab("trace", "import", "mon.trc.gz", "-o", "g.trace")
    assert done.returncode == 0, done.stderr
    assert "from gem5, 2 threads, 3 records left out" in done.stdout
    assert rows(tmp_path / "g.trace") == [
        (FETCH, 0x10001000, 4, 0x10001000, 0, 0),
        (LOAD, 0x20000000, 8, 0x10001000, 0, 1),
        (STORE, 0x20000040, 64, 0, 1, 1),
        (MODIFY, 0xFFFF_FFFF_F000 - 64, 8, 0x10001004, 0, 1),
    ]
    assert "physical addresses" in pagelab("trace", "info", "g.trace").stdout

    instructions = b"gem5" + framed(message((1, b"system.cpu"), (2, 0), (3, 10**12), (4, 1)))
    (tmp_path / "inst.trc").write_bytes(instructions)
    assert_fails(pagelab("trace", "import", "inst.trc"), 1, "inst.trc", "offset 4", "instruction trace of gem5")
    huge = b"gem5" + framed(header) + varint(1 << 60)
    (tmp_path / "huge.trc").write_bytes(huge)
    assert_fails(
        pagelab("trace", "import", "huge.trc"), 1, "huge.trc", f"offset {4 + len(framed(header))}", str(1 << 60)
    )
    (tmp_path / "cut.trc").write_bytes(content[:-3])
    assert_fails(pagelab("trace", "import", "cut.trc"), 1, "cut.trc", "cut off within a message")


def test_texts_of_ramulator(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("LD 0x1000\nST 8192\n")
    (tmp_path / "b.txt").write_text("0x12345680 R\n0x4cbd56c0 W\n")
    (tmp_path / "c.txt").write_text("3 20734016\n0 16384 0x5000\n")
    for name in "abc":
        assert pagelab("trace", "import", f"{name}.txt").returncode == 0
    assert rows(tmp_path / "a.trace") == [(LOAD, 0x1000, 8, 0, 0, 1), (STORE, 0x2000, 8, 0, 0, 1)]
    assert rows(tmp_path / "b.trace") == [(LOAD, 0x12345680, 8, 0, 0, 1), (STORE, 0x4CBD56C0, 8, 0, 0, 1)]
    assert rows(tmp_path / "c.trace") == [
        (LOAD, 20734016, 8, 0, 0, 4),
        (LOAD, 0x4000, 8, 0, 0, 1),
        (STORE, 0x5000, 8, 0, 0, 0),
    ]
    (tmp_path / "one.txt").write_text("LD 0x1000\n")
    done = pagelab("trace", "import", "one.txt")
    assert "1 access from ramulator; 1 mapping was inferred from them" in done.stdout, done.stderr
    done = pagelab("trace", "export", "one.trace", "-o", "again.txt", "-f", "lackey")
    assert "1 instruction and 1 access of thread 0" in done.stdout, done.stderr
    (tmp_path / "dram.txt").write_text("R 0,1,2,3,4,5\n")
    assert_fails(pagelab("trace", "import", "dram.txt"), 1, "dram.txt", "line 1", "place in DRAM")


MEM = "|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A"


def test_samples_are_said_to_be_samples(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "mem.txt").write_text(
        f"a b: c 7/8 [000] 5.000001:  9 cpu/mem-loads,ldlat=30/P: 7f0d3c2b1a40 5080022 |OP LOAD{MEM} 7 401e10 f+0x1\n"
        f"d 9/9 [001] 5.000002:  9 cpu/mem-stores/P: 7f0d3c2b1a48 5080022 |OP STORE{MEM} 0 401e20 g+0x1 (/x)\n"
        f"d 9/9 [001] 5.000003:  9 cpu/mem-loads,ldlat=30/P: ffff888012345678 522 |OP LOAD{MEM} 0 ffffffff81001000\n"
        f"d 9/9 [001] 5.000004:  9 cpu/mem-loads,ldlat=30/P: 7f0d3c2b1a50 5080022 |OP LOAD{MEM} 0 ffffffff81001000\n"
    )
    done = pagelab("trace", "import", "mem.txt")
    assert done.returncode == 0, done.stderr
    assert "5 samples from perf, 2 threads, 1 record left out" in done.stdout
    assert rows(tmp_path / "mem.trace") == [
        (FETCH, 0x401E10, 1, 0x401E10, 0, 1),
        (LOAD, 0x7F0D3C2B1A40, 8, 0x401E10, 0, 0),
        (FETCH, 0x401E20, 1, 0x401E20, 1, 1),
        (STORE, 0x7F0D3C2B1A48, 8, 0x401E20, 1, 0),
        # By the kernel.
        (LOAD + 16, 0x7F0D3C2B1A50, 8, 0xFFFFFFFF81001000, 1, 1),
    ]
    assert about(pagelab, "mem.trace")["meta"]["sampled"]  # type: ignore[index]
    assert "the accesses are samples" in pagelab("trace", "info", "mem.trace").stdout
    replayed = pagelab("run", "mem.trace", "--json", "-")
    assert "the accesses are samples" in replayed.stderr
    source = json.loads(replayed.stdout)["results"][0]["sources"][0]
    assert source["sampled"]
    assert source["mappings_inferred"]
    (tmp_path / "ips.txt").write_text("t 7/7 24546.263493:     250000 cpu-clock:  7fdec7c8e0af f+0x2f (/lib/ld.so)\n")
    assert_fails(pagelab("trace", "import", "ips.txt", "-f", "perf"), 1, "ips.txt", "line 1", "perf script -F")


def test_real_samples_of_perf(pagelab: Pagelab, tmp_path: Path) -> None:
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not installed")
    record = [perf, "record", "-q", "-d", "-e", "page-faults", "-c", "1", "-o", "perf.data", "ls", "/"]
    if subprocess.run(record, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("perf cannot record page faults here")
    for fields in ("comm,pid,tid,time,event,addr,ip", "comm,pid,tid,cpu,time,period,event,addr,ip,sym,dso,symoff"):
        script = subprocess.run(
            [perf, "script", "-i", "perf.data", "-F", fields], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        if script.returncode:
            continue
        (tmp_path / "faults.txt").write_text(script.stdout)
        # A script of its own: the first word behind the event is the address.
        expected = [int(line.split("page-faults: ")[1].split()[0], 16) for line in script.stdout.splitlines()]
        shutil.rmtree(tmp_path / "faults.trace", ignore_errors=True)
        done = pagelab("trace", "import", "faults.txt")
        assert done.returncode == 0, done.stderr
        of_text = rows(tmp_path / "faults.trace")
        assert [row[1] for row in of_text if row[0] % 16 != FETCH] == [
            address for address in expected if address < 1 << 63
        ]
        # perf's own file says the same.
        shutil.rmtree(tmp_path / "data.trace", ignore_errors=True)
        done = pagelab("trace", "import", "perf.data", "-o", "data.trace")
        assert "from perf-data" in done.stdout, done.stderr
        assert rows(tmp_path / "data.trace") == of_text


@pytest.mark.parametrize("options", [["-z", "-o", "perf.data"], ["-o", "-"], ["-z", "-o", "-"]])
def test_compressed_files_and_pipes_of_perf_say_what_their_text_says(
    pagelab: Pagelab, tmp_path: Path, options: list[str]
) -> None:
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not installed")
    with (tmp_path / "perf.data").open("wb") as output:
        record = [perf, "record", "-q", "-d", "-e", "page-faults", "-c", "1", *options, "ls", "/"]
        done = subprocess.run(
            record, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, check=False
        )
    if done.returncode:
        pytest.skip("perf cannot record page faults in this way here")
    script = f"{perf} script -i perf.data -F comm,pid,tid,time,event,addr,ip > samples.txt"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL, check=True)
    assert "samples from perf" in pagelab("trace", "import", "samples.txt").stdout
    imported = pagelab("trace", "import", "perf.data", "-o", "data.trace")
    assert "from perf-data" in imported.stdout, imported.stderr
    assert rows(tmp_path / "data.trace") == rows(tmp_path / "samples.trace")


def test_real_text_of_lackey(pagelab: Pagelab, tmp_path: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("Valgrind is not installed")
    command = [valgrind, "--tool=lackey", "--trace-mem=yes", "sh", "-c", "echo noise >&2; printf half >&2; exit 0"]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    if "Lackey" not in text:
        pytest.skip("lackey does not run here")
    (tmp_path / "sh.txt").write_text(text)
    done = pagelab("trace", "import", "sh.txt")
    assert done.returncode == 0, done.stderr
    # A script of its own: what lackey writes, wherever the program has written before.
    counts = dict.fromkeys("ILSM", 0)
    for line in text.splitlines():
        line = line.removeprefix("half")
        if line[:3] in ("I  ", " L ", " S ", " M "):
            counts[line.split()[0]] += not (line[0] == " " and line.endswith(",0"))
    of_trace = about(pagelab, "sh.trace")["access_counts"]
    assert isinstance(of_trace, dict)
    assert (of_trace["loads"], of_trace["stores"], of_trace["modifies"]) == (counts["L"], counts["S"], counts["M"])
    assert of_trace["instructions"] == counts["I"]
    assert "not lackey's w" in pagelab("trace", "info", "sh.trace").stdout

    # What is exported says the same again.
    assert pagelab("trace", "export", "sh.trace", "-o", "again.txt.zst", "-f", "lackey").returncode == 0
    assert pagelab("trace", "import", "again.txt.zst", "-o", "again.trace").returncode == 0
    assert rows(tmp_path / "again.trace") == rows(tmp_path / "sh.trace")


def test_cloudsuite_records(pagelab: Pagelab, tmp_path: Path) -> None:
    form = "<QBB4B4B6x4Q4QBB6x"
    assert struct.calcsize(form) == 96
    loop = [
        struct.pack(
            form, 0x401000 + 4 * i, 0, 0, *range(8), 0x601000, 0x601040, 0, 0x601080, 0x7FFC0000 + i, 0, 0, 0, 1, 2
        )
        for i in range(50)
    ]
    (tmp_path / "web.bz2").write_bytes(bz2.compress(b"".join(loop)))
    done = pagelab("trace", "import", "web.bz2")
    assert "from champsim-cloudsuite" in done.stdout, done.stderr
    imported = rows(tmp_path / "web.trace")
    assert imported[:5] == [
        (FETCH, 0x401000, 1, 0x401000, 0, 1),
        (LOAD, 0x7FFC0000, 8, 0x401000, 0, 0),
        (STORE, 0x601000, 8, 0x401000, 0, 0),
        (STORE, 0x601040, 8, 0x401000, 0, 0),
        (STORE, 0x601080, 8, 0x401000, 0, 0),
    ]
    assert len(imported) == 201
    assert pagelab("trace", "export", "web.trace", "-o", "w.bin", "-f", "champsim-cloudsuite").returncode == 0
    assert (tmp_path / "w.bin").stat().st_size == 50 * 96
    assert pagelab("trace", "import", "w.bin", "-o", "w.trace").returncode == 0
    assert rows(tmp_path / "w.trace") == imported


def test_exports_are_what_champsim_reads(pagelab: Pagelab, tmp_path: Path) -> None:
    lackey = "I  00401000,3\n L 1ffe000010,8\nI  00401003,2\nI  00401005,4\n S 1ffe000018,4\n M 05001000,8\n"
    (tmp_path / "small.txt").write_text(lackey)
    assert pagelab("trace", "import", "small.txt").returncode == 0
    done = pagelab("trace", "export", "small.trace", "-o", "new/small.xz", "-f", "champsim")
    assert "3 instructions and 3 accesses of thread 0" in done.stdout, done.stderr
    data = lzma.decompress((tmp_path / "new" / "small.xz").read_bytes())
    records = [struct.unpack("<QBB2B4B2Q4Q", data[at : at + 64]) for at in range(0, len(data), 64)]
    nothing = (0,) * 8
    assert records == [
        (0x401000, *nothing, 0, 0, 0x1FFE000010, 0, 0, 0),
        (0x401000, *nothing, 0, 0, 0, 0, 0, 0),
        (0x401005, *nothing, 0x1FFE000018, 0x5001000, 0x5001000, 0, 0, 0),
    ]
    assert_fails(pagelab("trace", "export", "small.trace", "-o", "new/small.xz", "-f", "champsim"), 2, "exists")
    assert_fails(
        pagelab("trace", "export", "small.trace", "-o", "x", "-f", "dinero"), 2, "dinero", "champsim-cloudsuite"
    )
    assert_fails(
        pagelab("trace", "export", "small.trace", "-o", "x", "-f", "lackey", "--thread", "3"), 2, "no thread 3"
    )
    assert_fails(pagelab("trace", "export", "no.trace", "-o", "x", "-f", "lackey"), 1, "no.trace")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["small.xz"]
    assert not (tmp_path / "x").exists()


def test_a_file_per_thread_and_the_same_results_again(pagelab: Pagelab, tmp_path: Path) -> None:
    head = [(25, 0, 5), (28, 9, 0x40)]
    (tmp_path / "threads").mkdir()
    for thread in range(10):
        body = [(22, 0, 50 + thread), (24, 0, 50)]
        for time in range(20):
            body.append((28, 2, 100 * time + thread))
            for step in range(30):
                body.append((10, 4, 0x401000 + 4 * step))
                body.append((step % 2, 8, 0x10000000 + (thread * 31 + time * 7 + step) * 4096))
        (tmp_path / "threads" / f"app.{thread}.trace.gz").write_bytes(gzip.compress(entries([*head, *body])))
    assert pagelab("trace", "import", "threads", "-o", "t.trace").returncode == 0
    done = pagelab("trace", "export", "t.trace", "-o", "t.champsim.gz", "-f", "champsim")
    assert done.returncode == 0, done.stderr
    names = [f"t-{thread}.champsim.gz" for thread in range(10)]
    assert sorted(path.name for path in tmp_path.glob("t-*")) == names
    first = rows(tmp_path / "t.trace")
    for thread in (0, 9):
        assert pagelab("trace", "import", names[thread], "-o", f"again-{thread}.trace").returncode == 0
        of_thread = [(row[0], row[1], row[3]) for row in first if row[4] == thread and row[0] != FETCH]
        again = [(row[0], row[1], row[3]) for row in rows(tmp_path / f"again-{thread}.trace") if row[0] != FETCH]
        assert again == of_thread
    one = pagelab("trace", "export", "t.trace", "-o", "only.txt", "-f", "lackey", "--thread", "4")
    assert "of thread 4" in one.stdout
    assert (tmp_path / "only.txt").exists()

    # Imported, run, exported, imported and run: the same statistics.
    assert pagelab("trace", "import", "only.txt", "-o", "a.trace").returncode == 0
    assert pagelab("trace", "export", "a.trace", "-o", "b.txt.gz", "-f", "lackey").returncode == 0
    assert pagelab("trace", "import", "b.txt.gz", "-o", "b.trace").returncode == 0
    results = [json.loads(pagelab("run", f"{name}.trace", "--json", "-").stdout) for name in "ab"]
    assert results[0]["results"][0]["stats"] == results[1]["results"][0]["stats"]
    assert rows(tmp_path / "a.trace") == rows(tmp_path / "b.trace")


def test_accesses_of_pinatrace(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "pin.out").write_text("0x401000: W 0x601000\n0x401004: R 0x601008\n0x401008: R (nil)\n#eof\n")
    done = pagelab("trace", "import", "pin.out", "-o", "pin.trace")
    assert "from pinatrace, 1 record left out" in done.stdout, done.stderr
    assert rows(tmp_path / "pin.trace") == [
        (FETCH, 0x401000, 1, 0x401000, 0, 1),
        (STORE, 0x601000, 8, 0x401000, 0, 0),
        (LOAD, 0x601008, 8, 0x401004, 0, 1),
    ]
    header = "#\n# Memory Access Trace Generated By Pin\n#\n"
    (tmp_path / "sized.out").write_text(f"{header}0x401000: W     0x601000  4 0x11\n#eof\n")
    assert pagelab("trace", "import", "sized.out").returncode == 0
    assert rows(tmp_path / "sized.trace")[-1][2] == 4
    assert "sizes" not in pagelab("trace", "info", "sized.trace").stdout
    (tmp_path / "itrace.out").write_text("0x401000\n0x401004\n#eof\n")
    assert_fails(pagelab("trace", "import", "itrace.out"), 1, "itrace.out", "Pin's itrace", "use pinatrace")


def test_a_whole_folder_in_an_archive(pagelab: Pagelab, tmp_path: Path) -> None:
    folder = tmp_path / "drmemtrace.app.5.dir" / "trace"
    folder.mkdir(parents=True)
    for thread in (5, 6):
        items = [(25, 0, 7), (22, 0, thread), (24, 0, 5), (28, 2, 10 * thread), (10, 4, 0x401000), (0, 8, 0x601000)]
        # A context switch into the kernel and back.
        items += [(28, 34, 0), (10, 4, 0x701000), (0, 8, 0x702000), (28, 35, 0), (1, 8, 0x602000)]
        (folder / f"drmemtrace.app.{thread}.trace.gz").write_bytes(gzip.compress(entries(items)))
    with tarfile.open(tmp_path / "app.tar.xz", "w:xz") as archive:
        archive.add(folder.parent, folder.parent.name)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = pagelab("trace", "import", "app.tar.xz", "-o", "archive.trace", TMPDIR=str(temporary))
    assert "2 threads, 4 records left out" in done.stdout, done.stderr
    assert "4 instructions and accesses of the kernel were left out" in done.stderr
    assert not list(temporary.iterdir())
    assert pagelab("trace", "import", folder.parent.name, "-o", "folder.trace").returncode == 0
    assert rows(tmp_path / "archive.trace") == rows(tmp_path / "folder.trace")
