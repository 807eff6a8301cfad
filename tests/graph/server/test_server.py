"""`langgraph dev` serves the graph without network and key: forms, drawings, whole runs, assistants, and sentences for what is wrong."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_client

from project import ROOT
from tritonsmith.cli.main import run as command
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.server.settings import RunForm

EXAMPLE = ROOT / "examples" / "recorded_run"
TASK, TAPE = str(EXAMPLE / "task.py"), str(EXAMPLE / "run.jsonl")
SMALL = {"task": TASK, "size": "small"}
START_SECONDS = 240


@dataclass
class Server:
    """A server of this test module: its address, its folder, and who wanted to talk to the world."""

    url: str
    folder: Path
    outside: list[str] = field(default_factory=list)

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def ask(self, assistant: str, given: Any, context: dict[str, Any], thread: str | None = None) -> "Answer":
        """One whole run, streamed to its end."""
        return asyncio.run(self.answer(assistant, given, context, thread))

    async def answer(self, assistant: str, given: Any, context: dict[str, Any], thread: str | None = None) -> "Answer":
        client = get_client(url=self.url, api_key=None)
        thread = thread or (await client.threads.create())["thread_id"]
        answer = Answer(thread)
        async for part in client.runs.stream(
            thread, assistant, input=given, context=context, stream_mode=["custom", "updates"], stream_subgraphs=True
        ):
            name = part.event.partition("|")[0]
            if name == "custom":
                answer.events.append(part.data)
            elif name == "error":
                answer.error = part.data
        answer.state = (await client.threads.get_state(thread))["values"]
        return answer


@dataclass
class Answer:
    """What came of a run."""

    thread: str
    events: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None

    def decisions(self) -> list[tuple[str, str, str]]:
        found = [one for one in self.events if one["event"] == "decision"]
        return [(one["branch"], one["site"], one["choice"]) for one in found]


def _listener(heard: list[str]) -> socket.socket:
    """A proxy that refuses everything and writes down who asked for what."""
    door = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                caller, _ = door.accept()
            except OSError:
                return
            with caller:
                caller.settimeout(5)
                heard.append(caller.recv(200).decode(errors="replace").partition("\r\n")[0])

    threading.Thread(target=serve, daemon=True).start()
    return door


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def documented_arguments() -> list[str]:
    """What docs/studio.md gives to `langgraph`."""
    line = next(line for line in (ROOT / "docs/studio.md").read_text(encoding="utf-8").splitlines() if "bin/langgraph dev" in line)
    return line.partition("#")[0].split()[1:]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("server"), _free_port()
    made = Server(f"http://127.0.0.1:{port}", folder)
    door = _listener(made.outside)
    proxy = f"http://127.0.0.1:{door.getsockname()[1]}"
    env = {name: value for name, value in os.environ.items() if not name.upper().startswith(("LANG", "OPENAI")) and "_KEY" not in name}
    env |= {name: proxy for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")}
    env |= {name: "127.0.0.1,localhost" for name in ("NO_PROXY", "no_proxy")}
    env |= {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGGRAPH_NO_VERSION_CHECK": "1"}
    env |= {"XDG_STATE_HOME": str(folder / "state")}  # inside the folder that a server watches if it is not told otherwise
    arguments = [*documented_arguments(), "--config", str(ROOT / "langgraph.json"), "--port", str(port), "--n-jobs-per-worker", "4"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("langgraph")), *arguments],
            cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        _wait_for(made, process)
        yield made
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        door.close()


def _wait_for(server: Server, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.url}/ok", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"langgraph dev did not start:\n{server.log[-3000:]}")


def test_the_settings_and_the_task_make_a_form(server: Server) -> None:
    async def schemas() -> Any:
        client = get_client(url=server.url, api_key=None)
        return await client.assistants.get_schemas((await client.assistants.search())[0]["assistant_id"])

    found = asyncio.run(schemas())
    settings, task = found["context_schema"]["properties"], found["input_schema"]
    assert settings["policy"]["enum"] == list(PRESETS)
    assert settings["allow"]["enum"] == ["kernel", "hybrid", "library"] and settings["sandbox"]["enum"] == ["auto", "strict", "off"]
    assert {"auto", "h200", "rtx4090"} <= set(settings["target"]["enum"])
    wanted = {"model", "analyst_model", "repair_model", "base_url", "key_env", "prices", "seeds", "replay"}
    assert wanted | {f"budget_{name}" for name in ("candidates", "repairs", "rounds", "seconds", "tokens", "money")} <= set(settings)
    for name, one in (*settings.items(), *task["properties"].items()):
        kinds = {option["type"] for option in one.get("anyOf", [one])}
        assert kinds <= {"string", "integer", "number", "null", "object"} and one["description"], name
        assert "$ref" not in json.dumps(one), name
    assert task["required"] == ["task"] and task["properties"]["task"]["type"] == "string"
    assert task["properties"]["size"]["enum"] == ["auto", "full", "small"]
    assert found["output_schema"]["properties"] and found["state_schema"]["properties"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [("", 200), ("http://localhost:3000", 200), ("http://127.0.0.1:2024", 200), ("https://smith.langchain.com", 200),
     ("https://evil.example", 403), ("http://127.0.0.1.evil.example", 403), ("https://smith.langchain.com.evil.example", 403),
     ("null", 403)],
)  # fmt: skip
def test_no_other_page_of_the_browser_may_ask(server: Server, origin: str, status: int) -> None:
    """Without a JSON content type a browser sends such a request without asking first."""
    headers = {"Content-Type": "text/plain"} | ({"Origin": origin} if origin else {})
    request = urllib.request.Request(f"{server.url}/threads", data=b"{}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found, text = answer.status, ""
    except urllib.error.HTTPError as refused:
        found, text = refused.code, refused.read().decode()
    assert found == status
    assert status == 200 or f"the page {origin} may not ask this server; set TRITONSMITH_ORIGINS={origin}" in text


def test_every_preset_is_one_assistant_with_the_same_drawing(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """Every preset is an assistant once, and all have one drawing."""
    def told(*arguments: str) -> dict[str, str]:
        assert command(["assistants", "--url", server.url, "--json", *arguments]) == 0
        return {one["name"]: one["done"] for one in json.loads(capfd.readouterr().out)["assistants"]}

    replay = ("--setting", f"replay={TAPE}", "--setting", "seeds=1")
    assert set(told().values()) == {"made"}
    assert told() == dict.fromkeys(PRESETS, "kept")
    assert told(*replay) == dict.fromkeys(PRESETS, "changed")
    assert told(*replay, "--policies", "notes,no-tune") == {"notes": "kept", "no-tune": "kept"}

    async def drawings() -> dict[str, Any]:
        client = get_client(url=server.url, api_key=None)
        named = [one for one in await client.assistants.search(limit=100) if one["name"] in PRESETS]
        assert sorted(one["name"] for one in named) == sorted(PRESETS) and all(one["description"] for one in named)
        return {one["name"]: await client.assistants.get_graph(one["assistant_id"], xray=True) for one in named}

    found = asyncio.run(drawings())
    first = found["default"]
    assert {"describe", "select", "decide_after_detect", "branch:seed", "branch:decide_after_evaluate"} <= {n["id"] for n in first["nodes"]}
    assert all(one == first for one in found.values())


def test_a_run_streams_every_step_to_its_end(server: Server) -> None:
    answer = server.ask("tritonsmith", SMALL, {"replay": TAPE, "seeds": 1, "policy": "no-tune"})
    assert answer.error is None
    kinds = {one["event"] for one in answer.events}
    assert {"run", "stage", "candidate", "verdict", "usage", "analysis", "findings", "decision", "stop", "end"} <= kinds
    recorded = json.loads((EXAMPLE / "decisions.json").read_text(encoding="utf-8"))
    assert [one["reason"] for one in answer.events if one["event"] == "decision"] == [one["reason"] for one in recorded]
    assert answer.state["winner"] == "seed0-03" and answer.state["stopped_because"] == "the winner is confirmed"
    assert answer.state["result"].startswith("3.04x ESTIMATE: AMBIGUOUS against eager (speed not known; label kernel, ieee)")
    folder = server.folder / "state/tritonsmith/server" / answer.thread / answer.state["run"][:8]
    assert next(one["folder"] for one in answer.events if one["event"] == "run") == str(folder)
    sha = answer.state["candidates"]["seed0-03"]["sha"]
    assert (folder / "kernels" / f"{sha}.py").is_file() and (folder / "verdicts" / "seed0-03.strict.json").is_file()


def test_assistants_with_other_policies_take_other_ways(server: Server) -> None:
    ways = {}
    for policy in ("no-tune", "best-of-n"):
        replay = ("--setting", f"replay={TAPE}", "--setting", "seeds=1")
        assert command(["assistants", "--url", server.url, "--policies", policy, *replay]) == 0
        ways[policy] = server.ask(_id_of(server, policy), SMALL, {})
    assert ("seed0", "after_evaluate", "repair") in ways["no-tune"].decisions()
    assert ways["best-of-n"].decisions() == [("seed0", "after_evaluate", "give_up"), ("main", "after_select", "finish"),
                                             ("main", "after_confirm", "give_up")]  # fmt: skip
    assert ways["no-tune"].state["winner"] == "seed0-03" and ways["best-of-n"].state.get("winner") is None


def test_the_script_of_the_documentation_works(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    replay = ("--setting", f"replay={TAPE}", "--setting", "seeds=1")
    assert command(["assistants", "--url", server.url, "--policies", "no-tune", *replay]) == 0
    page = (ROOT / "docs" / "studio.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(page.partition("```python\n")[2].partition("```")[0], "docs/studio.md", "exec"), names)
    assert asyncio.run(names["ask"](server.url, _id_of(server, "no-tune"), TASK)) == "seed0-03"
    assert "seed0 after_evaluate -> repair because compile_error: repair 1 of 5" in capsys.readouterr().out


def _id_of(server: Server, name: str) -> str:
    async def find() -> str:
        client = get_client(url=server.url, api_key=None)
        return str(next(one["assistant_id"] for one in await client.assistants.search(limit=100) if one["name"] == name))

    return asyncio.run(find())


def test_a_thread_that_gets_a_task_once_more_begins_a_new_run(server: Server) -> None:
    context = {"replay": TAPE, "seeds": 1}
    first = server.ask("tritonsmith", SMALL, {**context, "policy": "no-tune"})
    again = server.ask("tritonsmith", SMALL, {**context, "policy": "best-of-n"}, first.thread)
    assert again.error is None and set(again.state["candidates"]) == {"seed0-01"}
    assert again.state["run"] != first.state["run"] and again.state.get("winner") is None
    assert [one["choice"] for one in again.state["decisions"].values()] == ["give_up", "finish", "give_up"]
    assert "no candidate works" in again.state["stopped_because"]


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (SMALL, {"seeds": 0}, "setting seeds: Input should be greater than or equal to 1 (got 0)"),
    (SMALL, {"policy": "nope"}, "setting policy nope: no such policy; choose one of default, "),
    (SMALL, {"target": "h900"}, "setting target h900: no such card; choose one of auto, "),
    (SMALL, {"model": "openai:m"}, "setting model openai:m: set OPENAI_API_KEY to your key"),
    (SMALL, {"policy_file": "mine.py:Mine"}, "setting policy mine.py:Mine: there is no file mine.py"),
    (SMALL, {"replay": "missing.jsonl"}, "setting replay missing.jsonl: cannot be read"),
    ({"task": "missing.py"}, {"replay": TAPE}, "missing.py: no such task file; check the path"),
    ({"task": 3}, {"replay": TAPE}, 'the graph\'s input is {"task": "path/of/a/task.py"} or {"task": Task}'),
    ({"task": {"name": "t"}}, {"replay": TAPE}, "task.path: Field required; or give the path of a task file"),
    ({**SMALL, "size": "big"}, {"replay": TAPE}, "size 'big' does not exist; choose full or small"),
    ({**SMALL, "overrides": [1]}, {"replay": TAPE}, "overrides [1]: give names of the task file with their values"),
    ({**SMALL, "precision": "x"}, {"replay": TAPE}, "precision 'x' does not exist; choose one of auto, ieee, split, tf32, 16-bit"),
]


def test_what_is_wrong_ends_the_run_with_one_sentence(server: Server) -> None:
    async def all_at_once() -> list[Answer]:
        return await asyncio.gather(*(server.answer("tritonsmith", given, context) for given, context, _ in WRONG))

    for (given, context, sentence), answer in zip(WRONG, asyncio.run(all_at_once()), strict=True):
        assert answer.error is not None and answer.error["error"] == "ServedError", (given, context, answer.error)
        assert sentence in answer.error["message"] and "\n" not in answer.error["message"]
        assert not answer.events


@pytest.mark.slow
def test_built_in_author_and_evaluator_work_in_the_server(server: Server) -> None:
    """The built-in author and the evaluator of this machine work in the server."""
    answer = server.ask("tritonsmith", SMALL, {"policy": "best-of-n", "seeds": 1, "target": "h200"})
    assert answer.error is None and answer.state["winner"] == "seed0-01"
    assert answer.state["verdicts"]["seed0-01"]["profile"] == "strict"


def test_nothing_blocked_the_server_restarted_it_or_reached_the_outside(server: Server) -> None:
    """Stands last: what the runs before have left in the server's log."""
    assert "BlockingError" not in server.log and "Blocking call" not in server.log
    assert any((server.folder / "state").rglob("kernels/*.py"))
    assert not any(sign in server.log for sign in ("WatchFiles", "Reloading", "will retry"))
    assert server.outside == []


def test_make_studio_starts_the_server_as_documented() -> None:
    assert f"$(BIN)/langgraph {' '.join(documented_arguments())}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_results_lie_outside_the_folder_that_a_server_watches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunForm().results == tmp_path / ".local/state/tritonsmith/server" and RunForm(out="there").results == Path("there")


def test_assistants_say_in_one_sentence_what_is_wrong(capfd: pytest.CaptureFixture[str]) -> None:
    nowhere = f"http://127.0.0.1:{_free_port()}"
    for arguments, sentence in (
        (["--url", nowhere], f"error: --url {nowhere}: no LangGraph server answers there"),
        (["--url", "localhost"], "error: --url localhost: write the whole address, such as http://127.0.0.1:2024"),
        (["--policies", "nope"], "error: --policies nope: no such preset; choose among default, "),
        (["--setting", "sedes=1"], "error: setting sedes: there is no such setting; the settings are policy, "),
        (["--setting", "seeds"], "error: --setting seeds: write NAME=VALUE, such as --setting seeds=3"),
    ):
        assert command(["assistants", *arguments]) == 2
        assert capfd.readouterr().err.startswith(sentence)
