#!/usr/bin/env bash
# verbs-headers.sh - the headers of Debian's libibverbs-dev, at target/rig/verbs-headers. Prints that folder, which is one
# for the compiler's -I. Nothing is installed.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
folder=$rig/verbs-headers
if [[ ! -e $folder/infiniband/verbs.h ]]; then
  lock verbs-headers
  if [[ ! -e $folder/infiniband/verbs.h ]]; then
    mirrors >/dev/null # apt knows none before its first update
    work=$(mktemp -d "$rig/verbs.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root libibverbs-dev && dpkg-deb -x ./*.deb tree) >&2
    rm -rf "$folder"
    mv "$work/tree/usr/include" "$folder"
  fi
fi
printf '%s\n' "$folder"
