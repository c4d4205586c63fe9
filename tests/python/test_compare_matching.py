"""Which mapping of one version is which of the other, and the statistics of changes."""

import math

import pytest

from pagelab.comparison.functions import nameless_files, renamed, same_function, without_names
from pagelab.comparison.intervals import Change, Estimate
from pagelab.comparison.limits import Limit
from pagelab.comparison.mappings import Mapping, match
from pagelab.comparison.metrics import Costs

MIB = 1 << 20


def _file(name: str) -> Mapping:
    return Mapping("file", name, 4096, Costs())


def _anonymous(*sizes: int) -> list[Mapping]:
    return [Mapping("anonymous", "anonymous", size, Costs()) for size in sizes]


def _names(a: list[Mapping], b: list[Mapping]) -> set[tuple[str | None, str | None]]:
    return {(one.name if one else None, other.name if other else None) for one, other in match(a, b)}


def _sizes(a: list[int], b: list[int]) -> list[tuple[int | None, int | None]]:
    pairs = match(_anonymous(*a), _anonymous(*b))
    return [(one.size if one else None, other.size if other else None) for one, other in pairs]


def test_files_are_matched_by_path_then_by_name() -> None:
    a = [_file("/lib/libc.so.6"), _file("/old/bin/sort"), _file("/usr/lib/libz.so.1.2.13")]
    b = [_file("/usr/lib/libz.so.1.3"), _file("/new/bin/sort"), _file("/lib/libc.so.6")]
    assert _names(a, b) == {
        ("/lib/libc.so.6", "/lib/libc.so.6"),
        ("/old/bin/sort", "/new/bin/sort"),
        ("/usr/lib/libz.so.1.2.13", "/usr/lib/libz.so.1.3"),
    }


def test_the_one_file_left_on_each_side_is_the_program() -> None:
    assert _names([_file("/old"), _file("/libc")], [_file("/libc"), _file("/other")]) == {
        ("/old", "/other"),
        ("/libc", "/libc"),
    }


def test_several_files_left_are_not_guessed() -> None:
    a, b = [_file("/old"), _file("/data")], [_file("/other"), _file("/text")]
    assert _names(a, b) == {("/old", None), ("/data", None), (None, "/other"), (None, "/text")}


def test_a_name_that_several_have_does_not_match() -> None:
    a, b = [_file("/a/data"), _file("/b/data")], [_file("/c/data")]
    assert (None, "/c/data") in _names(a, b)


def test_anonymous_mappings_keep_their_order() -> None:
    assert _sizes([MIB, 8 * MIB, MIB], [MIB, 8 * MIB, MIB]) == [(MIB, MIB), (8 * MIB, 8 * MIB), (MIB, MIB)]


def test_a_mapping_that_has_grown_is_still_the_same() -> None:
    assert _sizes([MIB, 8 * MIB], [4 * MIB, 8 * MIB]) == [(MIB, 4 * MIB), (8 * MIB, 8 * MIB)]


def test_a_new_mapping_does_not_shift_the_others() -> None:
    sizes = [MIB, 64 * MIB, 2 * MIB]
    assert _sizes(sizes, [MIB, 64 * MIB, 512 * MIB, 2 * MIB]) == [
        (MIB, MIB),
        (64 * MIB, 64 * MIB),
        (None, 512 * MIB),
        (2 * MIB, 2 * MIB),
    ]


def test_sizes_beyond_eight_times_are_two_mappings() -> None:
    assert set(_sizes([MIB], [9 * MIB])) == {(MIB, None), (None, 9 * MIB)}


def test_functions_of_a_renamed_file_are_the_same() -> None:
    functions = {("f", "/new"): Costs(walks=1), ("g", "/lib"): Costs(walks=2)}
    assert renamed(functions, {"/new": "/old"}) == {("f", "/old"): Costs(walks=1), ("g", "/lib"): Costs(walks=2)}


