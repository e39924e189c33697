#!/usr/bin/env bash
# packages.sh [rdma] [cuda] - makes the .deb files of the rig (README.md).
#   rdma: debs/ofed and debs/vendor, Debian's rdma-core under other versions
#   cuda: debs/cuda, NCCL and the CUDA runtime out of NVIDIA's Python wheels
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

rdma_packages=(
  libibverbs1 ibverbs-providers ibverbs-utils librdmacm1 rdmacm-utils
  libibverbs-dev librdmacm-dev libibumad3 libibumad-dev rdma-core
)
ofed_version=2307mlnx47-1.2310119
vendor_version=44.1-2

# Same input, same bytes: the builder's layer cache then still hits.
export SOURCE_DATE_EPOCH=1700000000

# build TREE OUTDIR: zstd, since xz would take most of a minute for NCCL.
build() {
  dpkg-deb --root-owner-group -Zzstd -z3 -b "$1" "$2" >/dev/null
}

# reversion DEB VERSION OUTDIR: the same package, only its version is another.
reversion() {
  local tree=$work/tree old re
  rm -rf "$tree"
  dpkg-deb -R "$1" "$tree"
  old=$(dpkg-deb -f "$1" Version)
  # A rebuild of Debian's (a +bN at the end) may show in a dependency or not.
  re=$(sed -E 's/\+b[0-9]+$//; s/[.+]/\\&/g' <<<"$old")'(\+b[0-9]+)?'
  sed -i -E "s/^Version: .*/Version: $2/; s/\(= $re\)/(= $2)/g; s/^(Source: \S+) \(.*\)$/\1/" \
    "$tree/DEBIAN/control"
  ! grep -E "$re" "$tree/DEBIAN/control" || die "$1: the old version is still named"
  build "$tree" "$3"
}

rdma() {
  local name deb
  mkdir -p "$work/orig" "$work/ofed" "$work/vendor"
  # The release is named so that a backport or a third party's rdma-core, should
  # this machine know one, is not taken.
  (cd "$work/orig" && apt-get download -qq -o APT::Sandbox::User=root \
    "${rdma_packages[@]/%//bookworm}")
  for deb in "$work"/orig/*.deb; do
    reversion "$deb" "$ofed_version" "$work/ofed"
    reversion "$deb" "$vendor_version" "$work/vendor"
  done

  name=mlnx-ofed-basic-user-only
  mkdir -p "$work/$name/DEBIAN"
  cat >"$work/$name/DEBIAN/control" <<END
Package: $name
Version: 23.10-1.1.9.0
Architecture: all
Maintainer: rdmaprep test rig <rig@rdmaprep.invalid>
Depends: libibverbs1, ibverbs-providers, ibverbs-utils, librdmacm1, rdmacm-utils
Section: net
Priority: optional
Description: pulls in the user space RDMA packages
END
  build "$work/$name" "$work/ofed"
}

# wheel PROJECT==VERSION: NVIDIA's wheel, unpacked into $work/wheel
wheel() {
  "$work/venv/bin/pip" download -q --disable-pip-version-check --no-deps \
    --only-binary=:all: --platform manylinux2014_x86_64 --python-version 3.11 \
    -d "$work/wheels" "$1"
  "$work/venv/bin/python" -m zipfile -e "$work"/wheels/"$(tr - _ <<<"${1%%=*}")"-*.whl "$work/wheel"
}

# license WHEEL TREE PACKAGE: NVIDIA's terms come along.
license() {
  install -D -m 644 "$work"/wheel/"$1"-*.dist-info/License.txt "$2/usr/share/doc/$3/copyright"
}

cuda() {
  local tree lib
  mkdir -p "$work/cuda"
  /usr/bin/python3 -m venv "$work/venv"
  wheel nvidia-nccl-cu12==2.21.5
  wheel nvidia-cuda-runtime-cu12==12.4.127

  tree=$work/libnccl2
  lib=$tree/usr/lib/x86_64-linux-gnu
  mkdir -p "$tree/DEBIAN" "$lib"
  mv "$work/wheel/nvidia/nccl/lib/libnccl.so.2" "$lib/libnccl.so.2.21.5"
  ln -s libnccl.so.2.21.5 "$lib/libnccl.so.2"
  chmod 644 "$lib/libnccl.so.2.21.5"
  license nvidia_nccl_cu12 "$tree" libnccl2
  cat >"$tree/DEBIAN/control" <<END
Package: libnccl2
Version: 2.21.5-1+cuda12.4
Architecture: amd64
Maintainer: rdmaprep test rig <rig@rdmaprep.invalid>
Depends: libc6
Section: libs
Priority: optional
Description: NCCL shared library, out of NVIDIA's Python wheel
END
  echo 'activate-noawait ldconfig' >"$tree/DEBIAN/triggers"
  build "$tree" "$work/cuda"

  tree=$work/cudart
  lib=$tree/usr/local/cuda-12.4/targets/x86_64-linux/lib
  mkdir -p "$tree/DEBIAN" "$lib" "$tree/etc/ld.so.conf.d"
  mv "$work/wheel/nvidia/cuda_runtime/lib/libcudart.so.12" "$lib/libcudart.so.12.4.127"
  ln -s libcudart.so.12.4.127 "$lib/libcudart.so.12"
  chmod 644 "$lib/libcudart.so.12.4.127"
  license nvidia_cuda_runtime_cu12 "$tree" cuda-cudart-12-4
  ln -s targets/x86_64-linux/lib "$tree/usr/local/cuda-12.4/lib64"
  ln -s cuda-12.4 "$tree/usr/local/cuda"
  echo /usr/local/cuda/targets/x86_64-linux/lib >"$tree/etc/ld.so.conf.d/000_cuda.conf"
  cat >"$tree/DEBIAN/control" <<END
Package: cuda-cudart-12-4
Version: 12.4.127-1
Architecture: amd64
Maintainer: rdmaprep test rig <rig@rdmaprep.invalid>
Depends: libc6
Section: libs
Priority: optional
Description: CUDA runtime library, out of NVIDIA's Python wheel
END
  echo 'activate-noawait ldconfig' >"$tree/DEBIAN/triggers"
  build "$tree" "$work/cuda"
}

# make KIND FOLDER...: runs KIND unless its result is there and up to date. The
# result is moved in place last, so what is there is always whole.
make() {
  local kind=$1 folder stamp
  shift
  stamp=$(hash_of "${BASH_SOURCE[0]}")
  if [[ $(cat "$rig/debs/$kind.stamp" 2>/dev/null) == "$stamp" ]]; then return; fi
  say "making the $kind packages"
  rm -f "$rig/debs/$kind.stamp"
  work=$(mktemp -d "$rig/packages.XXXXXX")
  "$kind"
  mkdir -p "$rig/debs"
  for folder in "$@"; do
    rm -rf "${rig:?}/debs/$folder"
    mv "$work/$folder" "$rig/debs/$folder"
  done
  rm -rf "$work"
  work=
  echo "$stamp" >"$rig/debs/$kind.stamp"
}

work=
trap 'rm -rf "$work"' EXIT
lock packages
[[ $# -gt 0 ]] || set -- rdma cuda
for kind in "$@"; do
  case $kind in
    rdma) make rdma ofed vendor ;;
    cuda) make cuda cuda ;;
    *) die "no such set of packages: $kind" ;;
  esac
done
