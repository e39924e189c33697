# make demo    the main job on real input
# make check   formatting, lints and unit tests; needs neither Docker nor root
# make test    every test
# make oracles the tests on random input, ORACLE_ROUNDS times as often as in `make test`
# make dist    the program for any system with glibc 2.17 or newer, at target/dist/rdmaprep
# make bench   the figures, side by side with docker build
# make fuzz    every fuzz target, FUZZ_SECONDS each
# make lint    formatting, clippy, shellcheck and cargo-deny
# make clean-rig   removes what demo and tests made in the engine

export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: demo check test oracles dist bench fuzz lint build clean-rig

demo:
	@tests/rig/demo.sh

check:
	@tests/rig/toolchain.sh lint
	@tests/rig/lint.sh
	@cargo test --quiet --lib

test:
	@tests/rig/toolchain.sh
	@tests/rig/deps.sh test
	@tests/rig/run-tests.sh

dist:
	@tests/rig/toolchain.sh
	@tests/rig/deps.sh dist
	@tests/rig/dist.sh

bench:
	@tests/rig/toolchain.sh
	@tests/rig/deps.sh demo
	@cargo build --release --quiet
	@benches/build.sh target/release/rdmaprep
	@benches/inspect.sh target/release/rdmaprep
	@benches/explain.sh target/release/rdmaprep

FUZZ_SECONDS ?= 60
fuzz:
	@tests/rig/toolchain.sh fuzz
	@tests/fuzz/run.sh $(FUZZ_SECONDS)

# Each finishes within a minute or two at 1.
ORACLE_ROUNDS ?= 50
oracles:
	@tests/rig/toolchain.sh
	@tests/rig/deps.sh test
	@RDMAPREP_ROUNDS=$(ORACLE_ROUNDS) cargo test --test suite -- --exact $(ORACLES)
ORACLES = explain::any_bytes nccl_log::any_bytes package_databases::damaged_databases_end_in_an_answer \
	rootfs_against_engine::random_images_are_what_the_engine_shows userspaces::images_that_were_not_looked_at

lint:
	@tests/rig/toolchain.sh lint
	@tests/rig/lint.sh

build:
	cargo build --release

clean-rig:
	-docker rmi rdmaprep-demo:erdma rdmaprep-bench/large rdmaprep-test/standin rdmaprep-test/rpm rdmaprep-test/ubuntu:18.04 rdmaprep-test/ubuntu:20.04 rdmaprep-test/ubuntu:22.04 rdmaprep-test/ubuntu:24.04 rdmaprep-test/base rdmaprep-test/ofed rdmaprep-test/debian:12
	rm -rf target/rig
