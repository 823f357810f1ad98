"""`plan`, `diff` and `apply --plan-revision`: what they send, print and end with."""

from __future__ import annotations

import json

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.exit_codes import ExitCode
from tests.unit.ctl.harness import FakeScheduler, ask

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

WEB = (
    "apiVersion: persys.io/v1\nkind: Workload\nmetadata: {name: web}\n"
    "spec: {type: container, image: nginx}\n"
)
BIG = WEB.replace("web", "big")
BOTH = WEB + "---\n" + BIG
PLACED = pb.Explanation(verdict="placed", node_id="n1", score=0.8321, score_parts={"cpu": 0.8321})
WAITING = pb.Explanation(
    verdict="unschedulable",
    summary="0/3 nodes: 3 cpu (asked 64000)",
    reasons=[pb.ReasonCount(code="cpu", nodes=3, unit="millicores", asked=64000, free_max=4000)],
)
CREATED = pb.PlanWorkloadResponse(
    outcome="Created", revision_id="r1", node_id="n1", explanation=PLACED,
    changes=[pb.FieldChange(field="spec.container.image", new="nginx")],
)  # fmt: skip
UNCHANGED = pb.PlanWorkloadResponse(
    outcome="Unchanged", node_id="n1", explanation=PLACED, expected_revision=41
)
UPDATED = pb.PlanWorkloadResponse(
    outcome="Updated", node_id="n1", explanation=pb.Explanation(verdict="placed", node_id="n1"),
    expected_revision=41,
    changes=[
        pb.FieldChange(field="spec.container.image", old="nginx", new="nginx:2"),
        pb.FieldChange(field="spec.container.env[TOKEN]", old="***", new="***"),
        pb.FieldChange(field="spec.container.env[A]", old="two\nlines", new=""),
    ],
)  # fmt: skip
PENDING = pb.PlanWorkloadResponse(outcome="Created", explanation=WAITING)


async def test_plan_says_what_apply_would_do() -> None:
    """Outcome, node, score and the revision to hold an apply to; nothing but a plan is asked."""
    fake = FakeScheduler(plans={"web": CREATED})
    result = await ask(fake, "plan", "-f", "-", "--examples", "5", stdin=WEB)
    assert result.out == "web would be created on n1, score 0.8321 (plan revision 0)\n"
    assert (result.code, result.err) == (ExitCode.DONE, "")
    [request] = fake.asked
    assert isinstance(request, pb.PlanWorkloadRequest)
    assert request.apply.spec.container.image == "nginx"
    assert not request.apply.HasField("expected_revision")
    assert request.max_examples == 5


@pytest.mark.parametrize(
    ("plan", "line", "code"),
    [
        (UNCHANGED, "would not change on n1, score 0.8321 (plan revision 41)", ExitCode.DONE),
        (UPDATED, "would be updated on n1 (plan revision 41)", ExitCode.DONE),
        (
            PENDING,
            "would be created, Pending: 0/3 nodes: 3 cpu (asked 64000) (plan revision 0)",
            ExitCode.NOT_YET,
        ),
    ],
)
async def test_plan_tells_by_its_code_whether_it_could_run(
    plan: pb.PlanWorkloadResponse, line: str, code: ExitCode
) -> None:
    """0 placeable or unchanged, 2 not placeable now."""
    result = await ask(FakeScheduler(plans={"web": plan}), "plan", "-f", "-", stdin=WEB)
    assert (result.out, result.code) == (f"web {line}\n", code)


async def test_a_stored_workload_that_waits_is_no_change() -> None:
    """Unchanged is 0 even where it is pending: the apply would do nothing."""
    waiting = pb.PlanWorkloadResponse(outcome="Unchanged", explanation=WAITING)
    result = await ask(FakeScheduler(plans={"web": waiting}), "plan", "-f", "-", stdin=WEB)
    assert result.code == ExitCode.DONE


async def test_a_refused_plan_does_not_keep_the_others_back() -> None:
    """1 where one would be refused; the rest is planned all the same."""
    fake = FakeScheduler(plans={"big": PENDING})
    result = await ask(fake, "plan", "-f", "-", stdin=BOTH)
    assert result.code == ExitCode.FAILED
    assert result.err == "web would be refused (stdin:1): refused: web is going\n"
    assert result.out.splitlines() == [
        "big would be created, Pending: 0/3 nodes: 3 cpu (asked 64000) (plan revision 0)",
        "each is planned by itself: together they may find less room",
    ]


async def test_plan_in_full() -> None:
    """-o wide explains like explain; -o json has the plan as it came, the revision even if 0."""
    fake = FakeScheduler(plans={"web": PENDING})
    wide = await ask(fake, "plan", "-f", "-", "-o", "wide", stdin=WEB)
    assert "REASON" in wide.out
    assert "64 cores" in wide.out
    result = await ask(fake, "plan", "-f", "-", "-o", "json", stdin=WEB)
    [item] = json.loads(result.out)["items"]
    assert (item["workloadId"], item["outcome"]) == ("web", "Created")
    assert item["expectedRevision"] == "0"
    assert result.code == ExitCode.NOT_YET


