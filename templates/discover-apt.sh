#!/bin/sh
# Finds in an image of Debian packages what a swap has to know. Follows swap-apt.sh and discover.sh.
# shellcheck disable=SC2154 # tmp, root, arch are set by prepare
set -eu

# prepare_unseen ARCH LOADER_ARCH [ROOT]
prepare_unseen() {
  expect_root
  for program in dpkg apt-get; do
    command -v "$program" > /dev/null || fail no-manager "the base image has no $program, which is needed"
  done
  expect_machine "$1" "$(dpkg --print-architecture)"
  prepare "$1" "$2" "${3-}"
  : > "$tmp/spared"
  list_installed
}

# Status, name, architecture, version and source of each package.
list_installed() {
  dpkg-query -W -f "\${db:Status-Status} \${Package} \${Architecture} \${Version} \${source:Package}\n" > "$tmp/all-packages"
  sed -n 's/^installed //p' "$tmp/all-packages" > "$tmp/installed"
}

# ---- Repositories

# A key that the build was given, under a name that a former swap may have used.
# spare_key PATH
spare_key() {
  echo "$1" >> "$tmp/spared"
}

# Takes out what names a Mellanox or DOCA repository, or one of the fabric's that a former swap wrote, under these names;
# and the keys of those.
# discover_repositories OWN_NAME...
discover_repositories() {
  printf '%s\n' "$@" > "$tmp/own-names"
  : > "$tmp/sources-that-go"
  : > "$tmp/entries-that-go"
  for file in "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*; do
    [ -f "$file" ] || continue
    list_entries "$file" > "$tmp/found-entries"
    sed -n 's/^go //p' "$tmp/found-entries" > "$tmp/go"
    [ -s "$tmp/go" ] || continue
    path=${file#"$root"}
    if ! grep -q '^stay ' "$tmp/found-entries"; then
      say_found "$path"
      echo "$path" >> "$tmp/sources-that-go"
      cat "$tmp/go" >> "$tmp/entries-that-go"
    else
      drop_entries
    fi
  done
  list_keys > "$tmp/all-keys"
  sort -u "$tmp/all-keys" > "$tmp/keys"
  while read -r path; do
    ! grep -qxF -e "$path" "$tmp/spared" || continue
    [ ! -e "$root$path" ] || say_found "$path"
    echo "$path" >> "$tmp/sources-that-go"
  done < "$tmp/keys"
  while read -r path; do
    remove_files "$path"
  done < "$tmp/sources-that-go"
}

# Takes the entries of $path that go out of it.
drop_entries() {
  case "$path" in
    *.sources)
      echo "rdmaprep: $path stays: it also has other repositories; remove this stanza by hand:"
      cat "$tmp/go"
      return 0 ;;
  esac
  while read -r entry; do
    say_found "$entry of $path"
    drop_entry "$path" "$entry"
  done < "$tmp/go"
}

# Writes a line `go ENTRY` or `stay ENTRY` for every line of a list, and for every paragraph of a .sources file.
# list_entries FILE
list_entries() {
  case "$1" in
    *.sources) awk 'BEGIN { RS = "" } index($0, "URIs:") { gsub(/\n/, " "); print }' "$1" > "$tmp/list" ;;
    *)
      sed 's/#.*//; s/^[[:space:]]*//; s/[[:space:]]*$//' "$1" > "$tmp/lines"
      grep '^deb' "$tmp/lines" > "$tmp/list" || true
  esac
  is_own=
  stem=${1##*/}
  ! grep -qxF -e "${stem%%.*}" "$tmp/own-names" || is_own=1
  # A key in signed-by is not the address of a repository.
  awk -v is_own="$is_own" '{ verdict = "stay"; \
    for (i = 1; i <= NF; i++) if (index($i, ":/") && !index($i, "signed-by=")) { \
      address = tolower($i); \
      if (is_own || address ~ /mellanox|mlnx|\/doca\// || index(address, "/erdma/apt")) verdict = "go"; \
    } \
    print verdict, $0 }' "$tmp/list"
}

