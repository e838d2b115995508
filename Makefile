# The tasks of the project; `make test` must pass before a change is merged.

.PHONY: test quick simulate memory-safety soak conformance istio-suites mass-comparison shadow-worlds compatibility fmt lint unit doc laws demo release program cluster cluster-down crds image bench bench-agent bench-release bench-engine bench-kubernetes bench-clusters bench-gateway-api bench-answers bench-ambient bench-growth bench-scale bench-scale-ambient tools dist dist-check sign publish gie-conformance conformance-report

# The CI discards its clone; compiled files are worth keeping, except the state of incremental builds: because each crate changes
# between runs, it is 14 GB that are never read. Unchanged files get their former times, which cargo compares.
ifeq ($(CI),true)
export CARGO_INCREMENTAL := 0
ifndef CARGO_TARGET_DIR
export CARGO_TARGET_DIR := $(HOME)/.cache/navarch/target-ci
endif
SOURCE_TIMES := scripts/source-times $(CARGO_TARGET_DIR)
MAKE_ROOM := scripts/make-room $(CARGO_TARGET_DIR)
endif

# Rewritten only explicitly: a lock file that is out of step with Cargo.toml is an error.
CARGO := cargo
LOCKED := --locked

test: tools
	$(MAKE_ROOM)
	$(SOURCE_TIMES)
	$(CARGO) fmt --all --check
	scripts/test-lanes $(MAKE) lint doc
	$(MAKE) demo DEMO=once

# While a change is being written: the crates that differ from HEAD alone.
quick:
	scripts/quick

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	scripts/deny
	scripts/compatibility page --check

unit:
	scripts/test-lanes

# The laws of the engine with new seeds, ten times the cases of `make test`, which has fixed seeds. A case that fails is kept in
# tests/laws/main.proptest-regressions: commit it with what mends it, and every later run has it.
CASES ?= 120

laws:
	PROPTEST_CASES=$(CASES) $(CARGO) test $(LOCKED) --workspace --test laws

# The control plane under simulation (docs/simulation.md). Seeds that fail are shrunk to what they need.
SEEDS ?= 1-100
MINUTES ?= 60

simulate:
	$(CARGO) build $(LOCKED) --package navarch-sim --bin simulate
	$(or $(CARGO_TARGET_DIR),target)/debug/simulate seeds $(SEEDS) --minutes $(MINUTES)

# Miri and AddressSanitizer, with a nightly toolchain (docs/simulation.md).
memory-safety:
	scripts/memory-safety $(LANES)

# Tests that take minutes: certificates of a minute under traffic for five minutes, an API server down for one, 100,000 requests while
# namespaces move to ambient mode.
soak: tools
	NAVARCH_REQUIRE_ALL=1 NAVARCH_PODS_SECONDS=300 NAVARCH_CLUSTER_SECONDS=60 NAVARCH_MIGRATION_REQUESTS=100000 NAVARCH_UPGRADE_REQUESTS=100000 $(CARGO) test $(LOCKED) --workspace \
		--test agent_pods --test cluster

# The complete conformance suite of the Gateway API; `make test` runs one of its tests.
conformance: tools
	$(CARGO) build $(LOCKED) --workspace --bins
	scripts/conformance --program $(or $(CARGO_TARGET_DIR),target)/debug/navarch --out $(or $(CARGO_TARGET_DIR),target)/conformance

# The complete conformance suite of the Gateway API Inference Extension.
gie-conformance: tools
	$(CARGO) build $(LOCKED) --workspace --bins
	scripts/gie-conformance --program $(or $(CARGO_TARGET_DIR),target)/debug/navarch \
		--out $(or $(CARGO_TARGET_DIR),target)/gie-conformance

# What the last complete runs of both reported, to docs/conformance, as these projects want it: commit before the runs.
REPORTS = $(or $(CARGO_TARGET_DIR),target)/conformance/report.yaml $(or $(CARGO_TARGET_DIR),target)/gie-conformance/report.yaml

conformance-report:
	scripts/conformance-report $$(ls $(REPORTS) 2>/dev/null)

# Istio's own integration suites: SUITE names some, PLANE=istiod runs them against the real istiod, CLUSTERS=2 those for two clusters.
# All of them take hours; each writes its outcomes to tests/istio-suites/outcomes.json, and the page docs/istio-suites.md is made from
# them.
PLANE ?= navarch
CLUSTERS ?= 1

istio-suites: tools
	$(CARGO) build $(LOCKED) --workspace --bins
	scripts/istio-suites --plane $(PLANE) --clusters $(CLUSTERS) --save $(SUITE)
	scripts/istio-suites --page

# Navarch against istiod on random worlds: COUNT of each area, from SEED on, and STATUSES of the Gateway API whose statuses are compared
# (half a minute each). `make test` has the recorded cases.
SEED ?= 1
COUNT ?= 20
STATUSES ?= 0

mass-comparison:
	scripts/mass-comparison --seed $(SEED) --count $(COUNT) --statuses $(STATUSES)

# The tests of a component with other versions of it (docs/compatibility.md): COMPONENT=envoy VERSIONS="1.38.3 1.39.3".
compatibility: tools
	scripts/compatibility run $(COMPONENT) $(VERSIONS)

# `navarch shadow` beside the real istiod on so many random worlds, each on an API server of its own.
WORLDS ?= 10

shadow-worlds:
	scripts/shadow-worlds --seed $(SEED) --count $(WORLDS)

