#!/usr/bin/env bash
# lint.sh [--without-clippy] - formatting, the lints of Rust and of shell scripts, and what is known of the dependencies. What is not installed
# is named as skipped (toolchain.sh lint installs it).
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
export PATH=$PATH:$HOME/.cargo/bin:$rig/lint/bin

if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; else echo 'skipped: cargo fmt is not installed'; fi

if command -v shellcheck >/dev/null; then
  # What git has, and what it will have: .shellcheckrc holds the options.
  mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' ':!tests/rig/lib.sh' .ci/run)
  # Outside of a checkout (an archive of the sources).
  ((${#scripts[@]})) || mapfile -t scripts < <(find . -name '*.sh' ! -path '*/target/*' ! -path ./tests/rig/lib.sh | sort)
  shellcheck --severity warning "${scripts[@]}"
  # It uses variables of the scripts that source it.
  shellcheck --severity warning --exclude SC2154 tests/rig/lib.sh
else
  echo 'skipped: shellcheck is not installed'
fi

if [[ ${1:-} == --without-clippy ]]; then
  : # run-tests.sh --clippy lints what it compiles.
elif cargo clippy --version >/dev/null 2>&1; then
  cargo clippy --quiet --all-targets -- -D warnings
else
  echo 'skipped: cargo clippy is not installed'
fi

# The advisories need a database that no package registry has: deny.toml says how they are asked.
if cargo deny --version >/dev/null 2>&1; then
  cargo deny --locked --log-level warn check bans licenses sources
else
  echo 'skipped: cargo-deny is not installed (cargo install --locked cargo-deny)'
fi
