"""Writes docs/decision-tables.md from the decision tables of the core.

`--check` (default) fails and says so where the page differs; `--write` writes it.

Conditions are functions, and the page tells them in words without reading their source: each one
is asked with facts that answer only what was decided so far. What it asks for next is tried with
every value, which gives its whole decision tree.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from itertools import groupby, product
from pathlib import Path
from typing import TypeVar, cast, get_type_hints

from attrs import evolve

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from persys_core.drift.classify import COMPARISONS, EXCUSES
from persys_core.drift.remedy import LISTINGS_TO_DELETE, REMEDIES, Facts
from persys_core.modes.machine import Cause, ModeEvent, ModeState, next_mode, permits
from persys_core.nodes.eviction import EVICTION_RULES, EvictionPolicy, LostNode
from persys_core.nodes.leaving import AT_ONCE, LEAVING_RULES, LeavingFacts
from persys_core.reconcile.actions import Action
from persys_core.reconcile.decide import RULES, Rule
from persys_core.reconcile.situation import Situation
from tools.table_words import ACTIONS, OUTLOOKS, PHRASES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "decision-tables.md"

F = TypeVar("F")
Value = Enum | bool
Clause = dict[str, frozenset[Value]]


# Conditions in words


class _Ask(Exception):
    """A condition looked at a fact that is not decided yet."""

    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact


class _Known:
    """Stands for an object of facts, of which only some are known."""

    def __init__(self, known: Mapping[str, Value]) -> None:
        self._known = known

    def __getattr__(self, fact: str) -> Value:
        if fact not in self._known:
            raise _Ask(fact)
        return self._known[fact]


def tell(when: Callable[[F], bool], facts: type[F]) -> str:
    """The condition ``when`` on ``facts`` (a class of booleans and enumerations) in words."""
    clauses = list(clauses_of(when, facts))
    if clauses == [{}]:
        return "always"
    return "; or ".join(_tell_clause(clause, facts) for clause in clauses)


def clauses_of(when: Callable[[F], bool], facts: type[F]) -> Iterator[Clause]:
    """The cases in which ``when`` holds: in each, the facts that count and their values."""
    domains = {name: _values(kind) for name, kind in get_type_hints(facts).items()}

    def cases(known: dict[str, Value]) -> list[Clause]:
        try:
            return [{}] if when(cast(F, _Known(known))) else []
        except _Ask as ask:
            fact = ask.fact
        return _merge(fact, {value: cases({**known, fact: value}) for value in domains[fact]})

    yield from _shortened(cases({}), domains)


def _shortened(clauses: list[Clause], domains: Mapping[str, tuple[Value, ...]]) -> list[Clause]:
    """The same cases without what the others make needless: *A; or not A and B* is *A; or B*."""
    named = sorted({fact for clause in clauses for fact in clause})
    worlds = [
        dict(zip(named, values, strict=True))
        for values in product(*(domains[fact] for fact in named))
    ]
    holding = [world for world in worlds if _holds(clauses, world)]
    for place, clause in enumerate(clauses):
        for fact in clause:
            shorter = {name: values for name, values in clauses[place].items() if name != fact}
            if all(world in holding for world in worlds if _holds([shorter], world)):
                clauses[place] = shorter
    return clauses


def _holds(clauses: Iterable[Clause], world: Mapping[str, Value]) -> bool:
    return any(all(world[fact] in values for fact, values in clause.items()) for clause in clauses)


def _merge(fact: str, branches: Mapping[Value, list[Clause]]) -> list[Clause]:
    """The cases of a fact's values, those together that lead to the same."""
    merged: list[tuple[list[Value], list[Clause]]] = []
    for value, cases in branches.items():
        same = next((values for values, others in merged if others == cases), None)
        if same is None:
            merged.append(([value], cases))
        else:
            same.append(value)
    if len(merged) == 1:
        return merged[0][1]
    return [{fact: frozenset(values), **case} for values, cases in merged for case in cases]


def _values(kind: type) -> tuple[Value, ...]:
    return (True, False) if kind is bool else tuple(cast(type[Enum], kind))


def _tell_clause(clause: Clause, facts: type) -> str:
    return _join([_tell_fact(fact, values, facts) for fact, values in clause.items()], "and")


