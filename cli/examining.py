"""What works on a machine, what does not, and what to do about it: the checks behind `tritonsmith doctor`."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pynvml

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.processes.bytecode import can_be_written, shell_line, without_bytecode
from tritonsmith.graph.tracing.redact import Redactor
from tritonsmith.graph.tracing.target import look, target_of
from tritonsmith.nodes.chat.connect import web_address

_PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langchain-openai", "langsmith", "pydantic", "numpy", "greenlet")


@dataclass(frozen=True)
class Check:
    """One line of the answer."""

    name: str
    works: bool
    detail: str
    todo: str = ""


def examine_machine() -> list[Check]:
    """Every check, tried in child processes where it needs torch or a card. Takes seconds."""
    interpreted, compiled = _self_check("interpret"), _self_check("compile")
    card = _check_card()
    sandbox = _ask_child("sandbox.self_test", *(["card"] if card.works else []))
    return [
        card, _check_python(), _check_torch(compiled or interpreted), check_bytecode(), _check_self_test("interpreter", interpreted),
        _check_self_test("compiler", compiled), _check_launch(card, compiled), _check_c_compiler(), *_check_packages(),
        *_check_sandbox(sandbox), _check_model(), *check_traces(),
    ]  # fmt: skip


def find_ways(works: dict[str, bool]) -> list[Check]:
    """The ways to use this package, given what works."""
    on_card, off_card = works["kernel launch"], works["interpreter"] and works["compiler"]
    return [
        Check("measured on the card of this machine", on_card, "tritonsmith optimize TASK --model offline"),
        Check("estimated for a named card, without one", off_card, "tritonsmith optimize TASK --model offline --target h200"),
        Check("written by a model", (on_card or off_card) and works["model endpoint"], "tritonsmith optimize TASK --model openai:NAME"),
    ]


def _self_check(mode: str) -> dict[str, Any]:
    """Answer of the child process; `{"error": ...}` when there is none."""
    return _ask_child("reference.self_check", mode, **({"TRITON_INTERPRET": "1"} if mode == "interpret" else {}))


def _ask_child(module: str, *arguments: str, **environment: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | environment
    command = [sys.executable, "-P", "-W", "ignore", "-m", f"tritonsmith.evaluator.{module}", *arguments]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        return {"error": "no answer within 180 s"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"error": last}
    return answer


def _check_card() -> Check:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Check("card", False, f"no NVIDIA card or driver ({error})", "estimates need none; to measure, use a machine with one")
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        return Check("card", False, f"the driver does not answer ({error})", "see that `nvidia-smi` works for this user")
    finally:
        pynvml.nvmlShutdown()
    return Check("card", bool(names), f"{', '.join(map(str, names)) or 'none'}; driver {driver}", "" if names else "check the driver")


def _check_python() -> Check:
    good = sys.version_info >= (3, 11)
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("python", good, detail, "" if good else "use 3.11 or newer")


def _check_torch(answer: dict[str, Any]) -> Check:
    if "error" in answer:
        return Check("torch and triton", False, answer["error"], "run make again, or `pip install -c constraints.txt -e .`")
    build = f"CUDA {answer['cuda']}" if answer["cuda"] else "CPU build"
    return Check("torch and triton", True, f"torch {answer['torch']} ({build}), triton {answer['triton']}")


def check_bytecode() -> Check:
    """Whether torch and what it imports are there as bytecode, which an evaluator's confined processes cannot write."""
    missing = without_bytecode()
    if not missing:
        return Check("bytecode", True, "torch and what it imports are compiled to bytecode")
    names = ", ".join(folder.name for folder in missing)
    if out_of_reach := [folder for folder in missing if not can_be_written(folder)]:
        return Check("bytecode", False, f"{names} without: every evaluator starts seconds later", f"once: {shell_line(out_of_reach)}")
    return Check("bytecode", True, f"{names} without: the first evaluator compiles it, which takes seconds")


