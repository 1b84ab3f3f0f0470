# `make demo` and `make test` do everything on a fresh machine: what is missing they install.

CARGO ?= cargo
CLIPPY := RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tools/clippy-rustc.sh $(CARGO)
# With both shells: on this machine they are but code to check.
EVERYTHING := --locked --workspace --features stateful-failover/playground
ANNOTATE ?= $(CARGO) run --locked --quiet --package e2e-tests --bin annotate --
SOURCES := $(shell find src regex-lite-as-regex -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock tools/build-policy.sh
ARGS ?=

.PHONY: demo test build lint unit-tests model e2e-tests publish bench size fmt clean

# Replays a recorded failover through the module. ARGS="--recording FILE --settings FILE" for one's own.
demo: policy.wasm
	@$(CARGO) run --locked --quiet --package e2e-tests --bin demo -- $(ARGS)

# The linters, which compile the tests, and the module's build have nothing to wait for in one another.
test:
	@for tool in docker-registry openssl; do command -v $$tool >/dev/null || tools/apt-install.sh $$tool || exit 1; done
	@command -v kubectl >/dev/null || tools/apt-install.sh kubernetes-client
	@tools/rclone.sh >/dev/null
	$(MAKE) --jobs 2 policy.wasm lint
	$(MAKE) annotated-policy.wasm ANNOTATE=target/debug/annotate
	$(CLIPPY) test $(EVERYTHING)
	@tools/e2e-bats.sh

build: policy.wasm

policy.wasm: $(SOURCES)
	+@cp "$$(tools/build-policy.sh)" $@

annotated-policy.wasm: policy.wasm policy-metadata.yml README.md
	@if command -v kwctl >/dev/null; then \
	    kwctl annotate --metadata-path policy-metadata.yml --usage-path README.md --output-path $@ policy.wasm; \
	else \
	    $(ANNOTATE) policy-metadata.yml README.md policy.wasm $@; \
	fi

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) fmt --all --check
	+$(CLIPPY) test $(EVERYTHING) --tests --benches --no-run
	+RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --package stateful-failover --no-deps
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --offline check licenses bans sources; \
	else echo "lint: cargo-deny is not here, licences and sources are not checked"; fi

unit-tests:
	$(CARGO) test --locked --package stateful-failover

# The models of Karmada's controllers and of the writers of a workload, on 100,000 random runs each; `make test` has 600.
MODEL_RUNS ?= 100000
model:
	MODEL_RUNS=$(MODEL_RUNS) $(CARGO) test --locked --release --package stateful-failover --test core model::

# The module in the embedded host; and, where kwctl is there, the same in kwctl.
e2e-tests: policy.wasm annotated-policy.wasm
	$(CARGO) test --locked --package e2e-tests
	@tools/e2e-bats.sh

# make publish REGISTRY=ghcr.io/example/policies
publish: annotated-policy.wasm
	@tools/publish.sh "$(REGISTRY)"

bench: policy.wasm
	$(CARGO) bench --locked --workspace

# The module's size, and what its largest parts cost.
size: policy.wasm
	@tools/size.sh

clean:
	$(CARGO) clean
	rm -f policy.wasm annotated-policy.wasm
