"""What the words on the page mean: on hover, at the page's end and in docs/glossary.md."""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

WORDS = {
    "aborted walk": "A page walk that finds no usable entry and so ends in a page fault.",
    "access": "A load, a store or the fetch of an instruction by the program.",
    "accessed and dirty bits": "Two bits of a page-table entry. The processor sets them when the page is used, and "
    "when it is written.",
    "address space": "All virtual addresses of one process, with the page table that translates them.",
    "address translation": "Finding the physical address of a virtual one. The TLB answers at once; after a TLB miss, "
    "a page walk does.",
    "anonymous memory": "Memory that no file backs, such as the heap and the stack. A new page of it holds zeros.",
    "armed entry": "A page-table entry of a page that is not mapped yet, with a word that allows a fault engine to "
    "map the page.",
    "ASID": "A number in each TLB entry that says which address space it belongs to, so that a context switch need not "
    "empty the TLB. Intel calls it PCID.",
    "backed memory": "Memory of a virtual machine for which the host has found frames already.",
    "base cycles": "Cycles that the program's instructions take when nothing delays them.",
    "brk": "The system call that moves the end of the heap.",
    "buddy allocator": "Linux's allocator of page frames. It hands out blocks of 2^n frames and joins free neighbours "
    "again.",
    "busy cycles": "Cycles in which a CPU was not idle, of all CPUs together.",
    "cgroup": "A group of processes in Linux with a limit of its own, here of memory.",
    "charge": "Counting a new page against the memory limit of the program's cgroup.",
    "co-runner": "A second source that keeps running on the same simulated machine beside the one that is measured.",
    "confidence interval": "A range that would contain the true value in 95 % of repetitions.",
    "contiguity": "How many adjacent pages lie in adjacent frames.",
    "copy on write": "Sharing a page between processes, read-only, until one of them writes to it and gets a copy.",
    "dependency": "The recorded fact that an access needs the result of an earlier load, so that a core cannot overlap "
    "the two.",
    "do-it-yourself translation": "A published design in which programs keep structures of their own that translate "
    "their memory. The operating system only decides which frames they may use.",
    "edge": "A recorded order between two threads, for example from a wake-up to the thread that waited. Replay "
    "preserves it.",
    "elastic cuckoo page table": "A hashed page table with several hash functions. It grows gradually, without "
    "rehashing everything at once.",
    "event": "Anything in a trace that is not an access, such as mmap, fork, or the start of a thread.",
    "fast path": "In the simulator: a loop compiled for the simulated machine, which handles ordinary accesses. All "
    "other accesses take the general code, which is slower and gives the same results.",
    "fault-around": "Mapping the pages around a faulting page of a file with the same fault, if they are in the page "
    "cache.",
    "fault engine": "Hardware that handles page faults without an exception, such as MFOE or a storage management "
    "unit.",
    "first touch": "The first access to a page. It causes a minor fault, because the page is not mapped yet.",
    "flattened page table": "A page table in which two levels are joined into one table of 2 MiB, so that a walk reads "
    "two entries instead of four.",
    "folio": "A group of 2^n pages that Linux handles as one.",
    "footprint": "How much memory a program uses in all.",
    "frame": "A page-sized piece of physical memory.",
    "guest": "The operating system inside a virtual machine.",
    "hashed page table": "A page table that finds an entry by a hash of the address instead of by walking a tree.",
    "host": "The operating system that runs virtual machines, with page tables of its own for their memory.",
    "in-order core": "A model of a core that waits for each access before it goes on. Real cores overlap many of them.",
    "kernel path": "The code that a kernel executes for one step, such as a stage of a page fault.",
    "kernel preset": "Settings that say what a kernel's work costs and how it decides.",
    "khugepaged": "A kernel thread of Linux that replaces groups of 512 small pages by large pages.",
    "kpted": "The kernel thread that accounts for pages which a storage management unit has mapped. Its companion "
    "kpoold keeps free frames ready.",
    "kswapd": "A kernel thread of Linux that reclaims memory in the background.",
    "L1": "The first cache of a core: small, and about 4 cycles away.",
    "L2": "The second cache of a core: larger, and about 12 cycles away.",
    "L3": "The last cache, which cores share: about 40 cycles away. Beyond it is memory.",
    "large page": "A page of 2 MiB or 1 GiB. Linux calls them huge pages. One TLB entry then reaches more memory.",
    "layer": "A level of virtualisation with its own kernel, page tables and MMU cache: `native` on bare metal, or "
    "`guest` and `host` in a virtual machine.",
    "layout": "In run-time measurements: which parts of a program's memory are in large pages.",
    "leaf": "A page-table entry that maps a page, rather than pointing to another table. In a four-level table, leaves "
    "of 4 KiB pages are at level 1.",
    "level": "A step of a page table: walks read from the highest, 4 or 5, to the leaves, 1.",
    "LRU": "Least recently used: the order in which pages or cache lines are replaced.",
    "machine": "The simulated processor and memory: TLBs, caches, core model and latencies.",
    "major fault": "A page fault that waits for a device, such as a drive.",
    "mapping": "A range of a process's addresses that mmap or brk created. Linux calls it a VMA.",
    "MFOE": "Minor fault offload engine: a published design in which the page walker handles minor faults itself, with "
    "frames that the kernel has prepared.",
    "MiB": "1,048,576 bytes.",
    "minor fault": "A page fault that reads no device: the memory is new, or its content is in memory already.",
    "miss-ratio curve": "The percentage of accesses that miss a cache or TLB, as a function of its size.",
    "MMU cache": "A memory in the processor that holds upper levels of the page table, so that walks read less. Intel "
    "calls them paging-structure caches.",
    "mTHP": "Multi-size transparent huge pages: folios between 4 KiB and 2 MiB that Linux maps for anonymous memory.",
    "nested": "In a virtual machine: the host also translates each address of the guest.",
    "nested TLB": "A TLB that holds translations from a guest's physical addresses to the host's.",
    "NUMA node": "A part of the machine's memory with the CPUs that are closest to it.",
    "open loop": "Requests that arrive at given times, whether or not earlier ones have been answered.",
    "page": "The unit in which memory is mapped: 4 KiB, or 2 MiB and 1 GiB where the system uses large pages.",
    "page cache": "The kernel's copies of file contents in memory.",
    "page fault": (
        "An exception at an access whose page is not mapped, or whose mapping forbids it. The kernel then maps it."
    ),
    "page table": "Says where each virtual page lies in memory. The kernel writes it, the processor reads it.",
    "page walk": "Reading the page table after a TLB miss. Four levels take up to four references, and up to 24 in a "
    "virtual machine.",
    "placement policy": "The rule by which a kernel chooses the frame for a page.",
    "prefetcher": "A part of the processor that fetches cache lines before the program asks for them.",
    "preset": "A file of settings that comes with pagelab, in which every number has a unit and an origin.",
    "profile": "Walks, faults and cycles by memory region and by instruction.",
    "PTE": "Page-table entry: one word of a page table, which maps a page or points to the next table.",
    "PTEMagnet": "A published placement policy, which reserves eight adjacent frames at a time so that the host's "
    "entries for them share a cache line.",
    "radix page table": "The tree-shaped page table of x86-64, with four or five levels.",
    "read-ahead": "Reading further pages of a file into the page cache before a program asks for them.",
    "reclaim": "Taking pages back from programs when memory is short: dropping them, or writing them to a file or to "
    "swap.",
    "ready frame": "A zeroed frame that a kernel thread has prepared, so that a later fault need not allocate and "
    "zero one.",
    "reference": "One simulated memory access of a page walk or of kernel code. Caches serve most of them. Accesses of "
    "the program are called accesses.",
    "replay": "Running the accesses of a trace on a simulated system.",
    "reservation": "A group of adjacent free frames that the kernel keeps for neighbouring pages of one process.",
    "retry": "The second attempt of an access after its page fault was handled.",
    "ring": "A queue in memory whose end is joined to its start. MFOE's ring holds zeroed frames for coming faults.",
    "rmap": "The kernel's reverse map: from a page in memory to the page-table entries that map it.",
    "run-time model": "A formula, fitted to native measurements, that predicts run time from simulated walk cycles.",
    "sample": "The windows that were chosen from a program, which stand for all of it.",
    "seed": "The number that random choices begin with. The same seed gives the same results.",
    "segment": "In a direct segment: a range of addresses that the processor translates by adding an offset, without "
    "TLB or page table.",
    "shadow page table": "A page table that the host keeps for a guest, which maps the guest's virtual addresses "
    "directly. Walks are then as short as without a virtual machine.",
    "sign test": "A statistical test that only counts how many differences are positive. It gives an interval for the "
    "median.",
    "slice": "A part of the last-level cache. A hash of the address selects the slice of each line.",
    "SMU": "Storage management unit: hardware that reads a missing page from the drive without the kernel.",
    "software translation cache": "A cache in the kernel of recently used page-table entries, so that the walk of a "
    "page fault can start below the root.",
    "source": "What makes accesses in a run: a trace, a workload, or a live program. The main sources are measured; "
    "co-runners and arrivals run beside them.",
    "stage": "A part of the kernel's fault handler, such as finding the mapping, allocating the page or zeroing it.",
    "stall": "Cycles in which a core waits and completes no instructions.",
    "stretch": "A contiguous part of a program's execution, which a recording keeps or skips.",
    "swap": "A file or drive to which the kernel writes anonymous pages when memory is short.",
    "system": "What is compared here: page tables, MMU caches and page sizes, on the machine or in a virtual machine.",
    "THP": "Transparent huge pages: Linux's way of using large pages without a change of the program.",
    "TLB": "Translation lookaside buffer: a small memory in each core that holds recent translations.",
    "TLB reach": "How much memory the entries of a TLB map together: the number of entries times the page size.",
    "TLB shootdown": "Telling other CPUs by an interrupt to drop a translation that has changed.",
    "touched memory": "Memory that the program used at least once, in pages.",
    "trace": "A recording of a program's accesses and events, as a folder of files.",
    "VMA": "Virtual memory area: Linux's name for one mapping of a process.",
    "walk": "Short for page walk.",
    "walk cycles": "Cycles from the start of a page walk to its end. A core may overlap some of them with other work.",
    "warm-up": "Accesses that are replayed before counting starts, so that caches and TLBs are not empty.",
    "watermark": "An amount of free memory that Linux compares with: below the low one kswapd starts, below the min "
    "one a program's fault reclaims memory itself.",
    "window": "In a sample: a short part of the program that is recorded or counted. In an out-of-order core: the "
    "reorder window, which is the number of instructions in progress at the same time. The core model `window` has "
    "one.",
    "working set": "The memory that a program uses within some period.",
    "workload": "A synthetic program that pagelab generates, such as GUPS (random updates of an array).",
    "write-back": "Writing changed pages of files to the drive, or changed cache lines to memory.",
    "zero page": "A frame full of zeros, which Linux maps read-only for loads from new memory.",
    "zeroing": "Filling a new page with zeros before a program gets it, so that it sees no other program's data.",
}
"""Words and what they mean, in one or two plain sentences"""


