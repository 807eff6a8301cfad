"""The study of the dependent chain: its variants follow from the recipe's text, and its clocks are read as they were written."""

import ast
from collections.abc import Mapping

import pytest
import torch

from tritonsmith.benchmarks.chain import study, widths
from tritonsmith.benchmarks.chain.child import read_stamps
from tritonsmith.benchmarks.chain.variants import PLACES, VARIANTS, ChainVariant, TextChanged
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Status
from tritonsmith.evaluator.tasks.files import load_task

SMALL = {"seq_len": 5, "input_size": 32, "hidden_size": 64, "num_layers": 2}


def write(sizes: Mapping[str, int], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(study, "run_probe", probe)  # a process of its own would import torch again
    text, programs = study.write_recipe(sizes, named_card("h200"))
    assert programs == 2 * 2
    return text


def test_every_variant_follows_from_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    text = write(SMALL, monkeypatch)
    texts = [variant.change(text) for variant in (study.STAMPED, *VARIANTS)]
    assert len({ast.dump(ast.parse(one)) for one in texts}) >= len(texts) - 1  # one of the counts of warps may be the recipe's own
    with pytest.raises(TextChanged, match="not once"):
        study.STAMPED.change(text.replace("reset, update, new = by_gate(sums, SLICE, BATCH)", "pass"))


def test_bad_input_gets_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(study, "present_card", lambda: None)
    assert widths.main([]) == 2
    assert capsys.readouterr().err == "error: this machine has no card; run it on one that has\n"
    assert study.main([]) == 2
    assert capsys.readouterr().err == "error: this machine has no card; run it on one that has\n"
    monkeypatch.setattr(study, "present_card", lambda: named_card("h200"))
    assert study.main(["--calls", "0"]) == 2 and study.main(["--out", "nowhere/chain.json"]) == 2
    assert "--calls 0: each" in (said := capsys.readouterr().err) and "there is no folder nowhere; make it" in said


def test_stamps_give_the_phases_of_a_step() -> None:
    """Two layers of three programs: a step takes 90 cycles, 50 ns, and its places lie 10, 20, 30 and 20 cycles after each other."""
    cycles = torch.tensor([0, 10, 30, 60, 80]) + 90 * torch.arange(4)[:, None]
    card = cycles * 5 // 9 + 1000
    stamps = torch.stack([cycles, card], -1).expand(2, 3, 4, len(PLACES), 2)
    found = read_stamps(stamps)
    assert found["ns_per_cycle"] == pytest.approx(5 / 9, rel=0.01)
    phases = {"multiplied": 10, "gates": 20, "published": 30, "fetched": 20, "waited": 10, "whole step": 90}
    assert {name: found[name] / found["ns_per_cycle"] for name in phases} == pytest.approx(phases)
    assert found["hop"] == pytest.approx((90 - 60) * 5 / 9, abs=1)


@pytest.mark.parametrize("task", ["39_gru", "41_gru_bidirectional"])
def test_widths_give_texts_of_their_own(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    monkeypatch.setattr(study, "run_probe", probe)
    path, name = study.TASK.parent / f"{task}.py", widths.SUBJECTS[task]
    recipe, plan, plain = study.match_sized(path, name, tuple(SMALL.items()), named_card("h200"))
    listed = list(widths.list_settings(plain, 256, 6, named_card("h200")))
    texts = [recipe.render(plan, settings) for settings in listed]
    assert plain in listed or name == study.RECIPE and len(set(texts)) == len(texts) == (7 if "block_m" in plain else 4)
    programs = [2 * 6 * 256 // int(one["slice"]) for one in listed if "layers_per_launch" in one]
    assert all(count <= 2 * 132 for count in programs)


@pytest.mark.slow
@pytest.mark.parametrize("variant", [one for one in VARIANTS if one.right and one.name != "tags, plain stores"], ids=lambda one: one.name)
def test_variants_that_promise_results_are_right(evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, variant: ChainVariant) -> None:
    text = variant.change(write(SMALL, monkeypatch))
    verdict = evaluator.evaluate_now(load_task(str(study.TASK), overrides=SMALL), text)
    assert verdict.status is Status.OK, verdict.message
