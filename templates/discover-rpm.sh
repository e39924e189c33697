#!/bin/sh
# Finds in an image of rpm packages what a swap has to know. Follows swap-rpm.sh and discover.sh.
# shellcheck disable=SC2154 # tmp, root, arch are set by prepare
set -eu

# prepare_unseen ARCH LOADER_ARCH [ROOT]
prepare_unseen() {
  expect_root
  expect_machine "$1" "$(uname -m)"
  for candidate in dnf yum microdnf tdnf zypper dnf5 'none that is known'; do
    ! rpm -q "$candidate" > /dev/null 2>&1 || break
  done
  case "$candidate" in
    dnf|yum) prepare "$1" "$2" "$candidate" "${3-}" ;;
    *) fail no-manager "of package managers the base image has $candidate, and dnf or yum are needed" ;;
  esac
}

# ---- Repositories

# Takes out what names a Mellanox or DOCA repository, or one of the fabric's that a former swap wrote, under these names.
# discover_repositories OWN_NAME...
discover_repositories() {
  printf '%s\n' "$@" > "$tmp/own-names"
  for file in "$root"/etc/yum.repos.d/*.repo "$root"/etc/zypp/repos.d/*.repo; do
    [ -e "$file" ] || continue
    list_sections "$file" > "$tmp/sections"
    sed -n 's/^go //p' "$tmp/sections" > "$tmp/sections-that-go"
    [ -s "$tmp/sections-that-go" ] || continue
    if ! grep -q '^stay ' "$tmp/sections"; then
      say_found "${file#"$root"}"
      remove_files "${file#"$root"}"
      continue
    fi
    while read -r section; do
      say_found "[$section] of ${file#"$root"}"
      drop_entry "${file#"$root"}" "$section"
    done < "$tmp/sections-that-go"
  done
}

# Writes a line `go ID` or `stay ID` for every section that has an address.
# list_sections FILE
list_sections() {
  stem=${1##*/}
  is_own=
  ! grep -qxF -e "${stem%%.*}" "$tmp/own-names" || is_own=1
  section=
  address=
  option=
  # A last line without an end is read, too.
  while IFS= read -r line || [ -n "$line" ]; do
    read_repo_line "$line"
  done < "$1"
  end_section
}

# read_repo_line LINE
read_repo_line() {
  printf '%s\n' "$1" > "$tmp/line"
  set -- "$1" "$(sed 's/^[[:space:]]*//; s/[[:space:]]*$//' "$tmp/line")"
  case "$2" in
    '#'*|';'*) return 0 ;;
    '['*']')
      end_section
      section=${2#?}
      section=${section%]}
      address=
      option=
      return 0 ;;
  esac
  case "$1" in
    [[:space:]]*) add_address "$2" ;;
    *=*)
      echo "${2%%=*}" > "$tmp/line"
      option=$(lower "$tmp/line")
      option=${option%%[[:space:]]*}
      printf '%s\n' "${2#*=}" > "$tmp/line"
      add_address "$(sed 's/^[[:space:]]*//' "$tmp/line")" ;;
  esac
}

# add_address TEXT
add_address() {
  case "$option" in
    baseurl|mirrorlist|metalink) address="$address${1:+ $1}" ;;
  esac
}

end_section() {
  [ -n "$address" ] || return 0
  printf '%s\n' "$address" > "$tmp/line"
  case "$(lower "$tmp/line")" in
    *mellanox*|*mlnx*|*/doca/*) echo "go $section" ;;
    *)
      case "$is_own$address" in
        1*|*/erdma/yum*) echo "go $section" ;;
        *) echo "stay $section" ;;
      esac ;;
  esac
}

# ---- Packages

# Notes for each installed package of the RDMA set whether it is replaced, moves along or goes. The packages of the fabric
# have been noted. With packages of DOCA nothing of OFED goes: its tools drive the same devices.
# discover_packages vendor|inbox|doca
discover_packages() {
  whose=$1
  cp "$tmp/family" "$tmp/fabric"
  : > "$tmp/purge"
  : > "$tmp/replaced"
  : > "$tmp/foreign"
  : > "$tmp/native"
  : > "$tmp/superseded"
  rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE} %{ARCH} %{SOURCERPM}\n' > "$tmp/all-installed"
  sort "$tmp/all-installed" > "$tmp/installed"
  while read -r name version package_arch source; do
    sort_package
  done < "$tmp/installed"
  sort -u "$tmp/fabric" "$tmp/replaced" > "$tmp/swapped"
  note_companions
  if [ "$whose" != doca ]; then
    keep_required
  else
    : > "$tmp/purge"
  fi
  # Whoever asks for a package does not want it gone.
  wished also > "$tmp/asked"
  sort -u "$tmp/purge" "$tmp/foreign" > "$tmp/leaving"
  lines_only_in "$tmp/leaving" "$tmp/asked" > "$tmp/dropped" || true
  cat "$tmp/superseded" >> "$tmp/dropped"
  while read -r name; do
    echo "rdmaprep: found package $name, which goes"
    drop_packages "$name"
  done < "$tmp/dropped"
}

