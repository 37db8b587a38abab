# Everything runs in a virtual environment of its own; only Python >= 3.11 with pip and venv is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Through fairmfu/, so that relative imports resolve to fairmfu.….
SOURCES := $(addprefix fairmfu/,__init__.py cli.py ingest metrics reports)
CHECKED := $(SOURCES) tests benchmarks sample_logs/make_synthetic.py

# Tests start hundreds of processes: where the variable is set each of them compiles all of fairmfu.
export PYTHONDONTWRITEBYTECODE :=

# One virtual environment: two rules that install into it at once would spoil it.
ifndef IS_INSTALLED
.NOTPARALLEL:
endif

.PHONY: demo check test lint types tests test-ray some-ray seconds golden corpus coverage changes audit evidence thorough verify \
	metamorphic slowdowns watches effects year kills browser screenshots clean gate fuzz fuzz-facts mutants sabotage prose bench bench-ingest bench-start \
	bench-chart \
	bench-summary bench-scalars bench-nightly bench-engines bench-report reference

demo: $(VENV)/installed
	rm -rf demo
	$(BIN)/fairmfu ingest sample_logs/h200 --store demo/store
	$(BIN)/fairmfu report --store demo/store --out demo/report.html --title "fairmfu demo"
	$(BIN)/fairmfu compare --store demo/store
	@echo
	@echo "The page: demo/report.html"

# The inner loop: lint, types, and the tests that what differs from BASE can break.
BASE ?= HEAD
check: lint types
	$(BIN)/python -m tests.tools.affected --base $(BASE) | POLARS_MAX_THREADS=1 xargs --no-run-if-empty \
		$(BIN)/python -m pytest --numprocesses logical --dist worksteal

# mypy takes one core for a minute, and tests with Ray mostly wait: both run beside the other tests.
# make test-ray has all of those with Ray.
test: lint
	+$(MAKE) --jobs 3 --output-sync=line --no-print-directory IS_INSTALLED=yes types tests some-ray

lint: $(VENV)/tested
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)

types: $(VENV)/tested
	$(BIN)/mypy

tests: $(VENV)/tested
	POLARS_MAX_THREADS=1 $(BIN)/python -m pytest --ignore tests/ingest/workers/test_ray_engine.py \
		--numprocesses logical --dist worksteal

# Logs read by a Ray cluster of two nodes on this machine; workers and a node are killed. Ray may end
# the process: what it says of that goes to the real standard error, so that is not captured.
test-ray: $(VENV)/tested
	FAIRMFU_THOROUGH=1 $(MAKE) --no-print-directory some-ray

some-ray: $(VENV)/tested
	POLARS_MAX_THREADS=1 $(BIN)/python -m pytest tests/ingest/workers/test_ray_engine.py --capture=sys -v

# The seconds of each test file, by which `make check` chooses.
seconds: $(VENV)/tested
	POLARS_MAX_THREADS=1 $(BIN)/python -m pytest --ignore tests/ingest/workers/test_ray_engine.py \
		--numprocesses logical --dist worksteal --junitxml .pytest_cache/tests.xml
	$(BIN)/python -m tests.tools.seconds .pytest_cache/tests.xml

golden: $(VENV)/tested
	$(BIN)/python -m pytest tests --update-golden

# The tables of README.md and docs/ that come from code.
reference: $(VENV)/tested
	$(BIN)/python -m tests.tools.reference

# What is read of the public and the generated logs, where they are at hand.
corpus: $(VENV)/tested
	$(BIN)/python -m tests.tools.corpus

# What public and generated logs print of their own speed, reproduced by each framework's formula.
audit: $(VENV)/tested
	$(BIN)/python -m tests.tools.audit

# Their time stamps against their logged rates and times, and every count of their tokens.
evidence: $(VENV)/tested
	$(BIN)/python -m tests.tools.evidence

# How plainly code and docs are written: counts of what CONTRIBUTING.md asks for.
prose: $(VENV)/tested
	$(BIN)/python -m tests.tools.prose

# How often the intervals of simulated runs cover the truth: the table of docs/statistics.md.
coverage: $(VENV)/tested
	$(BIN)/python -m tests.tools.coverage_table

# False alarms of steady series and delays of planted changes: the tables of docs/statistics.md.
changes: $(VENV)/tested
	$(BIN)/python -m tests.tools.changes_table

# How often the intervals of a knob's effect cover the truth: a table of docs/statistics.md.
effects: $(VENV)/tested
	$(BIN)/python -m tests.tools.effects_table

# The same of the figures watched beside TGS.
watches: $(VENV)/tested
	$(BIN)/python -m tests.tools.watch_table

# Slow-downs planted in simulated runs, and findings in healthy ones: a table of docs/statistics.md.
slowdowns: $(VENV)/tested
	$(BIN)/python -m tests.tools.slowdowns

