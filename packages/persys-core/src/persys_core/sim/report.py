"""What a run leaves behind: its figures, or what was violated and how to see it again."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from persys_core.model.errors import PersysError
from persys_core.sim.history import clock_text
from persys_core.sim.invariants import Finding
from persys_core.sim.scenario import Scenario

__all__ = ["Report", "SimulationError", "replay_command"]


@frozen
class Report:
    """A run without a violation. ``figures``: name to value; ``fingerprint`` is the history's."""

    scenario: Scenario
    fingerprint: str
    seconds: float
    figures: Mapping[str, int] = field(factory=dict)

    def line(self, wall_seconds: float) -> str:
        """One line for a person."""
        shown = ("commits", "agent_calls", "placements", "faults", "deeds", "settled_after")
        parts = [f"{name} {self.figures.get(name, 0)}" for name in shown]
        return f"seed {self.scenario.seed} ok {wall_seconds:.1f} s {self.fingerprint} " + " ".join(
            parts
        )


class SimulationError(PersysError):
    """A safety rule did not hold: what, when, about whom, what went before, and how to replay."""

    def __init__(
        self, scenario: Scenario, finding: Finding, seconds: float, history: list[str]
    ) -> None:
        self.scenario = scenario
        self.finding = finding
        self.seconds = seconds
        about = " ".join(finding.subjects) or "the run"
        super().__init__(
            "\n".join(
                (
                    f"seed {scenario.seed} at {clock_text(seconds)}: rule {finding.rule}"
                    f" about {about}",
                    f"  {finding.text}",
                    *(f"  | {line}" for line in history),
                    f"replay: {replay_command(scenario, finding)}",
                )
            )
        )


def replay_command(scenario: Scenario, finding: Finding | None = None) -> str:
    """The command that makes the same run again, with the lines about the finding's subjects."""
    default = Scenario(scenario.seed)
    words = [
        "python -m persys_core.sim",
        f"--seed {scenario.seed} --nodes {scenario.nodes} --workloads {scenario.workloads}",
        f"--minutes {scenario.duration.total_seconds() / 60:g}",
    ]
    if scenario.replicas != default.replicas:
        words.append(f"--replicas {scenario.replicas}")
    if scenario.faults_per_minute != default.faults_per_minute:
        words.append(f"--faults-per-minute {scenario.faults_per_minute:g}")
    if scenario.deeds_per_minute != default.deeds_per_minute:
        words.append(f"--deeds-per-minute {scenario.deeds_per_minute:g}")
    if scenario.ha_mode is not default.ha_mode:
        words.append(f"--ha {scenario.ha_mode}")
    if scenario.orphan_policy is not None:
        words.append(f"--orphan-policy {scenario.orphan_policy}")
    if scenario.kinds != default.kinds:
        words.append(f"--only {','.join(sorted(scenario.kinds))}")
    words.extend(f"--trace {subject}" for subject in (finding.subjects[:1] if finding else ()))
    return " ".join(words)
