"""Checkpoints grow in line with the candidates: what is kept is the newest state of each line of work, not every step's."""

import asyncio
import json
import sqlite3

import pytest

from project import ROOT
from tritonsmith.benchmarks.graph_cost import (
    KERNEL_BYTES,
    PROMISED_MB,
    PROMISED_MS,
    checkpoint_bytes,
    count_nodes,
    main,
    make_deep,
    make_kernel,
    make_wide,
    time_run,
)

RESULT = ROOT / "benchmarks" / "results" / "graph_cost.json"
SIZES = (10, 20, 40)


def test_the_worlds_are_what_they_say():
    assert len(make_kernel("a").encode()) == KERNEL_BYTES and make_kernel("a") != make_kernel("b")
    assert len(set(make_deep(10).scores)) == 10 and len(set(make_wide(25).scores)) == 25
    assert asyncio.run(count_nodes(make_deep(4))) == 2 * 6 + 17, "two branches of two candidates, and what follows them"


@pytest.mark.slow
@pytest.mark.parametrize("world", [make_deep, make_wide])
def test_checkpoints_grow_in_line_with_the_candidates(world, tmp_path):
    ends = []
    for size in SIZES:
        told = asyncio.run(time_run(world(size), tmp_path / str(size), "sqlite"))
        assert told["end_bytes"] == checkpoint_bytes(tmp_path / str(size)) > 0
        ends.append(told["end_bytes"])
    small, middle, large = ends
    assert large - middle < 2.5 * (middle - small), "doubling what is added would quadruple it if every step were kept"
    assert large < SIZES[-1] * 20_000, "the promise, 20 MB for 200, is 100 KB for each"


def test_one_checkpoint_is_left_of_each_line_of_work(tmp_path):
    asyncio.run(time_run(make_deep(8), tmp_path / "run", "sqlite"))
    with sqlite3.connect(tmp_path / "run" / "checkpoints.sqlite") as file:
        left = file.execute("SELECT checkpoint_ns, COUNT(*) FROM checkpoints GROUP BY checkpoint_ns").fetchall()
        stale = file.execute("SELECT COUNT(*) FROM writes WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM checkpoints)").fetchone()
    assert len(left) == 3 and {count for _, count in left} == {1}, "the run and its two branches"
    assert stale == (0,)


def test_the_kept_figures_are_within_what_was_promised():
    told = json.loads(RESULT.read_text(encoding="utf-8"))
    assert told["promised"] == {"ms_per_node": PROMISED_MS, "megabytes": PROMISED_MB} and told["kernel_bytes"] == KERNEL_BYTES
    assert {row["shape"] for row in told["rows"]} == {"wide", "deep"}
    for row in told["rows"]:
        assert row["most_bytes"] < PROMISED_MB * 1e6 and row["ms_per_node"]["sqlite"] < PROMISED_MS
        assert all(len(samples) == told["repeats"] for samples in row["samples_ms_per_node"].values())
    assert max(row["candidates"] for row in told["rows"]) == 200


def test_the_command_writes_a_table_and_its_samples(tmp_path, capsys):
    main(["--repeats", "1", "--candidates", "10", "--out", str(tmp_path / "cost.json")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["wide", "deep"]
    told = json.loads((tmp_path / "cost.json").read_text(encoding="utf-8"))
    assert told["command"] == "python -m tritonsmith.benchmarks.graph_cost --repeats 1 --candidates 10 --out cost.json"
    assert all(row["samples_cpu_ms_per_node"]["sqlite"][0] > 0 for row in told["rows"])
