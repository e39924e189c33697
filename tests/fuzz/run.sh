#!/usr/bin/env bash
# run.sh SECONDS - runs every fuzz target for that long, from its seeds, as many at a time as there are cores, and prints
# its executions. The sanitizer's flags are unstable, hence RUSTC_BOOTSTRAP.
#
#   FUZZ_OPT_LEVEL  how far the targets are optimised (3); 0 is built sooner, without line numbers, and serves a short run
#   FUZZ_TIMEOUT    seconds after which one input counts as a hang (10), by the clock: more where other work runs beside
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds=${1:-30}
triple=x86_64-unknown-linux-gnu

# What cargo-fuzz gives to rustc; building that program took longer than building the targets.
export RUSTC_BOOTSTRAP=1
export CARGO_PROFILE_RELEASE_OPT_LEVEL=${FUZZ_OPT_LEVEL:-3} CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
if [[ $CARGO_PROFILE_RELEASE_OPT_LEVEL == 0 ]]; then export CARGO_PROFILE_RELEASE_DEBUG=0; fi
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cdebug-assertions \
  -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
  -Cllvm-args=-sanitizer-coverage-stack-depth"

# The program's own versions of everything that both use.
cp ../../Cargo.lock Cargo.lock
echo "fuzz: building the targets"
# With a target named, build scripts and macros are built without these flags.
cargo build --release --quiet --target "$triple" --target-dir target

fuzz() {
  local target=$1 log=target/$1.log program=target/$2/release/$1
  mkdir -p "corpus/$target" artifacts
  if ! "$program" "corpus/$target" "seeds/$target" -artifact_prefix="artifacts/$target-" \
    -max_total_time="$3" -rss_limit_mb=2048 -timeout="${FUZZ_TIMEOUT:-10}" >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "fuzz: $target found something: tests/fuzz/artifacts/$target-*"
    return 1
  fi
  grep -q '^Done ' "$log" || { tail -n 40 "$log"; echo "fuzz: $target did not run"; return 1; }
  sed -n "s/^Done \(.*\)/fuzz: $target: \1, nothing found/p" "$log"
}
export -f fuzz
sed -n 's/^path = "targets\/\(.*\)\.rs"/\1/p' Cargo.toml |
  xargs -P "$(nproc)" -I {} bash -euc 'fuzz "$@"' fuzz {} "$triple" "$seconds"
