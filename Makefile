# Everything that is made here, `make clean` takes away. The tangler alone needs no set-up: python3 tangle.py
PYTHON   ?= python3
PIP_ARGS ?=
ARGS     ?=

VENV  := .venv
PY    := $(VENV)/bin/python
READY := $(VENV)/ready

# One thread for BLAS: tests of small arrays run faster, and results do not depend on the machine.
test long bench: export OPENBLAS_NUM_THREADS = 1
site pdf serve: export NO_MKDOCS_2_WARNING = 1
serve: export PYTHONDONTWRITEBYTECODE = 1

.DEFAULT_GOAL := help
.PHONY: help site pdf serve test long browser picture tangler bench format check clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16
	@echo '  PYTHON=python3.12 chooses another Python, PIP_ARGS=... is given to pip, ARGS=... to the command.'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ": say make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[test,book,dev]'
	@touch $@

site: $(READY) ## tangle the book and weave it into site/
	$(PY) tangle.py
	$(PY) -m mkdocs build --clean --strict $(ARGS)
	@echo 'open site/index.html'

pdf: $(READY) ## print the whole book to build/tinyllm.pdf (needs chromium)
	$(PY) tangle.py
	$(PY) -m weave.serve.printed $(ARGS)

serve: $(READY) ## the site on http://127.0.0.1:8000; tangles and weaves, now and when a chapter changes; shows what is wrong on the pages
	$(PY) -m mkdocs serve --no-strict $(ARGS)

test: $(READY) ## tangle the book and run the tests (ARGS=tests/L5.3 for one chapter's)
	$(PY) tangle.py
	$(PY) -m pytest $(ARGS)

long: $(READY) ## the tests that take a minute or more: all mutants, a grade from start to end, a trained model, what README says
	$(PY) tangle.py
	$(PY) -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[models]'
	$(PY) -m pytest -m long $(ARGS)

browser: node_modules/axe-core ## what the tests in a browser need besides Debian's chromium and chromium-driver
node_modules/axe-core: package.json
	npm install --no-package-lock --no-audit --no-fund --ignore-scripts
	@touch $@

picture: site ## the pictures of README, from the site as it is now
	$(PY) -m weave.serve.screenshot site

tangler: ## the tangler as one file that runs anywhere with Python 3.11: build/tangle.pyz
	@rm -rf build/tangler && mkdir -p build/tangler/literate && cp literate/*.py build/tangler/literate/
	$(PYTHON) -m zipapp build/tangler -o build/tangle.pyz -m literate.command:run -p '/usr/bin/env python3'

bench: $(READY) ## measure, and print the tables that the chapters quote
	$(PY) tangle.py
	$(PY) -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[mutants]'
	@set -e; for script in tests/bench/bench_*.py; do echo "$$script"; $(PY) "$$script" $(ARGS); done

format: $(READY) ## format the tangled code and carry the result back into the chapters
	$(PY) tangle.py
	$(PY) -m ruff check --quiet --select I --fix .
	$(PY) -m ruff format --quiet .
	$(PY) tangle.py stitch

check: $(READY) ## what is tangled is up to date, linted, formatted and typed
	$(PY) tangle.py --check
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

clean: ## remove what was made: .venv, site, build, node_modules, caches (tangled files stay)
	rm -rf $(VENV) site build dist node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .tangle-tmp
	find . -name __pycache__ -prune -exec rm -rf {} +
