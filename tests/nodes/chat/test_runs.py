"""Whole runs with a model behind the author: real HTTP to a local server, the whole graph, and the ledger against what was reported."""

import csv
import json
import re

import pytest

import chat_server as chat
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.chat.model import Patience
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

Turn = chat.Turn
kernel, answer, analysis = chat.kernel, chat.answer, chat.analysis
BAD, SLOW, FAST = scripted_verdict(None, message="it fails"), scripted_verdict(0.5, launches=7), scripted_verdict(1.5, launches=1)


def path(result):
    return [(decision.site, decision.choice) for decision in result.summary.decisions]


def rows(result):
    with (result.out / "usage.csv").open() as file:
        return list(csv.DictReader(file))


def ledger_agrees(result):
    """The sum in the summary, the rows of usage.csv and what the server reported are the same tokens."""
    used = result.summary.usage
    names = {
        "prompt_tokens": "input_tokens", "completion_tokens": "output_tokens",
        "cached_tokens": "cached_tokens", "reasoning_tokens": "reasoning_tokens",
    }  # fmt: skip
    for theirs, ours in names.items():
        told = result.server.told(theirs)
        assert told == getattr(used, ours) == sum(int(row[ours]) for row in rows(result)), ours
        assert told == sum(getattr(part, ours) for part in result.summary.usage_by_stage.values())
        assert told == sum(getattr(part, ours) for part in result.summary.usage_by_role.values())
    assert used.calls + used.retries == len(rows(result)) == len(result.server.requests)
    return True


def test_a_good_run(play):
    result = play([answer(1, cached=7, thought=40, reasoning="Let me think.")], {1: FAST})
    assert result.summary.winner.id == "seed0-01" and ledger_agrees(result)
    assert (result.summary.usage.reasoning_tokens, result.summary.usage.cached_tokens) == (40, 7)
    kept = json.loads((result.out / "llm" / "seed0-01-seed-1.json").read_text())
    assert kept["reasoning"] == "Let me think." and kept["reply"].startswith("Kernel 1.")
    assert "temperature" not in result.server.requests[0], "reasoning models refuse one"
    assert result.summary.prompts == {key: kept["prompt"][key] for key in ("version", "digest")}


def test_every_call_is_an_event_with_the_cost_so_far(play):
    """Every call is an event when it ends, with what the run has cost so far."""
    result = play(["no", answer(1), answer(2)], {1: BAD, 2: FAST})
    events = [json.loads(line) for line in (result.out / "events.jsonl").read_text().splitlines()]
    told = [event for event in events if event["event"] == "usage"]
    names = [f"{event['request']} {event['call']} {event['stage']} {event['role']}" for event in told]
    assert names == ["seed0-01-seed 1 seed author", "seed0-01-seed 2 seed author", "seed0-02-repair 1 repair repair"]
    assert {event["model"] for event in told} == {"openai:toy"}
    for name, ours in {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}.items():
        assert [event[ours] for event in told] == [usage[name] for usage in result.server.reported]
    spent = [event["input_tokens"] + event["output_tokens"] for event in told]
    assert [event["total_tokens"] for event in told] == [sum(spent[: count + 1]) for count in range(3)]


def test_a_run_that_needs_two_repairs(play):
    result = play([answer(1), answer(2), answer(3)], {1: BAD, 2: BAD, 3: FAST})
    assert path(result)[:3] == [("after_evaluate", "repair"), ("after_evaluate", "repair"), ("after_evaluate", "accept")]
    assert result.summary.winner.id == "seed0-03" and ledger_agrees(result)
    assert {name: used.calls for name, used in result.summary.usage_by_stage.items()} == {"seed": 1, "repair": 2}
    told = result.server.requests[2]["messages"][0]["content"]
    assert "it fails" in told and kernel(2) in told


def test_an_analysis_that_refuses_is_an_answer(play):
    refusal = json.dumps({"worth_optimizing": False, "reason": "the card is the limit", "bottleneck": "memory", "promise": None})
    result = play([answer(1), refusal], {1: SLOW})
    assert ("worth_optimizing", "stop") in path(result) and result.summary.winner.id == "seed0-01" and ledger_agrees(result)
    (decision,) = [one for one in result.summary.decisions if one.site == "worth_optimizing"]
    assert decision.reason == "the analyst says no: the card is the limit" and len(result.server.requests) == 2