# The keys of the lists that go, and those of Mellanox.
list_keys() {
  while read -r path; do
    stem=${path##*/}
    stem=${stem%%.*}
    ! grep -qxF -e "$stem" "$tmp/own-names" || printf '%s\n' "/etc/apt/keyrings/$stem.asc" "/etc/apt/keyrings/$stem.gpg"
  done < "$tmp/sources-that-go"
  for file in "$root"/etc/apt/trusted.gpg.d/* "$root"/etc/apt/keyrings/* "$root"/usr/share/keyrings/*; do
    [ -f "$file" ] || continue
    ! is_mellanox_key "$file" || echo "${file#"$root"}"
  done
  list_named_keys
}

# A binary key has the name of its owner as plain text.
# is_mellanox_key FILE
is_mellanox_key() {
  echo "${1##*/}" > "$tmp/line"
  ! grep -qi -e mellanox -e mlnx -e doca "$tmp/line" || return 0
  case "$1" in
    *.gpg) grep -qi mellanox "$1" ;;
    *) return 1 ;;
  esac
}

# Keys that an entry that goes names, and no other list.
list_named_keys() {
  sed -n 's/.*[Ss]igned-[Bb]y[:=] *\([^] ,]*\).*/\1/p' "$tmp/entries-that-go" > "$tmp/named"
  while read -r key; do
    [ -e "$root$key" ] || continue
    is_named=
    for file in "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*; do
      [ -f "$file" ] || continue
      grep -qxF -e "${file#"$root"}" "$tmp/sources-that-go" || ! grep -qF -e "$key" "$file" || is_named=1
    done
    [ -n "$is_named" ] || echo "$key"
  done < "$tmp/named"
}

# ---- Packages

# is_there NAME
is_there() {
  awk -v name="$1" -v arch="$arch" '$1 == name && ($2 == arch || $2 == "all") { found = 1 } END { exit !found }' "$tmp/installed"
}

# A package of the fabric: the name that the image has is tried first, else the last, which older distributions have.
# take_present NAME [ALTERNATIVE...]
take_present() {
  printf '%s\n' "$@" > "$tmp/alternatives"
  first=
  count=$#
  while read -r name; do
    last=$name
    is_there "$name" || continue
    first=${first:-$name}
    [ "$count" = 1 ] || note_renamed "$name"
  done < "$tmp/alternatives"
  set -- "${first:-$last}"
  while read -r name; do
    [ "$name" = "$1" ] || set -- "$@" "$name"
  done < "$tmp/alternatives"
  take "$@"
}

# Notes for each installed package of the RDMA set whether it is replaced, moves along or goes. The packages of the fabric
# have been noted. With packages of DOCA nothing of OFED goes: its tools drive the same devices.
# discover_packages vendor|inbox|doca
discover_packages() {
  whose=$1
  cp "$tmp/family" "$tmp/fabric"
  cp "$tmp/family" "$tmp/swapped"
  awk '$1 == "also" { print $2 }' "$tmp/more" > "$tmp/asked"
  for file in purge foreign native superseded; do
    : > "$tmp/$file"
  done
  while read -r name package_arch version source; do
    sort_package
  done < "$tmp/installed"
  awk '{ print $1 }' "$tmp/native" >> "$tmp/swapped"
  note_companions
  if [ "$whose" = doca ]; then
    : > "$tmp/purge"
  else
    lines_only_in "$tmp/purge" "$tmp/swapped" > "$tmp/purge-now" || true
    mv "$tmp/purge-now" "$tmp/purge"
    keep_required
  fi
  # Whoever asks for a package does not want it gone.
  lines_only_in "$tmp/purge" "$tmp/asked" > "$tmp/dropped" || true
  lift_found_holds
  cat "$tmp/foreign" >> "$tmp/dropped"
  while read -r name; do
    echo "rdmaprep: found package $name, which goes"
    drop_packages "$name"
  done < "$tmp/dropped"
  while read -r name; do
    may_go "$name"
  done < "$tmp/superseded"
}

