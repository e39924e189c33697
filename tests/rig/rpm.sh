#!/usr/bin/env bash
# rpm.sh - makes the image rdmaprep-test/rpm:latest, all of whose files belong to
# rpm packages, and the vendor's yum repository beside the apt one (README.md):
#   repo-rpm/erdma/GPGKEY      the key that signed the packages
#   repo-rpm/erdma/yum/alinux  3/erdma/x86_64 and further ones, one fault each
#   repo-rpm/doca              NVIDIA's, for Red Hat 8
#   repo-rpm/more              packages for single tests, and a distribution's repository
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

image=rdmaprep-test/rpm:latest
log=$rig/rpm.log
ofed=2307mlnx47-1.2310119
vendor=44.1-2
# What MLNX_OFED 4.9 had: a libibverbs without providers, and one package for each of them.
ofed4=41mlnx1-OFED.4.9.3.0.0.49224
# A later build than the vendor's, as a distribution may bring it.
later=48.0-1.el8
doca=2410mlnx54-1.2410068

# rpm itself, with nothing of this machine's configuration but its directories.
rpm_build() {
  rpmbuild -bb --quiet --define "_topdir $work/build" --define "_rpmdir $1" --define '_build_id_links none' \
    --define '_binary_payload w1.gzdio' --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
    --define '__os_install_post %{nil}' --define '__spec_install_pre %{nil}' --define 'debug_package %{nil}' \
    --define '_buildhost rig.invalid' --define 'source_date_epoch_from_changelog 0' \
    --define 'clamp_mtime_to_source_date_epoch 1' --define 'use_source_date_epoch_as_buildtime 1' \
    --buildroot "$2" "$3"
}
export SOURCE_DATE_EPOCH=1700000000

# pack OUTDIR TREE NAME VERSION-RELEASE [LINE...]: a package of all files below TREE.
pack() {
  local out=$1 tree=$2 name=$3 evr=$4 spec=$work/$3.spec
  shift 4
  {
    printf 'Name: %s\nVersion: %s\nRelease: %s\nSummary: %s\nLicense: GPL-2.0\n' "$name" "${evr%%-*}" "${evr#*-}" "$name"
    printf '%s\n' "$@" '%description' 'Made by the test rig.' '%clean' '%files'
    # Of directories only those that are the package's own.
    (cd "$tree" && find . -mindepth 1 \( ! -type d -printf '"/%P"\n' \))
  } >"$spec"
  logged rpm_build "$out" "$tree" "$spec"
}

# deb OUT DEB...: unpacks Debian packages as a RHEL system has them, with /usr/lib64.
deb() {
  local out=$1 file
  shift
  mkdir -p "$out"
  for file in "$@"; do dpkg-deb -x "$file" "$out"; done
  for dir in bin sbin lib lib64; do
    if [[ -d $out/$dir && ! -L $out/$dir ]]; then mkdir -p "$out/usr/$dir"; cp -a --remove-destination "$out/$dir/." "$out/usr/$dir"; rm -r "${out:?}/$dir"; fi
  done
  if [[ -d $out/usr/lib/x86_64-linux-gnu ]]; then
    mv "$out/usr/lib/x86_64-linux-gnu" "$out/usr/lib64"
  fi
  rm -rf "$out"/usr/share/{doc,man,lintian} "$out"/usr/lib/udev "$out"/usr/lib/systemd "$out"/etc/init.d
  find "$out" -depth -type d -empty -delete
}

# rdma_core OUT DEBS VERSION [LINE]: the packages of rdma-core's redhat/rdma-core.spec, out of Debian's files.
rdma_core() {
  local out=$1 debs=$2 v=$3 t=$1-trees isa='(x86-64)'
  deb "$t/libibverbs" "$debs"/{libibverbs1,ibverbs-providers}_*.deb
  deb "$t/libibverbs-utils" "$debs"/ibverbs-utils_*.deb
  deb "$t/librdmacm" "$debs"/librdmacm1_*.deb
  deb "$t/librdmacm-utils" "$debs"/rdmacm-utils_*.deb
  deb "$t/libibumad" "$debs"/libibumad3_*.deb
  deb "$t/rdma-core" "$debs"/rdma-core_*.deb
  deb "$t/rdma-core-devel" "$debs"/{libibverbs,librdmacm,libibumad}-dev_*.deb
  pack "$out" "$t/rdma-core" rdma-core "$v" 'AutoReq: no'
  pack "$out" "$t/libibverbs" libibverbs "$v" "Requires: rdma-core$isa = $v" "Provides: liberdma = $v, libmlx4 = $v, libmlx5 = $v" \
    "Obsoletes: libmlx4 < $v, libmlx5 < $v" ${4+"$4"}
  pack "$out" "$t/libibverbs-utils" libibverbs-utils "$v" "Requires: libibverbs$isa = $v"
  pack "$out" "$t/librdmacm" librdmacm "$v" "Requires: rdma-core$isa = $v, libibverbs$isa = $v"
  pack "$out" "$t/librdmacm-utils" librdmacm-utils "$v" "Requires: librdmacm$isa = $v, libibverbs$isa = $v"
  pack "$out" "$t/libibumad" libibumad "$v" "Requires: rdma-core$isa = $v"
  pack "$out" "$t/rdma-core-devel" rdma-core-devel "$v" 'AutoReq: no' \
    "Requires: rdma-core$isa = $v, libibverbs$isa = $v, libibumad$isa = $v, librdmacm$isa = $v"
}