# Sorts the package of $name, $version, $package_arch and $source.
sort_package() {
  is_of_rdma_core=
  case "$source" in
    rdma-core-[0-9]*) [ "$name" = rdma-core ] || is_of_rdma_core=1 ;;
  esac
  if [ -n "$is_of_rdma_core" ] || grep -qxF -e "$name" "$tmp/rdma-names"; then
    echo "$name" >> "$tmp/replaced"
    case "$package_arch" in
      "$arch"|noarch) echo "$name $version" >> "$tmp/native" ;;
      # Packages of both architectures share files, so that they must be of one build, and there is only one.
      *) echo "$name.$package_arch" >> "$tmp/foreign" ;;
    esac
  elif grep -qxF -e "$name" "$tmp/split-names"; then
    echo "$name" >> "$tmp/superseded"
  elif is_ofed; then
    echo "$name" >> "$tmp/purge"
  fi
}

# A package that cannot be without its own build goes unless there is another one of the new build.
note_companions() {
  while read -r name version; do
    ! grep -qxF -e "$name" "$tmp/fabric" || continue
    if is_bound; then
      companion "$name" remove
    else
      companion "$name" keep
    fi
  done < "$tmp/native"
}

is_bound() {
  case "$whose-$version" in
    doca-*) ;;
    *[Mm][Ll][Nn][Xx]*) return 0 ;;
  esac
  rpm -q --requires "$name" > "$tmp/requires" < /dev/null
  while read -r requirement relation _; do
    [ "$relation" = = ] || continue
    ! grep -qxF -e "${requirement%%(*}" "$tmp/swapped" || return 0
  done < "$tmp/requires"
  return 1
}

# What a package outside of OFED and of the set requires stays, and what that requires in turn: rpm says it.
keep_required() {
  while [ -s "$tmp/purge" ]; do
    set --
    while read -r name; do
      set -- "$@" "$name"
    done < "$tmp/purge"
    ! rpm -e --test "$@" > "$tmp/needed" 2>&1 || return 0
    required=
    while read -r line; do
      case "$line" in
        *' is needed by (installed) '*) find_required ;;
      esac
      [ -z "$required" ] || break
    done < "$tmp/needed"
    [ -n "$required" ] || return 0
    echo "rdmaprep: package $required stays: $by requires it"
    grep -vxF -e "$required" "$tmp/purge" > "$tmp/purge-now" || true
    mv "$tmp/purge-now" "$tmp/purge"
  done
}

# Which of the packages that are to go has what $line says is needed, by a package that is not replaced.
find_required() {
  by=$(rpm -q --qf '%{NAME}\n' "${line##* (installed) }" < /dev/null)
  ! grep -qxF -e "$by" "$tmp/replaced" || return 0
  ! grep -qxF -e "$by" "$tmp/superseded" || return 0
  capability=${line%% is needed by *}
  rpm -q --qf '%{NAME}\n' --whatprovides "${capability%% *}" > "$tmp/providers" < /dev/null || true
  grep -xF -f "$tmp/purge" "$tmp/providers" > "$tmp/required" || return 0
  read -r required < "$tmp/required"
}

# ---- Files of no package

discover_driver_files() {
  for file in "$root"/etc/libibverbs.d/*.driver; do
    [ -e "$file" ] || continue
    rpm -qf "$file" > /dev/null 2>&1 || remove_files "${file#"$root"}"
  done
}

# Which packages have files below a directory. Asks for many files at a time: each time rpm opens its database.
# list_owners DIRECTORY
list_owners() {
  find "$root$1" ! -type d > "$tmp/inside"
  set --
  while read -r file; do
    set -- "$@" "$file"
    [ "$#" -lt 500 ] || {
      ask_owners "$@"
      set --
    }
  done < "$tmp/inside"
  [ "$#" = 0 ] || ask_owners "$@"
}

# ask_owners FILE...
ask_owners() {
  rpm -qf --qf '%{NAME}\n' "$@" 2> /dev/null < /dev/null > "$tmp/owners" || true
  sed '/ is not owned by any package$/d' "$tmp/owners"
}
