"""`pagelab linux` without a kernel: what consoles say, patches, missing tools, a virtual machine that is none.

The kernel itself is built and run by test_linux_kernel.py.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import linux_texts as texts
import pytest
from conftest import Pagelab, assert_fails

from pagelab import UsageError
from pagelab_linux import LinuxError, guest, source, tools
from pagelab_linux.build import ensure_configured
from pagelab_linux.guest import Machine
from pagelab_linux.initramfs import Entry, cpio, ensure_static
from pagelab_linux.layout import Series
from pagelab_linux.report import SKIPPED, parse
from pagelab_linux.source import Tree, apply, find, unpack

BEFORE = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
PATCH = """\
--- a/mm/memory.c
+++ b/mm/memory.c
@@ -2,6 +2,7 @@
 two
 three
 four
+ours
 five
 six
 seven
"""


def silent(_: str) -> None:
    pass


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "tree" / "mm").mkdir(parents=True)
    (tmp_path / "tree" / "mm" / "memory.c").write_text(BEFORE)
    (tmp_path / "tree" / "mm" / "mmap.c").write_text("mmap\n")
    return Tree(tmp_path / "tree")


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    path = tmp_path / "0001-hooks.patch"
    path.write_text(PATCH)
    return path


@pytest.fixture
def fake_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a script in QEMU's place; returns where the console will be."""

    def make(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / guest.QEMU).write_text(f"#!/bin/sh\n{script}\n")
        (folder / guest.QEMU).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "console.log"

    return make


def said_by(script_output: str) -> str:
    return f"cat <<'EOF'\n{script_output}EOF"


# Consoles


def test_values_belong_to_the_step_that_printed_them() -> None:
    text = (
        f"{texts.BOOT}{texts.TOUCH}PAGELAB begin 2 matrix,9\r\nfaults=3\r\nfaults=4\r\nno value\r\n"
        f"PAGELAB end 2 status=0\r\n{texts.END}"
    )
    output = parse(text)
    assert output.release == "6.12.117-pagelab"
    assert [step.command for step in output.steps] == ["touch,random,64", "matrix,9"]
    assert output.steps[0].last("ticks") == "38000000"
    assert output.steps[1].all("faults") == ["3", "4"]
    assert output.steps[1].output == ["no value"]
    assert output.problems() == []


@pytest.mark.parametrize(
    ("report", "first"),
    [
        (texts.WARNING, "WARNING: CPU: 0 PID: 21 at mm/memory.c:5919 __handle_mm_fault+0x3c/0x2d0"),
        (texts.KASAN, "BUG: KASAN: slab-use-after-free in free_reservation+0x44/0x90"),
        (texts.LOCKDEP, "WARNING: possible circular locking dependency detected"),
        (texts.RECURSIVE, "WARNING: possible recursive locking detected"),
        (texts.RCU, "WARNING: suspicious RCU usage"),
        (texts.SLUB, "BUG kmalloc-64 (Not tainted): Redzone overwritten"),
        (texts.BAD_PAGE, "BUG: Bad page state in process touch  pfn:02c41"),
        (texts.COUNTER, "BUG: Bad rss-counter state mm:00000000a6a5dcd5 type:MM_ANONPAGES val:3"),
        (texts.POISON, "pagealloc: single bit error"),
        (texts.HUNG, "INFO: task touch:31 blocked for more than 122 seconds."),
        (texts.STALL, "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:"),
        (texts.LOCKUP, "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [touch:31]"),
        (texts.LIST, "list_del corruption. prev->next should be ffff888003c3a028, but was dead000000000100"),
        (texts.OOM, "touch invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0"),
        (texts.PANIC, "Kernel panic - not syncing: No working init found."),
        (texts.OOPS, "BUG: kernel NULL pointer dereference, address: 0000000000000010"),
    ],
)
def test_a_report_in_the_midst_of_a_step_is_a_problem(report: str, first: str) -> None:
    output = parse(
        f"{texts.BOOT}PAGELAB begin 1 touch,random,64\r\nfaults=3\r\n{report}PAGELAB end 1 status=0\r\n{texts.END}"
    )
    assert output.problems() == [first]
    assert len(output.reports) == 1
    assert output.steps[0].values == [("faults", "3")]


