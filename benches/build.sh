#!/usr/bin/env bash
# build.sh RDMAPREP - rdmaprep build beside docker build of the same Dockerfile: same builder, same base, no cache, in
# pairs, the order changing from pair to pair. Prints the ratio of each pair and their median. The figures are the
# whole process's wall time: rdmaprep's includes reading the base, checking the result and the diff.
set -euo pipefail
# shellcheck source=../tests/rig/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tests/rig/lib.sh"
rdmaprep=$(realpath "$1")
pairs=${PAIRS:-5}
base=${BASE:-rdmaprep-test/base:latest}

"$rig_src/base.sh"
"$rig_src/repo.sh"
coproc mirror { exec "$rig_src/serve.py" "$rig/repo"; }
read -r -u "${mirror[0]}" _ address
options=(--mirror "$address/erdma" --suite bookworm/erdma)
context=$(mktemp -d)
trap 'rm -rf "$context"; docker rmi -f rdmaprep-bench:ours rdmaprep-bench:docker >/dev/null 2>&1 || true' EXIT
"$rdmaprep" render "$base" "${options[@]}" -o "$context"

seconds() { # seconds COMMAND...: its wall time
  local start end
  start=$(date +%s%N)
  "$@" >"$rig/bench.log" 2>&1 || { tail -n 20 "$rig/bench.log" >&2; die "failed: $*"; }
  end=$(date +%s%N)
  awk -v ns=$((end - start)) 'BEGIN { printf "%.3f", ns / 1e9 }'
}
ours() {
  seconds "$rdmaprep" build "$base" -t rdmaprep-bench:ours --builder classic --network host --no-cache "${options[@]}"
}
docker_build() {
  seconds env DOCKER_BUILDKIT=0 docker build --network host --no-cache -t rdmaprep-bench:docker "$context"
}

echo "classic builder, $base, no cache; wall time in seconds"
echo "pair  rdmaprep  docker  ratio"
ours >/dev/null # fills the page cache for both
ratios=()
for ((pair = 1; pair <= pairs; pair++)); do
  if ((pair % 2)); then a=$(ours); b=$(docker_build); else b=$(docker_build); a=$(ours); fi
  ratio=$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.3f", a / b }')
  ratios+=("$ratio")
  printf '%4d  %8s  %6s  %s\n' "$pair" "$a" "$b" "$ratio"
done
printf '%s\n' "${ratios[@]}" | sort -n | awk '{ v[NR] = $1 } END { printf "median ratio %.3f (limit 1.05)\n", v[int((NR + 1) / 2)] }'

runs=50
start=$(date +%s%N)
for ((i = 0; i < runs; i++)); do "$rdmaprep" --version >/dev/null; done
end=$(date +%s%N)
awk -v ns=$((end - start)) -v runs=$runs 'BEGIN { printf "rdmaprep --version: %.1f ms, mean of %d (limit 10 ms)\n", ns / runs / 1e6, runs }'

# How much of a build is reading the base: the engine's store beside docker save.
a=$(seconds "$rdmaprep" inspect "$base")
b=$(seconds sh -c "docker save '$base' >/dev/null")
awk -v a="$a" -v b="$b" 'BEGIN { printf "rdmaprep inspect: %.2f s, docker save of the same image: %.2f s, ratio %.3f\n", a, b, a / b }'
