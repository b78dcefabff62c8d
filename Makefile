# Few targets over `scripts/` and `xtask`. `make` alone says what there is.
.DEFAULT_GOAL := help
.PHONY: help setup demo test check test-agents fuzz bench fmt docs wire

BULKHEAD := target/debug/bulkhead

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what building and testing need and this machine lacks
	@scripts/setup build test

demo: ## Build, then take a sample repository through plan, implement and test in the sandbox
	@scripts/setup build run
	@cargo build --quiet --locked --package bulkhead
	@scripts/as-root $(BULKHEAD) demo $(ARGS)

test: ## Format, lints, supply chain, links and house rules, then all tests
	@scripts/setup build test
	@cargo xtask test

check: ## What `make test` checks without compiling the workspace
	@cargo xtask check

test-agents: ## The real claude, codex, gemini and opencode command lines against a fake model
	@scripts/setup build test agents
	@scripts/test-agents

fuzz: ## Feed what strangers write with anything, for SECONDS each (fuzz/README.md)
	@cargo run --quiet --release --manifest-path fuzz/Cargo.toml -- --seconds $(or $(SECONDS),60)

bench: ## Measure beside the peers (bwrap, crun, runc, docker, ssh, isolated-vm, workerd); `--write` keeps the table in bench/RESULTS.md
	@scripts/setup build js run bench
	@scripts/v8
	@cargo build --quiet --release --locked --package bulkhead --package bulkhead-js --package bulkhead-bench
	@scripts/v8 --install target/release
	@scripts/as-root target/release/bulkhead-bench $(ARGS)

fmt: ## Format all code
	@cargo fmt --all

wire: ## Make Rust of the protobuf files under crates/wire/proto
	@cargo run --quiet --locked --manifest-path crates/wire/generate/Cargo.toml

docs: ## Write the generated files under docs/ anew
	@cargo xtask schema
