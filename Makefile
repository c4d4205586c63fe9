# make demo       record a real program, replay it under several systems, print the comparison
# make test       all tests that take no more than minutes (sets up what they need)
# make test-linux the quick tests of the real kernel, unless nothing of it changed since they passed; builds it first
# make test-full  the slow ones too, with ten times the random cases
# make bench      how fast recording, replay and imports are on this machine, beside a naive simulator, the machine itself,
#                 Valgrind and cachegrind; how much sampled replay saves, and how far it is off
# make docs       the documentation as a site, in target/docs/site
# make wheel      a wheel for glibc 2.17 and newer, those of the packages, and source distributions, in dist
# make image      an OCI image of pagelab, made of Debian's packages and of WHEEL=FILE or the newest wheel in dist
# make man        the manual page that wheels install, made anew of the command line
# make reproductions  all published results measured again, in full: about two hours of CPU time; writes docs/reproductions and docs/claims.md
# make mutants    change single lines for the worse and see which test notices: an hour, and CI does not run it
# make mutants-sample  the same with fresh changes, drawn by SEED: 60 in Rust, 30 in Python, 10 in C, for hours; it can be interrupted
# make soak       random tests with fresh seeds for SOAK_S seconds (3600 by default), with a log in target/soak.jsonl
# make lint       formatting, clippy, rustdoc, rules for crates, spelling, words to avoid, widths and lengths, commit subjects, ruff, mypy
# make deny       licences, bans and sources of the crates alone (part of lint)
# make release    all of a release but publishing it: checks, tests, distributions, a local tag; DRY_RUN=1 checks only
# make clean      remove everything built here

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHON

PACKAGES := packages/studies packages/linux
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates presets -name '*.rs' -o -name '*.toml')

.PHONY: demo setup test test-linux test-full bench docs wheel image man reproductions mutants mutants-sample soak lint deny release clean
.DELETE_ON_ERROR:

setup: $(VENV)/.engine $(VENV)/.commands

demo: setup
	$(BIN)/pagelab demo

test: setup
	cargo test --workspace
	$(BIN)/python tests/instructions/instructions.py --if-comparable
	$(BIN)/pytest -m "not slow" -n logical --dist loadfile

test-linux: setup
	$(BIN)/pagelab linux test --quick --changed $$([ "$$(id -u)" != 0 ] || echo --install)

test-full: setup
	PAGELAB_CASES_FACTOR=10 cargo test --workspace -- --include-ignored
	@echo 'Building a real kernel, which takes minutes the first time; as root, with the packages that it needs.'
	if [ "$$(id -u)" = 0 ]; then $(BIN)/pagelab linux build --install; fi
	$(BIN)/pytest

bench: setup
	$(BIN)/python benches/throughput.py
	$(BIN)/python benches/systems.py
	$(BIN)/python benches/designs.py
	$(BIN)/python benches/memory.py
	$(BIN)/python benches/recordings.py
	$(BIN)/python benches/foreign_traces.py
	$(BIN)/python benches/sampling.py --seeds 0

docs: setup
	$(BIN)/python site/build.py

# Zig brings an older glibc to link with, so that the wheel runs where this machine's is not.
wheel: man
	$(BIN)/python -m pip install --quiet --constraint constraints.txt ziglang
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --release --zig --compatibility manylinux2014 --out dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin sdist --out dist
	for package in $(PACKAGES); do (cd "$$package" && "$(CURDIR)/$(BIN)/python" -c 'import sys; from flit_core import buildapi; \
		buildapi.build_wheel(sys.argv[1]), buildapi.build_sdist(sys.argv[1])' "$(CURDIR)/dist") || exit; done

image: $(VENV)/.packages
	PYTHON=$(BIN)/python packaging/oci/build $(WHEEL)

man: setup
	$(BIN)/python site/commands.py --write

reproductions: setup
	$(BIN)/python benches/reproductions.py

mutants:
	$(PYTHON) tests/mutants/run.py

mutants-sample: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt mutmut
	$(BIN)/python tests/mutants/sample.py $${SEED:-1}

soak: setup
	$(BIN)/python tests/soak/soak.py --seconds $${SOAK_S:-3600}

lint: $(VENV)/.packages
	git ls-files '*.rs' | xargs rustfmt --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --workspace
	setup/check-crates
	git ls-files | grep -vE '\.(lock|png|svg|gz|1)$$' | xargs $(BIN)/codespell
	! git grep -nE '^(<<<<<<<|>>>>>>>) ' # what a merge leaves
	setup/check-commits
	setup/check-prose
	$(BIN)/ruff check python packages setup tests benches examples site setup/check-prose
	$(BIN)/ruff format --check python packages setup tests benches examples site setup/check-prose
	$(BIN)/mypy
	$(BIN)/mypy --scripts-are-modules setup/check-prose

deny: $(VENV)/.packages
	setup/check-crates

release: $(VENV)/.packages
	$(BIN)/python setup/release.py $(if $(DRY_RUN),--dry-run)

clean:
	rm -rf $(VENV) target dist demo python/pagelab/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The Python environment. Its packages are pinned by constraints.txt.
$(VENV)/.packages: pyproject.toml constraints.txt setup/require
	setup/require
	@echo 'Setting up Python in $(VENV): packages are fetched and installed, which takes a minute or two.'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		altair distributed fsspec jinja2 maturin matplotlib numpy obstore pandas polars pyelftools rich scikit-learn tomli-w typer \
		vl-convert-python codespell docutils flit_core hypothesis mypy myst-docutils pandas-stubs pytest \
		pytest-xdist ruff types-docutils zensical
	touch $@

# The engine, installed in place: changes of Python files need no build.
$(VENV)/.engine: $(VENV)/.packages $(RUST_SOURCES)
	@echo 'Building the engine in Rust: about 350 s of CPU time the first time, three minutes on two free cores.'
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# The packages of this repository that bring commands of their own, installed in place.
$(VENV)/.commands: $(VENV)/.packages $(PACKAGES:=/pyproject.toml)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation $(PACKAGES:%=--editable %)
	$(BIN)/python -m compileall -q python $(PACKAGES) # pip does this for packages that are not editable
	touch $@
