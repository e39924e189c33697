#!/usr/bin/env bash
# libc-root.sh SUITE - a root with the C library of that Debian release and nothing else, at target/rig/libc/SUITE. Prints that
# folder. It is what a program needs that is to be started there with chroot.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
suite=$1
folder=$rig/libc/$suite

if [[ ! -e $folder/complete ]]; then
  lock "libc-$suite"
  if [[ ! -e $folder/complete ]]; then
    mirror=$(mirrors | grep ' bookworm ' | head -n 1 | cut -d' ' -f2)
    work=$(mktemp -d "$rig/libc.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "fetching the C library of Debian $suite" >&2
    # apt with lists of its own: the machine's are left alone.
    mkdir -p "$work"/{state/lists/partial,cache/archives/partial,root}
    touch "$work/state/status"
    echo "deb $mirror $suite main" >"$work/sources.list"
    options=(-q -o "Dir::State=$work/state" -o "Dir::State::status=$work/state/status" -o "Dir::Cache=$work/cache"
      -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root
      -o Acquire::Languages=none)
    apt-get "${options[@]}" update >&2
    (cd "$work" && apt-get "${options[@]}" download libc6 >&2)
    dpkg-deb -x "$work"/libc6_*.deb "$work/root"
    # The loader is asked for at /lib64, which newer releases have as a link to usr/lib64.
    for name in lib lib64; do
      if [[ ! -e $work/root/$name && -e $work/root/usr/$name ]]; then ln -s "usr/$name" "$work/root/$name"; fi
    done
    # A link, which may be right in the root only.
    [[ -L $work/root/lib64/ld-linux-x86-64.so.2 || -e $work/root/lib64/ld-linux-x86-64.so.2 ]] || die "Debian $suite: its loader is not where it should be"
    touch "$work/root/complete"
    rm -rf "$folder"
    mkdir -p "$rig/libc"
    mv "$work/root" "$folder"
  fi
fi
printf '%s\n' "$folder"
