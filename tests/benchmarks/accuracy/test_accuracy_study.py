"""What docs/correctness.md says about accuracy is what was measured, and what is measured is plausible."""

import json

import pytest
import torch

from project import ROOT
from tritonsmith.benchmarks.accuracy.products import PRODUCTS, multiply_in_chain, multiply_tf32, round_towards_zero
from tritonsmith.benchmarks.accuracy.study import BLOCKS, CHAIN, LENGTHS, RESULTS, main, measure_length, replace_tables

PAGE = ROOT / "docs" / "correctness.md"


@pytest.fixture(scope="module")
def found():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def classes(found, product, reference=CHAIN):
    return {row["length"]: row["class"] for row in found["results"] if (row["product"], row["reference"]) == (product, reference)}


def test_the_page_has_the_tables_of_the_file(found):
    page = PAGE.read_text(encoding="utf-8")
    assert replace_tables(page, found) == page
    assert {row["length"] for row in found["results"]} == set(LENGTHS) and {row["product"] for row in found["results"]} == set(PRODUCTS)


def test_what_the_page_says_of_the_tables(found):
    for reference in (CHAIN, BLOCKS):
        for product in ("tf32x3", "fp16x3, a sum per block"):
            assert set(classes(found, product, reference).values()) == {"ieee"}
        assert set(classes(found, "tf32", reference).values()) == {"tf32"} and set(classes(found, "bf16", reference).values()) == {"16-bit"}
    assert list(classes(found, "fp16x3, one sum").values()) == ["ieee", "ieee", "ieee", "tf32", "tf32", "tf32"]
    one_sum = {row["length"]: row["kinds"] for row in found["results"] if (row["product"], row["reference"]) == ("fp16x3, one sum", CHAIN)}
    assert {one_sum[length]["normal"]["class"] for length in (4096, 16384)} == {"split"} and one_sum[4096]["uniform"]["class"] == "tf32"
    assert list(classes(found, "bf16x3").values()) == ["tf32", "split", "split", "split", "ieee", "ieee"]
    assert list(classes(found, "ieee", BLOCKS).values())[:4] == ["ieee", "ieee", "split", "tf32"]


def test_products_are_measured_again(found):
    """At the shortest length the study gives the classes of the file."""
    rows = measure_length(64, PRODUCTS, {CHAIN: (multiply_in_chain, multiply_tf32)})
    assert {row["product"]: row["class"] for row in rows} == {product: classes(found, product)[64] for product in PRODUCTS}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--lengths 64,many", "argument --lengths: '64,many' is no list of lengths from 1 on"),
        ("--lengths 0", "argument --lengths: '0' is no list of lengths"),
        ("--out {0}/none/results.json", "there is no folder {0}/none; make it"),
        ("--write {0}/page.md", "{0}/page.md: No such file or directory"),
        ("--write {0}/plain.md", "--write {0}/plain.md: has no line '<!-- accuracy: begin -->'"),
        ("--write {0}/marked.md --out {0}/none.json", "--out {0}/none.json: there is no such file"),
        ("--write {0}/marked.md --out {0}/plain.md", "--out {0}/plain.md: is no file of this study"),
    ],
)
def test_bad_input_gets_one_sentence(tmp_path, capsys, line, sentence):
    (tmp_path / "plain.md").write_text("No table.")
    (tmp_path / "marked.md").write_text(PAGE.read_text(encoding="utf-8"))
    try:
        code = main(line.format(tmp_path).split())
    except SystemExit as ended:  # argparse's own way
        code = ended.code
    told = capsys.readouterr()
    assert code == 2 and sentence.format(tmp_path) in told.err.strip().splitlines()[-1] and not told.out


def test_sums_are_cut_towards_zero():
    exact = torch.tensor([1.0 + 2.0**-24 * 1.5, -(1.0 + 2.0**-24 * 1.5), 1.0], dtype=torch.float64)
    assert round_towards_zero(exact).tolist() == [1.0, -1.0, 1.0]