def test_files_without_names_are_one_function() -> None:
    functions = {("f", "/a"): Costs(walks=1), ("", "/a"): Costs(walks=2), ("", "/b"): Costs(walks=4)}
    assert nameless_files([functions]) == {"/b"}
    assert without_names(functions, {"/a"}) == {("", "/a"): Costs(walks=3), ("", "/b"): Costs(walks=4)}


def test_a_function_with_other_parameters_is_the_same() -> None:
    old, new = ("Index::find(unsigned long)", "f"), ("Index::find(unsigned int)", "f")
    same = ("main", "f")
    assert same_function([old, same], [new, same]) == {new: old}
    # Nobody knows which of two it is, nor is a function of another file.
    other = ("Index::find(int, int)", "f")
    assert same_function([old], [new, other]) == {}
    assert same_function([old, other], [new]) == {}
    assert same_function([old], [("Index::find(int)", "g")]) == {}
    # An overload that both sides have is matched already.
    assert same_function([old, other], [new, other]) == {new: old}


def test_the_interval_of_pairs() -> None:
    change = Change.from_pairs([100, 110, 90], [105, 114, 96])
    # Differences 5, 4, 6: mean 5, standard error 1 / sqrt(3); 4.303 for 2 degrees of freedom.
    half = 4.303 / math.sqrt(3)
    assert change.interval == pytest.approx((5 - half, 5 + half))
    assert change.relative == pytest.approx(0.05)


def test_pairs_in_proportion_have_a_relative_change_without_spread() -> None:
    change = Change.from_pairs([100, 200, 300], [103, 206, 309])
    assert change.relative_interval == pytest.approx((0.03, 0.03))
    assert change.interval is not None
    assert change.interval[0] < 6 < change.interval[1]


def test_the_interval_of_independent_values() -> None:
    # Welch: variances 1 of 3 values each, so 4 degrees of freedom: 2.776.
    change = Change.from_independent(Estimate.from_values([9, 10, 11]), Estimate.from_values([19, 20, 21]))
    half = 2.776 * math.sqrt(2 / 3)
    assert change.interval == pytest.approx((10 - half, 10 + half))
    # The ratio 2 weighs A's error double.
    assert change.relative_interval is not None
    assert change.relative_interval[1] - 1 > half / 10


def test_single_values_have_no_interval() -> None:
    change = Change.from_independent(Estimate.from_values([10]), Estimate.from_values([9, 10, 11]))
    assert change.interval is None
    assert Change.from_pairs([1], [2]).interval is None


@pytest.mark.parametrize(
    ("text", "change", "outcome"),
    [
        ("walks>+3%", Change(100, 103), "within"),
        ("walks>+3%", Change(100, 104), "exceeded"),
        ("walks>+3", Change(100, 104), "exceeded"),
        ("walks<-3%", Change(100, 96), "exceeded"),
        ("walks<-3%", Change(100, 104), "within"),
        ("walks>+3%", Change(100, 104, (1, 7), (0.01, 0.07)), "undecided"),
        ("walks>+3%", Change(100, 104, (3.5, 4.5), (0.035, 0.045)), "exceeded"),
        ("walks>+3%", Change(100, 102, (1.5, 2.5), (0.015, 0.025)), "within"),
        ("walks>+3", Change(100, 104, (1, 7), (0.035, 0.045)), "undecided"),
        ("walks<-3%", Change(100, 96, (-7, -1), (-0.07, -0.01)), "undecided"),
        ("walks<-3%", Change(100, 96, (-5, -4), (-0.05, -0.04)), "exceeded"),
        ("walks>+3%", Change(0, 5), "exceeded"),
        ("walks>+3%", Change(0, 0), "within"),
        ("walks<-3%", Change(0, 5), "within"),
    ],
)
def test_limits_are_judged(text: str, change: Change, outcome: str) -> None:
    assert Limit.parse(text).judge(change) == outcome