# Counts FLOPs live with torch and transformers on the meta device; both are large.
verify: $(VENV)/tested
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[count]'
	$(BIN)/python -m pytest tests/metrics/formula/test_flop_counter.py tests/metrics/formula/test_vision.py \
		tests/metrics/formula/test_counted_models.py -k 'live or counted'

# A year of simulated nights by the real command: all that was planted found, and no more. Long.
year: $(VENV)/tested
	FAIRMFU_YEAR=1 $(BIN)/python -m pytest tests/end_to_end/test_nights.py -k a_year_of

# The tests that draw at random, with more draws, of all kinds by all others, and those that read
# every log: whichever ask for it. Long.
thorough: $(VENV)/tested
	FAIRMFU_THOROUGH=1 $(BIN)/python -m pytest --numprocesses logical --dist worksteal \
		$$(grep -rlE 'THOROUGH|every_log|sampled|@given' tests --include='test_*.py')

# Runs killed at each step that writes, and at 1,000 random moments; disks that fail at each of
# these steps; a hundred readers. Long.
kills: $(VENV)/tested
	FAIRMFU_KILLS=$${FAIRMFU_KILLS:-1000} $(BIN)/python -m pytest tests/end_to_end/test_kill.py \
		tests/ingest/store/test_concurrent_readers.py -rP --numprocesses logical --dist loadgroup

# Logs cut, wrapped, quoted, mixed and split: no figure changes in silence. Long.
metamorphic: $(VENV)/tested
	POLARS_MAX_THREADS=1 $(BIN)/python -m tests.tools.metamorphic $(if $(QUICK),--logs sample_logs)

# The fast reading of logs against the reading line by line: so many damaged lines of each format,
# every public and generated log. Long.
gate: $(VENV)/tested
	FAIRMFU_THOROUGH=1 FAIRMFU_GATE=$${FAIRMFU_GATE:-100000} $(BIN)/python -m pytest \
		tests/ingest/vector/test_gate.py --numprocesses logical --dist worksteal -rs

# Hostile inputs to every reader, with coverage as the guide: so many seconds a target. Long.
fuzz: $(VENV)/fuzzed
	$(BIN)/python -m tests.tools.fuzz --seconds $${SECONDS_EACH:-600}

# Runs with one damaged value beside 50 good ones: no error, and these stay the same. An hour.
fuzz-facts: $(VENV)/tested
	$(BIN)/python -m tests.tools.fuzz_facts --inputs $${INPUTS:-100000}

# Small faults planted in metrics/ and in the reading of logs: how many of them a test notices.
# Hours; what is known is kept in .mutants/. MINUTES=60 stops earlier, ROOMS=metrics/core takes a part.
mutants: $(VENV)/mutated
	$(BIN)/python -m tests.tools.mutants --minutes $${MINUTES:-600} --rooms "$(ROOMS)"

# Each promise of docs/reliability.md broken once, in a copy: its test has to fail. Ten minutes.
sabotage: $(VENV)/tested
	$(BIN)/python -m tests.tools.sabotage

# What everything costs beside what else would do it, one table for each of these: long, 6 GB on the
# disk. With QUICK=1 small and in a few minutes: before a commit. benchmarks/README.md
BENCHMARKS := ingest start chart summary scalars
SMALL := $(if $(QUICK),--quick)
bench: $(VENV)/benched
	@failed=0; for one in $(BENCHMARKS); do \
		$(BIN)/python -m benchmarks.$$one $(SMALL) || failed=1; done; exit $$failed

bench-ingest bench-start bench-chart bench-summary bench-scalars: bench-%: $(VENV)/benched
	$(BIN)/python -m benchmarks.$* $(SMALL)

# What a night costs as the history grows: benchmarks/README.md. Long.
bench-nightly: $(VENV)/tested
	$(BIN)/python -m benchmarks.nightly $(SMALL)

# Small logs by one process, two, and a Ray cluster: benchmarks/README.md. Long.
bench-engines: $(VENV)/tested
	$(BIN)/python -m benchmarks.engines $(SMALL)

# What the report costs where it is largest, and how it opens: benchmarks/README.md. Long.
bench-report: $(VENV)/tested
	$(BIN)/python -m benchmarks.report $(SMALL)

# The pages in Chromium alone; `make test` does it too.
browser: $(VENV)/tested
	$(BIN)/python -m pytest tests/reports/page/test_browser.py

# The pictures of the README, of the demo's page.
screenshots: demo
	$(BIN)/python -m tests.tools.screenshots demo/store demo/report.html

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

# All that `installed` holds, and more: not that first, or a fresh clone would install twice. Most
# of its modules are never imported, so what is imported is compiled then.
$(VENV)/tested: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]'
	touch $(VENV)/installed $@

$(VENV)/fuzzed: $(VENV)/tested
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	touch $@

$(VENV)/mutated: $(VENV)/tested
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[mutants]'
	touch $@

$(VENV)/benched: $(VENV)/tested
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]' \
		&& touch $@ || echo "What needs .[bench] is skipped."

clean:
	rm -rf $(VENV) demo dist
