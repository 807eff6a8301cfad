"""What compiling alone says of texts before any of them costs a measurement: which cannot fit, and without a card a light estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tritonsmith.evaluator.cards.estimate import LatencyEstimate, estimate_candidate, tell_apart
from tritonsmith.evaluator.channel.report import ForwardReport
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.protocol import Fate, RaceRow
from tritonsmith.evaluator.schema import Hardware, KernelFacts, LaunchFacts, Status

_MOST_SPILLED = 256
"""Bytes of local memory per thread beyond the incumbent's from which a text is not timed: the register file moved to memory."""
_REASON_CHARACTERS = 300
"""Length of a reason."""


def look_ahead(sha: str, report: Mapping[str, Any], incumbent: Mapping[str, Any]) -> RaceRow:
    """One text's row after it was compiled: pruned with a reason, or untimed.

    Args:
        sha: of the text.
        report: what the compiler says of it.
        incumbent: what the compiler says of the incumbent.
    """
    kernels = [KernelFacts.model_validate(values) for values in report.get("kernels", ())]
    row = RaceRow(
        sha=sha, fate=Fate.UNTIMED, registers=_most(kernels, "registers"), spills=_most(kernels, "spills"),
        shared_memory=_most(kernels, "shared_memory"),
    )  # fmt: skip
    if Status(report["status"]) is not Status.OK:
        reason = str(report.get("message", "")) or f"compiling ends with {report['status']}"
        return row.model_copy(update={"fate": Fate.PRUNED, "reason": reason.splitlines()[0][:_REASON_CHARACTERS]})
    before = _most([KernelFacts.model_validate(values) for values in incumbent.get("kernels", ())], "spills") or 0
    if (row.spills or 0) > before + _MOST_SPILLED:
        reason = f"{row.spills} byte{'s' * (row.spills != 1)} of registers per thread are spilled to memory, the incumbent spills {before}"
        return row.model_copy(update={"fate": Fate.PRUNED, "reason": reason})
    return row


def drop_twins(rows: Sequence[RaceRow], reports: Mapping[str, Mapping[str, Any]], incumbent: str) -> list[RaceRow]:
    """The rows, with those pruned whose kernels are the incumbent's or an earlier row's: a race between them shows nothing but noise."""
    seen = {digest: incumbent} if (digest := digest_report(reports[incumbent])) else {}
    kept = []
    for row in rows:
        digest = digest_report(reports[row.sha]) if row.fate is Fate.UNTIMED else ""
        if digest in seen:
            who = "the best kernel so far" if seen[digest] == incumbent else seen[digest]
            row = row.model_copy(update={"fate": Fate.PRUNED, "reason": f"it compiles to the same kernels as {who}"})
        elif digest:
            seen[digest] = row.sha
        kept.append(row)
    return kept


def rank_by_estimate(
    rows: Sequence[RaceRow], reports: Mapping[str, Mapping[str, Any]], incumbent: Mapping[str, Any], facts: LaunchFacts,
    hardware: Hardware, keep: int,
) -> list[RaceRow]:  # fmt: skip
    """The rows with ratios of estimates, for a card that is not here.

    What the text of a kernel does not tell is taken to be the incumbent's. Rows that the estimate cannot tell from the incumbent are alike.
    Of those that it calls faster `keep` are kept, the others are slower.
    """
    own = _estimate(incumbent, facts, hardware)
    found = {row.sha: _estimate(reports[row.sha], facts, hardware) for row in rows if row.fate is Fate.UNTIMED}
    fates = {
        sha: Fate.SLOWER if tell_apart(own.ms, own.apart, other.ms, other.apart) else Fate.ALIKE for sha, other in found.items()
    }  # fmt: skip
    faster = [sha for sha, other in found.items() if fates[sha] is Fate.SLOWER and other.ms < own.ms]
    fates |= dict.fromkeys(sorted(faster, key=lambda sha: found[sha].ms)[:keep], Fate.KEPT)
    return [
        row.model_copy(update={"fate": fates[row.sha], "ratio": own.ms / found[row.sha].ms}) if row.sha in found else row for row in rows
    ]  # fmt: skip


def digest_report(report: Mapping[str, Any]) -> str:
    """A digest of everything that one forward launches: code, grids, counts and library calls; empty for a text that does not compile.

    Values that the host passes at run time are not in it, such as pointers and scalars that the compiler did not specialise on.
    """
    try:
        kernels = [KernelFacts.model_validate(values) for values in report.get("kernels", ())]
        if Status(report["status"]) is not Status.OK or not kernels or not all(kernel.code for kernel in kernels):
            return ""
        launches = sorted((kernel.code, kernel.grid, kernel.launches, kernel.num_warps, kernel.shared_memory or 0) for kernel in kernels)
        return text_sha(repr((launches, sorted(dict(report.get("torch_ops") or {}).items()))))
    except (KeyError, ValueError, TypeError):  # the process runs the candidate
        return ""


def _estimate(report: Mapping[str, Any], facts: LaunchFacts, hardware: Hardware) -> LatencyEstimate:
    """The estimate of a compiled text. Kernels whose text does not tell their work move as many bytes as the incumbent's of their name."""
    kernels = [KernelFacts.model_validate(values) for values in report.get("kernels", ())]
    shared = [
        kernel if kernel.work is not None and not kernel.work.unknown else kernel.model_copy(update=_share(kernel, kernels, facts))
        for kernel in kernels
    ]  # fmt: skip
    seen = ForwardReport.from_dict(dict(report))
    return estimate_candidate(hardware, shared, seen.torch_ops, seen.torch_flops, seen.torch_bytes, seen.torch_launches)


def _share(kernel: KernelFacts, kernels: Sequence[KernelFacts], facts: LaunchFacts) -> dict[str, Any]:
    launches = sum(other.launches for other in kernels if other.name == kernel.name) or 1
    same = [known for known in facts.kernels if known.name == kernel.name]
    found: dict[str, Any] = {
        name: sum((getattr(known, name) or 0.0) * known.launches for known in same) / launches
        for name in ("bytes_loaded", "bytes_stored", "flops")
    }
    rounds = [known.sync_rounds for known in same if known.sync_rounds is not None]
    return found | {"sync_rounds": max(rounds, default=None), "product": next((known.product for known in same), "")}


def _most(kernels: Sequence[KernelFacts], name: str) -> int | None:
    return max((value for kernel in kernels if (value := getattr(kernel, name)) is not None), default=None)