async def test_plan_of_wrong_manifests_asks_nothing() -> None:
    """3, as every verb that reads manifests."""
    fake = FakeScheduler()
    result = await ask(fake, "plan", "-f", "-", stdin=WEB.replace("image", "imagee"))
    assert (result.code, fake.asked) == (ExitCode.USAGE_OR_CONNECTION, [])


async def test_diff_shows_fields_and_hides_secrets() -> None:
    """Field by field, old and new; a secret is listed without its values; 1 as diff(1) has it."""
    result = await ask(FakeScheduler(plans={"web": UPDATED}), "diff", "-f", "-", stdin=WEB)
    assert result.out.splitlines() == [
        "web",
        "  spec.container.image: nginx -> nginx:2",
        "  spec.container.env[TOKEN]: *** (differs, not shown)",
        "  spec.container.env[A]: two\\nlines -> -",
    ]
    assert result.code == 1


async def test_diff_of_something_new() -> None:
    """All that it is made of is a difference."""
    result = await ask(FakeScheduler(plans={"web": CREATED}), "diff", "-f", "-", stdin=WEB)
    assert result.out == "web (not stored yet)\n  spec.container.image: - -> nginx\n"
    assert result.code == 1


async def test_diff_of_what_is_only_watched() -> None:
    """Its spec is not known, which is said before every field is shown as new."""
    watched = pb.PlanWorkloadResponse(
        outcome="Updated",
        expected_revision=41,
        changes=[
            pb.FieldChange(field="spec.type", new="container"),
            pb.FieldChange(field="spec.container.image", new="nginx"),
        ],
    )
    result = await ask(FakeScheduler(plans={"web": watched}), "diff", "-f", "-", stdin=WEB)
    assert result.out.splitlines()[0] == (
        "web (imported and only watched: its spec is not known, so every field is shown as new)"
    )
    assert result.out.splitlines()[2] == "  spec.container.image: - -> nginx"
    assert result.code == 1


async def test_diff_without_differences_is_silent() -> None:
    """0 and no output."""
    result = await ask(FakeScheduler(plans={"web": UNCHANGED}), "diff", "-f", "-", stdin=WEB)
    assert (result.code, result.out, result.err) == (0, "", "")


async def test_diff_that_cannot_compare_is_trouble() -> None:
    """2 is neither equal nor different."""
    result = await ask(FakeScheduler(plans={"big": UPDATED}), "diff", "-f", "-", stdin=BOTH)
    assert result.code == 2
    assert "web would be refused" in result.err


async def test_apply_over_a_plan() -> None:
    """--plan-revision is sent, zero too; without it nothing is compared."""
    for argv, expected in ((["--plan-revision", "41"], 41), (["--plan-revision=0"], 0), ([], None)):
        fake = FakeScheduler()
        result = await ask(fake, "apply", "-f", "-", *argv, stdin=WEB)
        assert result.code == ExitCode.DONE
        [request] = fake.asked
        assert isinstance(request, pb.ApplyWorkloadRequest)
        sent = request.expected_revision if request.HasField("expected_revision") else None
        assert sent == expected


@pytest.mark.parametrize(
    ("revision", "stdin", "text"),
    [
        ("41", BOTH, "about one workload"),
        ("-1", WEB, "plan-revision"),
        ("x", WEB, "not a revision"),
    ],
)
async def test_a_plan_revision_is_one_plans(revision: str, stdin: str, text: str) -> None:
    """Several documents, or no revision at all, are wrong usage, and nothing is sent."""
    fake = FakeScheduler()
    result = await ask(fake, "apply", "-f", "-", f"--plan-revision={revision}", stdin=stdin)
    assert (result.code, fake.asked) == (ExitCode.USAGE_OR_CONNECTION, [])
    assert text in result.err


@pytest.mark.parametrize("given", ["-1", "99999999999", "many", "1.5", ""])
@pytest.mark.asyncio
async def test_a_number_of_examples_that_is_none(given: str) -> None:
    """Said before anything is asked."""
    fake = FakeScheduler()
    result = await ask(fake, "plan", "-f", "-", f"--examples={given}", stdin=WEB)
    assert (result.code, fake.asked) == (ExitCode.USAGE_OR_CONNECTION, [])
    assert "is not a number from 0 to 9999" in result.err


@pytest.mark.asyncio
async def test_a_stale_plan_is_said_in_its_own_words() -> None:
    """It is no wrong specification, so nothing of that stands before it."""
    text = 'stale plan: workload "web" was at revision 41 when it was planned and is at revision 43'
    fake = FakeScheduler(
        apply_answers={"web": pb.ApplyWorkloadResponse(success=False, error_message=text)}
    )
    result = await ask(fake, "apply", "-f", "-", "--plan-revision=41", stdin=WEB)
    assert result.code == ExitCode.FAILED
    assert result.err.endswith(f"): {text}\n")


@pytest.mark.asyncio
async def test_what_an_apply_does_not_do_is_said() -> None:
    """A note stands below the line of its workload."""
    stays = "stays on n1, which no longer matches selector disk=ssd; drain n1 to move it"
    fake = FakeScheduler(plans={"web": pb.PlanWorkloadResponse(outcome="Updated", notes=[stays])})
    lines = (await ask(fake, "plan", "-f", "-", stdin=WEB)).out.splitlines()
    assert lines == ["web would be updated (plan revision 0)", f"web {stays}"]
