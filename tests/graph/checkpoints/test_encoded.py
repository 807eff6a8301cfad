"""Checkpoints are the same bytes whether a record was encoded before or not, and are read back as the records they were."""

from types import SimpleNamespace

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tritonsmith.evaluator.schema import Candidate, Stage
from tritonsmith.graph.checkpoints import encoded
from tritonsmith.graph.checkpoints.allowed import RECORDS, serializer
from tritonsmith.graph.checkpoints.encoded import EncodedOnce
from tritonsmith.graph.state import Decision
from tritonsmith.nodes.evaluators.scripted import scripted_verdict


def checkpoint(count):
    verdicts = {f"seed0-{number:02d}": scripted_verdict(0.1 + number, message="why") for number in range(count)}
    evidence = {"labels": ["a"], "x": 1.5}
    decisions = {"main/00": Decision(id="main/00", site="after_select", choice="detect", reason="best", evidence=evidence)}
    candidates = [Candidate(id="seed0-01", sha="0", stage=Stage.SEED)]
    values = {"verdicts": verdicts, "decisions": decisions, "list": candidates, "tuple": (1, candidates[0]), "none": None, 3: {"a": "b"}}
    return {"v": 4, "channel_values": values, "channel_versions": {"verdicts": "1.5"}}


def test_the_bytes_are_those_of_the_plain_serializer():
    """The bytes are those of the plain serializer and come back whole."""
    plain, ours, state = JsonPlusSerializer(allowed_msgpack_modules=RECORDS), serializer(), checkpoint(3)
    assert isinstance(ours, EncodedOnce)
    for _ in range(2):  # the second time from memory
        assert ours.dumps_typed(state) == plain.dumps_typed(state)
    read = ours.loads_typed(ours.dumps_typed(state))["channel_values"]
    assert read["verdicts"] == state["channel_values"]["verdicts"] and read["decisions"] == state["channel_values"]["decisions"]
    for value in ("text", b"bytes", None, 3, (), candidate := Candidate(id="a", sha="0", stage=Stage.SEED), {"a": candidate}):
        assert ours.dumps_typed(value) == plain.dumps_typed(value)


def test_a_record_is_encoded_once_and_never_taken_for_another(monkeypatch):
    asked = []
    monkeypatch.setattr(JsonPlusSerializer, "dumps_typed", (lambda real: lambda self, value: asked.append(value) or real(self, value))(
        JsonPlusSerializer.dumps_typed
    ))  # fmt: skip
    ours = EncodedOnce(allowed_msgpack_modules=RECORDS)
    state = checkpoint(5)
    ours.dumps_typed(state)
    first, again = len(asked), len(asked)
    ours.dumps_typed(state)
    assert first == 5 + 1 + 1 + 1 and len(asked) == again + 1, "five verdicts, a decision, a candidate, the whole; then only the whole"
    monkeypatch.setattr(encoded, "_KEPT", 4)
    plain = SimpleNamespace(real=JsonPlusSerializer(allowed_msgpack_modules=RECORDS))
    for number in range(20):  # short-lived records, whose ids may come again
        short = {"a": scripted_verdict(1.0 + number)}
        assert ours.dumps_typed(short) == plain.real.dumps_typed(short)
