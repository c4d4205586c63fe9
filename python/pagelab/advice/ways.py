"""How a user gets a remedy: settings, commands and calls."""

from collections.abc import Iterable, Sequence

from pagelab.advice.allocators import Owner
from pagelab.advice.gains import Helped

THP = "/sys/kernel/mm/transparent_hugepage"
_IN_SHARED_MEMORY = ("/dev/shm/", "/memfd:", "/SYSV")

_GLIBC = "memory of malloc: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in the environment (glibc 2.35)"
_OWN = "mappings of its own: madvise(address, length, MADV_HUGEPAGE) before the first touch"
_BY_OWNER = {
    Owner.GLIBC: [_GLIBC],
    Owner.JEMALLOC: ["memory of jemalloc: MALLOC_CONF=thp:always in the environment (jemalloc 5.1)"],
    Owner.MIMALLOC: ["memory of mimalloc: MIMALLOC_ALLOW_LARGE_OS_PAGES=1 in the environment"],
    Owner.TCMALLOC: ["memory of tcmalloc: it has no setting for huge pages; use the next line"],
    Owner.JAVA: ["the heap of Java: -XX:+UseTransparentHugePages"],
    Owner.GO: ["the heap of Go: it has no setting for huge pages; use the next line"],
    Owner.PROGRAM: [_OWN],
    Owner.UNKNOWN: [_GLIBC, _OWN],
}


def ways(
    key: str,
    mappings: Sequence[Helped],
    owners: Sequence[Owner],
    *,
    nested: bool,
    malloc_apart: bool = False,
    never: bool = False,
) -> list[str]:
    """Settings, commands and calls that get a remedy, for memory of these owners.

    Args:
        key: The remedy.
        mappings: Those that it helps.
        owners: Those of their memory.
        nested: Whether the program runs in a guest.
        malloc_apart: Whether `malloc-huge` is a remedy of its own, and not one of the ways to `huge`.
        never: Whether the kernel gives no memory huge pages now, also if it is asked.
    """
    where = ", in the guest" if nested else ""
    first = [f"before the others{where}, as root: echo madvise > {THP}/enabled (now it is never)"] if never else []
    if key == "malloc-huge":
        return [*first, *_to_huge_pages(mappings, [Owner.GLIBC, *owners])]
    if key == "huge":
        others = [owner for owner in owners if not (malloc_apart and owner is Owner.GLIBC)]
        always = f"for all programs{where}, as root: echo always > {THP}/enabled"
        return [*first, *_to_huge_pages(mappings, others), always]
    known = {
        "folios": [f"for all programs{where}, as root (Linux 6.8): echo always > {THP}/hugepages-32kB/enabled"],
        "populate": [
            "memory that the program touches as a whole: MAP_POPULATE in the flags of mmap",
            "the same after mmap: madvise(address, length, MADV_POPULATE_WRITE) (Linux 5.14)",
        ],
    }
    return known[key]


def _to_huge_pages(mappings: Iterable[Helped], owners: Sequence[Owner]) -> list[str]:
    files = [str(mapping.row.get("file")) for mapping in mappings if mapping.row["kind"] == "file"]
    commands = [command for owner in Owner if owner in owners for command in _BY_OWNER[owner]]
    if any(file.startswith(_IN_SHARED_MEMORY) for file in files):
        commands.append("shared memory, as root: mount -o remount,huge=advise /dev/shm, and madvise(…, MADV_HUGEPAGE)")
    return list(dict.fromkeys(commands))