def _tell_fact(fact: str, values: frozenset[Value], facts: type) -> str:
    phrase = PHRASES[facts].get(fact) or _spelt_out(fact, facts)
    if isinstance(phrase, tuple):
        return phrase[0] if True in values else phrase[1]
    domain = _values(get_type_hints(facts)[fact])
    others = [value for value in domain if value not in values]
    if len(others) == 1 < len(values):
        return f"{phrase} not {_one_of(others)}"
    return f"{phrase} {_one_of(v for v in domain if v in values)}"


def _spelt_out(fact: str, facts: type) -> str | tuple[str, str]:
    """The words of a fact that has none of its own in table_words.py."""
    name = fact.replace("_", " ")
    is_flag = get_type_hints(facts)[fact] is bool
    return (name, f"not {name}") if is_flag else f"{name} is"


def _one_of(values: Iterable[Value]) -> str:
    return _join([f"`{value.value}`" for value in values if isinstance(value, Enum)], "or")


def _join(parts: list[str], word: str) -> str:
    if len(parts) < 2:
        return "".join(parts)
    comma = "," if word == "and" else ""
    return f"{', '.join(parts[:-1])}{comma} {word} {parts[-1]}"


# Markdown


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of markdown."""
    cells = [list(heads), *(list(row) for row in rows)]
    cells.insert(1, ["---"] * len(cells[0]))
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


# Reconciling


def reconcile() -> str:
    """The tables of one look at a workload."""
    sections = []
    for rules, entries in groupby(RULES.items(), key=lambda entry: entry[1]):
        outlooks = [outlook for outlook, _ in entries]
        title = _join([f"`{outlook.value}`" for outlook in outlooks], "or")
        told = (f"`{each.value}`: {OUTLOOKS[each]}" for each in outlooks if each in OUTLOOKS)
        sections.append(f"### Outlook {title}\n\n{'; '.join(told)}.\n\n{_rules(rules)}")
    actions = table(
        ("action", "what it does"),
        ((f"`{action.value}`", ACTIONS.get(action, "-")) for action in Action),
    )
    return "\n".join((RECONCILE, *sections, f"### The actions\n\n{actions}"))


def _rules(rules: Iterable[Rule]) -> str:
    return table(
        ("rule", "when", "action", "because"),
        (
            (f"`{rule.name}`", tell(rule.when, Situation), f"`{rule.action.value}`", rule.because)
            for rule in rules
        ),
    )


RECONCILE = """\
## One look at a workload

Decides which one step is next for a workload (`persys_core/reconcile/decide.py`). Its records, the
newest sighting of it and the state of its node are reduced to closed facts (`situation.py`); one of
them, the *outlook*, is what is still owed to the user and names the table. The step's name is
the label `action` of `persys_scheduler_reconciliation_results_total`.
"""


# Drift


def drift() -> str:
    """The tables of what is drift, and of what is done about it."""
    excuses = table(
        ("excuse", "when", "because"), ((f"`{e.name}`", e.condition, e.why) for e in EXCUSES)
    )
    types = table(("drift", "when"), ((f"`{c.type.value}`", c.condition) for c in COMPARISONS))
    remedies = table(
        ("remedy", "when", "action", "what an operator is told"),
        (
            (f"`{r.name}`", tell(r.when, Facts), f"`{r.action.value}`", r.note or "-")
            for r in REMEDIES
        ),
    )
    return f"{DRIFT}\n{excuses}\n{TYPES}\n{types}\n{REMEDY}\n{remedies}"


DRIFT = """\
## Drift

Decides what a node's full listing shows that the records do not explain
(`persys_core/drift/classify.py`). First come the excuses: where one holds, the difference is no
drift, since something is on its way.
"""
TYPES = """\
What no excuse covers is compared for each type by itself, so one workload may have several drifts:
a wrong state hides no wrong revision.
"""
REMEDY = f"""\
### What is done about it

`persys_core/drift/remedy.py`. What is assigned to the node is the reconciler's alone: the first
three rows only nudge it. The others are about orphans; the policy is `SCHEDULER_ORPHAN_POLICY`.
Enough listings are {LISTINGS_TO_DELETE} in a row.
"""


# Relocation


def relocation() -> str:
    """The tables of work that moves away from a node."""
    lost = table(
        ("rule", "when", "the work", "because"),
        (
            (f"`{r.name}`", tell(r.when, LostNode), f"`{r.verdict.value}`", r.because)
            for r in EVICTION_RULES
        ),
    )
    leaving = table(
        ("rule", "when", "it", "because"),
        (
            (f"`{r.name}`", tell(r.when, LeavingFacts), f"`{r.verdict.value}`", r.because)
            for r in LEAVING_RULES
        ),
    )
    return f"{LOST}\n{lost}\n{LEAVING}\n{leaving}"


LOST = f"""\
## Work that moves

