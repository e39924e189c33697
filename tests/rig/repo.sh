#!/usr/bin/env bash
# repo.sh - makes the signed apt repositories of the vendors' packages (README.md):
#   repo/erdma/GPGKEY      the key that signed Alibaba's
#   repo/erdma/apt/debian  suites bookworm/erdma and bookworm/incomplete
#   repo/erdma/apt/ubuntu  suites noble/erdma, jammy/erdma, focal/erdma and bionic/erdma
#   repo/erdma-plain       noble/erdma whose librdmacm1 has its old name
#   repo/doca              NVIDIA's, for Ubuntu 22.04
#   other-key.asc          a key that signed nothing
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Same input, same bytes.
export SOURCE_DATE_EPOCH=1700000000
vendor_version=44.1-2
doca=2.10.0 doca_version=2410mlnx54-1.2410068

# sign KEY DIR NAME COMPONENT: the Release of the Packages in DIR, signed.
sign() {
  apt-ftparchive \
    -o APT::FTPArchive::Release::Origin='rdmaprep test rig' \
    -o APT::FTPArchive::Release::Label='rdmaprep test rig' \
    -o APT::FTPArchive::Release::Suite="$3" \
    -o APT::FTPArchive::Release::Codename="$3" \
    -o APT::FTPArchive::Release::Architectures=amd64 \
    -o APT::FTPArchive::Release::Components="$4" \
    release "$2" >"$work/Release"
  mv "$work/Release" "$2/Release"
  gpg --batch --local-user "$1@rdmaprep.invalid" --clearsign -o "$2/InRelease" "$2/Release"
  gpg --batch --local-user "$1@rdmaprep.invalid" --armor --detach-sign -o "$2/Release.gpg" "$2/Release"
}

# suite CODENAME NAME: from the package index on standard input. Called in apt/ID.
suite() {
  local dist=dists/$1/$2
  mkdir -p "$dist/main/binary-amd64"
  cat >"$dist/main/binary-amd64/Packages"
  gzip -9nk "$dist/main/binary-amd64/Packages"
  sign erdma "$dist" "$1/$2" main
}

# repack TREE OUTDIR: the checksums follow the files.
repack() {
  (cd "$1" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  dpkg-deb --root-owner-group -Zxz -z1 -b "$1" "$2" >/dev/null
}

# The package as Ubuntu 24.04 names it since the transition to 64-bit times.
time64() {
  local tree=$work/t64
  dpkg-deb -R "$rig/debs/vendor/librdmacm1_${vendor_version}_amd64.deb" "$tree"
  sed -i "s/^Package: .*/&t64\nProvides: librdmacm1 (= $vendor_version)\nReplaces: librdmacm1\nBreaks: librdmacm1 (<< $vendor_version)/" \
    "$tree/DEBIAN/control"
  mv "$tree/usr/share/doc/librdmacm1" "$tree/usr/share/doc/librdmacm1t64"
  repack "$tree" "$1"
}

# OFED's packages in a newer version, and a metapackage, in one flat folder.
doca() {
  local dir=$1 deb tree=$work/doca
  mkdir -p "$dir"
  for deb in "$rig"/debs/ofed/lib*.deb "$rig"/debs/ofed/ibverbs*.deb "$rig"/debs/ofed/rdma*.deb; do
    rm -rf "$tree"
    dpkg-deb -R "$deb" "$tree"
    sed -i "s/2307mlnx47-1\.2310119/$doca_version/g" "$tree/DEBIAN/control"
    repack "$tree" "$dir"
  done
  rm -rf "$tree"
  mkdir -p "$tree/DEBIAN"
  cat >"$tree/DEBIAN/control" <<END
Package: doca-ofed-userspace
Version: $doca-0.4.5
Architecture: all
Maintainer: rdmaprep test rig <rig@rdmaprep.invalid>
Depends: libibverbs1, ibverbs-providers, ibverbs-utils, librdmacm1, rdmacm-utils
Description: pulls in the user space RDMA packages
END
  repack "$tree" "$dir"
  (cd "$dir" && apt-ftparchive packages . >Packages && gzip -9nk Packages)
  sign doca "$dir" DOCA ''
}

lock repo
"$rig_src/packages.sh" rdma
hash=$(hash_of "${BASH_SOURCE[0]}" "$rig_src/lib.sh" "$rig/debs/rdma.stamp")
if [[ $(cat "$rig/repo/stamp" 2>/dev/null) == "$hash" ]]; then exit; fi
say "making the vendors' apt repositories"

work=$(mktemp -d "$rig/repo.XXXXXX")
# The private keys live in $rig/gnupg. Its agent would outlive this script.
export GNUPGHOME=$rig/gnupg
trap 'gpgconf --kill all; rm -rf "$work"' EXIT
rm -rf "$GNUPGHOME"
mkdir -m 700 "$GNUPGHOME"

for name in erdma doca other; do new_key "$name@rdmaprep.invalid"; done
mkdir -p "$work"/repo/{erdma/apt/{debian,ubuntu},erdma-plain/apt/ubuntu}/pool/main "$work/repo/doca"
gpg --armor --export erdma@rdmaprep.invalid | tee "$work/repo/erdma/GPGKEY" >"$work/repo/erdma-plain/GPGKEY"
gpg --armor --export doca@rdmaprep.invalid >"$work/repo/doca/GPG-KEY-Mellanox.pub"
gpg --armor --export other@rdmaprep.invalid >"$rig/other-key.asc"
for pool in "$work"/repo/erdma*/apt/*/pool/main; do cp "$rig"/debs/vendor/*.deb "$pool"; done
(
  cd "$work/repo/erdma/apt/debian"
  apt-ftparchive packages pool >"$work/Packages"
  suite bookworm erdma <"$work/Packages"
  awk -v RS= -v ORS='\n\n' '!/(^|\n)Package: ibverbs-providers\n/' "$work/Packages" | suite bookworm incomplete
)
(
  cd "$work/repo/erdma/apt/ubuntu"
  apt-ftparchive packages pool >"$work/Packages"
  for codename in bionic focal jammy; do suite "$codename" erdma <"$work/Packages"; done
  # The suites share one pool.
  time64 pool/main
  apt-ftparchive packages pool >"$work/Packages"
  awk -v RS= -v ORS='\n\n' '!/(^|\n)Package: librdmacm1\n/' "$work/Packages" | suite noble erdma
)
(
  cd "$work/repo/erdma-plain/apt/ubuntu"
  apt-ftparchive packages pool | suite noble erdma
)
doca "$work/repo/doca/$doca/ubuntu22.04/x86_64"
echo "$hash" >"$work/repo/stamp"
rm -rf "$rig/repo"
mv "$work/repo" "$rig/repo"
