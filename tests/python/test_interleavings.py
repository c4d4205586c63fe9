"""Several legal orders of a program's threads."""

import json

import pytest

import pagelab
from pagelab.results.spread import Spread

SHARED = "random:size=64MiB,accesses=150K,threads=3@0"
APART = "random:size=64MiB,accesses=150K,threads=2"


def test_orders_that_share_a_cpu_differ_and_are_the_same_again() -> None:
    recorded: dict[str, object] = {"kernel.scheduler": {"kind": "recorded"}}
    results = pagelab.run(SHARED, interleavings=3, threads=1, set=recorded)
    (result,) = results.systems
    assert len(result.orders) == 3
    assert result.orders[0] == result.stats == pagelab.run(SHARED, set=recorded).systems[0].stats
    assert {order["accesses"] for order in result.orders} == {result.stats["accesses"]}
    assert len({json.dumps(order) for order in result.orders}) == 3
    assert pagelab.run(SHARED, interleavings=3, threads=2, set=recorded).to_json() == results.to_json()
    assert pagelab.Results.from_json(results.to_json()).systems[0].orders == result.orders
    more = pagelab.run(SHARED, interleavings=4, seed=1, set=recorded).systems[0]
    assert more.orders[:3] == result.orders


def test_orders_on_several_cpus_differ_by_small_delays() -> None:
    recorded, *others = pagelab.run(APART, interleavings=3).systems[0].orders
    elapsed = [order["elapsed_cycles"] for order in others]
    assert len({recorded["elapsed_cycles"], *elapsed}) == 3
    assert all(0.9 < each / recorded["elapsed_cycles"] < 1.1 for each in elapsed)


def test_each_system_has_its_orders() -> None:
    results = pagelab.run(SHARED, ["radix", "radix-no-mmu-cache"], interleavings=2)
    assert [len(result.orders) for result in results.systems] == [2, 2]
    assert results["radix-no-mmu-cache"].orders[0] == results["radix-no-mmu-cache"].stats
    assert results["radix"].config["engine"].get("interleaving", 0) == 0


def test_an_order_alone_is_a_setting() -> None:
    alone = pagelab.run(SHARED, set={"engine.interleaving": 2}).systems[0].stats
    assert alone == pagelab.run(SHARED, interleavings=3).systems[0].orders[2]


def test_a_program_of_one_thread_has_one_order() -> None:
    with pytest.raises(pagelab.ConfigError, match="only one order: omit the interleavings"):
        pagelab.run("random:size=64MiB,accesses=1K", interleavings=2)
    with pytest.raises(pagelab.ConfigError, match="allowed are 1 to 1000"):
        pagelab.run(SHARED, interleavings=1001)
    (result,) = pagelab.run("random:size=64MiB,accesses=1K", interleavings=1).systems
    assert result.orders == ()


def test_a_result_says_whether_it_is_of_one_order() -> None:
    alone = pagelab.run(SHARED)
    assert alone.is_one_order
    assert alone.spread() is None
    assert not pagelab.run("random:size=64MiB,accesses=1K").is_one_order
    several = pagelab.run(SHARED, interleavings=2)
    table = several.spread()
    assert not several.is_one_order
    assert table is not None
    assert table.row_count == 7


def test_spread() -> None:
    spread = Spread.from_values([10, 12, 14])
    assert (spread.mean, spread.least, spread.most) == (12, 10, 14)
    # Student's t for two degrees of freedom is 4.303, and the deviation is 2.
    assert spread.interval == pytest.approx((12 - 4.303 * 2 / 3**0.5, 12 + 4.303 * 2 / 3**0.5))
    # 2.042 for thirty.
    values = [0.0, 1.0] * 15 + [0.5]
    deviation = (30 * 0.25 / 30) ** 0.5
    half = Spread.from_values(values).interval[1] - Spread.from_values(values).mean
    assert half == pytest.approx(2.042 * deviation / 31**0.5, rel=1e-3)