# MLNX_OFED 4: mlx5's provider is a package of its own.
old_ofed() {
  local out=$1 t=$1-trees
  deb "$t/libibverbs" "$rig"/debs/ofed/libibverbs1_*.deb
  deb "$t/libmlx5" "$rig"/debs/ofed/ibverbs-providers_*.deb
  find "$t/libmlx5" ! -type d ! -name '*mlx5*' -delete
  find "$t" -type d -empty -delete
  pack "$out" "$t/libibverbs" libibverbs "$ofed4"
  pack "$out" "$t/libmlx5" libmlx5 "$ofed4"
}

# A system whose every file is in a package of rpm's: the files are Debian's.
system() {
  local tree=$work/system stage=rdmaprep-test/rpm-stage:$$ container name
  say "making a system of rpm packages"
  printf '%s\n' 'FROM rdmaprep-test/debian:12' \
    'RUN apt-get update && apt-get install -y --no-install-recommends curl dnf python3 rpm ucx-utils' |
    DOCKER_BUILDKIT=0 logged docker build --network host -t "$stage" -
  container=$(docker create "$stage")
  mkdir -p "$tree"
  docker export "$container" | tar -x -C "$tree" --exclude='dev/*' --exclude=var/log --exclude=.dockerenv
  docker rm "$container" >/dev/null
  docker rmi "$stage" >/dev/null

  # Which files are whose, before dpkg goes. What is named in `groups` becomes a package of that name.
  local -A groups=(
    [glibc]='libc6:amd64' [bash]=bash [coreutils]=coreutils [curl]=curl [libnl3]='libnl-3-200:amd64 libnl-route-3-200:amd64'
    [ucx]='libucx0:amd64 ucx-utils' [python3]='python3 python3-minimal python3.11 python3.11-minimal libpython3.11-minimal:amd64 libpython3.11-stdlib:amd64'
    [dnf]='dnf python3-dnf' [rpm]='rpm rpm-common'
  )
  local gone=(apt 'libapt-pkg6.0:amd64' dpkg debconf 'libibverbs1:amd64' 'librdmacm1:amd64' ibverbs-providers:amd64)
  mkdir -p "$work/lists"
  owned() { # PACKAGE...: their files, where a merged /usr has them
    local p f
    for p in "$@"; do
      f=$tree/var/lib/dpkg/info/$p.list
      if [[ -e $f ]]; then cat "$f"; fi
    done | sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#; s#^/usr/lib/x86_64-linux-gnu/#/usr/lib64/#'
  }
  for name in "${!groups[@]}"; do
    # shellcheck disable=SC2086 # words
    owned ${groups[$name]} | sort -u >"$work/lists/$name"
  done
  owned "${gone[@]}" | sort -u >"$work/lists/gone"
  # The loader stands there as a link with a full path: through it a copy would land in this machine's own.
  rm -r "$tree/usr/lib64"
  mv "$tree/usr/lib/x86_64-linux-gnu" "$tree/usr/lib64"
  ln -s ../lib64 "$tree/usr/lib/x86_64-linux-gnu"
  rm -rf "$tree"/usr/share/{doc,man,info,locale,zoneinfo,lintian,bug,perl5} "$tree"/var/lib/{dpkg,apt} "$tree"/etc/apt \
    "$tree"/var/cache/* "$tree"/usr/sbin/policy-rc.d "$tree"/usr/lib64/perl-base "$tree"/etc/dpkg \
    "$tree"/etc/{os-release,yum.conf,rpm/macros,dnf/dnf.conf} "$tree"/usr/lib/os-release "$tree"/usr/bin/yum
  # No link is left where something is written below.
  ln -s ../usr/lib/os-release "$tree/etc/os-release"
  echo /usr/lib64 >"$tree/etc/ld.so.conf.d/00-lib64.conf"
  mkdir -p "$tree"/etc/{rpm,yum.repos.d,pki/rpm-gpg,dnf} "$tree/var/lib/rpm"
  # Debian's rpm has its database elsewhere; RHEL's place is this one.
  echo '%_dbpath /var/lib/rpm' >"$tree/etc/rpm/macros"
  printf '[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\nskip_if_unavailable=False\n' >"$tree/etc/dnf/dnf.conf"
  ln -s dnf "$tree/usr/bin/yum"
  ln -s dnf/dnf.conf "$tree/etc/yum.conf"
  printf '%s\n' 'NAME="Alibaba Cloud Linux"' 'VERSION="3 (Soaring Falcon)"' 'ID="alinux"' 'ID_LIKE="rhel fedora centos anolis"' \
    'VERSION_ID="3"' 'PRETTY_NAME="Alibaba Cloud Linux 3 (Soaring Falcon)"' >"$tree/usr/lib/os-release"
  # The distribution's own repository: it does not answer, as those of a distribution at its end do not.
  cp "$work/repo/other-key.asc" "$tree/etc/pki/rpm-gpg/RPM-GPG-KEY-base"
  printf '[base]\nname=base\nbaseurl=http://127.0.0.1:1/base/$basearch/\ngpgcheck=1\nenabled=1\n' >"$tree/etc/yum.repos.d/base.repo"

  # One build of all: the packages differ in their lists of files.
  # What is to go is looked for among what `find` saw: no link leads out of the tree.
  (cd "$tree" && find . -mindepth 1 ! -type d -printf '/%P\n' | sort | comm -12 - "$work/lists/gone" | sed 's/^/./' | xargs -d '\n' rm -f)
  (cd "$tree" && find . -mindepth 1 \( -type d -printf '%%dir "/%P"\n' -o -printf '"/%P"\n' \)) | sort >"$work/all"
  sed -E 's#^"(.*)"$#\1#' "$work/all" | grep -v '^%dir' >"$work/files"
  {
    printf 'Name: basesystem\nVersion: 11\nRelease: 5.al8\nSummary: the rest\nLicense: GPL-2.0\nAutoReq: no\n'
    printf 'Provides: system-release = 3, /bin/sh, /sbin/ldconfig\n%%description\nMade by the test rig.\n'
    for name in "${!groups[@]}"; do
      printf '%%package -n %s\nSummary: %s\n' "$name" "$name"
      # Files of one package are asked for by others, and all are there; only this one links to the RDMA libraries.
      if [[ $name == glibc ]]; then echo 'Provides: rtld(GNU_HASH)'; fi
      if [[ $name != ucx ]]; then echo 'AutoReq: no'; fi
      printf '%%description -n %s\nMade by the test rig.\n%%files -n %s\n' "$name" "$name"
      comm -12 "$work/lists/$name" <(sort "$work/files") | sed 's/.*/"&"/'
    done
    printf '%%clean\n%%files\n'
    for name in "${!groups[@]}"; do cat "$work/lists/$name"; done | cat - "$work/lists/gone" | sort -u >"$work/named"
    grep '^%dir' "$work/all"
    comm -13 "$work/named" <(sort "$work/files") | sed 's/.*/"&"/'
  } >"$work/system.spec"
  logged rpm_build "$work/system-rpms" "$tree" "$work/system.spec"
}

