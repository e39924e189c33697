#!/bin/sh
# Finds in an image what a swap has to know, for a Dockerfile that was written without a look at the image: what does not
# depend on the package manager.
#
# Follows swap-apt.sh or swap-rpm.sh, and comes before discover-apt.sh or discover-rpm.sh, which have list_owners. Steps of
# the swap are noted (companion, drop_packages) or carried out (remove_files, drop_entry). The rules are those of an
# inspection from outside; the names that they go by are given as arguments.
# shellcheck disable=SC2154 # tmp, root are set by prepare
set -eu

expect_root() {
  [ "$(id -u)" = 0 ] || fail not-root "the base image does not run as root: write this Dockerfile with --user $(id -u)"
}

# expect_machine EXPECTED FOUND
expect_machine() {
  [ "$2" = "$1" ] || fail other-architecture "this Dockerfile is for $1, and the base image is for $2"
}

# Whether the image is of the distribution that the packages are for: its version, or one with further components.
# expect_distro ID VERSION
expect_distro() {
  release_file=$root/etc/os-release
  [ -e "$release_file" ] || release_file=$root/usr/lib/os-release
  [ -e "$release_file" ] || fail other-distribution "the base image does not say which distribution it is (no os-release)"
  # Whatever assigns last wins; quotes may be around the value.
  found_id=$(release_value ID)
  found_version=$(release_value VERSION_ID)
  case "$found_id:$found_version." in
    "$1:$2".*) ;;
    *) fail other-distribution "this Dockerfile is for $1 $2, and the base image is $found_id $found_version" ;;
  esac
}

# release_value NAME
release_value() {
  sed -n "s/^$1=[\"']*\\([^\"']*\\).*/\\1/p" "$release_file" > "$tmp/values"
  sed -n '$p' "$tmp/values" > "$tmp/value"
  lower "$tmp/value"
}

# Turns capitals of a file into small letters.
# lower FILE
lower() {
  tr '[:upper:]' '[:lower:]' < "$1"
}

# say_found WHAT
say_found() {
  echo "rdmaprep: found $1, which goes"
}

# ---- Packages

# Packages built from rdma-core, whatever their source says.
# rdma_packages NAME...
rdma_packages() {
  printf '%s\n' "$@" > "$tmp/rdma-names"
}

# Providers that were packages of their own before rdma-core.
# split_providers NAME...
split_providers() {
  printf '%s\n' "$@" > "$tmp/split-names"
}

# OFED's own packages: names, and beginnings of names with a `*` after them.
# ofed_packages PATTERN...
ofed_packages() {
  printf '%s\n' "$@" > "$tmp/patterns"
  sed 's/\*/.*/' "$tmp/patterns" > "$tmp/ofed-patterns"
}

is_ofed() {
  case "$version" in
    *[Mm][Ll][Nn][Xx]*) return 0 ;;
  esac
  echo "$name" > "$tmp/line"
  grep -qx -f "$tmp/ofed-patterns" "$tmp/line"
}

# ---- Files of no package

# OFED's directories that hold files of no package that stays, and the loader's settings for them if all of them go. Those
# that go are removed by remove_found_directories, after the packages are changed.
discover_directories() {
  list_ofed_directories > "$tmp/directories"
  : > "$tmp/directories-that-go"
  while read -r directory; do
    list_owners "$directory" > "$tmp/owner-names"
    if lines_only_in "$tmp/owner-names" "$tmp/purge" > "$tmp/staying"; then
      read -r name < "$tmp/staying"
      echo "rdmaprep: $directory stays: package $name has files in it"
    else
      say_found "$directory"
      echo "$directory" >> "$tmp/directories-that-go"
    fi
  done < "$tmp/directories"
  cmp -s "$tmp/directories" "$tmp/directories-that-go" || return 0
  for file in "$root"/etc/ld.so.conf.d/*; do
    [ -e "$file" ] || continue
    sed 's/#.*//' "$file" > "$tmp/loader-lines"
    ! grep -qi -e /mellanox -e /ofed -e mlnx_ofed "$tmp/loader-lines" || remove_files "${file#"$root"}"
  done
}

remove_found_directories() {
  while read -r directory; do
    remove_directories "$directory"
  done < "$tmp/directories-that-go"
}

# Installations of OFED: the outermost directory with a name of theirs, or the versions side by side in it.
list_ofed_directories() {
  [ ! -d "$root/opt/mellanox" ] || echo "$root/opt/mellanox" > "$tmp/roots"
  find "$root/" -xdev -type d \( -path "$root/proc" -o -path "$root/sys" -o -path "$tmp" -o -path "$root/opt/mellanox" \) -prune -o \
    -type d \( -iname 'mlnx_ofed*' -o -iname 'mlnx-ofed-*' -o -iname ofed -o -iname 'ofed-*' -o -iname 'ofed_*' \) -print -prune \
    >> "$tmp/roots"
  while read -r directory; do
    set -- "$directory"/[0-9]*
    if [ -e "$1" ]; then
      printf '%s\n' "$@"
    elif is_installation "$directory"; then
      echo "$directory"
    fi
  done < "$tmp/roots" > "$tmp/found-directories"
  sed "s=^$root/=/=" "$tmp/found-directories"
}

# A plain `ofed` directory may be anything, such as a chapter of a manual.
# is_installation DIRECTORY
is_installation() {
  case "$1" in
    "$root/opt/mellanox") return 0 ;;
  esac
  case "${1##*/}" in
    [Mm][Ll][Nn][Xx]*) return 0 ;;
  esac
  find "$1" -type f \( -name 'libibverbs.so*' -o -name 'libmlx[45].so*' -o -name 'librdmacm.so*' -o -name 'lib*-rdmav[0-9]*.so' \) > "$tmp/verbs"
  [ -s "$tmp/verbs" ]
}