# Sorts the package of $name, $package_arch, $version and $source.
sort_package() {
  if [ "$source" = rdma-core ] || grep -qxF -e "$name" "$tmp/rdma-names"; then
    case "$package_arch" in
      "$arch"|all)
        echo "$name $version" >> "$tmp/native"
        return 0 ;;
      # It must have the version of the native one (multi-arch: same), and there is only one build.
      *) echo "$name:$package_arch" >> "$tmp/foreign" ;;
    esac
  elif grep -qxF -e "$name" "$tmp/split-names"; then
    echo "$name" >> "$tmp/superseded"
  fi
  ! is_ofed || echo "$name" >> "$tmp/purge"
}

# A package that cannot be without its own build goes unless there is another one of the new build; a Mellanox build gives
# way to the distribution's.
note_companions() {
  while read -r name version; do
    ! grep -qxF -e "$name" "$tmp/fabric" || continue
    if is_bound; then
      companion "$name" remove
      continue
    fi
    case "$whose-$version" in
      doca-*) companion "$name" keep ;;
      *[Mm][Ll][Nn][Xx]*) companion "$name" distribution ;;
      *) companion "$name" keep ;;
    esac
  done < "$tmp/native"
}

# Whether package $name depends on the exact version of a swapped one.
is_bound() {
  dpkg-query -W -f "\${Pre-Depends}, \${Depends}\n" "$name:$arch" > "$tmp/depends" 2> /dev/null ||
    dpkg-query -W -f "\${Pre-Depends}, \${Depends}\n" "$name" > "$tmp/depends"
  sed 's/[,|]/\n/g' "$tmp/depends" > "$tmp/dependencies"
  awk '$2 == "(=" { sub(/:.*/, "", $1); print $1 }' "$tmp/dependencies" > "$tmp/exact"
  grep -qxF -f "$tmp/swapped" "$tmp/exact"
}

# What a package outside of OFED depends on stays, and what that depends on in turn: dpkg says it.
keep_required() {
  while [ -s "$tmp/purge" ]; do
    set --
    while read -r name; do
      set -- "$@" "$name"
    done < "$tmp/purge"
    ! dpkg --no-act --remove "$@" > "$tmp/needed" 2>&1 || return 0
    # dpkg: dependency problems prevent removal of NAME:
    #  OTHER depends on NAME; however:
    awk '/prevent removal of / { name = $NF; sub(/:$/, "", name); sub(/:.*/, "", name); getline; print name, $1; exit }' \
      "$tmp/needed" > "$tmp/required"
    [ -s "$tmp/required" ] || return 0
    read -r required by < "$tmp/required"
    echo "rdmaprep: package $required stays: $by depends on it"
    grep -vxF -e "$required" "$tmp/purge" > "$tmp/purge-now" || true
    mv "$tmp/purge-now" "$tmp/purge"
  done
}

# Holds of packages that change or go.
lift_found_holds() {
  cat "$tmp/swapped" "$tmp/asked" "$tmp/dropped" > "$tmp/affected"
  dpkg --get-selections > "$tmp/all-selections"
  awk '$2 == "hold" { print $1 }' "$tmp/all-selections" > "$tmp/held"
  while read -r name; do
    ! grep -qxF -e "${name%%:*}" "$tmp/affected" || lift_holds "$name"
  done < "$tmp/held"
}

# ---- Files of no package

discover_driver_files() {
  for file in "$root"/etc/libibverbs.d/*.driver; do
    [ -e "$file" ] || continue
    dpkg -S "${file#"$root"}" > /dev/null 2>&1 || remove_files "${file#"$root"}"
  done
}

# Which packages have files below a directory.
# list_owners DIRECTORY
list_owners() {
  for file in "$root"/var/lib/dpkg/info/*.list; do
    ! awk -v below="$1/" 'index($0, below) == 1 { found = 1; exit } END { exit !found }' "$file" || {
      stem=${file##*/}
      stem=${stem%.list}
      echo "${stem%%:*}"
    }
  done
}
