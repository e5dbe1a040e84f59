# Everything a developer does starts here; `make help` lists it.
#
# The first target that needs it makes a virtual environment in .venv. The stamp in it carries the checksum of
# pyproject.toml, so set-up runs again only when the dependencies changed, and nothing needs the network after that.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
DEPENDENCIES := $(shell cksum < pyproject.toml | cut -d ' ' -f 1)

VENV_STAMP := $(VENV)/.python-$(PYTHON_VERSION)
STAMP := $(VENV)/.ready-$(PYTHON_VERSION)-$(DEPENDENCIES)

# Python keeps what it compiled of the sources: else each of a thousand processes of the tests would do it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: demo test test-all test-pythons check fast slow every release campaign conformance bench field pictures bank structures choose kernels kernels-check gpu-check gpu-field serving-check setup format support clean help

demo: $(STAMP) ## Run the main job: a script, then ResNet-50 built cold, again, and with one layer changed
	@$(BIN)/python examples/demo.py

test: check fast ## Run all checks and the tests that a change waits for

test-all: check every ## Run the tests that are left out above, too; this is what CI runs

check: $(STAMP) ## Check style, formatting, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# One process a core; the tests of one file, which share what they built, stay in one of them, and files are begun in the
# order of tests/conftest.py. What failed is tried once more, alone (docs/design/tests.md). A test that takes longer than
# 900 seconds hangs. Status 6: slow tests were left out, as fast ones had failed. A recipe that names make itself would be
# run by "make -n", too.
PYTEST = $(BIN)/python -m pytest --timeout 900 -m "$(CHOSEN)" $(TESTS) $(ARGS) --numprocesses
AGAIN = echo "What failed is tried once more, alone:" && $(PYTEST) 0 --last-failed --last-failed-no-failures none --maxfail 10
REST = $(MAKE) slow
fast slow every: $(STAMP)
	@$(PYTEST) auto --dist loadfile --no-loadscope-reorder; \
	  case $$? in 0) ;; 1) $(AGAIN) ;; 6) $(AGAIN) && $(REST) ;; *) exit 1 ;; esac
fast: CHOSEN = not slow
fast: ## Run the tests of `make test`; TESTS=tests/unit/cli or ARGS=-x narrow them
slow: CHOSEN = slow
slow: ## Run the tests that are marked slow, which `make test` leaves out
every: ## Run both, the slow ones last and only if the others passed

test-pythons: ## Try every Python that opbuild is for and that is found here: the README, and a file of each folder of tests; ONLY=3.12 some
	$(PYTHON) tools/pythons.py $(ONLY)

release: ## Build the source package and a wheel for each machine into dist/, check them, and run the README from the wheel alone; CHECK=slim where there are no compilers, too
	PYTHON=$(PYTHON) CHECK=$(CHECK) tools/release.sh

# Seeds begin at OPBUILD_FUZZ_SEED; hours for thousands: TESTS=tests/generated/test_random_networks.py narrows it.
COUNT ?= 1000
campaign: TESTS = tests/generated tests/property tests/conformance tests/system/test_surroundings.py tests/system/test_killed_resnet50.py \
  tests/system/test_any_size.py tests/system/test_light_networks.py tests/system/test_stop_points.py \
  tests/system/test_killed_network.py tests/system/test_races.py tests/system/test_interrupts.py \
  tests/system/test_offline_models.py tests/system/test_cache_modes.py tests/kernels \
  tests/system/test_same_keys_everywhere.py tests/system/test_many_networks.py tests/system/test_interpreter_exit.py \
  tests/unit/frontend/test_onnx_networks.py tests/unit/frontend/test_example_models.py
campaign: $(STAMP) ## Try COUNT=1000 random networks, mutated models, damages, surroundings, expressions; print a table of what was wrong
	OPBUILD_FUZZ=$(COUNT) $(BIN)/python -m pytest -s $(TESTS) $(ARGS)

conformance: $(STAMP) ## Run all of ONNX's own cases and write the page and the golden file that tell what became of them
	$(BIN)/python tests/conformance/run.py --update

bench: $(STAMP) ## Measure against ONNX Runtime and put the numbers into the documents
	$(BIN)/python benchmarks/build_time.py --json benchmarks/results/build_time.json
	$(BIN)/python benchmarks/sharing.py --json benchmarks/results/sharing.json
	$(BIN)/python benchmarks/latency.py --json benchmarks/results/latency.json
	$(BIN)/python benchmarks/readme_tables.py

RESULTS ?= benchmarks/results/field
field: $(STAMP) ## Measure 28 networks beside other runtimes (hours), NETWORKS="'ViT-B' 'MiniLM 8'" some; goes on where it was ended
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/field.py $(NETWORKS) --results $(RESULTS)
	$(BIN)/python benchmarks/field_picture.py $(RESULTS) $(RESULTS)/field.svg

pictures: $(STAMP) ## Take the pictures of the report's page anew, on this (quiet) machine; needs chromium
	PYTHONPATH=.:tests:benchmarks $(BIN)/python tools/report_pictures.py

