# Every target sets up what it needs first; the second time that takes no time and needs no network.
VENV := .venv
BIN := $(VENV)/bin
# Packages for running, for the server, and for work on the project; each has what is ahead of it.
READY := $(VENV)/.ready
READY_SERVER := $(VENV)/.ready-server
READY_DEV := $(VENV)/.ready-dev
# Files go to as many workers as there are processors, four at most; a worker's evaluator holds half a gigabyte.
# In the order of tests/conftest.py, the longest first: by the number of tests in a file, as xdist has it, they would begin last.
SIDE_BY_SIDE := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PACKAGES := author benchmarks cli evaluator graph modules nodes prompts
# Where bytecode is not kept, every process compiles this project again, and pytest rewrites every test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo studio test check test-all test-gpu bench timing hacks clean moved

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(READY) ## optimize a 6-layer GRU and show the path and the table (GPU if there is one, else CPU with estimates)
	@.ci/demo $(VENV)

studio: $(READY_SERVER) ## serve the graph for LangGraph Studio and langgraph-sdk, on this machine alone
	@$(BIN)/langgraph dev --no-browser --no-reload

test: $(READY_DEV) ## the tests that need neither a GPU nor patience
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not gpu and not slow" --ignore tests/test_packaging.py  # which make check runs

check: $(READY_DEV) ## ruff, strict mypy, import floors, packaging
	@echo "ruff"; $(BIN)/ruff check .
	@echo "mypy --strict"; $(BIN)/python -m mypy $(addprefix -p tritonsmith.,$(PACKAGES))
	@echo "import-linter"; cd .typecheck && ../$(BIN)/lint-imports --no-logo --config ../pyproject.toml
	@echo "packaging"; $(BIN)/python -m pytest -q tests/test_packaging.py

test-all: $(READY_DEV) ## every test that needs no GPU, the slow ones too
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not gpu"

test-gpu: $(READY_DEV) ## the tests that need a CUDA card
	@$(BIN)/python -m pytest -q -m gpu

bench: $(READY) ## measure every task on the card of this machine; rows and samples go to benchmarks/results
	@$(BIN)/python -m tritonsmith.benchmarks.bench

timing: $(READY) ## show how honest the timing is, on the card of this machine (half an hour)
	@$(BIN)/python -m tritonsmith.benchmarks.timing.study

hacks: $(READY) ## judge the corpus of hacks, wrong kernels, races and right kernels (30 to 60 minutes)
	@$(BIN)/python -m tritonsmith.benchmarks.hacks.suite

clean: ## remove the environment and caches (runs/ stays)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build *.egg-info

# A stamp holds the folder that the environment was made in; in a moved or copied checkout it is another one, and the set-up runs again.
WANTED := pyproject.toml constraints.txt $(if $(subst $(CURDIR),,$(shell cat $(READY) 2>/dev/null)),moved)
$(READY): $(WANTED)
	@PYTHON="$(PYTHON)" .ci/setup $(VENV)
$(READY_SERVER): $(WANTED)
	@PYTHON="$(PYTHON)" .ci/setup $(VENV) server
$(READY_DEV): $(WANTED)
	@PYTHON="$(PYTHON)" .ci/setup $(VENV) dev
