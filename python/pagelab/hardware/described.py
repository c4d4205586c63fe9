"""A processor's own description: caches from Linux, TLBs from cpuid, its core from tables of its maker.

Source: AMD64 Architecture Programmer's Manual, vol. 3, appendix E (leaves 8000_0005h, 8000_0006h, 8000_0019h and
    8000_001Dh). Intel 64 and IA-32 Software Developer's Manual, vol. 2A, CPUID (leaves 4 and 18h, and table 3-12 for
    the descriptors of leaf 2).
Deviations: a hypervisor may hide or change leaves. Leaf 2: only descriptors of TLBs in processors since 2008.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

Leaves = Mapping[tuple[int, int], tuple[int, int, int, int]]
"""EAX, EBX, ECX and EDX by leaf and subleaf."""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_ALL_PAGES = ("4K", "2M", "1G")


@dataclass(frozen=True)
class Tlb:
    """An array of a TLB."""

    level: int
    kind: str
    """`data`, `instruction` or `both`."""
    pages: tuple[str, ...]
    entries: int
    ways: int


@dataclass(frozen=True)
class Cache:
    """A data cache or a cache of both."""

    level: int
    size_bytes: int
    ways: int


@dataclass(frozen=True)
class Core:
    """Published figures of an out-of-order core."""

    name: str
    width: int
    """Instructions that it renames per cycle."""
    window: int
    load_queue: int
    store_queue: int
    page_walkers: int
    source: str
    preset: str | None = None
    """The machine preset with this core; none if there is none"""


_AMD = "AMD Software Optimization Guide"
_INTEL = "Intel 64 and IA-32 Architectures Optimization Reference Manual"
_ZEN = Core("Zen", 6, 192, 72, 44, 2, f"{_AMD} for family 17h; page walkers: Zen 2's")
_ZEN2 = Core("Zen 2", 6, 224, 44, 48, 2, f"{_AMD} for family 17h, models 30h and above")
_ZEN3 = Core("Zen 3", 6, 256, 72, 64, 6, f"{_AMD} for family 19h", "epyc-7763")
_ZEN4 = Core("Zen 4", 6, 320, 88, 64, 6, f"{_AMD} for the Zen 4 microarchitecture", "epyc-9654")
_ZEN5 = Core("Zen 5", 8, 448, 202, 104, 6, f"{_AMD} for the Zen 5 microarchitecture", "ryzen-9950x")
_SANDY_BRIDGE = Core("Sandy Bridge", 4, 168, 64, 36, 1, _INTEL, "sandybridge-e5-2420")
_HASWELL = Core("Haswell", 4, 192, 72, 42, 1, _INTEL)
_BROADWELL = Core("Broadwell", 4, 192, 72, 42, 2, _INTEL, "broadwell-e5-2640v3")
_SKYLAKE = Core("Skylake", 4, 224, 72, 56, 2, _INTEL, "xeon-e-2136")
_SKYLAKE_SERVER = replace(_SKYLAKE, preset="xeon-silver-4114")
_SUNNY_COVE = Core("Sunny Cove", 5, 352, 128, 72, 2, _INTEL)
_GOLDEN_COVE = Core("Golden Cove", 6, 512, 192, 114, 4, _INTEL, "xeon-platinum-8480")
_INTEL_MODELS: Sequence[tuple[Core, frozenset[int]]] = (
    (_SANDY_BRIDGE, frozenset({42, 45, 58, 62})),
    (_HASWELL, frozenset({60, 63, 69, 70})),
    (_BROADWELL, frozenset({61, 71, 79, 86})),
    (_SKYLAKE, frozenset({78, 94, 142, 158, 165, 166})),
    (_SKYLAKE_SERVER, frozenset({85})),
    (_SUNNY_COVE, frozenset({106, 108, 125, 126, 140, 141})),
    (_GOLDEN_COVE, frozenset({143, 151, 154, 183, 186, 191, 207})),
)


_WITHOUT_AVX512 = frozenset({42, 45, 58, 62, 60, 63, 69, 70, 61, 71, 79, 86, 78, 94, 142, 158, 165, 166})
_WITHOUT_AMX = frozenset({model for _, models in _INTEL_MODELS for model in models} | {85, 167}) - {143, 207}
_IMPOSSIBLE: Mapping[str, frozenset[int]] = {
    "avx512f": _WITHOUT_AVX512,
    "amx_tile": _WITHOUT_AMX,
    "avx512_fp16": _WITHOUT_AMX,
}
"""Features, by Linux's names, and models of Intel's family 6 that were made without them: AVX-512 came to servers with
Skylake (85) and to clients with Cannon Lake; AMX and half precision came with Sapphire Rapids (143). 167 is Rocket
Lake."""
_FEATURE_BITS = {"avx512f": (1, 16), "amx_tile": (3, 24), "avx512_fp16": (3, 23)}
"""Their place in leaf 7: number of the register, and bit"""


def contradiction(vendor: str, family: int, model: int, features: Container[str]) -> str | None:
    """Why the number of a model is impossible; none if it is possible.

    Hypervisors may state the number of one model and show the features of another.
    """
    if vendor != "GenuineIntel" or family != 6:
        return None
    impossible = [feature for feature, models in _IMPOSSIBLE.items() if feature in features and model in models]
    if not impossible:
        return None
    return (
        f"the processor says that it is model {model} of family 6, which has no {' and no '.join(impossible)}, "
        "but it has: nothing is taken from its model"
    )


def contradiction_in_leaves(leaves: Leaves) -> str | None:
    """The same for the output of cpuid."""
    seventh = leaves.get((7, 0), (0, 0, 0, 0))
    features = {feature for feature, (register, bit) in _FEATURE_BITS.items() if seventh[register] >> bit & 1}
    return contradiction(vendor(leaves), *family_and_model(leaves), features)


def contradiction_in_cpuinfo(text: str) -> str | None:
    """The same for Linux's /proc/cpuinfo."""
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    first = {key.strip(): value.strip() for key, _, value in pairs}
    numbers = first.get("cpu family", ""), first.get("model", "")
    if not all(number.isdigit() for number in numbers):
        return None
    return contradiction(first.get("vendor_id", ""), int(numbers[0]), int(numbers[1]), first.get("flags", "").split())


