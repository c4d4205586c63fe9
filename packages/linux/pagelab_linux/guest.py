"""One run of a kernel in a virtual machine.

Models: nothing; QEMU runs the kernel. Under `icount` an instruction takes one virtual nanosecond and waits take no time
    of the host, so the time stamp counts the guest's instructions, and equal runs count equally.
Source: QEMU 7.2, docs/devel/tcg-icount.rst; Documentation/admin-guide/kernel-parameters.txt of Linux 6.12.
Parameters: `Machine`.
Deviations: emulation has no caches and no cost of a TLB miss. Only KVM has a processor's time.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError
from pagelab_linux import LinuxError
from pagelab_linux.pinning import Pinning
from pagelab_linux.process import clean_environment, is_full, last_lines, logged, remove_of_killed
from pagelab_linux.report import Console, parse

QEMU = "qemu-system-x86_64"
ACCELERATORS = ("icount", "tcg", "kvm")
_KVM = Path("/dev/kvm")
_CPUINFO = Path("/proc/cpuinfo")
_MOST_STEPS = 24
"""The kernel hands its first process 32 arguments (CONFIG_INIT_ENV_ARG_LIMIT), a few of them its own."""
_LONGEST_COMMAND_LINE = 2000
"""COMMAND_LINE_SIZE is 2048 on x86"""


@dataclass(frozen=True)
class Machine:
    """The virtual machine."""

    accelerator: str = "tcg"
    cpus: int = 1
    memory_mib: int = 1024
    levels: int = 4
    """Of page tables"""
    nodes: int = 1
    seconds: float = 300.0
    """Seconds of the host after which the run has failed"""
    parameters: tuple[str, ...] = ()
    """Additions to the kernel's command line"""
    plugin: str = ""
    """Of QEMU's translator, with its arguments"""
    at_once: bool = False
    """Whether emulated CPUs run at the same time, each as a thread of the host. QEMU 7.2 then traps on breakpoints of
    code that is patched already, so it is for kernels that do not patch themselves (without CONFIG_JUMP_LABEL)"""
    pinned: bool = False
    """Whether each emulated CPU stays on a CPU of the host that no other one has"""
    bare: bool = False
    """Whether the kernel takes the emulated machine for a real one. In a virtual one, those that wait for a spin lock
    do not queue (`virt_spin_lock` in arch/x86/include/asm/qspinlock.h)"""
    before: tuple[str, ...] = ()
    """A command that runs QEMU: perf, which counts"""

    def check(self) -> None:
        """Refuses an impossible machine.

        Raises:
            UsageError: naming what is wrong and what would be right.
        """
        if self.accelerator not in ACCELERATORS:
            raise UsageError(f"accelerator {self.accelerator}: there is none; give {', '.join(ACCELERATORS)}")
        if self.accelerator == "icount" and self.cpus != 1:
            raise UsageError(f"icount counts the instructions of one CPU, not of {self.cpus}: give tcg for several")
        if not 1 <= self.cpus <= 8:
            raise UsageError(f"{self.cpus} CPUs: the kernel is built for 1 to 8")
        if self.levels not in (4, 5):
            raise UsageError(f"page tables of {self.levels} levels: x86-64 has 4 or 5")
        if self.memory_mib < 128:
            raise UsageError(f"{self.memory_mib} MiB of memory: the guest needs at least 128MiB")
        if self.nodes < 1 or self.cpus % self.nodes:
            raise UsageError(f"{self.nodes} nodes with {self.cpus} CPUs: each node needs as many CPUs as the others")
        if self.pinned and (self.accelerator != "tcg" or not self.at_once or self.before):
            raise UsageError("pinned CPUs are those that tcg emulates at once, without a command before QEMU")
        if self.bare and self.accelerator == "kvm":
            raise UsageError("kvm: a machine that the kernel takes for a real one is emulated; give tcg or icount")
        usable = len(os.sched_getaffinity(0))
        if self.pinned and self.cpus > usable:
            raise UsageError(f"{self.cpus} CPUs, each on one of the host's: this process may use {usable} CPUs")
        if self.seconds <= 0:
            raise UsageError(f"a time limit of {self.seconds:g} s: give more than 0")
        if self.accelerator == "kvm" and not os.access(_KVM, os.R_OK | os.W_OK):
            why = "may not be used" if _KVM.exists() else "is not there"
            raise UsageError(f"kvm: {_KVM} {why} on this host; give tcg or icount")
        if self.accelerator == "kvm" and not _virtualises():
            raise UsageError(f"kvm: {_KVM} exists, but the processor has neither vmx nor svm; give tcg or icount")

    def command(self, kernel: Path, initramfs: Path, steps: Sequence[str]) -> list[str]:
        """The command that runs QEMU.

        Raises:
            UsageError: the steps do not fit the kernel's command line.
        """
        command = [*self.before, QEMU, "-machine", "q35", "-m", str(self.memory_mib), "-nodefaults"]
        # Each node is a socket of its own, as on a real machine.
        command += ["-smp", f"{self.cpus},sockets={self.nodes}"]
        command += ["-display", "none", "-serial", "stdio", "-no-reboot", "-no-user-config"]
        if self.accelerator == "kvm":
            command += ["-accel", "kvm", "-cpu", "host"]
        else:
            # A guest's random numbers are the same each time. Emulation counts each repetition of a string
            # instruction: so zero pages by 512 stores of words (rep stosq) instead of 4096 of bytes.
            model = f"max,la57={'on' if self.levels == 5 else 'off'},erms=off,fsrm=off" + ",hypervisor=off" * self.bare
            command += ["-accel", "tcg" if self.at_once else "tcg,thread=single", "-cpu", model, "-seed", "1"]
        if self.accelerator == "icount":
            command += ["-icount", "shift=0,sleep=off", "-rtc", "base=2020-01-01,clock=vm"]
        if self.pinned:
            # The threads get names, by which they are found.
            command += ["-name", "guest,debug-threads=on"]
        command += self._nodes()
        command += ["-plugin", self.plugin] if self.plugin else []
        return [*command, "-kernel", str(kernel), "-initrd", str(initramfs), "-append", self._parameters(steps)]

    def _nodes(self) -> list[str]:
        if self.nodes == 1:
            return []
        share, words = self.memory_mib // self.nodes, []
        for node in range(self.nodes):
            size = share + (self.memory_mib - share * self.nodes) * (node == 0)
            first = node * self.cpus // self.nodes
            last = first + self.cpus // self.nodes - 1
            words += ["-object", f"memory-backend-ram,id=memory{node},size={size}M"]
            words += ["-numa", f"node,nodeid={node},memdev=memory{node},cpus={first}-{last}"]
        return words

    def _parameters(self, steps: Sequence[str]) -> str:
        for step in steps:
            if not re.fullmatch(r"[\w./+:@%=,-]+", step):
                raise UsageError(
                    f"step {step!r}: give a program and its arguments with commas between: touch,random,64"
                )
        # Show warnings and nothing less important. Addresses must not differ from run to run.
        fixed = ["console=ttyS0", "loglevel=5", "printk.time=1", "panic=-1", "norandmaps"]
        fixed += ["no5lvl"] * (self.levels == 4)
        line = " ".join([*fixed, *self.parameters, "--", "steps", *steps])
        if len(steps) > _MOST_STEPS or len(line) > _LONGEST_COMMAND_LINE:
            raise UsageError(f"{len(steps)} steps are more than the kernel's command line holds: run fewer at once")
        return line


