#!/bin/sh
# The steps of a swap in an image of Debian packages, with apt.
#
# A Dockerfile gets those functions that its steps need in one RUN, and then a call per step. What comes in and goes out is
# first noted (take, companion, take_also and so on), and then changed in one transaction by swap_packages.
# The prove_ functions look at the outcome.
set -eu

# fail CODE SENTENCE
fail() {
  echo "rdmaprep[$1]: $2" >&2
  exit 1
}

# ARCH is dpkg's name of the architecture, LOADER_ARCH the one that `ldconfig -p` has for it. Tests name a small root.
# prepare ARCH LOADER_ARCH [ROOT]
prepare() {
  arch=$1
  loader_arch=$2
  root=${3-}
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
  unset LD_LIBRARY_PATH LD_PRELOAD TMPDIR
  tmp=$(mktemp -d)
  for file in taken names more drops family removable depended arguments; do
    : > "$tmp/$file"
  done
  dpkg --audit > "$tmp/audit" || true
}

# Lines of FILE that are not in OTHER; false if there are none.
# lines_only_in FILE OTHER
lines_only_in() {
  # For busybox's grep an empty list matches every line.
  cp "$2" "$tmp/other"
  echo '#' >> "$tmp/other"
  grep -vxF -f "$tmp/other" "$1"
}

# ---- What a former installation left

# lift_holds PACKAGE...
lift_holds() {
  printf '%s install\n' "$@" > "$tmp/selections"
  dpkg --set-selections < "$tmp/selections"
}

# remove_files PATH...
remove_files() {
  for path; do
    rm -f "$root$path"
  done
}

# remove_directories PATH...
remove_directories() {
  for path; do
    rm -rf "$root$path"
  done
}

# Takes one entry out of a list that others share.
# drop_entry FILE ENTRY
drop_entry() {
  grep -vF -e "$2" "$root$1" > "$tmp/entries" || true
  cat "$tmp/entries" > "$root$1"
}

# forget_pins NAME...
forget_pins() {
  for name; do
    rm -f "$root/etc/apt/preferences.d/$name"
  done
}

# ---- Where packages come from

# online PROGRAM ARGUMENT...
online() {
  [ -z "$proxy" ] || set -- "$@" -o Acquire::http::Proxy="$proxy"
  "$@" -o APT::Default-Release= -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o APT::Sandbox::User=root
}

# With the fabric's repository and no other.
# alone PROGRAM ARGUMENT...
alone() {
  online "$@" -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=-
}

# Without a source apt knows what is installed and the files that it is given.
# offline PROGRAM ARGUMENT...
offline() {
  "$@" -o APT::Default-Release= -o APT::Sandbox::User=root -o Dir::Etc::sourcelist="$tmp/none" -o Dir::Etc::sourceparts="$tmp/none.d"
}

# The fabric's repository first and alone: its packages are taken from its own signed index and from nowhere else.
# ENTRY is a line of sources.list(5), KEY an address, or `given` if the key already lies in the image.
# use_repository NAME TEXT ENTRY KEYRING KEY PROXY
use_repository() {
  repo=$2
  proxy=$6
  apt=online
  debs=$tmp
  list=$root/etc/apt/sources.list.d/$1.list
  pins=$root/etc/apt/preferences.d/$1
  mkdir -p "$root/etc/apt/keyrings" "$root/etc/apt/sources.list.d" "$root/etc/apt/preferences.d"
  [ "$5" = given ] || online /usr/lib/apt/apt-helper download-file "$5" "$root$4" ||
    fail key-unreachable "the repository's key cannot be fetched from $5"
  chmod 644 "$root$4"
  printf '%s\n' "$3" > "$list"
  alone apt-get update || fail repository-unusable "$repo cannot be used: no such suite, or not signed by its key"
}

# use_image_sources PROXY
use_image_sources() {
  repo='the apt sources of the image'
  proxy=$1
  apt=online
  debs=$tmp
  pins=
  update_image_sources
}