def test_a_broken_promise_goes_back_to_the_analyst(play):
    """A promise that is not kept goes back to the analyst with the fact."""
    still_seven = scripted_verdict(0.6, launches=7)
    result = play([answer(1), analysis(), answer(2), analysis(optimisation_method="again"), answer(3)], {1: SLOW, 2: still_seven, 3: FAST})
    assert ("after_optimize", "broken") in path(result) and result.summary.winner.id == "seed0-03" and ledger_agrees(result)
    (broken,) = [one for one in result.summary.decisions if one.choice == "broken"]
    assert "launches_per_forward is 7 (at most 1 was promised, 7 before)" in broken.reason
    assert "launches_per_forward is 7 (at most 1 was promised" in result.server.requests[3]["messages"][0]["content"]


def test_a_promise_that_nobody_can_check_is_asked_for_once_more(play):
    unseen = analysis(promise={"metric": "bytes_per_forward", "before": 9e6, "bound": 1e6, "at_most": True})
    result = play([answer(1), unseen, analysis(), answer(2)], {1: SLOW, 2: FAST})
    assert "bytes_per_forward is not measured here" in result.server.requests[2]["messages"][-1]["content"] and result.summary.winner


def test_a_promise_is_compared_with_the_measured_figure(play):
    """A promise is compared with the measured figure, and must change something."""
    empty = analysis(promise={"metric": "launches_per_forward", "before": 3000, "bound": 7, "at_most": True})
    wrong = analysis(promise={"metric": "launches_per_forward", "before": 3000, "bound": 1, "at_most": True})
    result = play([answer(1), empty, wrong, answer(2)], {1: SLOW, 2: FAST})
    assert "launches_per_forward is 7 now, so at most 7 promises nothing" in result.server.requests[2]["messages"][-1]["content"]
    (kept,) = result.summary.analyses.values()
    assert kept["promise"]["before"] == 7 and kept["evidence"]["launches_per_forward"] == 7


SLOW_TOO = pytest.mark.slow  # the same way with another text
TWO = analysis(category=["launch_reduction", "fusion"])


@pytest.mark.parametrize(
    ("turn", "again"),
    [
        (TWO, "category: propose exactly one change of one category, not several"),
        pytest.param(analysis(promise=None), "promise must name one measurable effect", marks=SLOW_TOO),
        pytest.param(analysis(returns=""), "returns must not be empty", marks=SLOW_TOO),
        pytest.param("I would fuse everything.", "there is no JSON object", marks=SLOW_TOO),  # the next test has this one twice
        pytest.param('{"bottleneck": "laun', "the JSON is not complete", marks=SLOW_TOO),
        (Turn(analysis()[:50], finish="length"), "cut off before its end"),
    ],
    ids=["two categories", "no promise", "returns unsaid", "prose", "half", "cut off"],
)
def test_an_unusable_analysis_is_asked_for_once_more(play, turn, again):
    """An analysis that cannot be used is asked for once more, with the fault."""
    result = play([answer(1), turn, analysis(), answer(2)], {1: SLOW, 2: FAST})
    assert again in result.server.requests[2]["messages"][-1]["content"]
    assert result.summary.winner.id == "seed0-02" and ledger_agrees(result)
    raw = json.loads((result.out / "llm" / "seed0-analysis-1-1.json").read_text())
    assert raw["reply"] == (turn if isinstance(turn, str) else turn.text), "the raw reply is kept"


def test_a_second_unusable_analysis_ends_the_line(play):
    """A second analysis that cannot be used ends the line of work with the reason."""
    result = play([answer(1), "no", "no"], {1: SLOW})
    assert result.summary.winner.id == "seed0-01" and ledger_agrees(result)
    assert any("could not be used: there is no JSON object" in one.reason for one in result.summary.decisions)