def run(
    machine: Machine, kernel: Path, initramfs: Path, steps: Sequence[str], console: Path, allowed: Sequence[str] = ()
) -> Console:
    """Boots, runs the steps and returns the console's report. The console's text is kept.

    Args:
        allowed: Texts of what the kernel may report against itself.

    Raises:
        UsageError: an impossible machine or step.
        LinuxError: QEMU does not run, or not to its end.
    """
    machine.check()
    command = machine.command(kernel, initramfs, steps)
    console.parent.mkdir(parents=True, exist_ok=True)
    # Another run of the same name may be running, or was killed.
    own = console.with_name(f".{console.name}.{os.getpid()}")
    remove_of_killed(console.parent.glob(f".{console.name}.*"))
    pinning = Pinning(machine.cpus if machine.pinned else 0)
    try:
        status = logged(command, own, seconds=machine.seconds, environment=clean_environment(), started=pinning.begin)
    except FileNotFoundError:
        own.unlink()
        raise LinuxError(f"{QEMU} is missing; install the Debian package qemu-system-x86") from None
    except BaseException:
        # The output of an interrupted guest is not the console of a run.
        own.unlink(missing_ok=True)
        raise
    output = parse(own.read_text(encoding="utf-8", errors="replace"), allowed)
    own.replace(console)
    if is_full(console.parent):
        raise LinuxError(f"no space is left for {console}, so output of the guest may be missing")
    if output.reports:
        return output
    if status is None:
        raise LinuxError(
            f"the guest did not end within {machine.seconds:g} s; its last line: {last_lines(console)}; "
            f"all is in {console}"
        )
    if status != 0:
        raise LinuxError(f"{QEMU} ended with status {status}: {last_lines(console)}; all is in {console}")
    pinning.check()
    output.waited = pinning.waited()
    return output


def _virtualises() -> bool:
    """Whether the processor supports virtual machines; if not, QEMU hangs with kvm."""
    flags = next((line for line in _CPUINFO.read_text().splitlines() if line.startswith("flags")), "").split()
    return "vmx" in flags or "svm" in flags
