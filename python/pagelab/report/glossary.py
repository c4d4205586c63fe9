"""What the words on the page mean: on hover, at the page's end and in docs/glossary.md."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

WORDS = {
    "access": "A load, a store or the fetch of an instruction by the program.",
    "busy cycles": "Cycles in which a CPU was not idle, of all CPUs together.",
    "page": "The unit in which memory is mapped: 4 KiB, or 2 MiB and 1 GiB where the system uses large pages.",
    "large page": "A page of 2 MiB or 1 GiB. Linux calls them huge pages. One TLB entry then reaches more memory.",
    "address translation": "Finding the physical address of a virtual one. A TLB answers at once, or a page walk.",
    "TLB": "Translation lookaside buffer: a small memory in each core that holds recent translations.",
    "page table": "Says where each virtual page lies in memory. The kernel writes it, the processor reads it.",
    "page walk": "Reading the page table after a TLB miss. Four levels take up to four references, and up to 24 in a "
    "virtual machine.",
    "reference": "One read of memory or of a cache, here by a page walk or by the kernel.",
    "MMU cache": "A memory in the processor that holds upper levels of the page table, so that walks read less. "
    "Intel calls them paging-structure caches.",
    "nested TLB": "A TLB that holds translations from a guest's physical addresses to the host's.",
    "page fault": "An exception at an access whose page is not mapped, or may not be used so. The kernel then maps it.",
    "minor fault": "A page fault that reads no device: the memory is new, or its content is in memory already.",
    "major fault": "A page fault that waits for a device, such as a drive.",
    "stage": "A part of the kernel's fault handler, such as finding the mapping, allocating the page or zeroing it.",
    "zeroing": "Filling a new page with zeros before a program gets it, so that it sees no other program's data.",
    "rmap": "The kernel's reverse map: from a page in memory to the page-table entries that map it.",
    "LRU": "Least recently used: the order in which pages or cache lines are given up.",
    "charge": "Counting a new page against the memory limit of the program's cgroup.",
    "guest": "The operating system inside a virtual machine.",
    "host": "The operating system that runs virtual machines, with page tables of its own for their memory.",
    "nested": "Of a virtual machine: each address of the guest is translated by the host, too.",
    "layer": "A kernel with its page tables: that of the machine, or a guest's or a host's.",
    "level": "A step of a page table: walks read from the highest, 4 or 5, to the leaves, 1.",
    "L1": "The first cache of a core: small, and about 4 cycles away.",
    "L2": "The second cache of a core: larger, and about 12 cycles away.",
    "L3": "The last cache, which cores share: about 40 cycles away. Beyond it is memory.",
    "in-order core": "A model of a core that waits for each access before it goes on. Real cores overlap many of them.",
    "kernel preset": "Settings that say what a kernel's work costs and how it decides.",
    "preset": "A file of settings that comes with pagelab, in which every number has a unit and an origin.",
    "seed": "The number that random choices begin with. The same seed gives the same results.",
    "system": "What is compared here: page tables, MMU caches and page sizes, on the machine or in a virtual machine.",
    "touched memory": "Memory that the program used at least once, in pages.",
    "MiB": "1,048,576 bytes.",
}
"""Words and what they mean, in sentences that need no other word of the list"""


@dataclass(frozen=True)
class Word:
    """An entry of the list at the page's end."""

    name: str
    meaning: str


def explained(text: str) -> Markup:
    """A text whose words have their meaning on hover, each at its first place."""
    seen: set[str] = set()

    def mark(found: re.Match[str]) -> str:
        name = _BY_TEXT[found[0].lower()]
        if name in seen:
            return found[0]
        seen.add(name)
        return f'<abbr title="{escape(WORDS[name])}">{found[0]}</abbr>'

    return Markup(_PATTERN.sub(mark, str(escape(text))))


def words_in(html: str) -> list[Word]:
    """The words that a page explains on hover, in the order of the alphabet."""
    titles = {str(escape(meaning)): name for name, meaning in WORDS.items()}
    names = {titles[title] for title in re.findall(r'<abbr title="([^"]*)">', html)}
    return [Word(name, WORDS[name]) for name in _sorted(names)]


def markdown() -> str:
    """docs/glossary.md."""
    lines = [f"- **{name}**: {WORDS[name]}" for name in _sorted(WORDS)]
    return "\n".join(
        ["# Glossary", "", "Reports explain these words on hover, and list them at their end.", "", *lines, ""]
    )


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=str.lower)


_LISTED_ALONE = ("page",)
"""Words that mean something else too often, as in "this page", to be explained on hover"""


def _forms(name: str) -> list[str]:
    return [name, f"{name}s", f"{name}es"] if name[-1].islower() else [name, f"{name}s"]


_BY_TEXT = {form.lower(): name for name in WORDS if name not in _LISTED_ALONE for form in _forms(name)}
_PATTERN = re.compile(
    r"(?<![\w&/.-])(?:" + "|".join(map(re.escape, sorted(_BY_TEXT, key=len, reverse=True))) + r")(?![\w-])",
    re.IGNORECASE,
)