@pytest.mark.parametrize(
    ("formats", "asked"),
    [
        (("json_schema", "json_object"), ["json_schema", "json_schema"]),
        (("json_object",), ["json_schema", "json_object", "json_object"]),
        ((), ["json_schema", "json_object", None, None]),
    ],
    ids=["schema", "JSON mode only", "neither"],
)
def test_an_analysis_from_servers_of_three_kinds(play, formats, asked):
    wrapped = f"<think>{{not this}}</think>Here:\n```json\n{analysis()}\n```"
    result = play([answer(1), "hm", wrapped, answer(2)], {1: SLOW, 2: FAST}, server={"formats": formats})
    forms = [(request.get("response_format") or {}).get("type") for request in result.server.requests]
    assert forms == [None, *asked, None] and result.summary.winner.id == "seed0-02" and ledger_agrees(result)
    schemas = [request["response_format"] for request in result.server.requests if "json_schema" in str(request.get("response_format"))]
    strict = schemas[0]["json_schema"]
    assert strict["strict"] and set(strict["schema"]["required"]) == set(strict["schema"]["properties"])


@pytest.mark.parametrize(
    "first",
    [
        Turn(f"```python\n{kernel(9)}", finish="length"),
        Turn(None, finish="length", thought=500, reasoning="endless"),
        pytest.param("I cannot.", marks=SLOW_TOO),
        pytest.param(Turn(""), marks=SLOW_TOO),
        pytest.param("```python\nx = 1\n```", marks=SLOW_TOO),
        f"<think>\n```python\n{kernel(9)}```",
    ],
    ids=["cut in the block", "cut in thought", "no block", "empty", "another block", "thoughts only"],
)
def test_an_answer_without_a_module_is_asked_for_once_more(play, first):
    result = play([first, answer(1)], {1: FAST})
    assert result.summary.winner.id == "seed0-01" and len(result.server.requests) == 2 and ledger_agrees(result)
    roles = [message["role"] for message in result.server.requests[1]["messages"]]
    assert roles in (["user"], ["user", "assistant", "user"]), "turns alternate"


@pytest.mark.parametrize(
    "text",
    [
        f"<think>```python\n{kernel(9)}```</think>Done:\n```python\n{kernel(1)}```",
        f"thinking without a beginning</think>\n```py\n{kernel(1)}```",
        f"First:\n```python\n{kernel(9)}```\nBetter:\n``` python3\n{kernel(1)}```\nRun it:\n```bash\npython x.py\n```",
        f"```python\nimport os\n```\n\n~~~python\n{kernel(1)}~~~",
        f"```python\r\n{kernel(1)}```".replace("\n", "\r\n"),
        "\n".join(f"   {line}" for line in f"```python\n{kernel(1)}```".splitlines()),
        kernel(1).rstrip(),
        f"```python\n{kernel(1)}".rstrip(),
    ],
    ids=["think", "half think", "last of several", "tildes", "windows", "indented", "no fence", "open fence"],
)
def test_the_module_is_found_in_whatever_form_it_comes(play, text):
    result = play([text], {1: FAST})
    assert result.summary.winner.id == "seed0-01" and len(result.server.requests) == 1


def test_two_answers_without_a_module_end_a_lonely_seed(play):
    """Two answers without a module end a lonely seed with a sentence, and what was paid for is kept."""
    result = play(["no", "no"], {})
    assert "openai:toy wrote no complete module with a class ModelNew, twice" in str(result.error)
    assert [int(row["input_tokens"]) > 0 for row in rows(result)] == [True, True]
    assert (result.out / "llm" / "seed0-01-seed-2.json").exists()


def test_a_busy_server_is_waited_for(play):
    """A busy server is waited for, and every try is on the record."""
    result = play([chat.busy(), chat.busy("0.02"), chat.fault(503, "overloaded"), answer(1)], {1: FAST})
    assert result.summary.winner.id == "seed0-01" and ledger_agrees(result)
    assert [row["status"] for row in rows(result)] == ["busy (429)", "busy (429)", "server error (503)", "ok"]
    assert result.summary.usage.calls == 1 and result.summary.usage.retries == 3
    events = [json.loads(line) for line in (result.out / "events.jsonl").read_text().splitlines()]
    pauses = [event["reason"] for event in events if event["event"] == "pause"]
    assert len(pauses) == 3 and pauses[0] == "openai:toy: busy (429): Rate limit reached; next try in 0 s"