@dataclass(frozen=True)
class Word:
    """An entry of the list at the page's end."""

    name: str
    meaning: str


def explained(text: str) -> Markup:
    """A text whose words have their meaning on hover, each at its first place."""
    seen: set[str] = set()

    def mark(match: re.Match[str]) -> str:
        name = _BY_TEXT[match[0].lower()]
        if name in seen:
            return match[0]
        seen.add(name)
        return f'<abbr title="{escape(WORDS[name])}">{match[0]}</abbr>'

    return Markup(_PATTERN.sub(mark, str(escape(text))))


def words_in(html: str) -> list[Word]:
    """The words that a page explains on hover, in the order of the alphabet."""
    titles = {str(escape(meaning)): name for name, meaning in WORDS.items()}
    names = {titles[title] for title in re.findall(r'<abbr title="([^"]*)">', html)}
    return [Word(name, WORDS[name]) for name in _sorted(names)]


def markdown() -> str:
    """docs/glossary.md."""
    entries = [textwrap.fill(f"- **{name}**: {WORDS[name]}", _WIDTH, subsequent_indent="  ") for name in _sorted(WORDS)]
    return "\n".join(
        [
            "# Glossary",
            "",
            "What terms mean here. Reports explain many of them on hover, and list them at their end.",
            "",
            *entries,
            "",
        ]
    )


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=str.lower)


_WIDTH = 120
_LISTED_ALONE = ("edge", "event", "leaf", "machine", "page", "profile", "sample", "source", "stretch", "walk", "window")
"""Words that often mean something else, as in "this page", or are too frequent to be explained on hover"""


def _forms(name: str) -> list[str]:
    return [name, f"{name}s", f"{name}es"] if name[-1].islower() else [name, f"{name}s"]


_BY_TEXT = {form.lower(): name for name in WORDS if name not in _LISTED_ALONE for form in _forms(name)}
_PATTERN = re.compile(
    r"(?<![\w&/.-])(?:" + "|".join(map(re.escape, sorted(_BY_TEXT, key=len, reverse=True))) + r")(?![\w-])",
    re.IGNORECASE,
)
