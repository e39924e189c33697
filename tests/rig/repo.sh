#!/usr/bin/env bash
# repo.sh - makes the signed apt repository of the vendor's packages (README.md):
#   repo/erdma/GPGKEY      the key that signed it
#   repo/erdma/apt/debian  suites bookworm/erdma and bookworm/incomplete
#   other-key.asc          a key that signed nothing
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# suite NAME: from the package index on standard input. Called in apt/debian.
suite() {
  local dist=dists/bookworm/$1
  mkdir -p "$dist/main/binary-amd64"
  cat >"$dist/main/binary-amd64/Packages"
  gzip -9nk "$dist/main/binary-amd64/Packages"
  apt-ftparchive \
    -o APT::FTPArchive::Release::Origin='rdmaprep test rig' \
    -o APT::FTPArchive::Release::Label='rdmaprep test rig' \
    -o APT::FTPArchive::Release::Suite="bookworm/$1" \
    -o APT::FTPArchive::Release::Codename="bookworm/$1" \
    -o APT::FTPArchive::Release::Architectures=amd64 \
    -o APT::FTPArchive::Release::Components=main \
    release "$dist" >"$work/Release"
  mv "$work/Release" "$dist/Release"
  gpg --batch --local-user erdma@rdmaprep.invalid --clearsign -o "$dist/InRelease" "$dist/Release"
  gpg --batch --local-user erdma@rdmaprep.invalid --armor --detach-sign -o "$dist/Release.gpg" "$dist/Release"
}

lock repo
"$rig_src/packages.sh" rdma
hash=$(hash_of "${BASH_SOURCE[0]}" "$rig_src/lib.sh" "$rig/debs/rdma.stamp")
if [[ $(cat "$rig/repo/stamp" 2>/dev/null) == "$hash" ]]; then exit; fi
say "making the vendor's apt repository"

work=$(mktemp -d "$rig/repo.XXXXXX")
# The private keys live in $rig/gnupg. Its agent would outlive this script.
export GNUPGHOME=$rig/gnupg
trap 'gpgconf --kill all; rm -rf "$work"' EXIT
rm -rf "$GNUPGHOME"
mkdir -m 700 "$GNUPGHOME"

mkdir -p "$work/repo/erdma/apt/debian/pool/main"
new_key erdma@rdmaprep.invalid
new_key other@rdmaprep.invalid
gpg --armor --export erdma@rdmaprep.invalid >"$work/repo/erdma/GPGKEY"
gpg --armor --export other@rdmaprep.invalid >"$rig/other-key.asc"
cp "$rig"/debs/vendor/*.deb "$work/repo/erdma/apt/debian/pool/main"
(
  cd "$work/repo/erdma/apt/debian"
  apt-ftparchive packages pool >"$work/Packages"
  suite erdma <"$work/Packages"
  awk -v RS= -v ORS='\n\n' '!/(^|\n)Package: ibverbs-providers\n/' "$work/Packages" | suite incomplete
)
echo "$hash" >"$work/repo/stamp"
rm -rf "$rig/repo"
mv "$work/repo" "$rig/repo"