@pytest.mark.parametrize(
    ("script", "sentence", "tries"),
    [
        ([chat.fault(500, "boom")] * 9, r"fails after 4 tries in .* \(500: boom\); try later", 4),
        ([chat.busy()] * 9, r"too busy after 6 tries .*\(429: Rate limit reached\)", 6),
        ([chat.busy("3600")], r"too busy \(429.*it asks to wait 3600 s", 1),
        ([chat.fault(429, "You exceeded your quota", "insufficient_quota")], "the account has nothing left", 1),
        ([chat.HTML] * 2, r"sends no chat completion after 2 tries .*Welcome to the router.*check that --base-url", 2),
        pytest.param([chat.NO_CHOICES, chat.HALF], "sends no chat completion after 2 tries", 2, marks=SLOW_TOO),
        pytest.param([chat.fault(400, "bad parameter")], r"refuses the request \(400: bad parameter\)", 1, marks=SLOW_TOO),
        ([chat.fault(400, "maximum context length", "context_length_exceeded")], "the prompt is longer than the model takes", 1),
        pytest.param([chat.fault(403, "region")], "does not permit this request", 1, marks=SLOW_TOO),
    ],
    ids=["5xx", "429", "far Retry-After", "quota", "HTML", "no choices", "400", "too long", "403"],
)
def test_a_server_that_cannot_be_used_ends_with_one_sentence(play, script, sentence, tries):
    result = play(script, {})
    assert result.error and result.summary is None
    result_text = str(result.error)
    assert re.search(sentence, result_text) and "\n" not in result_text and "openai:toy at http://127.0.0.1" in result_text
    assert len(result.server.requests) == tries and not (result.out / "best.py").exists()


def test_a_slow_server_meets_the_limit_of_one_request(play):
    patience = Patience(first=0.01, request=0.4)
    result = play([Turn("late", delay=1.2), Turn("late", delay=1.2)], {}, models={"patience": patience})
    assert result.error.fault.value == "timeout" and "did not answer within 0.4 s after 2 tries" in str(result.error)
    assert "raise --model-timeout" in str(result.error) and "Cancelled" not in str(result.error)


def test_a_slow_reply_within_the_limit_is_waited_for(play):
    result = play([answer(1, delay=0.5)], {1: FAST})
    assert result.summary.winner.id == "seed0-01" and result.summary.usage.seconds >= 0.5


def test_wrong_settings_of_a_server_leave_no_folder(play, monkeypatch):
    """A wrong key, an unknown model and a wrong address are named and leave no folder."""
    wrong = play([], {}, server={"key": "sk-another"})
    assert "refuses the key" in str(wrong.error) and "set OPENAI_API_KEY" in str(wrong.error)
    assert "sk-local-test-key" not in str(wrong.error) and not wrong.out.exists(), "the server's words repeat the key; ours do not"
    unknown = play([], {}, server={"models": ("other",)})
    assert "knows no such model (404: The model `toy` does not exist)" in str(unknown.error)
    gone = play([], {}, models={"base_url": wrong.server.url})
    assert "cannot be reached after 3 tries" in str(gone.error) and "--base-url" in str(gone.error)
    with chat.ChatServer([]) as server:
        path_missing = play([], {}, models={"base_url": server.url.removesuffix("/v1")})
    assert "there is no chat service at this address" in str(path_missing.error) and "/v1" in str(path_missing.error)
    monkeypatch.setenv("OTHER_KEY", "sk-another")
    assert play([answer(1)], {1: FAST}, server={"key": "sk-another"}, models={"key_env": "OTHER_KEY"}).summary.winner


