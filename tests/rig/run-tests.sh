#!/usr/bin/env bash
# run-tests.sh - makes the rig, runs every test, names what was skipped and why,
# and ends with one line that sums all test programs up.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

"$rig_src/base.sh"
"$rig_src/repo.sh"
"$rig_src/ubuntu.sh"
"$rig_src/rpm.sh"
"$rig_src/dist.sh"
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
