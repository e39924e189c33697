#!/usr/bin/env bash
# run-tests.sh [--clippy] [--fuzz SECONDS] - makes the rig, runs every test, names what was skipped and why, and ends with one line that
# sums it all up. With --fuzz each fuzz target runs that long too; with --clippy a lint of what is compiled is an error.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
fuzz_seconds='' lints=()
if [[ ${1:-} == --clippy ]]; then
  shift
  # One pass over the dependencies for both: cargo clippy would check them all once more.
  if cargo clippy --version >/dev/null 2>&1; then
    lints=(env RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__)
  else
    echo 'skipped: cargo clippy is not installed'
  fi
fi
if [[ ${1:-} == --fuzz ]]; then fuzz_seconds=$2; fi

declare -A jobs
# background NAME [leisurely] COMMAND...: beside everything else, with its output in $rig/NAME.log; leisurely: with what the
# rest leaves of the processor.
background() {
  local name=$1
  shift
  say "$name: in the background, with its output in $rig/$name.log"
  if [[ $1 == leisurely ]]; then
    shift
    # A session of its own is a group of its own for the scheduler, and within it niceness counts against nobody else.
    # shellcheck disable=SC2016 # the shell's own
    set -- nice -n 19 sh -c 'echo 19 >/proc/self/autogroup; exec "$@"' sh "$@"
  fi
  setsid "$@" >"$rig/$name.log" 2>&1 &
  jobs[$name]=$!
}
# finished NAME: waits for it; shows the end of its output if it failed.
finished() {
  local pid=${jobs[$1]}
  if wait "$pid"; then unset "jobs[$1]"; return; fi
  unset "jobs[$1]"
  tail -n 30 "$rig/$1.log" >&2
  printf 'rig: %s failed (all of it: %s)\n' "$1" "$rig/$1.log" >&2
  return 1
}
# shellcheck disable=SC2317 # the trap's
end_all() { for pid in "${jobs[@]}"; do kill -- "-$pid" 2>/dev/null || true; done; }
trap end_all EXIT

make_images() {
  "$rig_src/base.sh" && "$rig_src/repo.sh" && "$rig_src/ubuntu.sh" && "$rig_src/rpm.sh" || return
  # Its test says that it was skipped where there is no guest.
  "$rig_src/softroce.sh" --ready || say "there is no soft-RoCE guest"
}
if [[ ${1:-} == --images ]]; then make_images; exit; fi

# Images come from the network and disk, programs from the processor. The two long builds have time until the tests are
# done, and take what the others leave of the processor.
background images "${BASH_SOURCE[0]}" --images
# What the tests look at, its symbols and where it starts, does not depend on how far it is optimised.
background dist leisurely env CARGO_PROFILE_DIST_LTO=off CARGO_PROFILE_DIST_CODEGEN_UNITS=16 "$rig_src/dist.sh"
if [[ $fuzz_seconds ]]; then background fuzz leisurely env FUZZ_OPT_LEVEL=0 FUZZ_TIMEOUT=300 "$root/tests/fuzz/run.sh" "$fuzz_seconds"; fi
"${lints[@]}" cargo test --no-run
finished images

export RDMAPREP_SKIPPED=$rig/skipped.txt
: >"$RDMAPREP_SKIPPED"
: >"$rig/tests.log"
status=0
# Most of them wait for the engine.
threads=${RUST_TEST_THREADS:-$((2 * $(nproc)))}
"${lints[@]}" cargo test --no-fail-fast -- --test-threads "$threads" --skip dist:: 2>&1 | tee -a "$rig/tests.log" || status=$?

# Without it its tests would be skipped, which is not what they are here for.
if finished dist; then tail -n 1 "$rig/dist.log"; else status=1; fi
"${lints[@]}" cargo test --test suite -- --test-threads "$threads" dist:: 2>&1 | tee -a "$rig/tests.log" || status=$?
if [[ $fuzz_seconds ]]; then
  finished fuzz || status=1
  grep '^fuzz: ' "$rig/fuzz.log"
fi
trap - EXIT

skipped=$(sort -u "$RDMAPREP_SKIPPED" | wc -l)
if ((skipped)); then sort -u "$RDMAPREP_SKIPPED" | sed 's/^/skipped: /'; fi
awk -v skipped="$skipped" -v status="$status" '
  /^test result:/ { for (i = 3; i <= NF; i++) { if ($i ~ /^passed/) passed += $(i-1); if ($i ~ /^failed/) failed += $(i-1) } }
  END {
    printf "test result: %s. %d passed; %d failed; %d skipped; in all test programs\n", \
      (status == 0 && failed == 0 && passed > 0) ? "ok" : "FAILED", passed - skipped, failed, skipped
  }' "$rig/tests.log"
exit "$status"
