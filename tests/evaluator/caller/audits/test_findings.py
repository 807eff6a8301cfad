"""What stands beside a measurement: facts from a report that may be forged, second opinions, audits, and the floor of physics."""

from __future__ import annotations

from typing import Any

import pytest

from tritonsmith.evaluator.caller.audits.findings import AuditFinding, apply_findings, weigh_interpreter, weigh_sanitizer
from tritonsmith.evaluator.caller.audits.second_opinion import add_second_opinion, find_refusal
from tritonsmith.evaluator.channel.report import FINISHED
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.oracle.handles.sanitizer import read_tool_output
from tritonsmith.evaluator.oracle.judge.facts_on_card import read_launch_facts
from tritonsmith.evaluator.oracle.judge.suspicion import find_suspicion, find_unlaunched
from tritonsmith.evaluator.oracle.timing.ceilings import Ceilings
from tritonsmith.evaluator.schema import (
    Correctness,
    Label,
    LaunchFacts,
    PrecisionClass,
    Status,
    TaskFacts,
    Timing,
    TimingKind,
    Verdict,
)

SOURCE = '''
import triton
import triton.language as tl


@triton.autotune(configs=[], key=[])
@triton.jit
def mine(x, BLOCK: tl.constexpr):
    pass


@triton.jit(do_not_specialize=["count"])
def also_mine(x, count):
    pass


class own:
    jit = staticmethod(lambda function: function)


@own.jit
def ampere_sgemm(x):
    pass
'''
KERNEL = {"name": "mine", "launches": 2, "grid": [4, 1, 1], "num_warps": 4}


def verdict(**changes: Any) -> Verdict:
    fields: dict[str, Any] = {
        "status": Status.OK, "label": Label.KERNEL, "facts": LaunchFacts(triton_launches=1, launches_per_forward=1),
        "correctness": Correctness(max_abs_err=0.0, mean_abs_err=0.0, err_vs_oracle=0.0, reference_err_vs_oracle=0.0),
        "timing": Timing(
            kind=TimingKind.MEASURED, median_ms=1.0, baselines_ms={"eager": 2.0}, baseline="eager", score=2.0, score_eager=2.0
        ),
    }  # fmt: skip
    return Verdict(**fields | changes)


def test_the_text_decides_which_kernels_are_the_candidates_own() -> None:
    device = {"mine": (2, 0.5), "also_mine": (1, 0.25), "ampere_sgemm": (1, 0.2), "Memcpy DtoD": (1, 0.05)}
    facts = read_launch_facts({"kernels": [KERNEL], "device": device, "busy_ms": 0.75}, SOURCE, False)
    assert facts.triton_launches == 3 and facts.launches_per_forward == 4
    assert facts.library_calls == {"ampere_sgemm": 1}
    assert facts.own_time_share == pytest.approx(0.75)
    assert facts.kernels[0].device_ms == 0.5


def test_a_replayed_graph_counts_by_what_ran() -> None:
    facts = read_launch_facts({"kernels": [], "device": {"mine": (3, 0.5)}, "busy_ms": 0.5}, SOURCE, False)
    assert facts.triton_launches == 3 and facts.own_time_share == 1.0


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"kernels": [KERNEL]},
        {"kernels": "many", "device": {}},
        {"kernels": [], "device": {"mine": (-1, 0.5)}},
        {"kernels": [], "device": {"mine": (1, float("nan"))}},
        {"kernels": [], "device": {"mine": (1, float("inf"))}},
        {"kernels": [{"name": 3}], "device": {}},
    ],
)
def test_a_forged_report_is_refused_and_breaks_nothing(report: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="unreadable facts"):
        read_launch_facts(report, SOURCE, False)


TASK = TaskFacts(flops=1e9, min_bytes=1e6)


def compiled(**changes: Any) -> dict[str, Any]:
    return {"status": "ok", "kernels": [KERNEL], "torch_ops": {}, "torch_flops": 0.0, "torch_bytes": 0.0} | changes


