#!/usr/bin/env bash
# demo.sh RDMAPREP - the main job on a real image, from a failing check to a proof.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
rdmaprep=$(realpath "$1")
base='rdmaprep-test/base:latest'
result='rdmaprep-demo:erdma'

heading() { printf '\n=== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; }

heading "The base: Debian 12, CUDA and NCCL where NVIDIA's images have them, and a Mellanox OFED userspace"
"$rig_src/base.sh"
"$rig_src/repo.sh"

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