MINUTES ?= 15
bank: $(STAMP) ## Tune the benchmark's networks on this (quiet) machine, MINUTES=15 a level, into the banks that the package brings; LEVELS=x86-64-v3 some
	$(BIN)/python benchmarks/shipped_bank.py --minutes $(MINUTES) $(if $(LEVELS),--levels $(LEVELS))

# In an environment of its own: torchvision wants another torch than the tests have.
structures: ## Export structures of transformers, timm, torchvision and diffusers (hours, 60 GB); DRAW=--held-out half of them; goes on where it was ended
	test -x build/structures/bin/python || $(PYTHON) -m venv build/structures
	build/structures/bin/python -m pip install --quiet --disable-pip-version-check \
	  torch torchvision transformers timm diffusers onnx onnxscript onnxruntime scipy
	HF_HUB_OFFLINE=1 build/structures/bin/python -W ignore -m benchmarks.structures.draw benchmarks/results/structures $(DRAW)

choose: $(STAMP) ## List the kernels that several of the exported architectures need (kernels/chosen), for make kernels
	$(BIN)/python -m kernels.choose benchmarks/results/structures

kernels: $(STAMP) ## Build the kernels that the package brings (src/opbuild/store/packs), again where a family or kernels/ was edited
	$(BIN)/python -m kernels.make

kernels-check: $(STAMP) ## Build all of them anew, and fail unless the package's have the very same bytes
	$(BIN)/python -m kernels.make --check

gpu-check: ## Compile the GPU kernels of benchmarks/gpu again and interpret them; installs Triton (750 MB) into build/gpu
	test -x build/gpu/bin/python || $(PYTHON) -m venv build/gpu
	build/gpu/bin/python -m pip install --quiet triton==3.6.0 'numpy<2.4'
	build/gpu/bin/python benchmarks/gpu/build.py --check
	build/gpu/bin/python benchmarks/gpu/interpreter.py

gpu-field: $(STAMP) ## Prepare whole networks for benchmarks/gpu/run.sh on a machine with a GPU: build/gpu-field
	$(BIN)/python benchmarks/gpu/prepare.py

serving-check: $(STAMP) ## Run the load test against Triton and BentoML; installs them (560 MB) into build/serving
	test -x build/serving/triton/bin/python || $(PYTHON) -m venv build/serving/triton
	build/serving/triton/bin/python -m pip install --quiet --disable-pip-version-check nvidia-pytriton blake3
	build/serving/triton/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	test -x build/serving/bentoml/bin/python || $(PYTHON) -m venv build/serving/bentoml
	build/serving/bentoml/bin/python -m pip install --quiet --disable-pip-version-check bentoml blake3
	build/serving/bentoml/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(BIN)/python -m pytest tests/system/test_deployments.py -k 'serves_batches'

setup: $(STAMP) ## Make .venv with everything in it; PYTHON=python3.12 chooses the interpreter

format: $(STAMP) ## Format the sources and mend what can be mended by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Freestanding: no functions of headers and nothing of the compiler's own libraries, so that the objects link wherever
# networks do, and the pool's library finds what it needs in any C library.
SUPPORT := tasks memory call indices
LIBRARIES := pool arrange
SUPPORT_FLAGS = -std=c11 -Wall -Wextra -Werror -O2 -fPIC -ffreestanding -fno-stack-protector \
  -fno-asynchronous-unwind-tables -DSOURCE_DIGEST='"$(shell cat $(1) $(2) | sha256sum | cut -d ' ' -f 1)"'
LIBRARY_FLAGS := -shared -nostdlib -Wl,-Bsymbolic,-z,now,-z,noexecstack,--build-id=none,-s
FOR_X86 := x86_64-linux-gnu-gcc -maccumulate-outgoing-args
FOR_ARM := aarch64-linux-gnu-gcc -mno-outline-atomics
NATIVE := src/opbuild/native

support: $(SUPPORT:%=support-%) $(LIBRARIES:%=support-library-%) ## Compile what networks are linked with, the pool of threads and what packs weights, again after a change; needs gcc for x86-64 and Arm

support-library-%: FLAGS = $(call SUPPORT_FLAGS,$<,$(<:.c=.h)) $(LIBRARY_FLAGS)
support-library-%: $(NATIVE)/opbuild_%.c
	$(FOR_X86) $(FLAGS) $< -o $(NATIVE)/support/$*_x86_64.so
	$(FOR_ARM) $(FLAGS) $< -o $(NATIVE)/support/$*_aarch64.so

support-%: HEADER = $(NATIVE)/support/page.h
support-indices: HEADER = $(NATIVE)/opbuild_argument.h
support-%: FLAGS = $(call SUPPORT_FLAGS,$<,$(HEADER)) -c
support-%: $(NATIVE)/support/%.c
	$(FOR_X86) $(FLAGS) $< -o $(<:.c=_x86_64.o)
	$(FOR_ARM) $(FLAGS) $< -o $(<:.c=_aarch64.o)

clean: ## Remove .venv and what the tools left behind
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

$(VENV_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' || \
	  { echo "$(PYTHON) is not Python 3.10 to 3.14: name one that is, e.g. make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) can not make virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(STAMP): $(VENV_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@rm -f $(VENV)/.ready-*
	@touch $@