def test_two_reports_are_two() -> None:
    output = parse(f"{texts.BOOT}{texts.WARNING}{texts.KASAN}{texts.END}")
    assert len(output.reports) == 2
    assert "handle_mm_fault+0x81/0x1a0" in output.reports[0]
    assert "Freed by task 31:" in output.reports[1]


def test_what_is_allowed_is_no_report_and_hides_none() -> None:
    text = f"{texts.BOOT}{texts.OOM}{texts.KASAN}{texts.END}"
    assert parse(text, ["invoked oom-killer"]).problems() == [
        "BUG: KASAN: slab-use-after-free in free_reservation+0x44/0x90"
    ]
    assert not parse(f"{texts.BOOT}{texts.OOM}{texts.END}", ["invoked oom-killer"]).problems()


def test_what_a_kernel_says_of_itself_at_boot_is_no_report() -> None:
    assert parse(f"{texts.HARMLESS}{texts.BOOT}{texts.TOUCH}{texts.END}").problems() == []


def test_a_program_may_speak_of_bugs() -> None:
    text = f"{texts.BOOT}PAGELAB begin 1 a\r\nreason=no BUG: was found\r\nPAGELAB end 1 status=0\r\n{texts.END}"
    assert parse(text).problems() == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{texts.BOOT}{texts.TOUCH}", "the guest did not reach its end"),
        ("[    0.1] Linux version 6.12\r\n", "the kernel did not reach its first process"),
        ("", "the kernel did not reach its first process"),
        (f"{texts.BOOT}PAGELAB begin 1 touch,random,64\r\nPAGELAB done\r\n", "touch,random,64: did not end"),
        (
            f"{texts.BOOT}PAGELAB begin 1 touch,9\r\nreason=no room\r\nPAGELAB end 1 status=1\r\n{texts.END}",
            "touch,9: status 1, no room",
        ),
        (f"{texts.BOOT}PAGELAB tainted 512\r\nPAGELAB done\r\n", "the kernel is tainted: warning"),
    ],
)
def test_what_is_missing_or_failed_is_a_problem(text: str, problem: str) -> None:
    assert problem in parse(text).problems()


def test_a_skipped_step_is_none() -> None:
    output = parse(f"{texts.BOOT}PAGELAB begin 1 a\r\nPAGELAB end 1 status=4\r\n{texts.END}")
    assert output.problems() == []
    assert output.steps[0].status == SKIPPED


# The virtual machine


def test_a_guest_is_read_to_its_end(fake_qemu: Callable[[str], Path], tmp_path: Path) -> None:
    console = fake_qemu(said_by(texts.BOOT + texts.TOUCH + texts.END) + '\nprintf "%s\\n" "$@" > "$0.arguments"')
    output = guest.run(Machine("icount"), Path("/kernel"), Path("/archive"), ["touch,random,64"], console)
    assert output.steps[0].last("faults") == "16384"
    arguments = (tmp_path / "bin" / f"{guest.QEMU}.arguments").read_text().splitlines()
    assert arguments[arguments.index("-icount") + 1] == "shift=0,sleep=off"
    assert arguments[-1].endswith("no5lvl -- steps touch,random,64")
    assert console.read_text().endswith("PAGELAB done\n")
    assert not list(tmp_path.glob(".console*"))


def test_a_guest_that_hangs_is_ended_with_all_that_it_started(fake_qemu: Callable[[str], Path], tmp_path: Path) -> None:
    console = fake_qemu('echo PAGELAB kernel 6\nsleep 60 & echo $! > "$0.child"; wait')
    began = time.monotonic()
    with pytest.raises(LinuxError, match=r"did not end within 0\.5 s; its last line: PAGELAB kernel 6; all is in "):
        guest.run(Machine(seconds=0.5), Path("k"), Path("i"), [], console)
    assert time.monotonic() - began < 10
    child = int((tmp_path / "bin" / f"{guest.QEMU}.child").read_text())
    for _ in range(50):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("a child of the guest is left")


def test_a_report_of_a_guest_that_hangs_is_told(fake_qemu: Callable[[str], Path]) -> None:
    console = fake_qemu(said_by(texts.BOOT + texts.LOCKDEP) + "\nsleep 60")
    output = guest.run(Machine(seconds=0.5), Path("k"), Path("i"), [], console)
    assert output.problems()[0] == "WARNING: possible circular locking dependency detected"


