# Everything from a fresh clone needs Python (3.10 or newer) and make, and sets itself up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTENSION := extensions/lab/labextension/install.json
WIDGETS := marlnb/widgets/bundles/curves.js
VIEWS := $(shell find extensions/views/src extensions/views/style extensions/views/*.* -type f -not -name '*.tsbuildinfo' 2>/dev/null)
FRONT_END := $(shell find extensions -type f -not -path '*/node_modules/*' -not -path '*/lib/*' -not -path '*/labextension/*' -not -name '*.tsbuildinfo' 2>/dev/null)
PEERS := .peers/benchmarl
RAY := .peers/ray
RAY_VERSION := ray[default]==2.60.0
BENCHMARKS := $(sort $(filter-out __init__ contest peers table,$(basename $(notdir $(wildcard benchmarks/*.py)))))

# uv reads its own variable for the folder of wheels that pip already knows
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif

# many containers set it; then every process compiles all its imports again, which takes seconds for torch
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup widgets node-setup demo test exhaustive-test meltingpot-test triton-test gpu-test ray-test notebook-test browser-setup browser-test extension extension-test extension-leak docs docs-setup cluster-test cluster-up cluster-down lab check format bench bench-peers-setup crash-test fuzz fuzz-envs long-life tune verify verify-defaults verify-equal-time verify-evolution verify-leagues verify-together groundtruth gallery-check wheel clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf 'make %-20s %s\n' $(foreach name,$(BENCHMARKS),bench-$(name) 'benchmarks/$(name).py alone')

setup: $(READY) ## make .venv and install marlnb in it, with everything for development; build the widgets' charts
	@$(MAKE) --no-print-directory widgets || echo "the widgets were not built: live curves in notebooks say so"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "marlnb needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 setup"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv || echo "uv is not available: pip installs instead, more slowly"
	@if test -x $(BIN)/uv; then $(BIN)/uv pip install --python $(BIN)/python --editable '.[dev]'; \
	  else $(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'; fi
	@touch $@

demo: $(READY) ## train, record and explain: runs/quickstart holds the executed notebook, its HTML and the run
	$(BIN)/python -m marlnb.batch.job.execute notebooks/quickstart.ipynb --out runs/quickstart

# three files at once on two cores: a test often waits for another process
AT_ONCE = $(shell $(BIN)/python -c 'from marlnb.allocations import usable_cores as n; print(min(4, n() + (n() + 1) // 2))')

test: $(READY) ## run the tests, several files at once, then the notebooks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --ignore tests/notebooks --numprocesses $(AT_ONCE) --dist loadfile
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/notebooks --numprocesses $(AT_ONCE) --dist loadfile

exhaustive-test: $(READY) ## all cases of the grids that `make test` samples, and what it leaves out because it is long; 4 min
	MARLNB_EXHAUSTIVE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(shell grep -rl 'tests.sampling import' tests) --numprocesses auto

notebook-test: $(READY) ## run every notebook with tiny parameters; 2 min
	MARLNB_NOTEBOOK_TESTS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/notebooks/test_tiny_parameters.py --numprocesses 2

cluster-test: $(READY) ## test on a real SLURM, without internet, with kills (root on Debian); 30 min; ARGS="-k kills"
	MARLNB_CLUSTER_TESTS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster --verbose $(ARGS)

cluster-up: $(READY) ## start a SLURM to try things on (root on Debian); ARGS=--accounting
	$(BIN)/python -m tests.cluster up $(ARGS)

cluster-down: $(READY) ## stop that SLURM, and remove its files
	$(BIN)/python -m tests.cluster down $(ARGS)

triton-test: $(READY) ## test Tag's kernel on a GPU, or else in Triton's interpreter (300 MB, in .peers/triton)
	@test -d .peers/triton || $(BIN)/python -m pip install --quiet --no-deps --target .peers/triton 'triton>=3.4,<4'
	PYTHONPATH=.peers/triton $(BIN)/python -m pytest tests/envs/tag/test_neighbours.py

gpu-test: $(READY) ## test envs, iterations and training runs on a GPU of this machine; 2 min
	MARLNB_GPU_TESTS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/gpu --numprocesses 4 $(ARGS)

ray-test: $(READY) ## test batches on a real Ray cluster, started here with two cores; Ray is in .peers/ray (300 MB, and 2 GB of memory)
	@test -x $(RAY)/bin/ray || { $(BIN)/python -m venv $(RAY) && if test -x $(BIN)/uv; \
	  then $(BIN)/uv pip install --quiet --python $(RAY)/bin/python '$(RAY_VERSION)'; \
	  else $(RAY)/bin/python -m pip install --quiet --disable-pip-version-check '$(RAY_VERSION)'; fi; }
	MARLNB_RAY=$(abspath $(RAY))/bin/ray OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/ray --verbose $(ARGS)

meltingpot-test: $(READY) ## test MeltingPot's substrates, in .peers/meltingpot (2 GB); ARGS="tests/envs/meltingpot -k contract"
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.envs.meltingpot $(ARGS)

browser-test: browser-setup widgets ## drive the widgets in a real JupyterLab and Chromium (Debian's; if missing, root installs it)
	MARLNB_BROWSER_TESTS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/browser $(ARGS)

browser-setup: $(READY)
	@test -x "$${CHROMIUM:-/usr/bin/chromium}" || { echo "installing Debian's chromium"; \
	  apt-get update -qq && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; }
	@$(BIN)/python -c 'import notebook, playwright' 2>/dev/null || { \
	  if test -x $(BIN)/uv; then $(BIN)/uv pip install --python $(BIN)/python --editable '.[browser]'; \
	  else $(BIN)/python -m pip install --disable-pip-version-check --editable '.[browser]'; fi; }

docs: docs-setup ## build the documentation with an API reference and search: site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo 'open it with: $(BIN)/python -m http.server --directory site'

docs-setup: $(READY)
	@$(BIN)/python -c 'import material, mkdocs, mkdocstrings_handlers.python' 2>/dev/null || { \
	  if test -x $(BIN)/uv; then $(BIN)/uv pip install --python $(BIN)/python --editable '.[docs]'; \
	  else $(BIN)/python -m pip install --disable-pip-version-check --editable '.[docs]'; fi; }

extension: $(EXTENSION) ## build the JupyterLab extension, extensions/lab, with Node.js from PyPI if there is none; 2 min

node-setup: $(READY)
	@PATH="$(abspath $(BIN)):$$PATH"; command -v npm >/dev/null || { \
	  if test -x $(BIN)/uv; then $(BIN)/uv pip install --python $(BIN)/python --editable '.[extension]'; \
	  else $(BIN)/python -m pip install --disable-pip-version-check --editable '.[extension]'; fi; }

widgets: $(WIDGETS) ## build the charts of the notebook's widgets, with Node.js from PyPI if there is none; seconds

$(WIDGETS): $(VIEWS) | node-setup
	cd extensions && export PATH="$(abspath $(BIN)):$$PATH" && \
	  { test -d node_modules/uplot -a -d node_modules/esbuild || npm ci --workspace views --loglevel=error; } && npm run widgets --silent

$(EXTENSION): $(FRONT_END) | node-setup
	cd extensions && export PATH="$(abspath $(BIN)):$$PATH" && npm ci --no-audit --no-fund --loglevel=error && npm run check && npm test && npm run build
	@mkdir -p $(VENV)/share/jupyter/labextensions && ln -sfn $(abspath extensions/lab/labextension) $(VENV)/share/jupyter/labextensions/marlnb

extension-test: extension browser-setup ## install the wheel without Node.js, and drive the extension in a real JupyterLab and Chromium
	MARLNB_EXTENSION_TESTS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/extension $(ARGS)

extension-leak: extension browser-setup ## use the extension for an hour and see that its page and kernel do not grow; MARLNB_LEAK_MINUTES=5 for less
	MARLNB_EXTENSION_TESTS=1 MARLNB_LEAK_MINUTES=$${MARLNB_LEAK_MINUTES:-60} OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/extension/test_leak.py -s $(ARGS)

lab: $(READY) ## open JupyterLab on the start page; in a container ARGS="--ip 0.0.0.0"
	@$(MAKE) --no-print-directory extension || echo "the extension was not built: JupyterLab opens without its panels"
	$(BIN)/python -m marlnb lab $(ARGS)

check: $(READY) ## lint, format, types, layers, vocabulary and the architecture picture
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/vocabulary.py
	$(BIN)/python docs/images/architecture.py --check

format: $(READY) ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## run every benchmark, one after the other
	@for name in $(BENCHMARKS); do $(MAKE) --no-print-directory bench-$$name || exit 1; done

bench-training bench-off_policy bench-capture bench-jaxmarl: bench-peers-setup

bench-widgets bench-microscope: browser-setup widgets

bench-%: $(READY)
	$(BIN)/python -m benchmarks.$* $(ARGS)

bench-peers-setup: $(READY) ## make the environments of BenchMARL, AgileRL and others, in .peers
	$(BIN)/python -m benchmarks.peers

tune: $(READY) ## search for tuned settings; hours, resumes if stopped; ARGS="simple_spread mappo --minutes 30"
	$(BIN)/python -m benchmarks.tune $(ARGS)

crash-test: $(READY) ## kill the process, or fail the write, at calls that write, some of each kind: 5,000 attempts, about an hour; ARGS="--log build/crash.jsonl" resumes, ARGS="--every 1" tries all
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults $(ARGS)

fuzz: $(READY) ## fuzz overrides, YAML, run folders, checkpoints, messages and recordings; ARGS="--times 10 --log build/fuzz.jsonl" tries 100,000 and resumes
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz $(ARGS)

fuzz-envs: $(READY) ## compare random environments with a simple loop over one env; 10 min; ARGS="-k turns"
	OMP_NUM_THREADS=1 MARLNB_EXAMPLES=1000 $(BIN)/python -m pytest -q tests/envs/test_random_envs.py $(ARGS)

long-life: $(READY) ## run 200 cycles of train, record, explain and plot, and 200 interrupts, in one kernel; ARGS="--cycles 20"
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.long_life $(ARGS)

verify: $(READY) ## train the checks that have known scores, then all other verifications; hours; ARGS="spread" trains some checks only
	$(BIN)/python -m benchmarks.verify $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.verify.exploitability)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.verify.evolution)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.verify.default_settings)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.verify.score_tables)

verify-leagues: $(READY) ## compare leagues, PSRO, fictitious play and self-play by exact exploitability, with plots; ARGS="--scale 0.15"
	$(BIN)/python -m benchmarks.verify.exploitability $(ARGS)

verify-evolution: $(READY) ## compare tournaments, PBT and MF-PBT with their controls at equal steps; ARGS="--seeds 2"
	$(BIN)/python -m benchmarks.verify.evolution $(ARGS)

verify-together: $(READY) ## compare the final scores of eight seeds trained together and alone; ARGS="--frames 20000"
	$(BIN)/python -m benchmarks.verify.together $(ARGS)

verify-defaults: $(READY) ## a table of score and time of `env=E algorithm=A` without other options; hours; ARGS="spread ippo, connect_four --seconds 60"
	$(BIN)/python -m benchmarks.verify.default_settings $(ARGS)

verify-equal-time: $(READY) ## compare that with BenchMARL's defaults and JaxMARL's published settings after 60 CPU-seconds; ARGS="--tasks multiwalker"
	$(BIN)/python -m benchmarks.verify.at_equal_time $(ARGS)

groundtruth: $(READY) ## score marlnb's analyses on all planted circuits; ARGS="--seeds 1"
	$(BIN)/python -m marlnb.groundtruth $(ARGS)

gallery-check: $(READY) ## make every entry of the gallery again, and compare its numbers; 1 h; ARGS=speaker_listener
	$(BIN)/python -m marlnb gallery check $(ARGS)

wheel: extension ## build dist/marlnb-*.whl, with the JupyterLab extension
	MARLNB_EXTENSION=required $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean: ## remove .venv, .peers and build outputs, but no runs
	rm -rf $(VENV) .peers dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
