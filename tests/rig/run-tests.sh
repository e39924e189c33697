#!/usr/bin/env bash
# run-tests.sh - makes the rig, runs every test, names what was skipped and why,
# and ends with one line that sums all test programs up.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

# Its last step takes one core for minutes, in which the images and the tests can be made.
say "building the program that is given out in the background: $rig/dist.log"
setsid "$rig_src/dist.sh" >"$rig/dist.log" 2>&1 &
dist=$!
trap 'kill -- "-$dist" 2>/dev/null || true' EXIT
"$rig_src/base.sh"
"$rig_src/repo.sh"
"$rig_src/ubuntu.sh"
"$rig_src/rpm.sh"
cargo test --no-run
wait "$dist" || {
  tail -n 30 "$rig/dist.log" >&2
  die "could not build it (all of it: $rig/dist.log)"
}
trap - EXIT
tail -n 1 "$rig/dist.log"
# Its test says that it was skipped where there is no guest.
"$rig_src/softroce.sh" --ready || say "there is no soft-RoCE guest"

export RDMAPREP_SKIPPED=$rig/skipped.txt
: >"$RDMAPREP_SKIPPED"
status=0
cargo test --no-fail-fast 2>&1 | tee "$rig/tests.log" || status=$?

skipped=$(sort -u "$RDMAPREP_SKIPPED" | wc -l)
if ((skipped)); then sort -u "$RDMAPREP_SKIPPED" | sed 's/^/skipped: /'; fi
awk -v skipped="$skipped" -v status="$status" '
  /^test result:/ { for (i = 3; i <= NF; i++) { if ($i ~ /^passed/) passed += $(i-1); if ($i ~ /^failed/) failed += $(i-1) } }
  END {
    printf "test result: %s. %d passed; %d failed; %d skipped; in all test programs\n", \
      (status == 0 && failed == 0 && passed > 0) ? "ok" : "FAILED", passed - skipped, failed, skipped
  }' "$rig/tests.log"
exit "$status"
