#!/usr/bin/env bash
# softroce.sh GUEST_SCRIPT [FILE...] - runs a shell script in a virtual machine that has two soft-RoCE devices, prints what it
# prints to stdout and stderr and ends with its exit status (README.md). Each FILE lies at / in the guest, with its name.
#
#   SOFTROCE_SECONDS  the guest must be done by then, from when it is started (180); exit status 124 if it is not
#   SOFTROCE_ACCEL    qemu's -accel (tcg: emulation, which works everywhere; a /dev/kvm may be there and not work)
#   softroce.sh --ready   makes the guest's system and runs nothing
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[[ $# -ge 1 ]] || die "softroce.sh GUEST_SCRIPT [FILE...]"

# What the guest has: a shell (not busybox's, which takes its own ip for ip), small programs, ip and rdma, libibverbs with its providers, ibv_devinfo; C and Rust programs start.
packages=(busybox-static dash ibverbs-providers ibverbs-utils iproute2 libc6 libgcc-s1 libibverbs1)
# Modules of Debian's kernel, with those that they need; rdma_rxe asks for crc32 by name.
modules=(veth crc32_generic rdma_rxe ib_uverbs ib_umad rdma_ucm)
folder=$rig/softroce/$(hash_of "${BASH_SOURCE[0]}" "$rig_src/softroce-init.sh")

# The machine's package lists, but a system with nothing installed: everything that is needed comes.
fetch_packages() {
  mkdir -p "$work/cache/archives/partial"
  : >"$work/status"
  apt-get -qq -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root \
    -o APT::Install-Recommends=false -o Debug::NoLocking=1 install --download-only --yes "${packages[@]}" >&2
}

make_guest() {
  local archive kernel release module name
  work=$(mktemp -d "$rig/softroce.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "making the soft-RoCE guest from Debian's packages" >&2
  mirrors >/dev/null # apt knows none before its first update
  fetch_packages
  mkdir -p "$work"/root/{dev,etc,proc,run,sys,tmp} "$work"/root/usr/{bin,sbin,lib,lib64}
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$work/root/$name"; done
  for archive in "$work"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$work/root" --no-same-owner --keep-directory-symlink
  done
  rm -rf "$work"/root/usr/share/{doc,info,locale,man,lintian} "$work"/root/usr/lib/x86_64-linux-gnu/{gconv,perl-base}
  "$work/root/bin/busybox" --list | while read -r name; do
    [[ -e $work/root/usr/bin/$name || -e $work/root/usr/sbin/$name ]] || ln -s busybox "$work/root/usr/bin/$name"
  done
  printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$work/root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$work/root/etc/group"

  kernel=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
  (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$kernel" >&2 && dpkg-deb -x "$kernel"_*.deb kernel && rm "$kernel"_*.deb)
  release=$(basename "$work"/kernel/lib/modules/*)
  depmod -b "$work/kernel" "$release"
  mkdir "$work/root/modules"
  for module in "${modules[@]}"; do
    # `insmod PATH`, in the order in which they are to be loaded
    modprobe -d "$work/kernel" -S "$release" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
  done | awk '!seen[$0]++' >"$work/order"
  while read -r module; do
    cp "$module" "$work/root/modules/"
    basename "$module"
  done <"$work/order" >"$work/root/modules/order"
  install -m 755 "$rig_src/softroce-init.sh" "$work/root/init"

  mkdir "$work/done"
  cp "$work"/kernel/boot/vmlinuz-* "$work/done/vmlinuz"
  # Not compressed: that takes the emulated processor longer than reading it.
  (cd "$work/root" && find . -print0 | cpio --null --create --format=newc --owner=0:0 --quiet) >"$work/done/base.cpio"
  mkdir -p "$rig/softroce"
  rm -rf "${rig:?}"/softroce/*
  mv "$work/done" "$folder"
  rm -rf "$work"
  trap - EXIT
}

command -v qemu-system-x86_64 >/dev/null || die "qemu-system-x86_64 is not installed (tests/rig/deps.sh test)"
if [[ ! -e $folder/base.cpio ]]; then
  for program in cpio depmod modprobe; do
    command -v "$program" >/dev/null || die "$program is not installed (tests/rig/deps.sh test)"
  done
  lock softroce
  [[ -e $folder/base.cpio ]] || make_guest
  exec 9>&-
fi
[[ $1 != --ready ]] || exit 0

script=$1
shift
run=$(mktemp -d "$rig/softroce-run.XXXXXX")
trap 'rm -rf "$run"' EXIT
mkdir "$run/files"
cp "$script" "$run/files/guest-script"
(($# == 0)) || cp "$@" "$run/files/"
# A second archive behind the first is unpacked over it.
{ cat "$folder/base.cpio"; (cd "$run/files" && find . -print0 | cpio --null --create --format=newc --owner=0:0 --quiet); } >"$run/initrd"

# The kernel's console is the first serial line, the script's output the second.
ended=0
timeout "${SOFTROCE_SECONDS:-180}" qemu-system-x86_64 -accel "${SOFTROCE_ACCEL:-tcg}" -m 1G -smp 2 -nodefaults -no-user-config -display none -no-reboot \
  -kernel "$folder/vmlinuz" -initrd "$run/initrd" -append "console=ttyS0 quiet panic=-1" \
  -serial "file:$run/console" -serial "file:$run/output" </dev/null 2>"$run/qemu" || ended=$?

# The last line is the guest's: its script's exit status.
status=$(sed -n '$s/^GUEST-END \([0-9]*\)$/\1/p' "$run/output")
if [[ -n $status ]]; then
  sed '$d' "$run/output"
  exit "$status"
fi
cat "$run/output"
tail -n 20 "$run/console" "$run/qemu" >&2
if ((ended == 124)); then
  printf 'rig: the guest was not done within %s s\n' "${SOFTROCE_SECONDS:-180}" >&2
  exit 124
fi
die "the guest ended without a word (qemu: $ended)"