# Package files of the build context, and nothing else.
# use_files NAME DIRECTORY
use_files() {
  repo='package files of the build context'
  apt=offline
  debs=$2
  pins=$root/etc/apt/preferences.d/$1
  mkdir "$tmp/none.d"
  : > "$tmp/none"
  mkdir -p "$root/etc/apt/preferences.d"
}

update_image_sources() {
  online apt-get update || echo "rdmaprep: an apt source of the image cannot be used; going on without it" >&2
}

# ---- What is to come and to go

# A package of the fabric, under the first of its names that is offered.
# take NAME [ALTERNATIVE...]
take() {
  printf '%s\n' "$*" >> "$tmp/taken"
  printf '%s\n' "$@" >> "$tmp/names"
  printf '%s\n' "$@" >> "$tmp/family"
  printf '%s\n' "$@" >> "$tmp/removable"
}

# An installed package of the same source. Without an offer: `keep` it; `remove` it, since it needs its own build; or take
# the one of the `distribution` in its place, else remove it.
# companion NAME keep|remove|distribution
companion() {
  printf '%s\n' "$2 $1" >> "$tmp/more"
  printf '%s\n' "$1" >> "$tmp/names"
  printf '%s\n' "$1" >> "$tmp/family"
  printf '%s\n' "$1" >> "$tmp/removable"
}

# The same package under its other name: the old one goes, since both have the same files.
# note_renamed NAME...
note_renamed() {
  printf 'renamed %s\n' "$@" >> "$tmp/more"
}

# Further packages that were asked for.
# take_also NAME...
take_also() {
  printf 'also %s\n' "$@" >> "$tmp/more"
  printf '%s\n' "$@" >> "$tmp/names"
}

# Package files that the others depend on: they get no pins.
# note_dependencies NAME...
note_dependencies() {
  printf '%s\n' "$@" >> "$tmp/depended"
}

# Installed packages that go.
# drop_packages NAME...
drop_packages() {
  printf '%s-\n' "$@" >> "$tmp/drops"
  printf '%s\n' "$@" >> "$tmp/removable"
}

# Installed packages that others may replace.
# may_go NAME...
may_go() {
  printf '%s\n' "$@" >> "$tmp/removable"
}

# ---- What is offered

fetch_from_repository() {
  set --
  while read -r name; do
    set -- "$@" "$name"
  done < "$tmp/names"
  alone apt-cache madison "$@" > "$tmp/offers" || : > "$tmp/offers"
  [ -s "$tmp/offers" ] || fail no-index "$repo gave no package index: is the mirror reachable?"
  choose_offers
  download_chosen alone
  # The image's own sources are needed for dependencies only, so one that fails need not matter.
  update_image_sources
  # A line that apt cannot read spoils all of them.
  online apt-cache policy > /dev/null || {
    echo "rdmaprep: the apt sources of the image cannot be read; going on without them" >&2
    apt=alone
  }
  choose_others
}

fetch_from_image_sources() {
  set --
  while read -r name; do
    set -- "$@" "$name"
  done < "$tmp/names"
  online apt-cache madison "$@" > "$tmp/all" || true
  # Mellanox's builds outrank the distribution's by their versions, wherever they are from.
  awk -F '|' '$2 !~ /mlnx/' "$tmp/all" > "$tmp/offers"
  [ -s "$tmp/offers" ] || fail apt-sources-lack-package "none of the packages is in $repo: can they be reached?"
  choose_offers
  download_chosen online
  choose_others
}

# offered_version NAME: its version
offered_version() {
  awk -F '|' -v name="$1" '{ gsub(/ /, "") } $1 == name { print $2; exit }' "$tmp/offers"
}

# pick_offer NAMES: the first of these words that is offered, with its version
pick_offer() {
  for name in $1; do
    version=$(offered_version "$name")
    [ -z "$version" ] || {
      echo "$name=$version"
      return 0
    }
  done
}