def vendor(leaves: Leaves) -> str:
    """`AuthenticAMD`, `GenuineIntel` or another."""
    _, b, c, d = leaves[0, 0]
    return b"".join(part.to_bytes(4, "little") for part in (b, d, c)).decode("ascii", "replace")


def family_and_model(leaves: Leaves) -> tuple[int, int]:
    """As makers count them: extended fields added."""
    version = leaves[1, 0][0]
    family, model = version >> 8 & 15, version >> 4 & 15
    if family in (6, 15):
        model |= (version >> 16 & 15) << 4
    return (family + (version >> 20 & 255) if family == 15 else family), model


def core(leaves: Leaves) -> Core | None:
    """Published figures of this core; none if it is not in the table, or if cpuid is inconsistent."""
    if contradiction_in_leaves(leaves):
        return None
    family, model = family_and_model(leaves)
    match vendor(leaves), family:
        case "AuthenticAMD", 23:
            return _ZEN if model < 0x30 else _ZEN2
        case "AuthenticAMD", 25:
            return _ZEN4 if 0x10 <= model < 0x20 or 0x60 <= model < 0x80 or model >= 0xA0 else _ZEN3
        case "AuthenticAMD", 26:
            return _ZEN5
        case "GenuineIntel", 6:
            return next((core for core, models in _INTEL_MODELS if model in models), None)
        case _:
            return None


def tlbs(leaves: Leaves) -> list[Tlb]:
    """The TLBs that cpuid states; an array for all page sizes counts once."""
    if vendor(leaves) == "AuthenticAMD":
        return list(_amd(leaves))
    return list(_intel(leaves)) or list(_descriptors(leaves))


_AMD_WAYS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 16, 10: 32, 11: 48, 12: 64, 13: 96, 14: 128}
"""Encoded associativities of second levels; 15 is full, and 0 an array that is off"""
_LEAST_ZEN_5 = 512
"""Entries; its second level for data has 4,096"""


def _amd(leaves: Leaves) -> Iterator[Tlb]:
    large, small, _, _ = leaves.get((0x80000005, 0), (0, 0, 0, 0))
    giant = leaves.get((0x80000019, 0), (0, 0, 0, 0))
    for kind, shift in (("data", 16), ("instruction", 0)):
        sizes = {"4K": small >> shift & 0xFFFF, "2M": large >> shift & 0xFFFF}
        # First levels have entries in 8 bits and ways in 8; those of 1 GiB pages are encoded like second levels.
        arrays = {page: (packed & 255, packed >> 8) for page, packed in sizes.items() if packed & 255}
        if entries := giant[0] >> shift & 0xFFF:
            arrays["1G"] = (
                entries,
                255 if giant[0] >> shift + 12 & 15 == 15 else _AMD_WAYS[giant[0] >> shift + 12 & 15],
            )
        yield from _merged(1, kind, {page: (n, n if ways == 255 else ways) for page, (n, ways) in arrays.items()})
    large, small, _, _ = leaves.get((0x80000006, 0), (0, 0, 0, 0))
    words = {"4K": small >> 16, "2M": large >> 16, "1G": giant[1] >> 16}
    unit = _amd_unit(leaves)
    arrays = {page: ((word & 0xFFF) * unit, word >> 12) for page, word in words.items()}
    known = {page: (n, n if code == 15 else _AMD_WAYS.get(code, 0)) for page, (n, code) in arrays.items()}
    # Its data and instruction sides are separate; the simulator's second level serves both, with the data side's size.
    yield from _merged(2, "both", {page: (n, ways) for page, (n, ways) in known.items() if n and ways})