### Off a lost node

Decides whether the work of a node that was silent for longer than the grace may move yet
(`persys_core/nodes/eviction.py`); what does move is `Reschedule` above. Work whose
data is on its node (`run-pinned`) stays in any case. Fewer than
{EvictionPolicy().mass_minimum} silent nodes are never a mass loss; the interval is
{EvictionPolicy().interval.total_seconds():g} s.
"""
LEAVING = f"""\
### Off a node that is to be left

Decides whether a workload on a drained or NoExecute-tainted node moves away now
(`persys_core/nodes/leaving.py`); this is the fact *its leaving is* of the tables above. At most
{AT_ONCE} moves of a node are under way at a time. `moves`: where no other node takes it, it stays
and says why; `must`: it goes to another node or to none.
"""


# Modes

MANY = 10
"""So many of the same event in a row lead where they ever will."""
_THEN = datetime(2026, 1, 1, tzinfo=UTC)
_STARTED = ModeState.started(_THEN)


def _after(event: ModeEvent) -> ModeState:
    return next_mode(_STARTED, event, _THEN)


MODES: dict[str, ModeState] = {
    "normal": _STARTED,
    "degraded, store away": _after(ModeEvent.OPERATION_EXHAUSTED),
    "degraded, no space": _after(ModeEvent.SPACE_EXCEEDED),
    "recovery": _after(ModeEvent.MARKER_MISSING),
    "recovery, work while fresh": _after(ModeEvent.WORK_WHILE_FRESH),
}


def modes() -> str:
    """The tables of when the control plane freezes and thaws, and what it may do."""
    events = table(
        ("event", *MODES),
        (
            (f"`{event.value}`", *(_tell_change(state, event) for state in MODES.values()))
            for event in ModeEvent
        ),
    )
    allowed = table(
        ("mode", "reads", "wishes of users and operators", "deletes of records", "the loops"),
        (_permissions(name, state) for name, state in MODES.items()),
    )
    return f"{MODE}\n{events}\n{ALLOWED}\n{allowed}"


def _tell_change(state: ModeState, event: ModeEvent) -> str:
    """What becomes of ``state``: tried, not read from the table's functions."""
    seen, times = next_mode(state, event, _THEN), 1
    while _is_same(seen, state) and times < MANY:
        seen, times = next_mode(seen, event, _THEN), times + 1
    if _is_same(seen, state):
        return "stays" if _keeps_count(state, event) else "stays; failed probes count anew"
    to = seen.mode.value if seen.mode is not state.mode else "stays"
    to += f" (`{seen.cause}`)" if seen.cause is not Cause.NONE else ""
    return to if times == 1 else f"{to} after {times} in a row"


def _is_same(one: ModeState, other: ModeState) -> bool:
    return (one.mode, one.cause) == (other.mode, other.cause)


def _keeps_count(state: ModeState, event: ModeEvent) -> bool:
    failed = evolve(state, failed_probes=1)
    return next_mode(failed, event, _THEN).failed_probes > 0


def _permissions(name: str, state: ModeState) -> tuple[str, ...]:
    may = permits(state.mode, state.cause)
    allowed = (may.read, may.mutate, may.delete_only, may.act)
    return (name, *("yes" if each else "no" for each in allowed))


MODE = """\
## The mode of the control plane

Decides when the control plane freezes (`persys_core/modes/machine.py`). A column is where it is, a
row what happened, a cell where that leads, with the cause.
"""
ALLOWED = """\
What each mode lets happen:
"""


INTRODUCTION = """\
<!-- generated by tools/generate_tables.py from the tables in the code; do not edit -->

# The decision tables

What the scheduler decides by itself stands in ordered tables in the code, and this page is made
from them. **Read a table from the top: the first row whose condition holds decides**, so a row
takes for granted that none above it held. A last row with the condition *always* makes it total;
tests walk every combination of facts.

`./dev nox -s docs -- --write` makes this page anew; a test fails where it is out of date.
"""


def page() -> str:
    """The whole page."""
    return "\n".join((INTRODUCTION, reconcile(), drift(), relocation(), modes()))


def main() -> int:
    """Compare or write; the exit code is 1 where the page differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only (the default)")
    parser.add_argument("--write", action="store_true", help="write the page")
    arguments = parser.parse_args()
    text = page()
    if arguments.write:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print(f"{PAGE.name} is out of date; run `./dev nox -s docs -- --write`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