def _check_self_test(name: str, answer: dict[str, Any]) -> Check:
    what = {
        "interpreter": "a kernel ran in Triton's interpreter",
        "compiler": "a kernel was compiled for sm_90 without a card",
    }[name]
    reason = answer.get("error") or answer.get(name)
    return Check(name, not reason, reason or what, "estimates need it; reinstall with constraints.txt" if reason else "")


def _check_launch(card: Check, answer: dict[str, Any]) -> Check:
    if "launch" in answer and not answer["launch"]:
        return Check("kernel launch", True, "a kernel ran on the card")
    if "launch" in answer:
        return Check("kernel launch", False, answer["launch"], "a launch needs a C compiler and a driver that fits torch's CUDA")
    todo = "install the CUDA build of torch" if card.works and not answer.get("cuda") else ""
    return Check("kernel launch", False, "torch sees no CUDA card", todo)


def _check_c_compiler() -> Check:
    found = next((path for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (path := shutil.which(name))), None)
    todo = "" if found else "only launching on a card needs one: install gcc, or set CC"
    return Check("C compiler", bool(found), found or "none found", todo)


def _check_packages() -> list[Check]:
    checks = []
    for name in _PACKAGES:
        try:
            checks.append(Check(name, True, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, False, "not installed", f"pip install -c constraints.txt {name}"))
    return checks


def _check_sandbox(report: dict[str, Any]) -> list[Check]:
    """What the self-test could do from inside the sandbox, and the layers that stopped it."""
    if "error" in report:
        return [Check("sandbox", False, report["error"], "evaluate only files that you would run yourself")]
    missing, actions = report["missing"], report["actions"]
    allowed = [action.replace("_", " ") for action, state in actions.items() if state != "blocked"]
    verdict = f"{len(actions) - len(allowed)} of {len(actions)} attacks of the self-test were stopped"
    detail = f"{verdict}; possible: {', '.join(allowed)}" if allowed else verdict
    todo = f"evaluate only files that you would run yourself; missing: {'; '.join(missing)}" if missing else ""
    without = report["layers"]["mount_ns"] == "applied"  # they are ways to get namespaces
    needless = {"bubblewrap": without, "user_ns": without}
    layers = [
        Check(f"sandbox: {name}", state == "applied" or needless.get(name, False), state) for name, state in report["layers"].items()
    ]
    return [Check("sandbox", not missing, detail, todo), *layers]


def _check_model() -> Check:
    key, base = bool(os.environ.get("OPENAI_API_KEY")), os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or ""
    example = "http://localhost:8000/v1"
    try:
        host = web_address(base, "OPENAI_BASE_URL", example).hostname if base else "OpenAI's own"
    except UsageError:  # its sentence has the address, and that may have a password
        return Check("model endpoint", False, "OPENAI_BASE_URL is no web address", f"write the whole one, such as {example}")
    if key:
        return Check("model endpoint", True, f"OPENAI_API_KEY is set (not tried), endpoint: {host}")
    todo = "--model offline needs none; else set it (and --base-url for another server)"
    return Check("model endpoint", False, f"OPENAI_API_KEY is not set, endpoint: {host}", todo)


def check_traces() -> list[Check]:
    """Where traces of runs go, and whether anybody takes them there; an address, never a key."""
    target = target_of(os.environ)
    if not target.wanted:
        return [Check("LangSmith", False, "tracing is off", "optional: set LANGSMITH_TRACING=true and LANGSMITH_API_KEY")]
    checks = [Check("traces", False, "cannot be sent", target.fault)] if target.fault else []
    for name, address, trouble in look(target):
        where = Redactor().text(address)
        variable = "LANGSMITH_ENDPOINT and LANGSMITH_API_KEY" if name == "LangSmith" else "OTEL_EXPORTER_OTLP_ENDPOINT"
        todo = f"see {variable}; runs go on without it" if trouble else ""
        checks.append(Check(name, not trouble, f"on and unreachable: {where} {trouble}" if trouble else f"on and reachable: {where}", todo))
    return checks