def test_a_virtual_machine_that_does_not_start_says_why(fake_qemu: Callable[[str], Path]) -> None:
    console = fake_qemu("echo 'qemu: could not load kernel' >&2; exit 1")
    with pytest.raises(LinuxError, match="ended with status 1: qemu: could not load kernel"):
        guest.run(Machine(), Path("k"), Path("i"), [], console)


def test_without_qemu_its_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LinuxError, match="install the Debian package qemu-system-x86"):
        guest.run(Machine(), Path("k"), Path("i"), [], tmp_path / "console")


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine("icount", cpus=2), "give tcg for several"),
        (Machine("hvf"), "give icount, tcg, kvm"),
        (Machine(cpus=9), "1 to 8"),
        (Machine(levels=3), "x86-64 has 4 or 5"),
        (Machine(memory_mib=64), "at least 128MiB"),
        (Machine(nodes=2), "as many CPUs as the others"),
        (Machine(cpus=3, nodes=2), "as many CPUs as the others"),
        (Machine(seconds=0), "more than 0"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(machine: Machine, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        machine.check()


def test_kvm_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guest, "_KVM", tmp_path / "kvm")
    with pytest.raises(UsageError, match="is not there on this host; give tcg or icount"):
        Machine("kvm").check()


def test_kvm_without_a_processor_for_it_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(guest, "_KVM", tmp_path / "kvm")
    monkeypatch.setattr(guest, "_CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu svmx\n")
    with pytest.raises(UsageError, match="neither vmx nor svm; give tcg or icount"):
        Machine("kvm").check()
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu svm sse\n")
    Machine("kvm").check()


@pytest.mark.parametrize("step", ["touch random", "touch;reboot", "", "a'b", "a\nb"])
def test_a_step_that_the_command_line_would_change_is_refused(step: str) -> None:
    with pytest.raises(UsageError, match="with commas between"):
        Machine().command(Path("k"), Path("i"), [step])


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(UsageError, match="run fewer at once"):
        Machine().command(Path("k"), Path("i"), ["touch,random,64"] * 200)


def test_nodes_share_the_memory() -> None:
    command = Machine(cpus=4, nodes=2, memory_mib=1025).command(Path("k"), Path("i"), [])
    assert "memory-backend-ram,id=memory0,size=513M" in command
    assert "node,nodeid=0,memdev=memory0,cpus=0-1" in command
    assert "node,nodeid=1,memdev=memory1,cpus=2-3" in command


def test_a_kernel_that_patches_itself_has_its_cpus_emulated_in_turns() -> None:
    for at_once, accelerator in ((False, "tcg,thread=single"), (True, "tcg")):
        command = Machine(cpus=4, at_once=at_once).command(Path("k"), Path("i"), [])
        assert command[command.index("-accel") + 1] == accelerator


# The source


def test_a_tree_becomes_patched_and_plain_again(tree: Tree, patch: Path, tmp_path: Path) -> None:
    ours = tmp_path / "cache.c"
    ours.write_text("cache\n")
    memory, added = tree.folder / "mm" / "memory.c", tree.folder / "mm" / "pagelab" / "cache.c"
    tree.become([patch], {"mm/pagelab/cache.c": ours})
    assert memory.read_text() == BEFORE.replace("four\n", "four\nours\n")
    assert added.read_text() == "cache\n"
    changed, untouched = memory.stat().st_mtime_ns, (tree.folder / "mm" / "mmap.c").stat().st_mtime_ns
    ours.write_text("better\n")
    tree.become([patch], {"mm/pagelab/cache.c": ours})
    assert added.read_text() == "better\n"
    assert memory.stat().st_mtime_ns == changed, "make would build it again"
    tree.become([], {})
    assert memory.read_text() == BEFORE
    assert memory.stat().st_mtime_ns > changed, "make would not build it again"
    assert not added.exists()
    assert (tree.folder / "mm" / "mmap.c").stat().st_mtime_ns == untouched
    assert not list(tmp_path.rglob("*.part"))


def test_a_patch_that_does_not_apply_changes_nothing(tree: Tree, patch: Path) -> None:
    patch.write_text(PATCH.replace(" three", " drei"))
    with pytest.raises(
        LinuxError, match=r"0001-hooks.patch: does not apply .*mm/memory.c: Hunk #1 FAILED at 2"
    ) as error:
        tree.become([patch], {})
    assert "no fuzz is allowed" in str(error.value)
    assert (tree.folder / "mm" / "memory.c").read_text() == BEFORE
    assert not list(tree.folder.rglob("*.rej"))


def test_a_patch_that_only_fuzz_would_apply_is_refused(tree: Tree, patch: Path) -> None:
    patch.write_text(PATCH.replace(" two", " zwei"))
    with pytest.raises(LinuxError, match="no fuzz is allowed"):
        apply(patch, tree.folder)
    lenient = ["patch", "-p1", "--fuzz=3", "--dry-run", "-d", str(tree.folder), "-i", str(patch)]
    assert subprocess.run(lenient, capture_output=True, check=False).returncode == 0, "it should need fuzz"


def test_a_patch_of_a_file_that_is_not_there_is_refused(tree: Tree, patch: Path) -> None:
    patch.write_text(PATCH.replace("memory.c", "gone.c"))
    with pytest.raises(LinuxError, match="does not apply"):
        tree.become([patch], {})


def test_a_file_of_ours_must_not_be_one_of_the_kernels(tree: Tree, tmp_path: Path) -> None:
    ours = tmp_path / "ours.c"
    ours.write_text("ours\n")
    with pytest.raises(LinuxError, match=r"the kernel has a file mm/mmap.c of its own"):
        tree.become([], {"mm/mmap.c": ours})
    assert (tree.folder / "mm" / "mmap.c").read_text() == "mmap\n"


def test_a_change_that_was_interrupted_is_made_good(
    tree: Tree, patch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "cache.c"
    ours.write_text("cache\n")

    def interrupted(path: Path, content: bytes, mode: int = 0o644) -> None:
        if path.name == "cache.c":
            raise KeyboardInterrupt
        replaced(path, content, mode)

    replaced = source._replace
    monkeypatch.setattr(source, "_replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tree.become([patch], {"mm/pagelab/cache.c": ours})
    monkeypatch.undo()
    tree.become([], {})
    assert (tree.folder / "mm" / "memory.c").read_text() == BEFORE
    assert not (tree.folder / "mm" / "pagelab" / "cache.c").exists()


@pytest.fixture
def series(tmp_path: Path) -> Series:
    tarball = tmp_path / "linux-source.tar.xz"
    (tmp_path / "linux" / "mm").mkdir(parents=True)
    (tmp_path / "linux" / "mm" / "memory.c").write_text(BEFORE)
    with tarfile.open(tarball, "w:xz") as file:
        file.add(tmp_path / "linux", "linux-source")
    digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
    return Series("linux-source-6.12", "6.12.117-1", "Debian's archive", tarball, digest)


def install_version(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    monkeypatch.setattr(source, "_installed", lambda _: version)


def test_a_source_is_unpacked_once(series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_version(monkeypatch, series.version)
    work = tmp_path / "work"
    work.mkdir()
    unpacked = unpack(series, work, silent)
    assert (unpacked.folder / "mm" / "memory.c").read_text() == BEFORE
    series.tarball.unlink()
    assert unpack(series, work, silent) == unpacked


def test_an_unpacking_that_fails_leaves_no_tree(
    series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_version(monkeypatch, series.version)
    series.tarball.write_bytes(series.tarball.read_bytes()[:80])
    cut = replace(series, sha256=hashlib.sha256(series.tarball.read_bytes()).hexdigest())
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(LinuxError, match=r"linux-source.tar.xz cannot be unpacked: "):
        unpack(cut, work, silent)
    assert [path.name for path in work.iterdir()] == ["unpack.log"]


def test_another_tarball_is_refused(series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_version(monkeypatch, series.version)
    series.tarball.write_bytes(b"another")
    with pytest.raises(LinuxError, match=r"its SHA-256 is .* install that version again"):
        find(series, tmp_path, silent)


@pytest.mark.parametrize(
    ("installed", "words"), [("6.12.96-1", "version 6.12.96-1 is installed"), (None, "it is not installed")]
)
def test_a_source_that_cannot_be_had_is_named(
    installed: str | None,
    words: str,
    series: Series,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_version(monkeypatch, installed)
    for name, script in (("apt-get", "echo E: Version not found >&2; exit 100"), ("dpkg-deb", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(LinuxError) as error:
        find(series, tmp_path, silent)
    for part in ("linux-source-6.12 6.12.117-1, from Debian's archive", words, "E: Version not found", "series.toml"):
        assert part in str(error.value)


# Tools, configuration, initramfs


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LinuxError) as error:
        tools.require(tools.BUILD, "building a kernel")
    for part in ("flex", "bison", "bc", "xz-utils", "apt-get install", "pagelab linux build --install"):
        assert part in str(error.value)
    gone = tools.Tool("libelf", "libelf-dev", (str(tmp_path / "libelf.h"),))
    with pytest.raises(LinuxError, match=r"takes libelf, .*apt-get install libelf-dev"):
        tools.require([gone], "building a kernel")


def test_without_rights_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(UsageError, match="sudo apt-get install bc flex"):
        tools.install(["flex", "bc", "flex"], silent)


def test_a_configuration_that_lacks_what_was_asked_for_is_refused(tmp_path: Path) -> None:
    fragment, later = tmp_path / "base.config", tmp_path / "later.config"
    fragment.write_text("# A comment\nCONFIG_SMP=y\n# CONFIG_MODULES is not set\nCONFIG_NR_CPUS=8\n")
    later.write_text("CONFIG_NR_CPUS=4\n")
    ensure_configured("CONFIG_SMP=y\nCONFIG_NR_CPUS=4\n", [fragment, later])
    with pytest.raises(LinuxError, match=r"later.config: asks for CONFIG_NR_CPUS=4, and .* has 8"):
        ensure_configured("CONFIG_SMP=y\nCONFIG_NR_CPUS=8\n", [fragment, later])
    with pytest.raises(LinuxError, match=r"asks for CONFIG_SMP=y, and .* has n"):
        ensure_configured("# CONFIG_SMP is not set\nCONFIG_NR_CPUS=4\n", [fragment, later])


@pytest.mark.skipif(not shutil.which("cpio"), reason="cpio is not installed")
def test_an_archive_is_one_that_cpio_reads(tmp_path: Path) -> None:
    entries = [Entry("bin", 0o040755), Entry("bin/a", 0o100755, b"abc"), Entry("b", 0o100644, b"12345678")]
    subprocess.run(["cpio", "-idm", "--quiet"], cwd=tmp_path, input=cpio(entries), check=True)
    assert (tmp_path / "bin" / "a").read_bytes() == b"abc"
    assert os.access(tmp_path / "bin" / "a", os.X_OK)
    assert (tmp_path / "b").read_bytes() == b"12345678"


def test_a_program_that_is_no_static_one_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "busybox"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(LinuxError, match="busybox-static"):
        ensure_static(script)
    (tmp_path / "a.c").write_text("int main(void) { return 0; }\n")
    for option, fits in (("-static", True), ("-pie", False)):
        subprocess.run(["gcc", option, "-o", tmp_path / "a", tmp_path / "a.c"], check=True)
        if fits:
            ensure_static(tmp_path / "a")
        else:
            with pytest.raises(LinuxError, match="linked dynamically"):
                ensure_static(tmp_path / "a")


# The command


def test_the_command_refuses_what_cannot_be(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("linux", "boot", "--accelerator", "icount", "--cpus", "2"), 2, "give tcg for several")
    assert_fails(pagelab("linux", "boot", "--memory", "many"), 2, "--memory")
    assert_fails(pagelab("linux", "test", "nothing", "--work", tmp_path), 2, "no run nothing; there are touch")
    assert_fails(pagelab("linux", "bench", "--setting", "nothing"), 2, "no setting nothing; there are plain")
    assert_fails(pagelab("linux", "bench", "--accelerator", "tcg"), 2, "give icount or kvm")
    assert_fails(pagelab("linux", "build", "--jobs", "0"), 2, "--jobs 0: give at least 1")


def test_without_tools_nothing_is_left(pagelab: Pagelab, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    work = tmp_path / "work"
    process = pagelab("linux", "build", "--plain", "--work", work, PATH=str(empty))
    assert_fails(process, 1, "flex", "apt-get install")
    assert not work.exists()


def test_the_list_of_runs_needs_no_kernel(pagelab: Pagelab) -> None:
    listed = pagelab("linux", "test", "--list").stdout
    assert "notices-a-warning" in listed
