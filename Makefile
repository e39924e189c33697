# make demo    the main job on real input
# make test    every test
# make dist    the program for any system with glibc 2.17 or newer, at target/dist/rdmaprep
# make bench   the figures, side by side with docker build
# make fuzz    every fuzz target, FUZZ_SECONDS each
# make lint    formatting and clippy
# make clean-rig   removes what demo and tests made in the engine

export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: demo test dist bench fuzz lint build clean-rig

demo:
	@tests/rig/toolchain.sh
	@tests/rig/deps.sh demo
	@cargo build --release --quiet
	@tests/rig/demo.sh target/release/rdmaprep

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
	@tests/rig/toolchain.sh
	@tests/fuzz/run.sh $(FUZZ_SECONDS)

lint:
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings

build:
	cargo build --release

clean-rig:
	-docker rmi rdmaprep-demo:erdma rdmaprep-bench/large rdmaprep-test/standin rdmaprep-test/rpm rdmaprep-test/ubuntu:18.04 rdmaprep-test/ubuntu:20.04 rdmaprep-test/ubuntu:22.04 rdmaprep-test/ubuntu:24.04 rdmaprep-test/base rdmaprep-test/ofed rdmaprep-test/debian:12
	rm -rf target/rig
