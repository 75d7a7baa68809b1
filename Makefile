# Two commands do all set-up: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Engines apart: over $(VENV), which has torch and weightcast.
VENV_VLLM := .venv-vllm
# The oldest vLLM whose interface is served: over $(VENV_VLLM), but for what has to be older.
VENV_EARLY := .venv-vllm-early
VENV_SGLANG := .venv-sglang
VENV_TRAINERS := .venv-trainers
# Libraries of trainers apart, over $(VENV) too.
VENV_JOBS := .venv-jobs
VENV_RAY := .venv-ray
# Libraries that weightcast is compared with apart; UCX's, whose CUDA packages are others than torch's, once more.
VENV_PEERS := .venv-peers
VENV_UCX := .venv-peers-ucx
# Test processes share the machine with each other: one thread each.
export OMP_NUM_THREADS ?= 1

RUST   := $(shell git ls-files '*.rs' '*.toml' '*.proto' 2>/dev/null) Cargo.lock
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := frame handshake client_message server_message inspect_reply fleet push_word manifest layout_file plan stored_plan recording server session
# Every crate, but for the binding: cargo cannot link its tests without Python.
CRATES := --workspace --exclude weightcast-py

.PHONY: help demo rl test test-pages test-rust test-python test-vllm test-vllm-live test-vllm-early test-sglang test-sglang-live test-trainers trainers test-jobs test-ray test-ray-core ray ray-loss test-metrics test-gpu families sim pin fingerprints scenarios model verify audit fix bench bench-rl bench-peers nemesis recorded attacks full soak mutate sweep sweep-python wheel docs clean fuzz loom asan miri large

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

demo: $(VENV)/weightcast ## Watch a reinforcement-learning loop, the same without sync, and a picture of both
	mkdir -p target
	$(BIN)/python -m weightcast.examples.rl_loop --control --json target/demo.json

rl: $(VENV)/weightcast ## Have each algorithm, model and trainer of the compared loop learn, some ten minutes
	$(BIN)/python -m pytest python/tests/test_rl_compared.py python/tests/test_rl_learning.py \
	  python/tests/test_rl_loop.py -m full

test: test-pages test-rust test-python ## Run every test

test-pages: # Does everything exist that the pages name? Has the one path no gap? Do the tools notice?
	.ci/pages
	.ci/pages-test
	.ci/path --chain
	.ci/path-test

test-rust:
	cargo test --locked $(CRATES) --quiet

test-python: $(VENV)/weightcast
	$(BIN)/python -m pytest

test-vllm: $(VENV_VLLM)/tools $(VENV)/weightcast ## Test the vLLM adapter on real vLLM model classes
	$(VENV_VLLM)/bin/python -m pytest python/tests_vllm

test-vllm-live: $(VENV_VLLM)/tools $(VENV)/weightcast ## Torment live vLLM engines in each state of an update, an hour
	$(VENV_VLLM)/bin/python -m pytest python/tests_vllm/live python/tests_vllm/test_rl_rollouts.py -m full

test-vllm-early: $(VENV_EARLY)/tools $(VENV)/weightcast ## Update engines of vLLM 0.22, whose interface is another, some minutes
	$(VENV_EARLY)/bin/python -m pytest -m full python/tests_vllm/live/test_forms.py \
	  python/tests_vllm/live/test_modes.py::test_an_offline_engine_follows_its_trainer

families: $(VENV_VLLM)/tools $(VENV)/weightcast ## Hold the layout of every vLLM family against its class, some minutes
	PYTHONPATH=python $(VENV_VLLM)/bin/python -m tests_vllm.sweep

test-sglang: $(VENV_SGLANG)/tools $(VENV)/weightcast ## Test the SGLang adapter on real SGLang model classes
	$(VENV_SGLANG)/bin/python -m pytest python/tests_sglang

test-sglang-live: $(VENV_SGLANG)/tools $(VENV)/weightcast ## Torment SGLang engines in each state of an update, ten minutes
	$(VENV_SGLANG)/bin/python -m pytest python/tests_sglang/live -m full

