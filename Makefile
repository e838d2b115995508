# What there is to do here; `make test` is what must pass before anything lands.

.PHONY: test fmt lint unit doc demo bench tools

# A clone of the CI is thrown away; what it compiled is worth keeping.
ifeq ($(CI),true)
ifndef CARGO_TARGET_DIR
export CARGO_TARGET_DIR := $(HOME)/.cache/navarch/target-ci
endif
endif

# Rewritten only on purpose: a lock file that is out of step with Cargo.toml is an error.
CARGO := cargo
LOCKED := --locked

test:
	$(CARGO) fmt --all --check
	$(MAKE) lint unit doc

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings

unit:
	$(CARGO) test $(LOCKED) --workspace

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --workspace --no-deps

# Programs that the demo and the traffic tests need besides cargo's; see scripts/tools.
tools:
	scripts/tools

demo: tools
	$(CARGO) run $(LOCKED) --release --bin navarch

bench:
	$(CARGO) bench $(LOCKED) --workspace
