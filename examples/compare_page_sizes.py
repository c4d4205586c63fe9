"""How much of a program's translation cost huge pages take away, by footprint.

python examples/compare_page_sizes.py
"""

import polars as pl

import pagelab

SIZES = ("64MiB", "256MiB", "1GiB", "4GiB")


def main() -> None:
    """Prints a row per footprint: cycles an access waits for translation with 4 KiB and with 2 MiB pages."""
    rows = []
    for size in SIZES:
        results = pagelab.run(f"random:size={size}", ["radix", "radix-2m"], max_accesses=2_000_000)
        per_access = {r.system: r.stats["cycles.translation"] / r.stats["accesses"] for r in results.systems}
        rows.append({"footprint": size, **per_access})
    print(pl.DataFrame(rows))


if __name__ == "__main__":
    main()
