#!/usr/bin/env bash
# dist.sh - the program as it is given out, at target/dist/rdmaprep: one file that starts wherever there is a glibc 2.17
# (that of CentOS 7, 2012) or newer. Zig's C compiler links it against that version's symbols (README.md).
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export PATH=$PATH:$HOME/.cargo/bin
cd "$root"

glibc=2.17
zig=0.17.1 zigbuild=0.24.1
tools=$rig/zig-$zig-$zigbuild

lock dist
if [[ ! -x $tools/bin/cargo-zigbuild || ! -e $tools/complete ]]; then
  say "installing ziglang $zig and cargo-zigbuild $zigbuild from PyPI into a virtual environment"
  /usr/bin/python3 -m venv --clear "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check --no-cache-dir "ziglang==$zig" "cargo-zigbuild==$zigbuild"
  touch "$tools/complete"
fi

# cargo-zigbuild takes Zig from the Python that comes first.
PATH=$tools/bin:$PATH cargo zigbuild --locked --profile dist --target "x86_64-unknown-linux-gnu.$glibc"
mkdir -p target/dist
install -m 755 target/x86_64-unknown-linux-gnu/dist/rdmaprep target/dist/rdmaprep
say "target/dist/rdmaprep: $(stat -c %s target/dist/rdmaprep) bytes"
