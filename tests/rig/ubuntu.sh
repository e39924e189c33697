#!/usr/bin/env bash
# ubuntu.sh - makes the images rdmaprep-test/ubuntu:18.04, :20.04, :22.04 and
# :24.04, unless the daemon has them up to date (README.md): rdmaprep-test/ofed
# that says of itself that it is this release of Ubuntu.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

label=rdmaprep.ubuntu

# What tells the releases apart in their own os-release.
os_release() {
  local version=$1 codename=$2 name=$3
  cat <<END
NAME="Ubuntu"
VERSION="$version LTS ($name)"
ID=ubuntu
ID_LIKE=debian
PRETTY_NAME="Ubuntu $version LTS"
VERSION_ID="$version"
VERSION_CODENAME=$codename
UBUNTU_CODENAME=$codename
END
}

relabel() {
  local image=rdmaprep-test/ubuntu:$1 wanted
  wanted=$(hash_of "${BASH_SOURCE[0]}" "$(docker image inspect -f '{{.Id}}' rdmaprep-test/ofed:latest)")
  if [[ $(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null || true) == "$wanted" ]]; then return; fi
  say "making $image"
  os_release "$@" >"$work/os-release"
  printf 'FROM rdmaprep-test/ofed:latest\nCOPY os-release /usr/lib/os-release\nLABEL %s=%s\n' "$label" "$wanted" >"$work/Dockerfile"
  DOCKER_BUILDKIT=0 docker build -q --network none -t "$image" "$work" >/dev/null
}

"$rig_src/base.sh"
lock ubuntu
work=$(mktemp -d "$rig/ubuntu.XXXXXX")
trap 'rm -rf "$work"' EXIT
relabel 18.04 bionic 'Bionic Beaver'
relabel 20.04 focal 'Focal Fossa'
relabel 22.04 jammy 'Jammy Jellyfish'
relabel 24.04 noble 'Noble Numbat'
