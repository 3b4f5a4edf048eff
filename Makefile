# Two commands on a fresh machine: `make demo` and `make test`. Needs only Python >= 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One stamp per install: the targets below do no work while it is newer than what it was made from.
READY  := $(VENV)/.ready

.PHONY: demo test test-ray test-nnunet test-serve asan attack lint bench clean

demo: $(READY)
	$(BIN)/veloxseg demo -o demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Ray brings 150 MB and its tests take two minutes, so they have an environment of their own
test-ray: $(VENV)-ray/.ready
	$(VENV)-ray/bin/python -m pytest tests/predict/test_cluster.py

# nnU-Net brings 500 MB, so what is compared with it has an environment of its own
test-nnunet: $(VENV)-nnunet/.ready
	$(VENV)-nnunet/bin/python -m pytest tests/nnunet

# The server, with a real browser, a real PACS and dcmtk where they are installed (docs/serve.md says how)
test-serve: $(VENV)-serve/.ready
	$(VENV)-serve/bin/python -m pytest tests/serve

# 500 random networks, honest and lying, in kernels that were compiled with AddressSanitizer and UBSan
asan: $(READY)
	$(BIN)/python tests/support/asan.py --prove
	$(BIN)/python tests/support/asan.py --networks 500

# 10,000 lies, 50 kills of training and 50 of prediction, 100 bit flips: ten minutes to an hour, and the table of docs/robustness.md
attack: $(READY)
	PYTHONPATH=tests $(BIN)/python -m attacks.run --seed 0 --count 10000 --page docs/robustness.md

lint: $(READY)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/run.py

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/veloxseg/runtimes/native/*.[ch])
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)-ray/.ready: $(READY)
	test -x $(VENV)-ray/bin/python || $(BIN)/python -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	touch $@

$(VENV)-nnunet/.ready: $(READY)
	test -x $(VENV)-nnunet/bin/python || $(BIN)/python -m venv $(VENV)-nnunet
	$(VENV)-nnunet/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,nnunet]'
	touch $@

$(VENV)-serve/.ready: $(READY)
	test -x $(VENV)-serve/bin/python || $(BIN)/python -m venv $(VENV)-serve
	$(VENV)-serve/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,serve]' playwright
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-ray $(VENV)-nnunet $(VENV)-serve demo build dist
