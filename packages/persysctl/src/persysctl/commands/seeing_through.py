"""What all waiting verbs share: progress while it lasts, a line per workload, the exit code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.progress import progress
from persysctl.wait import Goal, Outcome, Standing, wait_for

__all__ = ["see_through"]


async def see_through(
    context: Context,
    goals: Mapping[str, Goal],
    ending: Callable[[str], Awaitable[str]] | None = None,
) -> tuple[ExitCode, dict[str, Outcome]]:
    """Wait for ``goals``, say how each ended, and give the code that sums them up.

    ``ending``: a line to say instead for a workload that reached its goal; empty for none.
    """
    if not goals:
        return ExitCode.DONE, {}
    seconds = context.wait_seconds
    with progress(context.output.terminal, goals) as tell:
        outcomes = await wait_for(context.client, goals, seconds, tell)
    for workload_id, outcome in outcomes.items():
        reached = outcome.standing is Standing.REACHED
        special = await ending(workload_id) if ending is not None and reached else ""
        if special:
            context.output.say(special)
        else:
            _say(context, workload_id, outcome, seconds)
    return _code(outcomes), outcomes


def _say(context: Context, workload_id: str, outcome: Outcome, seconds: float) -> None:
    match outcome.standing:
        case Standing.REACHED:
            context.output.say(f"{workload_id} is {outcome.text}")
        case Standing.FAILED:
            context.output.terminal.note(f"{workload_id} failed: {outcome.text}")
        case Standing.NOT_YET:
            late = f"{workload_id} is not there after {seconds:g} s: {outcome.text}"
            hint = f"persysctl explain {workload_id} says more; --timeout waits longer"
            context.output.terminal.note(f"{late}\n{hint}")


def _code(outcomes: Mapping[str, Outcome]) -> ExitCode:
    standings = {outcome.standing for outcome in outcomes.values()}
    if Standing.FAILED in standings:
        return ExitCode.FAILED
    return ExitCode.NOT_YET if Standing.NOT_YET in standings else ExitCode.DONE
