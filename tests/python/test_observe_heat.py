"""The heat map and the working set, of looks that are made by hand."""

from pagelab.observe.heat import Interval, curve, heat_map, merged, shades
from pagelab.observe.looks import Look, Looks
from pagelab.observe.regions import Amounts, ProcessRegions, Region

MIB = 1 << 20


def region(begin: int, used: dict[int, int | None], resident: int = 8 * MIB) -> Region:
    looks = {number: Amounts(size=resident, resident=resident, used=part) for number, part in used.items()}
    return Region(1, "anonymous memory", begin, begin + resident, True, "rw-p", "", looks=looks)


def looks(*regions: Region, seconds: tuple[float, ...] = (0.0, 1.0, 3.0)) -> Looks:
    made = Looks(None)
    made.regions[1] = ProcessRegions(1)
    made.regions[1].regions += regions
    before = (0.0, *seconds)
    made.looks = [
        Look(at, 1, 1, None if number == 0 else at - last, 0.0, 0.0)
        for number, (last, at) in enumerate(zip(before, seconds, strict=False))
    ]
    return made


def test_rows_are_mappings_by_address_and_columns_intervals() -> None:
    high = region(64 * MIB, {0: None, 1: 8 * MIB, 2: 2 * MIB})
    low = region(16 * MIB, {0: None, 2: 4 * MIB})
    small = region(8 * MIB, {0: None, 1: MIB, 2: MIB}, resident=MIB)
    heat = heat_map(looks(high, low, small))
    assert heat.intervals == [Interval(0.0, 1.0), Interval(1.0, 3.0)]
    assert [row.region for row in heat.rows] == [low, high]
    # The lower one was not there yet.
    assert [row.parts for row in heat.rows] == [[None, 0.5], [1.0, 0.25]]
    assert heat.working_set == [9 * MIB, 7 * MIB]


def test_without_accessed_bits_there_is_no_heat() -> None:
    heat = heat_map(looks(region(16 * MIB, {0: None}), seconds=(0.0,)))
    assert (heat.intervals, heat.working_set) == ([], [])


def test_columns_keep_the_most_of_several_intervals() -> None:
    assert merged([0.1, 0.9, None, None, 0.3], 3) == [0.9, None, 0.3]
    assert merged([0.1, 0.2], 56) == [0.1, 0.2]
    assert merged([], 5) == []
    assert len(merged([0.5] * 1000, 56)) <= 56


def test_shares_and_sizes_are_letters() -> None:
    assert shades([0.0, 0.009, 0.01, 0.25, 0.5, 0.9, 1.0, None]) == "  ░▒▓██·"
    assert curve([0, 8, 16, None]) == "▁▅█·"
    assert curve([0, None]) == "▁·"
