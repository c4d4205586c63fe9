"""An observation with what follows from it: shares of time, code, judgements, and what to record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagelab.observe.code import CodeFaults, Frame, Stack, faults_by_code, name_stacks
from pagelab.observe.observation import Observation
from pagelab.observe.projections import Projection, project
from pagelab.observe.recipe import commands
from pagelab.observe.time_shares import Share, TimeShares, time_shares
from pagelab.observe.verdict import Judgement, Kind, Reach, judge, overall, tlb_reach


@dataclass(frozen=True)
class Conclusions:
    """What an observation shows."""

    observation: Observation
    times: TimeShares
    names: Mapping[Stack, tuple[Frame, ...]]
    """Of the stacks with the most faults"""
    code: Sequence[CodeFaults]
    reach: Reach
    judgements: Sequence[Judgement]
    kind: Kind
    reason: str
    recipes: Sequence[str]
    projections: Sequence[Projection]

    @property
    def fault_seconds(self) -> Share | None:
        """CPU seconds in faults; none if they cannot be measured here."""
        share, cpu = self.times.faults, self.observation.totals.cpu_seconds
        return None if share is None else Share(share.share * cpu, share.low * cpu, share.high * cpu)

    @property
    def cost_share(self) -> float | None:
        """What observing cost, as a share of the observed CPU time; none if there was hardly any."""
        cpu = self.observation.totals.cpu_seconds
        return self.observation.budget.spent / cpu if cpu > 0 else None


def conclude(observation: Observation, command: Sequence[str] | None) -> Conclusions:
    """What follows from an observation.

    Args:
        observation: The observation.
        command: How what was observed is started, if it is one program.
    """
    times = time_shares(observation)
    names = name_stacks(observation.stacks, observation.looks.regions)
    code = faults_by_code(observation.stacks, names)
    reach = tlb_reach()
    judgements = judge(observation, times, reach)
    kind, reason = overall(judgements, observation, times)
    by_faults = "fault" in reason
    recipes = commands(command, code, faults=by_faults) if kind is Kind.WORTH_A_RECORDING else []
    projections = project(observation, times)
    return Conclusions(observation, times, names, code, reach, judgements, kind, reason, recipes, projections)