choose_offers() {
  while read -r names; do
    choice=$(pick_offer "$names")
    [ -n "$choice" ] || lack_package "${names%% *}"
    echo "$choice"
  done < "$tmp/taken" > "$tmp/chosen"
  while read -r kind name; do
    [ "$kind" != renamed ] || continue
    choice=$(pick_offer "$name")
    [ -z "$choice" ] || echo "$choice"
  done < "$tmp/more" >> "$tmp/chosen"
}

# lack_package NAME
lack_package() {
  [ -z "$pins" ] || fail package-missing "package $1 is not in $repo"
  fail apt-sources-lack-package "package $1 is not in $repo"
}

# download_chosen alone|online
download_chosen() {
  sources=$1
  set --
  while read -r choice; do
    set -- "$@" "$choice"
  done < "$tmp/chosen"
  "$sources" env -C "$tmp" apt-get download "$@" || fail download-failed "the packages cannot be downloaded from $repo"
}

# What becomes of an installed or wanted package that is not offered.
choose_others() {
  while read -r kind name; do
    [ -z "$(offered_version "$name")" ] || continue
    case "$kind" in
      renamed|remove) echo "$name-" ;;
      distribution) elsewhere "$name" "$name-" ;;
      also) elsewhere "$name" "$name" ;;
    esac
  done < "$tmp/more" > "$tmp/arguments"
}

# The distribution's own build, or else the argument OTHERWISE.
# elsewhere NAME OTHERWISE
elsewhere() {
  "$apt" apt-cache madison "$1" > "$tmp/others" || true
  version=$(awk -F '|' '{ gsub(/ /, "", $2) } $2 !~ /mlnx/ { print $2; exit }' "$tmp/others")
  if [ -n "$version" ]; then
    echo "$1=$version"
  else
    echo "$2"
  fi
}

# ---- The transaction

