#!/usr/bin/env bash
# base.sh - makes the images rdmaprep-test/debian:12, rdmaprep-test/ofed:latest
# and rdmaprep-test/base:latest, unless the daemon has them up to date (README.md).
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

dockerfile=$root/Dockerfile.test
log=$rig/base.log

has() {
  [[ $(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "rdmaprep-test/$1" 2>/dev/null) == "$2" ]]
}

debian() {
  local tree=$work/debian line
  say "making rdmaprep-test/debian:12 with debootstrap"
  # A mirror on https can't be asked without the certificates.
  local extra=()
  if [[ $sources == *https:* ]]; then extra=(--include=ca-certificates); fi
  line=$(grep ' bookworm ' <<<"$sources" | head -n 1)
  logged debootstrap --variant=minbase "${extra[@]}" bookworm "$tree" "$(cut -d' ' -f2 <<<"$line")"
  printf '%s\n' "$sources" >"$tree/etc/apt/sources.list"
  # As other base images have it: no service is started when it is installed, no
  # translations are fetched, and dpkg does not sync every file.
  echo 'Acquire::Languages "none";' >"$tree/etc/apt/apt.conf.d/90languages"
  echo force-unsafe-io >"$tree/etc/dpkg/dpkg.cfg.d/unsafe-io"
  printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
  chmod 755 "$tree/usr/sbin/policy-rc.d"
  rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/* "$tree"/var/log/*
  tar -C "$tree" --numeric-owner -c . |
    logged docker import -c "LABEL $label=$debian_hash" -c 'CMD ["bash"]' - rdmaprep-test/debian:12
  rm -rf "$tree"
}

# The key that OFED's list names. Nothing is signed with it.
ofed_key() {
  export GNUPGHOME=$work/gnupg
  mkdir -m 700 "$GNUPGHOME"
  logged new_key ofed@rdmaprep.invalid
  gpg --batch --export >"$context/mellanox_mlnx_ofed_gpg.gpg"
  gpgconf --kill all
}

build() {
  say "building rdmaprep-test/$1:latest"
  # The classic builder: Debian's Docker has no other. The host's network, since
  # a bridge may not reach the mirror.
  DOCKER_BUILDKIT=0 logged docker build --network host --target "$1" \
    --label "$label=$hash" -t "rdmaprep-test/$1:latest" -f "$dockerfile" "$context"
}

# Is the image what the tests take it for?
verify() {
  docker run --rm --network none rdmaprep-test/base:latest bash -euc '
    fail() { echo "rdmaprep-test/base: $*" >&2; exit 1; }
    [[ -z $(dpkg --audit) ]] || fail "dpkg --audit complains"
    apt-get check -qq || fail "apt-get check complains"
    held=$(dpkg -l | grep -c "^hi .* 2307mlnx47-1.2310119 ") || true
    [[ $held == 10 ]] || fail "$held OFED packages are held, not 10"
    for lib in libnccl.so.2 libcudart.so.12; do
      [[ $(ldconfig -p) == *$lib* ]] || fail "the linker does not know $lib"
    done
    /opt/mellanox/ethtool/sbin/ethtool --version >/dev/null || fail "ethtool does not start"
    # It starts if it comes as far as its list, or as saying that there is none.
    [[ $(ibv_devices 2>&1) =~ "IB devices list"|"node GUID" ]] || fail "ibv_devices does not start"
  '
}

lock base
sources=$(mirrors)
debian_hash=$(hash_of "$rig_src/base.sh" "$rig_src/lib.sh" "$sources")
hash=$(hash_of "$debian_hash" "$rig_src/packages.sh" "$dockerfile")
if has debian:12 "$debian_hash" && has ofed:latest "$hash" && has base:latest "$hash"; then exit; fi

: >"$log"
work=$(mktemp -d "$rig/base.XXXXXX")
trap 'rm -rf "$work"' EXIT
context=$work/context
"$rig_src/packages.sh" rdma cuda
has debian:12 "$debian_hash" || debian
mkdir "$context"
cp -rl "$rig/debs/ofed" "$rig/debs/cuda" "$context"
ofed_key
build ofed
build base
verify
say "rdmaprep-test/base:latest is ready"
