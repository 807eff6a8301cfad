"""Checkpoints in a real Postgres server, which the tests start themselves; its programs have to be on the machine (make test-all)."""

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

import chat_server as chat
import unsorted_tasks as tasks
from durable_driver import begin
from project import HELPERS
from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.errors import RunError, UsageError
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.runs.run import Run
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

DRIVER = HELPERS / "durable_driver.py"
VERDICTS = {"bad": scripted_verdict(None, message="it fails"), "good": scripted_verdict(0.6), "better": scripted_verdict(1.5)}


class Server:
    """A server of the test's own, on a socket in a folder of its own; as root it runs as `nobody`, for it refuses to be root."""

    def __init__(self):
        found = [shutil.which("initdb"), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")))]
        programs = [Path(path).resolve().parent for path in found if path]
        if not programs:
            pytest.fail("no Postgres on this machine: `make test-all` needs initdb and pg_ctl (Debian: apt install postgresql)")
        self.programs = programs[-1]
        self.root = Path(tempfile.mkdtemp(prefix="pg-"))
        self.user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            os.chown(self.root, pwd.getpwnam("nobody").pw_uid, -1)
        self.address = f"host={self.root} dbname=postgres user={self.user}"
        self._call("initdb", "-D", str(self.root / "data"), "-A", "trust", "-U", self.user, "--no-sync")
        self.start()

    def start(self):
        options = f"-c listen_addresses='' -k {self.root} -c fsync=off"
        self._call("pg_ctl", "-D", str(self.root / "data"), "-l", str(self.root / "log"), "-w", "-o", options, "start")

    def stop(self):
        self._call("pg_ctl", "-D", str(self.root / "data"), "-m", "immediate", "stop")

    def close(self):
        self._call("pg_ctl", "-D", str(self.root / "data"), "-m", "immediate", "stop", check=False)
        shutil.rmtree(self.root)

    def _call(self, program, *arguments, check=True):
        as_user = {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}
        command = [str(self.programs / program), *arguments]
        log = subprocess.DEVNULL  # a pipe would stay open in the server
        done = subprocess.run(command, stdout=log, stderr=log, cwd="/", **as_user)
        assert not check or done.returncode == 0, command


@pytest.fixture(scope="module")
def server():
    started = Server()
    yield started
    started.close()


@pytest.fixture
def task(tmp_path, server, monkeypatch):
    monkeypatch.setenv("PG_ADDRESS", f"{server.address} application_name=secret-address")
    path = tmp_path / "1_relu.py"
    path.write_text(chat.TASK)
    return path


@pytest.fixture
def players():
    author = ScriptedAuthor(seeds=("bad", "good"), variants={("tune_block", "good"): ("better",)})
    return {"author": author, "evaluator": ScriptedEvaluator(VERDICTS)}


async def left(run, at):
    events = run.stream()
    async for event in events:
        if event["event"] == at:
            break
    await events.aclose()


@pytest.mark.slow
def test_a_run_goes_on_from_a_database(task, players, tmp_path, server):
    whole = optimize(task, out=str(tmp_path / "whole"), **players)
    out = tmp_path / "out"
    asyncio.run(left(Run(RunConfig(task=str(task), out=str(out), checkpoints="postgres:PG_ADDRESS"), **players), "verdict"))
    thread = json.loads((out / "run.json").read_text())["thread"]
    with psycopg.connect(server.address) as connection:
        before = connection.execute("SELECT count(*) FROM checkpoints WHERE thread_id = %s", (thread,)).fetchone()[0]
    (out / "tape.jsonl").unlink()  # the database alone must be enough
    summary = resume(out, **players)
    assert before > 1 and summary.winner == whole.winner and summary.decisions == whole.decisions
    with psycopg.connect(server.address) as connection:
        rows = connection.execute("SELECT checkpoint_ns, count(*) FROM checkpoints WHERE thread_id = %s GROUP BY 1", (thread,)).fetchall()
    assert rows and all(count == 1 for _, count in rows), "what is needed no more is dropped"
    assert not (out / "checkpoints.sqlite").exists()
    assert not [path for path in out.rglob("*") if path.is_file() and b"secret-address" in path.read_bytes()]


@pytest.mark.slow
def test_a_database_gives_back_the_order_of_keys(tmp_path, server, monkeypatch):
    """Without its tape a run sends from the database alone what a run sends that nobody left."""
    monkeypatch.setenv("PG_ADDRESS", server.address)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    (tmp_path / "7_scorer.py").write_text(tasks.SCORER)
    sent = []
    for name in ("whole", "out"):
        with chat.ChatServer(tasks.answer_body) as desk:
            settings = {"model": "openai:toy", "base_url": desk.url, "seeds": 1, "policy": "no-tune", "checkpoints": "postgres:PG_ADDRESS"}
            if name == "whole":
                optimize(tmp_path / "7_scorer.py", out=str(tmp_path / name), evaluator=tasks.Judge(), **settings)
            else:
                begin(tmp_path / "7_scorer.py", {"evaluator": tasks.Judge()}, tmp_path / name, "decision", count=2, **settings)
                (tmp_path / name / "tape.jsonl").unlink()
                resume(tmp_path / name, evaluator=tasks.Judge())
        sent.append(desk.requests)
    assert len(sent[0]) == 5 and sent[1] == sent[0]


@pytest.mark.slow
def test_runs_with_a_database_survive_kills(tmp_path, server):
    environment = {**os.environ, "CHECKPOINTS": "postgres:PG_ADDRESS", "PG_ADDRESS": server.address}
    done = subprocess.run([sys.executable, str(DRIVER), "kills", str(tmp_path), "8", "5"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert len(cases) == 8 and not any(case["differs"] or case["repeated"] or case["status"] for case in cases)


@pytest.mark.slow
def test_a_database_that_is_lost_is_told(task, players, tmp_path, server):
    async def work():
        run = Run(RunConfig(task=str(task), out=str(tmp_path / "out"), checkpoints="postgres:PG_ADDRESS"), **players)
        async for event in run.stream():
            if event["event"] == "candidate" and not stopped:
                server.stop()
                stopped.append(True)

    stopped = []
    try:
        with pytest.raises(RunError, match="postgres:PG_ADDRESS: the database failed .*; what was finished is on the run's tape"):
            asyncio.run(work())
        with pytest.raises(UsageError, match="--checkpoints postgres:PG_ADDRESS: cannot connect .*start the database, or fix"):
            resume(tmp_path / "out", **players)
    finally:
        if stopped:
            server.start()
    assert resume(tmp_path / "out", **players).winner.id == "block-01"


def test_what_checkpoints_cannot_be_is_refused(tmp_path, monkeypatch, capsys):
    path = tmp_path / "1_relu.py"
    path.write_text(chat.TASK)
    monkeypatch.delenv("PG_ADDRESS", raising=False)
    for value, sentence in (
        ("redis", "choose sqlite, none, or postgres:NAME"),
        ("postgres:", "choose sqlite, none, or postgres:NAME"),
        ("postgres:PG_ADDRESS", "set PG_ADDRESS to the connection string"),
    ):
        assert command(["optimize", str(path), "--checkpoints", value, "--out", str(tmp_path / "out")]) == 2
        assert sentence in capsys.readouterr().err and not (tmp_path / "out").exists()
    monkeypatch.setenv("PG_ADDRESS", "secret words that are no address")
    with pytest.raises(UsageError, match="the variable holds no connection string") as caught:
        players = {"evaluator": ScriptedEvaluator(VERDICTS), "author": ScriptedAuthor(seeds=("good",))}
        optimize(path, checkpoints="postgres:PG_ADDRESS", seeds=1, out=str(tmp_path / "out"), **players)
    assert "secret" not in str(caught.value) and not (tmp_path / "out").exists()
