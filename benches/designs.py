"""How fast every design of `pagelab reproduce translation-designs` replays, as a share of the rate of radix tables.

    python benches/designs.py [--quick]

GUPS over 64 MiB on one thread, on the study's machine, bare and in a virtual machine. Rates are accesses per CPU second
without start-up and the first quarter of the accesses, which has all first touches. Designs take turns in each round. A
ratio is of one round, beside `radix` in the same layer; the table has the median of the rounds and the range.
"""

import argparse
import statistics

import throughput
from rich.table import Table

from pagelab.cli.terminal import print_table
from pagelab_studies.translation_designs_runs import BARE, DESIGNS, MACHINE, MEMORY, RADIX, VIRTUAL

WORKLOAD = "gups:size=64MiB"
ROUNDS, ACCESSES = 3, 4_000_000


def measure(rounds: int, accesses: int) -> dict[tuple[str, str], list[float]]:
    """Rates by design and layer, one of each round."""
    rates: dict[tuple[str, str], list[float]] = {
        (design.name, layer): [] for design in DESIGNS for layer in (BARE, VIRTUAL) if design.preset(layer)
    }
    designs = {design.name: design for design in DESIGNS}
    for number in range(rounds):
        for (name, layer), of_design in list(rates.items())[:: -1 if number % 2 else 1]:
            design = designs[name]
            settings = (MEMORY, *design.settings)
            rate = throughput.replay_rates(WORKLOAD, design.preset(layer), accesses, settings, machine=MACHINE)[1]
            of_design.append(rate)
    return rates


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, half of the accesses")
    quick = parser.parse_args().quick
    rates = measure(*(1, ACCESSES // 2) if quick else (ROUNDS, ACCESSES))
    table = Table("", "bare M/s", "of radix", "virtual M/s", "of radix", title="Designs, GUPS", title_justify="left")
    for design in DESIGNS:
        cells = []
        for layer in (BARE, VIRTUAL):
            ours = rates.get((design.name, layer))
            rate = throughput.millions(statistics.median(ours)) if ours else "–"
            cells += [rate, throughput.ratios_text(ours, rates[RADIX, layer]) if ours else "–"]
        table.add_row(design.name, *cells)
    print_table(table)


if __name__ == "__main__":
    main()