@pytest.mark.parametrize(
    ("report", "label"),
    [
        (compiled(), Label.KERNEL),
        (compiled(torch_ops={"aten::zero_": 1}, torch_bytes=4.0), Label.KERNEL),
        (compiled(torch_ops={"aten::mm": 1}, torch_flops=0.9e9), Label.HYBRID),
        (compiled(torch_ops={"aten::gelu": 1}, torch_bytes=0.9e6), Label.HYBRID),
        (compiled(torch_ops={"aten::gru": 1}, kernels=[]), Label.LIBRARY),
        (compiled(status="runtime_error", message="no such device"), Label.HYBRID),  # nothing but its own process says it is a kernel
    ],
)
def test_the_less_flattering_of_two_labels_counts(report: dict[str, Any], label: Label) -> None:
    judged = add_second_opinion(verdict(), lambda again: report, lambda: TASK)
    assert judged.label is label and judged.status is Status.OK
    assert ("second_opinion" in judged.environment) is (label is not Label.KERNEL)


class Compilers:
    """Gives one answer after the other, and keeps whether it was asked again."""

    def __init__(self, *answers: dict[str, Any] | InfrastructureError) -> None:
        self.answers, self.again = list(answers), list[bool]()

    def ask(self, again: bool) -> dict[str, Any]:
        self.again.append(again)
        answer = self.answers.pop(0)
        if isinstance(answer, InfrastructureError):
            raise answer
        return answer


@pytest.mark.parametrize("failed", [InfrastructureError("the sandbox did not start"), compiled(status="crashed", message="out of memory")])
def test_a_compilation_that_dies_is_asked_for_once_more(failed: InfrastructureError | dict[str, Any]) -> None:
    compilers = Compilers(failed, compiled())
    judged = add_second_opinion(verdict(), compilers.ask, lambda: TASK)
    assert judged.label is Label.KERNEL and "second_opinion" not in judged.environment and compilers.again == [False, True]
    judged = add_second_opinion(verdict(), Compilers(failed, failed).ask, lambda: TASK)
    assert judged.label is Label.HYBRID and judged.facts.own_time_share is None
    assert ("did not start" if isinstance(failed, InfrastructureError) else "out of memory") in judged.environment["second_opinion"]


@pytest.mark.parametrize(
    "report",
    [
        compiled(status="runtime_error", message="no such device"),
        compiled(status="timeout", message="took longer than 8 s"),
        compiled(torch_ops=7),
        compiled(torch_ops={"aten::mm": "many"}),
        compiled(torch_ops={"aten::mm": 1}, torch_flops=[]),
    ],
)
def test_misdeeds_while_compiling_are_not_tried_again(report: dict[str, Any]) -> None:
    """What a candidate does while it is compiled is not tried again, and gives it no better label."""
    compilers = Compilers(report)
    assert add_second_opinion(verdict(), compilers.ask, lambda: TASK).label is Label.HYBRID and compilers.again == [False]


def test_a_second_opinion_never_flatters() -> None:
    report = compiled(torch_ops={"aten::mm": 1})
    assert add_second_opinion(verdict(label=Label.LIBRARY), lambda again: report, lambda: TASK).label is Label.LIBRARY


def test_only_what_cannot_run_is_refused_before_the_card() -> None:
    assert find_refusal(compiled()) is None
    assert find_refusal(compiled(status="runtime_error", message="no kernel ran")) is None
    assert find_refusal(compiled(status="launch_error", message="shared memory: 300000 bytes")) == (
        Status.LAUNCH_ERROR, "shared memory: 300000 bytes",
    )  # fmt: skip


def test_an_audit_with_findings_refuses() -> None:
    """An audit that finds something refuses, and keeps every outcome."""
    race = weigh_interpreter(Verdict(status=Status.RACY, message="two programs touch one address"))
    after = apply_findings(verdict(quarantine="12x is hard to believe"), [race, AuditFinding("compute-sanitizer", "no memory error found")])
    assert after.status is Status.RACY and "two programs" in after.message
    assert after.environment["audit"] == {
        "interpreter": "racy", "compute-sanitizer": "no memory error found", "quarantine": "12x is hard to believe",
    }  # fmt: skip


def test_a_passed_audit_ends_the_quarantine() -> None:
    findings = [weigh_interpreter(verdict()), weigh_sanitizer(False, "no memory error found")]
    after = apply_findings(verdict(quarantine="12x is hard to believe"), findings)
    assert after.status is Status.OK and not after.quarantine and after.score == 2.0
    assert after.environment["audit"]["quarantine"] == "12x is hard to believe"


def test_a_kernel_that_refuses_the_small_size_did_not_fail() -> None:
    sentence = "this kernel is made for ModelNew with {'features': 8192}, and was given {'features': 192}"
    refused = weigh_interpreter(Verdict(status=Status.RUNTIME_ERROR, message=f"line 56: ValueError: {sentence}"))
    assert refused.status is None and refused.outcome == f"not run, the kernel refuses the small size: {sentence}"
    for message in ("line 56: ValueError: shapes do not match", f"line 56: TypeError: {sentence}"):
        assert weigh_interpreter(Verdict(status=Status.RUNTIME_ERROR, message=message)).outcome == f"runtime_error: {message}"


