"""Sentences of the page: what observing cost, what faults and walks cost, and what could not be known."""

from collections.abc import Iterator

from pagelab.observe.conclusions import Conclusions
from pagelab.observe.layout import PAGE_BYTES
from pagelab.observe.observation import Observation
from pagelab.quantities import size_text


def cost_lines(conclusions: Conclusions) -> list[str]:
    """What observing cost, and whether the bound was kept."""
    seen, share = conclusions.observation, conclusions.cost_share
    budget, bound = seen.budget, seen.settings.budget
    thread = f", {budget.monitor:.3f} s in DAMON's thread" if budget.monitor else ""
    text = f"Observing took {budget.own:.3f} s of CPU time{thread}, and about {budget.in_program:.3f} s in the program"
    if share is None:
        return [f"{text}. The program used no CPU time meanwhile."]
    text = f"{text}: {share:.1%} of the program's CPU time; the bound is {bound:.1%}"
    if share > bound:
        used = max(seen.totals.cpu_seconds, 1e-9)
        text = f"{text}, and the first look, which is always made, took {budget.first_look / used:.1%}"
        if budget.switches > 0.1 * bound * used:
            text = f"{text}, switches of context {budget.switches / used:.1%}"
    return [f"{text}."]


def fault_line(conclusions: Conclusions) -> str:
    """What faults cost."""
    seen, share, seconds = conclusions.observation, conclusions.times.faults, conclusions.fault_seconds
    faults = f"{seen.totals.faults:,} page faults ({seen.totals.major:,} waited for a device)"
    if share is None or seconds is None:
        return f"{faults}; what they cost is not measured: {conclusions.times.missing}."
    each = f", {seconds.share / seen.totals.faults * 1e6:.2f} µs per fault" if seen.totals.faults else ""
    return (
        f"{faults} take {share.share:.1%} of the CPU time ({share.low:.1%} to {share.high:.1%}, from "
        f"{conclusions.times.samples:,} samples): {seconds.share:.3f} s{each}."
    )


def walk_line(conclusions: Conclusions) -> str:
    """What page walks cost, or what is known instead."""
    hardware, reach = conclusions.observation.hardware, conclusions.reach
    if hardware.walk_share is not None:
        misses = f", {hardware.misses:,.0f} misses of the last-level TLB" if hardware.misses is not None else ""
        return f"Page walks take {hardware.walk_share:.1%} of the cycles, as the processor counts them{misses}."
    used = _most_used(conclusions.observation)
    start = f"Page walks are not measured: {hardware.missing}."
    if hardware.misses is not None:
        start = f"{start} The last-level TLB missed {hardware.misses:,.0f} times."
    if used is None:
        return f"{start} Nor is it known which memory was used."
    cover = f"its last-level TLB covers {size_text(reach.size)} with small pages ({reach.origin})"
    processes = conclusions.observation.looks.regions
    each = [most for pid in processes if (most := _most_used(conclusions.observation, pid)) is not None]
    who = f"The {len(processes)} processes together" if len(processes) > 1 else "The program"
    one = f", one of them up to {size_text(max(each))}" if len(processes) > 1 and each else ""
    text = f"{start} {who} used up to {size_text(used)} in an interval{one}; {cover}."
    if used <= reach.size:
        most = used // PAGE_BYTES
        text = f"{text} If it keeps the pages used last, it missed at most {most:,} times then, beside page faults."
    return text


def _most_used(seen: Observation, pid: int | None = None) -> int | None:
    """The most memory used in an interval by a process, or by all together; none if no interval ended."""
    totals = seen.looks.totals(pid)
    return max((amounts.used for _, amounts in totals if amounts.used is not None), default=None)


def missing_lines(conclusions: Conclusions) -> list[str]:
    """What the kernel, the rights or the bound kept from being known."""
    seen, covered = conclusions.observation, conclusions.times.coverage
    paused = []
    if covered < 1 and not conclusions.times.missing:
        paused.append(
            f"Where {1 - covered:.0%} of the CPU time went: sampling paused to keep the bound on cost. The intervals "
            "hold whatever was done then; a higher --budget, or more CPU time of the program, makes them narrower."
        )
    return [*paused, *_events(seen), *_memory(seen), *seen.looks.notes]


def _events(seen: Observation) -> Iterator[str]:
    if seen.events_refused:
        yield (
            f"Where faults are, and their time: {seen.events_refused}. Faults and CPU time are those of /proc/PID/stat."
        )
    elif not seen.kernel_seen:
        yield "Faults of kernel code, and time in the kernel: kernel.perf_event_paranoid is above 1 for this user."
    if seen.threads_left_out:
        yield f"{seen.threads_left_out:,} threads: this process may not have so many events open (ulimit -n)."
    if seen.lost:
        yield f"{seen.lost:,} samples, for which the rings had no room."
    if seen.elsewhere >= 0.01 * max(seen.totals.faults, 1):
        share = seen.elsewhere / max(seen.totals.faults, 1)
        yield (
            f"The memory of {share:.0%} of the faults: no look has shown it. It was mapped and unmapped between two "
            "looks, or its process ended before one."
        )


def _memory(seen: Observation) -> Iterator[str]:
    looks = seen.looks
    if not looks.looks:
        yield "Its memory: everything ended before it could be looked at."
    if looks.bits is None:
        yield "Which memory was used: --no-referenced."
    for refusal in looks.refused:
        yield f"Which memory was used: {refusal}."
    if looks.bits is not None and not looks.bits.flushes:
        yield (
            f"Used pages whose translations stay in a TLB: {looks.bits.not_flushed}. Used memory may be larger, by up "
            "to what the TLBs cover."
        )
    if not looks.pagemaps.frames_known:
        yield "Contiguity of frames, and of which sizes pages are: frame numbers need CAP_SYS_ADMIN."
    elif not looks.pagemaps.sizes_known:
        yield "Of which sizes pages are: /proc/kpageflags is for root, or needs CAP_DAC_READ_SEARCH."
    if len(looks.looks) < 2 and looks.bits is not None:
        why = (
            "the program ended" if seen.ended else "the observation ended" if seen.interrupted else "the bound on cost"
        )
        more = "" if seen.ended else ". More looks: a longer --seconds, or a larger --budget, such as 10%"
        yield f"Which memory was used: {why} left time for one look only{more}."