swap_packages() {
  cat "$tmp/drops" >> "$tmp/arguments"
  set -- "$debs"/*.deb
  while read -r argument; do
    set -- "$@" "$argument"
  done < "$tmp/arguments"
  "$apt" apt-get install --simulate -y --no-install-recommends --allow-downgrades --allow-change-held-packages --purge "$@" > "$tmp/simulation" || {
    cat "$tmp/simulation" >&2
    fail apt-conflict "apt cannot put these packages together"
  }
  protect
  "$apt" apt-get install -y --no-install-recommends --allow-downgrades --allow-change-held-packages --purge \
    -o Dpkg::Options::=--force-confnew -o Dpkg::Options::=--force-confmiss "$@" ||
    fail install-failed "apt did not get to the end of installing the packages"
}

# Nothing but the RDMA packages may go.
protect() {
  awk '$1 == "Remv" || $1 == "Purg" { print $2 }' "$tmp/simulation" > "$tmp/gone"
  while read -r package; do
    grep -qxF -e "$package" "$tmp/removable" ||
      fail swap-removes-package "the swap would remove $package, which is outside the RDMA set"
  done < "$tmp/gone"
}

# ---- Is the outcome what was meant?

prove_packages() {
  ldconfig
  for deb in "$debs"/*.deb; do
    prove_package "$deb"
  done
  "$apt" apt-get check || fail requirements-unmet "packages miss what they depend on"
  # What dpkg complained of before is not this swap's.
  dpkg --audit > "$tmp/audit-now" || true
  if lines_only_in "$tmp/audit-now" "$tmp/audit" >&2; then
    fail half-installed "packages are left half installed"
  fi
}

# The installed package is the one of the file; then it gets a pin, so that no upgrade takes another.
# prove_package FILE
prove_package() {
  package=$(dpkg-deb -f "$1" Package)
  version=$(dpkg-deb -f "$1" Version)
  full=$package:$arch
  [ "$(dpkg-deb -f "$1" Architecture)" != all ] || full=$package
  got=$(dpkg-query -W -f "\${db:Status-Status} \${Version}" "$full") || true
  [ "$got" = "installed $version" ] || fail not-installed "$package is '$got' and not 'installed $version'"
  rm -rf "$tmp/control"
  dpkg-deb -e "$1" "$tmp/control"
  [ ! -e "$tmp/control/md5sums" ] || cmp "$tmp/control/md5sums" "$(dpkg-query --control-path "$full" md5sums)" ||
    fail other-build "$package $version is not the build that $repo offers"
  [ -z "$pins" ] || grep -qxF -e "$package" "$tmp/depended" ||
    printf 'Package: %s\nPin: version %s\nPin-Priority: 1001\n\n' "$package" "$version" >> "$pins"
  echo "rdmaprep: $package $version from $repo"
}

# No package of the set, nor one that was asked for, is Mellanox's build: those are for other devices.
prove_no_mellanox() {
  while read -r kind name; do
    [ "$kind" = also ] || continue
    version=$(dpkg-query -W -f "\${Version}" "$name" 2> /dev/null) || true
    case "$version" in
      *mlnx*) fail mellanox-only "package $name is in no repository but Mellanox's" ;;
    esac
  done < "$tmp/more"
  set --
  while read -r name; do
    set -- "$@" "$name"
  done < "$tmp/family"
  dpkg-query -W -f "\${db:Status-Status} \${Version} \${Package}\n" "$@" > "$tmp/builds" 2> /dev/null || true
  left=$(awk '$1 == "installed" && $2 ~ /mlnx/ { print $3 }' "$tmp/builds")
  [ -z "$left" ] || fail still-mellanox "still Mellanox builds: $left"
}

# find_library LIBRARY: where the loader finds it
find_library() {
  awk -v name="$1" -v arch="$loader_arch" '$1 == name && index($0, arch) { print $NF; exit }' "$tmp/loader"
}

# prove_loader DRIVER
prove_loader() {
  ldconfig -p > "$tmp/loader"
  lib=$(find_library libibverbs.so.1)
  [ -n "$lib" ] || fail no-libibverbs "the loader finds no libibverbs.so.1"
  lib=$(readlink -f "$lib")
  dpkg -L libibverbs1 > "$tmp/files"
  grep -qxF -e "$lib" -e "${lib#/usr}" "$tmp/files" ||
    fail other-libibverbs "the loader finds $lib before the libibverbs.so.1 of package libibverbs1"
  dev=$(find_library libibverbs.so)
  [ -z "$dev" ] || [ "$(readlink -f "$dev")" = "$lib" ] ||
    fail other-libibverbs "libibverbs.so is $dev and libibverbs.so.1 is $lib: NCCL opens the first"
  providers=${lib%/*}/libibverbs
  set -- "$1" "$providers/lib$1"-rdmav*.so
  dpkg -L ibverbs-providers > "$tmp/files"
  grep -qxF -e "$2" -e "${2#/usr}" "$tmp/files" ||
    fail no-provider "package ibverbs-providers brings no $1 provider to $providers"
  grep -qx "driver $1" "$root/etc/libibverbs.d/$1.driver" ||
    fail no-driver-file "/etc/libibverbs.d/$1.driver does not name the $1 driver"
}

# ---- What remains

# A driver file without a provider makes libibverbs complain in every process.
remove_stray_drivers() {
  for file in "$root"/etc/libibverbs.d/*.driver; do
    driver=$(awk '$1 == "driver" { print $2; exit }' "$file")
    set -- "$providers/lib$driver"-rdmav*.so
    [ -e "$1" ] || rm -f "$file"
  done
}

clean_up() {
  apt-get clean
  [ "$debs" = "$tmp" ] || rm -rf "$debs"
  rm -rf "$tmp" "$root"/var/lib/apt/lists/*
}
