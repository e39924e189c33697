#!/usr/bin/env bash
# large.sh - rdmaprep-bench/large:latest, an image of more than 2.5 GB for the figures: the rig's base and NVIDIA's
# wheels, unpacked where pip puts them, a layer each.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
image='rdmaprep-bench/large:latest'
wheels=(nvidia-nccl-cu12==2.21.5 nvidia-cublas-cu12==12.4.5.8 nvidia-cudnn-cu12==9.1.0.70
  nvidia-cusparse-cu12==12.3.1.170 nvidia-cuda-runtime-cu12==12.4.127 nvidia-cusolver-cu12==11.6.1.9 nvidia-cufft-cu12==11.2.1.3)

"$rig_src/base.sh"
lock large
wanted=$(hash_of "${wheels[@]}" "$(docker image inspect -f '{{.Id}}' rdmaprep-test/base:latest)")
[[ $(docker image inspect -f '{{index .Config.Labels "rdmaprep.large"}}' $image 2>/dev/null || true) != "$wanted" ]] || exit 0

say "making $image from ${#wheels[@]} wheels (about 2 GB to fetch)"
context=$(mktemp -d "$rig/large.XXXXXX")
trap 'rm -rf "$context"' EXIT
/usr/bin/python3 -m venv "$context/venv"
"$context/venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$context/wheels" "${wheels[@]}"
{
  echo "FROM rdmaprep-test/base:latest"
  for wheel in "$context"/wheels/*.whl; do
    name=$(basename "$wheel" | cut -d- -f1)
    mkdir -p "$context/root/$name"
    /usr/bin/python3 -m zipfile -e "$wheel" "$context/root/$name"
    rm "$wheel"
    echo "COPY root/$name /usr/local/lib/python3.11/site-packages/"
  done
  echo "LABEL rdmaprep.large=$wanted"
} >"$context/Dockerfile"
rm -rf "$context/venv" "$context/wheels"
DOCKER_BUILDKIT=0 docker build -q --network host -t $image "$context" >/dev/null
docker image inspect -f "rig: $image has {{.Size}} bytes" $image