cuda() {
  local t=$work/trees-cuda
  deb "$t/libnccl" "$rig"/debs/cuda/libnccl2_*.deb
  deb "$t/cudart" "$rig"/debs/cuda/cuda-cudart-12-4_*.deb
  pack "$work/system-rpms" "$t/libnccl" libnccl 2.21.5-1+cuda12.4 'AutoReq: no'
  pack "$work/system-rpms" "$t/cudart" cuda-cudart-12-4 12.4.127-1 'AutoReq: no'
}

make_image() {
  local r=$work/root db=$work/root/var/lib/rpm
  say "making $image"
  mkdir -p "$r"
  logged rpm --root "$r" --dbpath /var/lib/rpm --force-debian --noscripts -i "$work"/system-rpms/*.rpm "$work"/ofed/*.rpm
  test -s "$db/rpmdb.sqlite" || die "no rpm database in the image"
  printf '[mlnx_ofed]\nname=MLNX_OFED\nbaseurl=http://linux.mellanox.com/public/repo/mlnx_ofed/23.10-1.1.9.0/rhel8.6/x86_64/\nenabled=1\ngpgcheck=0\n' \
    >"$r/etc/yum.repos.d/mlnx_ofed.repo"
  mkdir -p "$r/opt/mellanox/ethtool/sbin"
  cp "$r/usr/bin/ucx_info" "$r/opt/mellanox/ethtool/sbin/ethtool"
  echo 'driver vmw_pvrdma_old' >"$r/etc/libibverbs.d/vmw_pvrdma_old.driver"
  chroot "$r" ldconfig
  tar -C "$r" --numeric-owner -c . |
    logged docker import -c "LABEL $label=$1" -c 'CMD ["bash"]' -c 'ENV CUDA_VERSION=12.4.1' -c 'WORKDIR /workspace' - "$image"
}

# signed KEY DIR: a repository of the packages in a folder, which are signed unless KEY is empty.
signed() {
  if [[ $1 ]]; then
    logged rpmsign --define "_gpg_name $1@rdmaprep.invalid" --define "_gpg_path $GNUPGHOME" --define "__gpg $(command -v gpg)" --addsign "$2"/*.rpm
  fi
  logged createrepo_c --quiet "$2"
}

# repository KEY NAME PACKAGES...: one of the vendor's.
repository() {
  local key=$1 dir=$work/repo/erdma/yum/alinux/3/$2/x86_64
  shift 2
  mkdir -p "$dir"
  cp "$@" "$dir"
  signed "$key" "$dir"
}

lock rpm
for program in rpmbuild rpmsign createrepo_c; do
  command -v $program >/dev/null || die "$program is missing: tests/rig/deps.sh test"
done
"$rig_src/base.sh"
hash=$(hash_of "${BASH_SOURCE[0]}" "$rig_src/lib.sh" "$rig/debs/rdma.stamp" "$rig/debs/cuda.stamp")
# The image trusts a key of this repository, and another checkout's has other keys.
stamp=$(cat "$rig/repo-rpm/stamp" 2>/dev/null || true)
has_image() { [[ $(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null) == "$stamp" ]]; }
if [[ $stamp == "$hash-"* ]] && has_image; then exit; fi

: >"$log"
work=$(mktemp -d "$rig/rpm.XXXXXX")
export GNUPGHOME=$work/gnupg
trap 'gpgconf --kill all; rm -rf "$work"' EXIT
"$rig_src/packages.sh" rdma cuda
mkdir -m 700 "$GNUPGHOME"
logged new_key erdma@rdmaprep.invalid
logged new_key other@rdmaprep.invalid
logged new_key doca@rdmaprep.invalid

say "making the rpm packages"
rdma_core "$work/ofed" "$rig/debs/ofed" "$ofed"
rdma_core "$work/vendor" "$rig/debs/vendor" "$vendor"
rdma_core "$work/later" "$rig/debs/vendor" "$later"
# A later build may need what the image has not.
rdma_core "$work/needing" "$rig/debs/vendor" "$vendor" 'Requires: libnl3-extra'
rdma_core "$work/doca" "$rig/debs/ofed" "$doca"
old_ofed "$work/ofed4"
mkdir "$work/empty"
pack "$work/ofed" "$work/empty" mlnx-ofed-basic-user-only 23.10-1.1.9.0 'BuildArch: noarch' \
  'Requires: libibverbs, libibverbs-utils, librdmacm, librdmacm-utils'
pack "$work/more" "$work/empty" my-trainer 1-1 'BuildArch: noarch' 'Requires: libibverbs >= 2307'
pack "$work/more" "$work/empty" libnl3-extra 1-1 'BuildArch: noarch'

say "making the vendor's yum repository"
mkdir -p "$work/repo/erdma"
gpg --armor --export erdma@rdmaprep.invalid >"$work/repo/erdma/GPGKEY"
gpg --armor --export other@rdmaprep.invalid >"$work/repo/other-key.asc"
repository erdma erdma "$work"/vendor/*.rpm
mkdir "$work/incomplete"
cp "$work"/vendor/*.rpm "$work/incomplete"
rm "$work/incomplete"/librdmacm-[0-9]*
repository erdma incomplete "$work"/incomplete/*.rpm
repository erdma needing "$work"/needing/*.rpm
repository '' unsigned "$work"/vendor/*.rpm
mkdir -p "$work/repo/doca/2.10.0/rhel8.6"
gpg --armor --export doca@rdmaprep.invalid >"$work/repo/doca/GPG-KEY-Mellanox.pub"
rm -r "$work/doca-trees"
mv "$work/doca" "$work/repo/doca/2.10.0/rhel8.6/x86_64"
signed doca "$work/repo/doca/2.10.0/rhel8.6/x86_64"
mkdir -p "$work/repo/more/base"
mv "$work/later" "$work/ofed4" "$work/repo/more"
mv "$work/more"/my-trainer*.rpm "$work/repo/more"
mv "$work/more"/libnl3-extra*.rpm "$work/repo/more/base"
signed '' "$work/repo/more/later"
signed other "$work/repo/more/base"

system
cuda
stamp=$hash-$(hash_of "$work/repo/other-key.asc")
make_image "$stamp"
echo "$stamp" >"$work/repo/stamp"
rm -rf "$rig/repo-rpm"
mv "$work/repo" "$rig/repo-rpm"
say "$image is ready"
