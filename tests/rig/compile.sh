#!/usr/bin/env bash
# compile.sh - compiles the program for the demo, target/debug/rdmaprep: what reads images is optimised there too
# (Cargo.toml), and the rest takes a third of the time of a release. How far it is lies in compile.total and compile.done.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export PATH=$PATH:$HOME/.cargo/bin
cd "$root"
log=$rig/compile.log
rm -f "$rig/compile.total" "$rig/compile.done"

cargo fetch --locked >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "could not fetch the crates"; }
cargo tree --locked --edges normal,build --prefix none --format '{p}' | sed 's/ (\*)$//' | sort -u | wc -l >"$rig/compile.total"
say "compiling the program beside: $(<"$rig/compile.total") crates"
cargo build --locked --message-format json-render-diagnostics >"$rig/compile.done" 2>"$log" ||
  { tail -n 30 "$log" >&2; die "could not compile the program (all of it: $log)"; }
say "target/debug/rdmaprep is compiled"
