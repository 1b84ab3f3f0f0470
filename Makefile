# `make demo` and `make test` do everything on a fresh machine: they install what is missing.

CARGO ?= cargo
CLIPPY := RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tools/clippy-rustc.sh $(CARGO)
# Both shells: here they only need to compile and lint.
EVERYTHING := --locked --workspace --features stateful-failover/playground
ANNOTATE ?= $(CARGO) run --locked --quiet --package publish --bin annotate --
export PREINITIALIZE ?= $(CARGO) run --locked --quiet --package e2e-tests --bin preinitialize --
SOURCES := $(shell find src regex-lite-as-regex -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock tools/build-policy.sh
ARGS ?=

.PHONY: help demo demo-tools test build lint unit-tests model differential e2e-tests publish bench load size fmt clean playground site-build site site-tests pictures bench-rehearse

.DEFAULT_GOAL := help

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.* ## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand --tabs=18

# The module and the engine are independent of each other.
demo: ## Replay a recorded failover through the module; ARGS="--recording FILE --settings FILE" for another one
	@$(MAKE) --silent --jobs 2 target/module.wasm demo-tools
	@$(MAKE) --silent policy.wasm PREINITIALIZE=target/debug/preinitialize
	@target/debug/demo $(ARGS)

demo-tools:
	+@$(CARGO) build --locked --package e2e-tests --bin demo --bin preinitialize

# The linters, which compile the tests, and the module's build are independent of each other.
test: ## Run everything that CI checks
	@for tool in docker-registry openssl; do command -v $$tool >/dev/null || tools/apt-install.sh $$tool || exit 1; done
	@command -v kubectl >/dev/null || tools/apt-install.sh kubernetes-client
	@tools/rclone.sh >/dev/null
	$(MAKE) --jobs 2 target/module.wasm lint
	$(MAKE) annotated-policy.wasm PREINITIALIZE=target/debug/preinitialize ANNOTATE=target/debug/annotate
	$(CLIPPY) test $(EVERYTHING)
	$(MAKE) site-tests BINARIES=target/debug
	@tools/e2e-bats.sh

build: policy.wasm ## Build policy.wasm

target/module.wasm: $(SOURCES)
	+@cp "$$(tools/build-policy.sh)" $@

policy.wasm: target/module.wasm tools/optimize-policy.sh e2e-tests/src/bin/preinitialize.rs
	+@tools/optimize-policy.sh $< $@

annotated-policy.wasm: policy.wasm policy-metadata.yml README.md
	@if command -v kwctl >/dev/null; then \
	    kwctl annotate --metadata-path policy-metadata.yml --usage-path README.md --output-path $@ policy.wasm; \
	else \
	    $(ANNOTATE) policy-metadata.yml README.md policy.wasm $@; \
	fi

fmt: ## Format the code
	$(CARGO) fmt --all

lint: ## Run the linters, and check formatting and documentation
	$(CARGO) fmt --all --check
	+$(CLIPPY) test $(EVERYTHING) --tests --benches --no-run
	+RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --package stateful-failover --no-deps
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --offline check licenses bans sources; \
	else echo "lint: cargo-deny is not here, licences and sources are not checked"; fi

unit-tests: ## Run the tests of the core, without the module
	$(CARGO) test --locked --package stateful-failover

# `make test` has 600 runs of each.
MODEL_RUNS ?= 100000
model: ## Run the models of Karmada and of the writers of workloads, 100,000 times each
	MODEL_RUNS=$(MODEL_RUNS) $(CARGO) test --locked --release --package stateful-failover --test core model::

# `make test` has 3,000.
DIFFERENTIAL_RUNS ?= 1000000
differential: ## Compare the editing of text with serde_json, on a million requests
	DIFFERENTIAL_RUNS=$(DIFFERENTIAL_RUNS) $(CARGO) test --locked --release --package stateful-failover --test core differential::

# The module in the embedded engine and, where kwctl is installed, in kwctl.
e2e-tests: policy.wasm annotated-policy.wasm ## Run the tests of the module in the embedded engine, and in kwctl where it is installed
	$(CARGO) test --locked --package e2e-tests
	@tools/e2e-bats.sh

# The core for browsers and Node, in playground/policy. Not at the same time as policy.wasm, since both builds write the same
# file.
BINARIES ?=
BINDGEN := $(if $(BINARIES),$(BINARIES)/playground-bindgen,$(CARGO) run --locked --quiet --package playground-bindgen --)
EVALUATIONS := $(if $(BINARIES),$(BINARIES)/evaluations,$(CARGO) run --locked --quiet --package e2e-tests --bin evaluations)
CORE := playground/policy/wasm/core_bg.wasm
PACKAGES := playground/node_modules/.package-lock.json

playground: $(CORE) $(PACKAGES) ## Build the core for browsers and Node, in playground/policy

$(CORE): $(SOURCES) playground/bindgen/src/main.rs | policy.wasm
	+@module="$$(tools/build-policy.sh --features playground)" && $(BINDGEN) "$$module" playground/policy/wasm

$(PACKAGES): playground/package.json playground/package-lock.json playground/policy/package.json
	@tools/node.sh
	@touch $@

# The documentation and the playground as static files, in playground/.vitepress/dist. SITE_BASE=/folder/ where the site is not
# at the root of its host.
export SITE_BASE
site-build: playground ## Build the documentation and the playground as static files
	cd playground && npm run --silent build

site: site-build ## Serve the documentation and the playground on loopback
	cd playground && npm run --silent serve

# The site in Chromium. Pictures of each step are left in target/playground.
site-tests: playground ## Run the tests of the site, in Chromium
	@test -x $${CHROMIUM:-/usr/bin/chromium} || tools/apt-install.sh chromium
	cd playground && npm run --silent check
	cd playground && npm run --silent build
	$(EVALUATIONS) >target/evaluations.jsonl
	cd playground && npm test --silent

pictures: playground ## Draw the pictures of failover histories in docs/pictures
	cd playground && npm run --silent pictures

publish: annotated-policy.wasm ## Push the module to an OCI registry: REGISTRY=ghcr.io/example/policies
	@tools/publish.sh "$(REGISTRY)"

# The core alone; then the module beside a no-op and a policy on the SDK. The latter fails where a target is missed.
bench: policy.wasm ## Measure the module beside a no-op and an SDK policy; fails where a target is missed
	$(CARGO) bench --locked --package stateful-failover
	+@PACKAGE=sdk-policy PROFILE=baseline STACK_SIZE=1048576 tools/build-policy.sh >/dev/null
	$(CARGO) bench --locked --package e2e-tests --bench module

load: policy.wasm ## Measure the module under load on all cores, and the loss of a cluster with 2,000 applications
	$(CARGO) bench --locked --package e2e-tests --bench load

bench-rehearse: ## Measure a rehearsal of 1,000 bindings
	$(CARGO) bench --locked --package stateful-failover-cli --bench rehearse

# `make test` checks both against their budgets.
size: policy.wasm ## Print the size of the module by crate
	@$(CARGO) run --locked --quiet --package e2e-tests --bin size -- policy.wasm target/named.wasm

clean: ## Remove what was built
	$(CARGO) clean
	rm -f policy.wasm annotated-policy.wasm
