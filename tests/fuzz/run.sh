#!/usr/bin/env bash
# run.sh SECONDS - runs every fuzz target for that long, from its seeds, and prints its executions. Needs cargo-fuzz,
# which it installs into target/; the sanitizer's flags are unstable, hence RUSTC_BOOTSTRAP.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds=${1:-30}
tools=$(realpath -m ../../target/tools)
export PATH=$tools/bin:$PATH RUSTC_BOOTSTRAP=1
if ! command -v cargo-fuzz >/dev/null; then
  echo "fuzz: installing cargo-fuzz"
  cargo install --debug --quiet cargo-fuzz --locked --root "$tools"
fi
# The program's own versions of everything that both use.
[[ -e Cargo.lock ]] || cp ../../Cargo.lock Cargo.lock
echo "fuzz: building the targets"
cargo fuzz build --fuzz-dir . 2>/dev/null || cargo fuzz build --fuzz-dir .
targets=$(sed -n 's/^path = "targets\/\(.*\)\.rs"/\1/p' Cargo.toml)
for target in $targets; do
  mkdir -p "corpus/$target" artifacts
  log=$(mktemp)
  if ! cargo fuzz run --fuzz-dir . "$target" "corpus/$target" "seeds/$target" -- \
    -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "fuzz: $target found something: tests/fuzz/artifacts/$target"
    exit 1
  fi
  sed -n "s/^Done \(.*\)/fuzz: $target: \1, nothing found/p" "$log"
  rm -f "$log"
done
