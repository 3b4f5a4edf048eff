# Two commands on a fresh machine: `make demo` and `make test`. Needs only Python >= 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One stamp per install: the targets below do no work while it is newer than what it was made from.
READY  := $(VENV)/.ready

.PHONY: demo test test-ray lint bench clean

demo: $(READY)
	$(BIN)/veloxseg demo -o demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Ray brings 150 MB and its tests take two minutes, so they have an environment of their own
test-ray: $(VENV)-ray/.ready
	$(VENV)-ray/bin/python -m pytest tests/infer/test_ray.py

lint: $(READY)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/run.py

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/veloxseg/infer/native/*.[ch])
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)-ray/.ready: $(READY)
	test -x $(VENV)-ray/bin/python || $(BIN)/python -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-ray demo build dist