test-trainers: $(VENV_TRAINERS)/tools $(VENV)/weightcast ## Publish from Megatron-core and DeepSpeed on several ranks
	$(VENV_TRAINERS)/bin/python -m pytest python/tests_trainers

trainers: $(VENV_TRAINERS)/tools $(VENV)/weightcast ## The same in every layout of theirs, some minutes
	$(VENV_TRAINERS)/bin/python -m pytest python/tests_trainers -m full

test-jobs: $(VENV_JOBS)/tools $(VENV)/weightcast ## Test loops and arrays of real libraries for trainers
	$(VENV_JOBS)/bin/python -m pytest python/tests_jobs

test-ray: $(VENV_RAY)/tools $(VENV)/weightcast ## Run jobs on Ray, and verl's own workers, on this machine
	$(VENV_RAY)/bin/python -m pytest python/tests_ray

# A trainer, rollouts, a kill: what `.ci/run` has time for.
test-ray-core: $(VENV_RAY)/tools $(VENV)/weightcast
	$(VENV_RAY)/bin/python -m pytest python/tests_ray -k "trainers_publish_and_rollouts_update or is_lost_stops_no_other"

ray: $(VENV_RAY)/tools $(VENV)/weightcast ## The same on clusters of several nodes that are lost, some minutes
	$(VENV_RAY)/bin/python -m pytest python/tests_ray -m full

ray-loss: $(VENV_RAY)/tools $(VENV)/weightcast ## Lose a node of a job on Ray, the server's too: reward and staleness, minutes
	mkdir -p target
	$(VENV_RAY)/bin/python -m weightcast.examples.ray_loss --json target/ray-loss.json

# Debian's package `prometheus` has both programs. SKIP=1: where they are not, that is no failure.
test-metrics: $(VENV)/weightcast ## Have a real Prometheus scrape a server and load the rules
	@if command -v prometheus >/dev/null && command -v promtool >/dev/null; then \
	  $(BIN)/python -m pytest python/tests_metrics; \
	else echo "not run: no prometheus (apt-get install prometheus)"; test -n "$(SKIP)"; fi

test-gpu: $(VENV)/weightcast ## Publish from a CUDA GPU and update into one; fails where there is none
	$(BIN)/python -m pytest python/tests_gpu
	PYTHONPATH=python $(BIN)/python -m tests_gpu.speed --case qwen2.5-0.5b

sim: ## Play a thousand random clusters against the protocol, then each mutant of it
	cargo run --locked --release --quiet -p weightcast-cli -- sim --seeds 1000
	cargo run --locked --release --quiet -p weightcast-mutants -- hunt all

pin: ## Write down how the pinned scenes and worlds go now: the diff is what changed
	.ci/pin

# `ACCEPT=1` writes down how they go now, in a commit whose message says why.
fingerprints: ## Play a thousand random clusters: does each go event for event as it went?
	.ci/fingerprints $(if $(ACCEPT),--accept)

