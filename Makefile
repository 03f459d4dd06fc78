# The commands of this project; each makes what it needs in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test browser check package bench bench-quick chaos mutations recovery flood fuzz clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed  ## Run the main job: broker, worker, router and three tasks
	$(RUN) -m examples.demo

test: $(VENV)/.installed  ## Pass the tests, on real servers
	$(RUN) -m pytest

browser: $(VENV)/.installed  ## Pass the tests with a real browser, Chromium and its driver on PATH
	$(RUN) -m pytest tests/browser

check: $(VENV)/.installed  ## Format, lint, types, imports
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/test_architecture.py

package: $(VENV)/.installed  ## Build the wheel and try it with the base dependencies alone
	rm -rf dist
	$(RUN) -m build --outdir dist .
	$(RUN) -m tests.acceptance.base_install dist

$(VENV)/.bench-installed: $(VENV)/.installed
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	touch $@

bench: $(VENV)/.bench-installed  ## Measure beside the peers; writes docs/performance.md (NAMES="throughput tokens" for some)
	$(RUN) -m benchmarks $(NAMES)

bench-quick: $(VENV)/.installed  ## Measure in a minute and say which ratio fell; KEEP=--keep-reference keeps this run's ratios
	$(RUN) -m benchmarks --quick $(KEEP) $(NAMES)

chaos: $(VENV)/.installed  ## Break everything at random for ten minutes, then check every task (SECONDS=60 SEED=7)
	$(RUN) -m tests.chaos --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))

mutations: $(VENV)/.installed  ## Show that the checker catches planted faults
	$(RUN) -m tests.chaos.mutations

recovery: $(VENV)/.installed  ## Measure how long a task stands still after kill -9 of its worker
	$(RUN) -m tests.chaos.recovery

flood: $(VENV)/.installed  ## Submit 100,000 tasks at once to one worker and one router, and check each (TASKS=5000)
	$(RUN) -m tests.overload.flood $(or $(TASKS),100000)

fuzz: $(VENV)/.installed  ## Fuzz every decoder for a minute each, guided by coverage where atheris can be had (SECONDS=20)
	-$(RUN) -m pip install --quiet --disable-pip-version-check 'atheris>=3,<4'
	$(RUN) -m tests.security.fuzz $(or $(SECONDS),60)

clean:  ## Remove what the commands made
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .skillstream .bench
