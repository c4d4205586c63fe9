"""Text as `perf script` prints it."""


def perf_script(faults: int = 2000, cores: int = 2, interval_ns: int = 10_000) -> str:
    """First writes, one in each interval, on the cores in turn."""
    lines = []
    for number in range(faults):
        seconds, nanoseconds = divmod(5_000_000_000 + number * interval_ns, 1_000_000_000)
        lines.append(
            f"     cc1 70/71 [{number % cores:03}] {seconds}.{nanoseconds:09}: exceptions:page_fault_user: "
            f"address={0x7000_0000_0000 + number * 4096:#x} ip=0x401000 error_code=0x6\n"
        )
    return "".join(lines)