# Not of generated code: rustdoc reads and writes the index of all crates for each crate, and four fifths of it were proto's.
doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --workspace --no-deps --exclude navarch-proto
	$(CARGO) test $(LOCKED) --doc -p navarch-engine

# Programs that the tests need besides cargo's; see scripts/tools.
tools:
	scripts/tools

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
	$(CARGO) build $(LOCKED) --release --workspace --bins

# The programs of images: the control plane and the agent, for TARGET if it is set.
program:
	$(CARGO) build $(LOCKED) --profile dist --package navarch --package navarch-agent --bin navarch --bin pilot-agent $(if $(TARGET),--target $(TARGET))

# A Kubernetes node with Navarch and the sample mesh in pods, for experiments; it prints what to export. If root or containerd is
# missing, an API server with the sample's objects, until Ctrl-C.
cluster: tools
	$(CARGO) build $(LOCKED) --workspace --bin navarch --bin pilot-agent --bin cluster --bin workload
	$(or $(CARGO_TARGET_DIR),target)/debug/cluster $(or $(CARGO_TARGET_DIR),target)/debug/navarch .

# NAVARCH_CLUSTER is its folder.
cluster-down:
	scripts/cluster/down $(or $(NAVARCH_CLUSTER),$(HOME)/.cache/navarch/cluster)

# The committed CRDs, from the types; a test fails if they are out of date.
crds:
	REWRITE=1 $(CARGO) test $(LOCKED) --package navarch-api --lib the_committed_crds_are_up_to_date

# The images navarch and navarch-proxy, as in deploy/Containerfile and deploy/Containerfile.proxy, without a container engine: OCI
# archives in target/image. Starts their programs, which requires root. Takes long.
image:
	scripts/image --gzip
	scripts/image-try

# The artefacts of a release, in target/artefacts/VERSION: docs/artefacts.md. PARTS and ARCHITECTURES choose some of them. Compiles the
# programs for both processors, with a cross compiler for one of them.
ARTEFACTS = $(or $(CARGO_TARGET_DIR),target)/artefacts/$(shell awk -F'"' '$$1 ~ /^version/ { print $$2; exit }' Cargo.toml)
DIST_OPTIONS = $(if $(PARTS),--parts $(PARTS)) $(if $(ARCHITECTURES),--architectures $(ARCHITECTURES))

dist:
	scripts/dist $(DIST_OPTIONS)

# Makes them twice, in two clones, and fails if a byte differs.
dist-check:
	scripts/dist-check $(DIST_OPTIONS)

# Signs them: KEY is a private key that scripts/sign describes.
sign:
	scripts/sign $(ARTEFACTS) --key $(KEY)

# Pushes images and charts to REGISTRY (ghcr.io/navarch), signed if KEY is set; DRY_RUN=1 sends nothing.
publish:
	scripts/publish $(ARTEFACTS) --registry $(REGISTRY) $(if $(KEY),--key $(KEY)) $(if $(DRY_RUN),--dry-run)

# The folder of optimised programs, and the one that measures: `navarch-load --help`.
RELEASED = $(or $(CARGO_TARGET_DIR),target)/release
LOAD = $(RELEASED)/navarch-load

# The cost of the engine alone.
bench-engine:
	$(CARGO) bench $(LOCKED) --workspace

# The cost of the server with simulated Envoys; writes benches/results.
bench: tools release
	scripts/bench $(RELEASED)

# The memory of the agent, idle and with 1,000 clusters passing through.
bench-agent: tools release
	scripts/bench-agent $(RELEASED)

# The figures of a release, beside those of the real istiod: writes benches/history/VERSION.json, docs/benchmarks-history.md and the
# table of README.md. RUNS of each; takes more than an hour.
RUNS ?= 5

bench-release: tools release
	scripts/bench-release $(RELEASED) --runs $(RUNS)

# The cost of HTTPRoutes: 5,000 attached one by one, single ones changed at 3,000; a real API server, a real Envoy.
bench-gateway-api: tools release
	$(LOAD) routes $(RELEASED)/navarch . benches/results

# The cost of remote clusters: ten real API servers of 300 services and 4,200 endpoints each, added one at a time.
bench-clusters: tools release
	$(LOAD) clusters $(RELEASED)/navarch . benches/results

# The cost of answers about changes: plan, applied, the history of pushes, the record; some ten minutes.
bench-answers: tools release
	$(LOAD) answers $(RELEASED)/navarch . benches/results

# The cost of reading a large cluster: a real API server with 5,000 services, and with ten times as many.
bench-kubernetes: tools release
	$(LOAD) kubernetes $(RELEASED)/navarch . benches/results

# The cost of ambient mode: a real API server with up to 70,000 pods, 100 simulated ztunnels; some five minutes.
bench-ambient: tools release
	$(LOAD) ambient $(RELEASED)/navarch . benches/results

# How the cost grows from 500 to 4,000 services; with ISTIOD=FOLDER (scripts/istiod prints it) also that of the real istiod.
ISTIOD ?=

bench-growth: tools release
	scripts/bench-growth $(RELEASED) $(if $(ISTIOD),--istiod $(ISTIOD))

# How far one process scales: streams and endpoint updates, on an API server in navarch-load; SCALE has its options.
SCALE ?=

bench-scale: release
	$(LOAD) scale sidecars $(RELEASED)/navarch . benches/results $(SCALE)

# A million workloads in ambient mode for 100 simulated ztunnels, on an API server in navarch-load.
bench-scale-ambient: release
	$(LOAD) scale ambient $(RELEASED)/navarch . benches/results $(SCALE)
