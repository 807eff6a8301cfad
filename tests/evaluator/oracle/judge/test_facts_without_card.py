"""Two processes see the candidate without a card; what either saw counts."""

from tritonsmith.evaluator.oracle.judge.facts_without_card import merge_launch_facts

COMPILED = {
    "kernels": [{"name": "step", "grid": [4, 1, 1], "launches": 2, "registers": 32}],
    "torch_ops": {"addmm": 1}, "torch_launches": 1, "torch_flops": 10.0, "torch_bytes": 8.0,
}  # fmt: skip


def launch(name: str, count: int, grid: tuple[int, int, int] = (4, 1, 1)) -> dict[str, object]:
    return {"name": name, "grid": grid, "constexprs": {}, "bytes_loaded": 64, "count": count}


def test_equal_views_are_one_view() -> None:
    facts, library = merge_launch_facts(COMPILED, {**COMPILED, "launches": [launch("step", 2)]}, False)
    (kernel,) = facts.kernels
    assert kernel.launches == 2 and kernel.registers == 32 and kernel.bytes_loaded == 64
    assert facts.launches_per_forward == 3 and library.torch_ops == {"addmm": 1}


def test_work_that_only_the_interpreter_saw_counts() -> None:
    interpreted = {"launches": [launch("step", 500), launch("hidden", 7, (9, 1, 1))], "torch_ops": {"gru": 1}, "torch_launches": 6145}
    facts, library = merge_launch_facts(COMPILED, interpreted, False)
    assert {kernel.name: kernel.launches for kernel in facts.kernels} == {"step": 500, "hidden": 7}
    assert facts.launches_per_forward == 507 + 6145
    assert library.torch_ops == {"addmm": 1, "gru": 1} and library.torch_flops == 10.0


def test_work_that_only_the_compiler_saw_counts() -> None:
    facts, library = merge_launch_facts(COMPILED, {"launches": []}, False)
    assert facts.triton_launches == 2 and library.torch_launches == 1