def _amd_unit(leaves: Leaves) -> int:
    """Entries per unit of a stated second level: 32 if leaf 80000021h, EAX bit 14, says so.

    It does from Zen 5 (family 1Ah) on. Hypervisors clear the bit, since most do not know it. So a size of Zen 5 that is
    too small to be one in entries is taken for one in units of 32.
    """
    stated = leaves.get((0x80000021, 0), (0, 0, 0, 0))[0] >> 14 & 1
    small = leaves.get((0x80000006, 0), (0, 0, 0, 0))[1] >> 16 & 0xFFF
    return 32 if stated or (family_and_model(leaves)[0] >= 26 and small < _LEAST_ZEN_5) else 1


def _merged(level: int, kind: str, arrays: Mapping[str, tuple[int, int]]) -> Iterator[Tlb]:
    """Arrays with the same number of entries are one: AMD's hold pages of all sizes (optimization guides of families
    17h and 19h).

    A merged array has the fewest stated ways. If nothing is stated about pages of 1 GiB, the first array has them, too.
    """
    for entries in sorted({n for n, _ in arrays.values()}, reverse=True):
        pages = tuple(page for page in _ALL_PAGES if arrays.get(page, (0, 0))[0] == entries)
        if level == 1 and "1G" not in arrays and "2M" in pages:
            pages = (*pages, "1G")
        yield Tlb(level, kind, pages, entries, min(arrays[page][1] for page in pages if page in arrays))


def _intel(leaves: Leaves) -> Iterator[Tlb]:
    """Leaf 18h: one array per subleaf."""
    kinds = {1: "data", 2: "instruction", 3: "both", 4: "data"}
    for (leaf, _), (_, b, sets, d) in sorted(leaves.items()):
        # Arrays only for stores (5) are omitted: the simulator's arrays serve loads and stores.
        if leaf != 0x18 or d & 31 not in kinds:
            continue
        pages = tuple(page for page, bit in (("4K", 1), ("2M", 2), ("1G", 8)) if b & bit)
        ways = b >> 16
        if pages and sets and ways:
            yield Tlb(d >> 5 & 7, kinds[d & 31], pages, ways * sets, ways * sets if d >> 8 & 1 else ways)


_LEAF_2: Mapping[int, Sequence[Tlb]] = {
    0x03: (Tlb(1, "data", ("4K",), 64, 4),),
    0x5A: (Tlb(1, "data", ("2M",), 32, 4),),
    0x63: (Tlb(1, "data", ("2M",), 32, 4), Tlb(1, "data", ("1G",), 4, 4)),
    0x76: (Tlb(1, "instruction", ("2M",), 8, 8),),
    0xB2: (Tlb(1, "instruction", ("4K",), 64, 4),),
    0xB5: (Tlb(1, "instruction", ("4K",), 64, 8),),
    0xB6: (Tlb(1, "instruction", ("4K",), 128, 8),),
    0xC1: (Tlb(2, "both", ("4K", "2M"), 1024, 8),),
    0xC3: (Tlb(2, "both", ("4K", "2M"), 1536, 6), Tlb(2, "both", ("1G",), 16, 4)),
    0xCA: (Tlb(2, "both", ("4K",), 512, 4),),
}


def _descriptors(leaves: Leaves) -> Iterator[Tlb]:
    """Leaf 2: a byte per array, in registers whose highest bit is clear; the lowest byte of EAX is none."""
    registers = leaves.get((2, 0), (0, 0, 0, 0))
    for number, register in enumerate(registers):
        if register >> 31:
            continue
        for byte in register.to_bytes(4, "little")[number == 0 :]:
            yield from _LEAF_2.get(byte, ())


def caches(folder: Path = _CACHES) -> list[Cache]:
    """The caches of the first CPU, without those of instructions; none if Linux does not report them."""
    listed = []
    for path in sorted(folder.glob("index*")):
        texts = {name: (path / name).read_text().strip() for name in ("level", "type", "size", "ways_of_associativity")}
        if texts["type"] != "Instruction" and int(texts["ways_of_associativity"]):
            size = int(texts["size"].removesuffix("K")) << 10
            listed.append(Cache(int(texts["level"]), size, int(texts["ways_of_associativity"])))
    return listed


def last_level_inclusive(leaves: Leaves) -> bool | None:
    """Whether the L3 is inclusive; none if cpuid does not say."""
    for leaf in (0x8000001D, 4):
        kind, _, _, flags = leaves.get((leaf, 3), (0, 0, 0, 0))
        if kind >> 5 & 7 == 3:
            return bool(flags & 2)
    return None