def test_a_lost_model_ends_the_run_with_the_best_so_far(play):
    """A run that has candidates ends with the best so far when the model is lost."""
    result = play([answer(1), analysis(), *[chat.fault(401, "revoked")] * 3], {1: SLOW})
    assert result.error is None and result.summary.winner.id == "seed0-01" and result.summary.winner.confirmed
    assert "refuses the key (401: revoked)" in result.summary.stopped_because and ledger_agrees(result)
    events = [json.loads(line) for line in (result.out / "events.jsonl").read_text().splitlines()]
    assert [event["request"] for event in events if event["event"] == "fault"] == ["seed0-02-optimize"]
    assert json.loads((result.out / "llm" / "seed0-02-optimize-1.failed.json").read_text())["error"] == result.summary.stopped_because


def test_a_seed_that_is_not_written_spares_the_other_branch(play):
    """A seed that is not written leaves the other branch its run."""
    def script(body):
        return "I cannot." if "variant 2" in body["messages"][0]["content"] else answer(1)

    result = play(script, {1: FAST}, seeds=2)
    assert result.summary.winner.id == "seed0-01" and ledger_agrees(result)
    (given_up,) = [one for one in result.summary.decisions if one.branch == "seed1" and one.site == "author"]
    assert "wrote no complete module" in given_up.reason


def test_a_request_that_is_too_long_ends_only_its_line(play):
    """A request that is too long ends its line of work and not the run."""
    long = chat.fault(400, "maximum context length", "context_length_exceeded")
    result = play([answer(1), long], {1: SLOW})
    assert result.summary.winner.id == "seed0-01" and result.summary.stopped_because == "the winner is confirmed"
    assert any("there is no analysis: openai:toy" in one.reason for one in result.summary.decisions)


def test_roles_have_models_of_their_own_on_the_record(play):
    script = [answer(1), answer(2), analysis(), answer(3)]
    models = {"analyst": "openai:thinker", "repair": "openai:mender"}
    result = play(script, {1: BAD, 2: SLOW, 3: FAST}, models=models, server={"models": ("toy", "thinker", "mender")})
    assert [request["model"] for request in result.server.requests] == ["toy", "mender", "thinker", "toy"]
    assert result.summary.model == "openai:toy, analyst openai:thinker, repair openai:mender" and ledger_agrees(result)
    assert {name: used.calls for name, used in result.summary.usage_by_role.items()} == {"author": 2, "repair": 1, "analyst": 1}
    assert [row["role"] for row in rows(result)] == ["author", "repair", "analyst", "author"]


def test_a_budget_of_tokens_stops_the_run_with_the_best_so_far(play):
    result = play([answer(1), analysis(), answer(2)], {1: SLOW, 2: FAST}, budget=Budget(tokens=10))
    assert result.summary.winner.id == "seed0-01" and len(result.server.requests) == 1
    assert result.summary.stopped_because == f"budget: {result.summary.usage.tokens} of 10 tokens are used"


def test_a_server_that_tells_no_tokens_is_estimated_and_says_so(play):
    result = play([answer(1, usage=False)], {1: FAST})
    (row,) = rows(result)
    assert result.summary.usage.unreported == 1 and row["reported"] == "False"
    told = len(result.server.requests[0]["messages"][0]["content"])
    assert int(row["input_tokens"]) == told // 4 == result.summary.usage.input_tokens


def test_a_reply_that_could_not_be_used_is_kept_with_its_tokens(play):
    result = play([chat.NO_CHOICES, answer(1)], {1: FAST})
    assert result.summary.winner and ledger_agrees(result) and result.summary.usage.retries == 1
    assert '"choices": []' in json.loads((result.out / "llm" / "seed0-01-seed-1.json").read_text())["broken"][0]
    page = play([answer(1), chat.HTML, chat.HTML], {1: SLOW}, out="page")
    told = json.loads((page.out / "llm" / "seed0-analysis-1-1.failed.json").read_text())
    assert [text for text in told["broken"] if "Welcome to the router" in text] and page.summary.winner


def test_no_key_is_written_anywhere(play):
    result = play([answer(1), analysis(), chat.fault(401, "bad key sk-local-test-key")], {1: SLOW})
    texts = [file.read_text(errors="replace") for file in result.out.rglob("*") if file.is_file()]
    assert texts and not [text for text in texts if "sk-local-test-key" in text] and "[key]" in result.summary.stopped_because
