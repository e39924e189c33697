#!/usr/bin/env bash
# toolchain.sh - the Rust toolchain and the C compiler that the build needs.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Printed for the caller to put into its PATH.
export PATH=$PATH:$HOME/.cargo/bin
minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")

new_enough() {
  local have
  have=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
  [[ -n $have && $(printf '%s\n%s\n' "$minimum" "$have" | sort -V | head -n1) == "$minimum" ]]
}

lock toolchain
missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
new_enough || missing+=(curl ca-certificates)
if ((${#missing[@]})); then
  say "installing ${missing[*]}"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } \
    >"$rig/toolchain.log" 2>&1 || { tail -n 20 "$rig/toolchain.log" >&2; die "could not install them"; }
fi
if ! new_enough; then
  say "installing Rust (stable, minimal profile) with rustup"
  curl -sSf --proto '=https' https://sh.rustup.rs | sh -s -- -y --profile minimal >"$rig/toolchain.log" 2>&1 ||
    { tail -n 20 "$rig/toolchain.log" >&2; die "could not install Rust"; }
fi
new_enough || die "cargo is older than $minimum: run rustup update"
