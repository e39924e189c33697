#!/usr/bin/env bash
# demo.sh - the main job on a real image, from a failing check to a proof. The program is compiled while the image is made.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
rdmaprep=$root/target/debug/rdmaprep
base='rdmaprep-test/base:latest'
result='rdmaprep-demo:erdma'

heading() { printf '\n=== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; }

# Every few seconds: how far the preparations are, as their logs tell.
tell() {
  local start=$SECONDS compiled newest
  # Neither the locks nor the output of this script are to stay open with a sleep.
  while sleep 5 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    compiled=
    if [[ -s $rig/compile.total ]]; then
      # A crate with a build script is finished more than once.
      compiled="$(grep -F '"reason":"compiler-artifact"' "$rig/compile.done" 2>/dev/null | grep -oE '"package_id":"[^"]*"' | sort -u | wc -l) of $(<"$rig/compile.total") crates compiled, "
    fi
    newest=$(find "$rig" -maxdepth 1 -name '*.log' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)
    say "... $((SECONDS - start)) s: $compiled${newest##*/}: $(tail -c 1000 "$newest" 2>/dev/null | tr '\r' '\n' | grep -v '^ *$' | tail -n 1 | cut -c 1-90)"
  done
}

compiler=
cleanup() {
  kill "$teller" 2>/dev/null || true
  if [[ $compiler ]]; then kill "$compiler" 2>/dev/null || true; fi
}
tell </dev/null &
teller=$!
trap cleanup EXIT
"$rig_src/toolchain.sh"
"$rig_src/compile.sh" </dev/null &
compiler=$!
"$rig_src/deps.sh" demo

heading "The base: Debian 12, CUDA and NCCL where NVIDIA's images have them, and a Mellanox OFED userspace"
"$rig_src/base.sh"
"$rig_src/repo.sh"
wait "$compiler"
compiler=
kill "$teller"

# The vendor's repository, on loopback. It ends when this script does.
coproc mirror { exec "$rig_src/serve.py" "$rig/repo"; }
read -r -u "${mirror[0]}" _ address
say "the vendor's repository is played by $address"

heading "Is the base right for a PAI-DLC job?"
show rdmaprep check $base
status=0
"$rdmaprep" check $base || status=$?
echo "(exit code $status)"
[[ $status == 1 ]] || die "the base should have failed"

heading "Swap its RDMA userspace"
show rdmaprep build $base -t $result --mirror "$address/erdma" --suite bookworm/erdma --network host
"$rdmaprep" build $base -t $result --mirror "$address/erdma" --suite bookworm/erdma --network host --no-cache

heading "Is the result right?"
show rdmaprep check --all $result
"$rdmaprep" check --all $result

heading "What changed?"
show rdmaprep diff $base $result
"$rdmaprep" diff $base $result

heading "Does the provider load, in a container of the result?"
docker run --rm -i --network none "$result" python3 - <"$rig_src/provider.py"

heading "Done: $result is ready"
