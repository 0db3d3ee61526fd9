# `make run` and `make test` do all their set-up themselves; they need Python 3.11 or later and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# On 2 cores: tests wait for real processes, and these for each other, a part of the time.
WORKERS ?= 3
# Each module of tests/clusters has a cluster of its own; they wait for it nearly all of the time.
CLUSTERS ?= 4

# Where this is set, every process of every test would compile all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check bench soak clean browser slurm

run: $(VENV)/.run-ready
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/whistle up --run examples/pipeline/whistle.yaml

test: $(VENV)/.dev-ready browser slurm check
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --ignore tests/clusters
	$(BIN)/python -m pytest -n $(CLUSTERS) --dist loadfile tests/clusters

# The dashboard's tests drive a real one. Where it can't be installed they are skipped, but in CI they fail.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
		|| echo "There is no chromium here: the tests of the dashboard are skipped."

# A real cluster on this machine, in tests/clusters. It starts its own daemons; Debian's are not started.
slurm:
	@{ command -v sbatch && [ -x /usr/sbin/munged ] && [ -x /usr/sbin/slurmctld ]; } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm slurmctld slurmd slurm-client munge iproute2 >/dev/null; } \
		|| echo "There is no Slurm here: its tests are skipped."

check: $(VENV)/.dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python bench/run.py

soak: $(VENV)/.dev-ready
	$(BIN)/python -m whistlestop.testing.kill_drill --rounds 300
	WHISTLE_CONTAINMENT=walk $(BIN)/python -m whistlestop.testing.kill_drill --rounds 200
	$(BIN)/python -m whistlestop.testing.restart_drill --rounds 100
	$(BIN)/python -m whistlestop.testing.save_drill --rounds 1000
	$(BIN)/python -m whistlestop.testing.save_drill --storage s3 --rounds 300
	$(BIN)/python -m whistlestop.testing.pause_drill --rounds 100
	$(BIN)/python -m whistlestop.testing.preempt_drill --notices 10 --kills 10
	$(BIN)/python -m whistlestop.testing.stop_drill --stops 500
	$(BIN)/python -m whistlestop.testing.ranks_drill --stops 50 --preemptions 50
	$(BIN)/python -m whistlestop.testing.ranks_drill --stops 20 --preemptions 20 --nodes 2
	$(BIN)/python -m pytest -m long --timeout 1200
	FUZZ_EXAMPLES=100 FLOOD=1000000000 $(BIN)/python -m pytest --timeout 1800 tests/server/test_fuzz.py tests/server/test_faults.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .schemathesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11, 4) else "Whistlestop needs Python 3.11.4 or later; say which: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV) || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install -y --no-install-recommends python3-venv && $(PYTHON) -m venv $(VENV); }

$(VENV)/.run-ready: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev-ready: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.run-ready