scenarios: ## Simulate the paper's figures at its size: predicted beside reported
	@for file in scenarios/*.json; do \
	  cargo run --locked --release --quiet -p weightcast-cli -- sim --scenario $$file || exit 1; echo; \
	done

verify: $(VENV)/tools ## Check formatting, lints, types, purity, names, dependencies; changes nothing
	.ci/type-names
	.ci/refit HEAD
	.ci/circles
	.ci/orphans
	.ci/path --chain
	cargo fmt --all --check
	cargo fmt --manifest-path .ci/schemata/Cargo.toml --check
	cargo clippy --locked $(CRATES) --all-targets --quiet -- -D warnings
	cargo clippy --locked -p weightcast-py --quiet -- -D warnings
	$(BIN)/ruff check --quiet python
	$(BIN)/mypy --no-error-summary
	@if command -v cargo-deny >/dev/null; then cargo deny --log-level error check bans licenses sources; \
	  else echo "not checked: licences, sources (cargo install --locked cargo-deny@0.20.2)"; fi

audit: ## Check dependencies against the advisory database (needs a network)
	cargo deny --log-level error check advisories

fix: $(VENV)/tools ## Format and apply what clippy and ruff can mend
	cargo fmt --all
	cargo clippy $(CRATES) --all-targets --fix --allow-dirty --allow-staged --quiet
	$(BIN)/ruff check --fix --quiet python

bench: ## Measure transfers against the limits of this machine
	cargo run --locked --release --quiet -p weightcast-bench -- transfer

# Whatever `python -m bench_rl` takes, as ARGUMENTS. Emulated links need root; without it, loopback.
bench-rl: $(VENV)/weightcast ## Move weights by collectives, Ray, disk and weightcast in one run, some ten minutes
	mkdir -p target
	PYTHONPATH=python $(if $(wildcard $(VENV_RAY)/tools),$(VENV_RAY),$(VENV))/bin/python -m bench_rl \
	  --json target/bench-rl.json $(ARGUMENTS)

# Whatever `python -m bench_peers` takes, as ARGUMENTS. What cannot be installed is a row with its reason.
bench-peers: $(VENV)/weightcast ## Move tensors by other libraries and weightcast on one host, some twelve minutes
	-$(MAKE) --no-print-directory $(VENV_PEERS)/tools $(VENV_PEERS)/debian
	-$(MAKE) --no-print-directory $(VENV_UCX)/tools
	mkdir -p target
	PYTHONPATH=python $(BIN)/python -m bench_peers --json target/bench-peers.json $(ARGUMENTS)

# Mooncake needs libibverbs, RDMA or not. Where the system has none: Debian's, beside the environment, without root.
IBVERBS := libibverbs1 libnl-3-200 libnl-route-3-200
$(VENV_PEERS)/debian: $(VENV_PEERS)/tools
	rm -rf $@.part && mkdir $@.part
	ldconfig -p | grep -q libibverbs.so.1 || { cd $@.part && apt-get -qq download $(IBVERBS) && \
	  for file in *.deb; do dpkg-deb -x $$file . || exit 1; done; }
	rm -rf $@ && mv $@.part $@

model: ## Explore every order of events of small clusters, fleets and pushes, some minutes
	cargo run --locked --release --quiet -p weightcast-explore -- --suite --threads 2

nemesis: ## Torment real processes over network namespaces (needs root, minutes)
	cargo test --locked --release -p weightcast-bench --test nemesis --test fanout -- --ignored --nocapture

recorded: ## Record a planted bug under the nemesis, and replay it ten times (needs root, minutes)
	.ci/recorded

# Real processes of the debug build, whose arithmetic is checked. `--only NAME`, `--json`: see --help.
attacks: ## Attack real processes with a client's token over loopback, some minutes
	cargo build --locked --quiet -p weightcast-cli -p weightcast-attacks --bins --examples
	target/debug/weightcast-attacks

# WORLDS, FUZZ_SECONDS, RANDOM_MINUTES, MUTANTS; `.ci/full STEP ...` runs steps alone.
full: ## Run what takes hours, on from where it was broken off; ends with a report
	.ci/full

# HOURS; on from where it was broken off.
HOURS ?= 2
soak: target/tools/bin/cargo-fuzz ## Simulate, torment, fuzz in turns for HOURS (needs root)
	.ci/full --hours $(HOURS)

# WHAT (`bugs`, or crates), NUMBER per crate, SEED, SHARD=K/N, MINUTES, IN=COMMIT: what changed since.
mutate: target/tools/bin/cargo-mutants ## Plant bugs one at a time: do the tests notice? Hours
	.ci/mutate-test
	.ci/mutate $(WHAT) $(if $(NUMBER),--number $(NUMBER)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(SHARD),--shard $(SHARD)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(IN),--since $(IN))

# CRATE; NUMBER of mutants (all), SEED, MINUTES, FROM=COMMIT: only what was not caught there.
CRATE ?= weightcast-protocol
sweep: ## Show CRATE's tests every mutant of it, from one build: what do they miss? An hour
	cargo build --locked --quiet --manifest-path .ci/schemata/Cargo.toml --target-dir target/schemata
	.ci/sweep-test
	.ci/sweep $(CRATE) $(if $(NUMBER),--number $(NUMBER)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FROM),--from $(FROM))

# WITHIN: a part of the files' paths; NUMBER, SEED, MINUTES, FROM as above.
sweep-python: $(VENV)/weightcast ## Show the quick tests every mutant of the Python package
	$(BIN)/python .ci/sweep-python-test
	$(BIN)/python .ci/sweep-python $(if $(WITHIN),--in $(WITHIN)) $(if $(NUMBER),--number $(NUMBER)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FROM),--from $(FROM))

fuzz: target/tools/bin/cargo-fuzz ## Feed every decoder random bytes, FUZZ_SECONDS each
	@echo "$(words $(FUZZ_TARGETS)) targets, $(FUZZ_SECONDS) s each, after a build with AddressSanitizer"
	for target in $(FUZZ_TARGETS); do mkdir -p target/corpus/$$target && \
	  RUSTC_BOOTSTRAP=1 target/tools/bin/cargo-fuzz run --fuzz-dir fuzz $$target \
	    target/corpus/$$target fuzz/corpus/$$target -- \
	    -max_len=4096 -max_total_time=$(FUZZ_SECONDS) || exit 1; done

# Into target/, for this checkout alone.
target/tools/bin/cargo-fuzz:
	cargo install cargo-fuzz --version =0.13.2 --locked --root target/tools

target/tools/bin/cargo-mutants:
	cargo install cargo-mutants --version =27.1.0 --locked --root target/tools

loom: ## Try every order of the lock-free words
	cargo test --locked --quiet -p weightcast-loom

asan: ## Test the unsafe code with AddressSanitizer
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address \
	  cargo test --locked -p weightcast-transport --lib --tests \
	  --target x86_64-unknown-linux-gnu --target-dir target/asan

# The toolchain has to be there: Miri is part of nightlies alone. Also where the processor is no x86-64.
NIGHTLY ?= nightly
miri: ## Interpret all forms of the digest and of the copy, AVX-512 included, which few CPUs have; some minutes
	rustup component add --toolchain $(NIGHTLY) miri rust-src
	RUSTFLAGS=-Ctarget-feature=+avx2,+avx512f,+avx512dq \
	  cargo +$(NIGHTLY) miri test --locked -p weightcast-transport --lib --target x86_64-unknown-linux-gnu -- \
	  digest::tests::every_copy_ digest::tests::every_kernel_equals_the_definition_at_every_edge \
	  digest::tests::the_format_ fused::tests::bytes_are_copied_

large: ## Move five gigabytes at once by every way (ten gigabytes of memory)
	cargo test --locked --release -p weightcast-transport --test contract -- --ignored --test-threads 1 large::

wheel: $(VENV)/tools ## Build the wheel into dist/
	$(BIN)/maturin build --release --locked --out dist

docs: ## Build the Rust documentation
	cargo doc --locked $(CRATES) --no-deps

clean: ## Remove everything that was built
	rm -rf target dist $(VENV) $(VENV_VLLM) $(VENV_EARLY) $(VENV_SGLANG) $(VENV_TRAINERS) $(VENV_JOBS) $(VENV_RAY) $(VENV_PEERS) $(VENV_UCX)

$(VENV)/tools: requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

# Sees what is in $(VENV), the editable weightcast too; its own packages come first.
$(VENV)-%/tools: requirements-%.txt $(VENV)/tools
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-$*.txt
	$(or $(OVER),$(BIN))/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$($(VENV)-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/over-venv.pth"
	touch $@

$(VENV_EARLY)/tools: private OVER := $(VENV_VLLM)/bin
$(VENV_EARLY)/tools: $(VENV_VLLM)/tools

# Installed in place: changes of Python files need no rebuild.
$(VENV)/weightcast: $(VENV)/tools $(RUST) pyproject.toml
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --profile in-place --locked --quiet
	touch $@
