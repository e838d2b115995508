# What there is to do here; `make test` is what must pass before anything lands.

.PHONY: test soak fmt lint unit doc demo release program layout cluster crds image bench bench-agent bench-engine bench-kubernetes tools

# A clone of the CI is thrown away; what it compiled is worth keeping.
ifeq ($(CI),true)
ifndef CARGO_TARGET_DIR
export CARGO_TARGET_DIR := $(HOME)/.cache/navarch/target-ci
endif
endif

# Rewritten only on purpose: a lock file that is out of step with Cargo.toml is an error.
CARGO := cargo
LOCKED := --locked

test: tools
	$(CARGO) fmt --all --check
	$(MAKE) lint unit doc
	$(MAKE) demo DEMO=once

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	scripts/deny

unit:
	$(CARGO) test $(LOCKED) --workspace

# What takes minutes by its nature: certificates of a minute under traffic for five.
soak: tools
	NAVARCH_REQUIRE_ALL=1 NAVARCH_PODS_SECONDS=300 $(CARGO) test $(LOCKED) --test agent_pods

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --workspace --no-deps

# Programs that the tests need besides cargo's; see scripts/tools.
tools:
	scripts/tools

# Optimised programs are linked with the functions that run side by side (scripts/layout), which halves what they hold; their
# symbols must say more than usual for it.
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
LAID_OUT = --config 'build.rustflags=["-Csymbol-mangling-version=v0"]' \
	--config "target.$(or $(TARGET),$(HOST)).linker='$(CURDIR)/scripts/layout-cc'"

# Unoptimised, so that it starts minutes earlier; PROFILE=release shows the times of an optimised program. The tests run it
# once (DEMO=once), built with their dependencies: alone it would be built a second time with other features.
PROFILE ?= dev
OUT = $(or $(CARGO_TARGET_DIR),target)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
DEMO_PACKAGES = $(if $(filter once,$(DEMO)),--workspace --tests --bins,--package navarch --package navarch-testkit --bin navarch --bin demo)

demo:
	scripts/envoy
	$(CARGO) build $(LOCKED) --profile $(PROFILE) $(DEMO_PACKAGES)
	DEMO=$(DEMO) $(OUT)/demo $(OUT)/navarch .

# All programs, optimised.
release:
	$(CARGO) build $(LOCKED) --release --workspace --bins $(LAID_OUT)

# What images hold: navarch alone, for TARGET if that is another.
program:
	$(CARGO) build $(LOCKED) --profile dist --bin navarch $(if $(TARGET),--target $(TARGET)) $(LAID_OUT)

# Finds out anew which functions run; needs valgrind.
layout: tools release
	scripts/layout-record $(or $(CARGO_TARGET_DIR),target)/release

# A Kubernetes API server with the sample mesh, to try things on; it says what to export.
cluster: tools
	$(CARGO) build $(LOCKED) --workspace --bin cluster
	$(or $(CARGO_TARGET_DIR),target)/debug/cluster .

# The committed CRDs, from the types; a test tells when they are out of date.
crds:
	$(CARGO) build $(LOCKED) --workspace --bin navarch
	$(or $(CARGO_TARGET_DIR),target)/debug/navarch crds > deploy/charts/navarch/crds/istio.yaml

# What deploy/Containerfile makes, without a container engine: a static program on a read-only root. As root; takes long.
image:
	scripts/image

# What the engine costs by itself.
bench-engine:
	$(CARGO) bench $(LOCKED) --workspace

# What the server costs, seen by simulated Envoys; writes benches/results.
bench: tools release
	scripts/bench $(or $(CARGO_TARGET_DIR),target)/release

# The memory of the agent, idle and with 1,000 clusters passing through.
bench-agent: tools release
	scripts/bench-agent $(or $(CARGO_TARGET_DIR),target)/release

# What reading a large cluster costs: a real API server with 5,000 services, and with ten times as many.
bench-kubernetes: tools release
	$(or $(CARGO_TARGET_DIR),target)/release/kubeload $(or $(CARGO_TARGET_DIR),target)/release/navarch . benches/results