INVALID = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at gelu_chain+0x1d0 in chain.py:21
=========     by thread (96,0,0) in block (4,0,0)
========= ERROR SUMMARY: 1 error
"""


def test_the_sanitizers_words_are_understood() -> None:
    assert read_tool_output(INVALID) == (True, "Invalid __global__ write of size 4 bytes at gelu_chain+0x1d0 in chain.py:21")
    assert read_tool_output(INVALID + f"\n{FINISHED}\n========= ERROR SUMMARY: 0 errors\n")[0]  # what a candidate prints hides nothing
    clean = f"========= COMPUTE-SANITIZER\n{FINISHED}\n========= ERROR SUMMARY: 0 errors\n"
    assert read_tool_output(clean) == (False, "no memory error found")
    found, text = read_tool_output("========= COMPUTE-SANITIZER\n========= Device not supported\n")
    assert not found and text.startswith("not done")


def test_the_floor_follows_from_bytes_or_operations() -> None:
    card = Ceilings(bandwidth=4e12, matrix=8e14)
    assert card.bytes_floor_ms(4e9, 0.0, 0) == pytest.approx(0.7)
    assert card.bytes_floor_ms(0.0, 4e9, int(4e9)) == 0.0  # what is written may stay in the cache
    assert card.operations_floor_ms(4 * 8e14 / 3e3, PrecisionClass.IEEE) == pytest.approx(0.7)
    assert card.operations_floor_ms(4 * 8e14 / 3e3, PrecisionClass.SPLIT) == pytest.approx(0.7)
    assert card.operations_floor_ms(4 * 8e14 / 1e3, PrecisionClass.HALF) == pytest.approx(0.7)


def timing(score: float) -> Timing:
    return Timing(kind=TimingKind.MEASURED, median_ms=1.0, baselines_ms={}, baseline="eager", score=score, score_eager=score)


def test_a_launch_cannot_take_less_than_a_launch() -> None:
    floor = Ceilings(bandwidth=4e12, matrix=8e14, launch_ms=0.0025).launch_floor_ms
    against, one = 0.0037, LaunchFacts(device_ms=0.002, triton_launches=1)
    assert find_unlaunched(0.0036, against, one, floor) == ""
    assert "less than one launch takes (1.75 us)" in find_unlaunched(0.0013, against, one, floor)
    assert find_unlaunched(0.0013, against, LaunchFacts(), floor) == ""  # it launches nothing: a view, say
    assert find_unlaunched(0.0013, 0.0013, one, floor) == ""  # nor need anybody


def test_disagreeing_clocks_and_huge_scores_are_suspicious() -> None:
    """Clocks that disagree and scores beyond belief are suspicious."""
    agreeing, facts = (1.0, 0.98), LaunchFacts(device_ms=0.97)
    assert find_suspicion(timing(3.0), agreeing, facts, 0.5) == ""
    assert "below what the reference's operations take" in find_suspicion(timing(3.0), agreeing, facts, 1.5)
    assert "hard to believe" in find_suspicion(timing(12.0), agreeing, facts, 0.5)
    assert "two clocks disagree" in find_suspicion(timing(3.0), (1.0, 0.2), facts, 0.5)
    assert find_suspicion(timing(0.3), (1.0, 0.9), facts, 0.5, slower=True) == ""
    assert find_suspicion(timing(0.3), (1.0, 0.5), LaunchFacts(), 0.5, slower=True) == ""
    assert "another forward was profiled" in find_suspicion(timing(0.3), (1.0, 0.2), facts, 0.5, slower=True)
    assert find_suspicion(timing(3.0), (0.05, 0.02), LaunchFacts(), 0.5) == ""  # a disturbed host: the oracle's excess is added


def test_a_longer_profiled_forward_is_another() -> None:
    """A profiled forward that takes longer than the timed one is another one."""
    agreeing = (1.0, 0.98)
    assert find_suspicion(timing(3.0), agreeing, LaunchFacts(device_ms=1.9), 0.5) == ""  # two streams, each busy all the time
    assert "another forward was profiled" in find_suspicion(timing(3.0), agreeing, LaunchFacts(device_ms=2.2), 0.5)
