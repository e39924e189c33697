#!/bin/sh
# The steps of a swap in an image of rpm packages, with dnf or with yum 3.
#
# A Dockerfile gets the functions in one RUN, and then a call per step. What comes in and goes out is first noted (take,
# companion, take_also and so on), and then changed in one transaction by swap_packages. The prove_ functions look at
# the outcome.
set -eu

# fail CODE SENTENCE
fail() {
  echo "rdmaprep[$1]: $2" >&2
  exit 1
}

# ARCH is rpm's name of the architecture, LOADER_ARCH the one that `ldconfig -p` has for it. Tests name a small root.
# prepare ARCH LOADER_ARCH dnf|yum [ROOT]
prepare() {
  arch=$1
  loader_arch=$2
  manager=$3
  root=${4-}
  export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
  unset LD_LIBRARY_PATH LD_PRELOAD TMPDIR
  tmp=$(mktemp -d)
  mkdir "$tmp/alone"
  : > "$tmp/wishes"
  : > "$tmp/family"
  : > "$tmp/removable"
  : > "$tmp/sums"
  origin=image
  origin_text='the yum repositories of the image'
  repository=
  files=
  key=
  signer=
  elsewhere=$root/etc/yum.repos.d
  elsewhere_text="the image's own"
}

# Lines of FILE that are not in OTHER; false if there are none.
# lines_only_in FILE OTHER
lines_only_in() {
  # For busybox's grep an empty list matches every line.
  cp "$2" "$tmp/other"
  echo '#' >> "$tmp/other"
  grep -vxF -f "$tmp/other" "$1"
}

# ---- Where packages come from

# fetch ADDRESS FILE
fetch() {
  command -v curl > /dev/null || fail no-curl "the image has no curl to fetch $1 with"
  curl -fsSL --retry 2 --connect-timeout 30 -o "$2" "$1"
}

# The fabric's repository first and alone: its packages are taken from there and from nowhere else.
# KEY is an address, `given` if it already lies in the image, or `unchecked`.
# use_repository NAME ADDRESS TITLE KEY
use_repository() {
  origin=repository
  repository=$1
  origin_text=$2
  fetch "$2repodata/repomd.xml" "$tmp/repomd" || {
    [ $? != 22 ] || fail repository-missing "there is no repository at $2"
    fail repository-unreachable "$2 cannot be reached"
  }
  mkdir -p "$root/etc/yum.repos.d"
  set -- "$1" "$2" "$3" "$4" "$root/etc/yum.repos.d/$1.repo"
  printf '[%s]\nname=%s\nbaseurl=%s\nenabled=1\n' "$1" "$3" "$2" > "$5"
  if [ "$4" = unchecked ]; then
    echo gpgcheck=0 >> "$5"
  else
    mkdir -p "$root/etc/pki/rpm-gpg"
    key=$root/etc/pki/rpm-gpg/RPM-GPG-KEY-$1
    signer='the repository'
    [ "$4" = given ] || fetch "$4" "$key" || fail key-unreachable "the repository's key cannot be fetched from $4"
    chmod 644 "$key"
    printf 'gpgcheck=1\ngpgkey=file://%s\n' "$key" >> "$5"
  fi
  printf '%s\n' \
    '# Of a package that is here, dnf takes no other build while it reaches the mirror; yum needs yum-plugin-priorities for that.' \
    '# Where the mirror is out of reach other packages can be installed, and only a versionlock plugin holds these.' \
    priority=1 skip_if_unavailable=1 >> "$5"
  cp "$5" "$tmp/alone"
}

# Package files of the build context, and nothing else. KEY is a file, or `unchecked`.
# use_files DIRECTORY KEY
use_files() {
  origin=files
  origin_text='package files in the build context'
  files=$1
  signer=given
  [ "$2" = unchecked ] || key=$2
}

# One of the files that were read when this was written.
# expect_file DIGEST NAME
expect_file() {
  echo "$1  $files/$2" >> "$tmp/sums"
}

# Repositories that stand in for the image's own during the build.
# ask_instead ADDRESS...
ask_instead() {
  [ "$origin" != image ] || origin_text="the given repositories $*"
  cp -R "$tmp/alone" "$tmp/base"
  keys=
  for file in "$root"/etc/pki/rpm-gpg/*; do
    keys="$keys file://$file"
  done
  count=0
  for address; do
    count=$((count + 1))
    printf '%s\n' "[base$count]" "name=base$count" "baseurl=$address" enabled=1 gpgcheck=1 "gpgkey=$keys" > "$tmp/base/base$count.repo"
  done
  elsewhere=$tmp/base
  elsewhere_text='those that were given'
}

# The package manager as every step needs it: files stay in the cache to be compared with what is installed, and nobody's
# excludes hide a package of the set.
# run_manager ARGUMENT...
run_manager() {
  set -- -y --disableexcludes=all --setopt=cachedir="$tmp/cache" --setopt=clean_requirements_on_remove=0 "$@"
  case "$origin" in
    files) "$manager" --disablerepo='*' --setopt=localpkg_gpgcheck=0 "$@" ;;
    repository) "$manager" --setopt=keepcache=1 --setopt='*.skip_if_unavailable=1' --setopt="$repository.skip_if_unavailable=0" "$@" ;;
    *) "$manager" --setopt=keepcache=1 --setopt='*.skip_if_unavailable=1' "$@" ;;
  esac
}

# ---- What a former installation left

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

# Takes one section out of a file that others share.
# drop_entry FILE ID
drop_entry() {
  printf '%s\n' "$2" > "$tmp/section"
  id=$(sed 's/[]\/.*[^$]/\\&/g' "$tmp/section")
  sed -i "/^\\[ *$id *\\]/,/^\\[/{/^\\[ *$id *\\]/d;/^\\[/!d}" "$root$1"
}

# ---- What is to come and to go

# A package of the fabric, under the first of its names that is offered.
# take NAME [ALTERNATIVE...]
take() {
  echo "take $*" >> "$tmp/wishes"
  printf '%s\n' "$@" >> "$tmp/family"
}

# An installed package of the same source. Without an offer: `keep` it, or `remove` it, since it needs its own build.
# companion NAME keep|remove
companion() {
  echo "companion $*" >> "$tmp/wishes"
  echo "$1" >> "$tmp/family"
}

# A further package that was asked for.
# take_also NAME...
take_also() {
  for name; do
    echo "also $name" >> "$tmp/wishes"
  done
}

# A package file that the others depend on.
# note_dependencies NAME...
note_dependencies() {
  for name; do
    echo "dependency $name" >> "$tmp/wishes"
  done
}

# An installed package that goes.
# drop_packages NAME...
drop_packages() {
  for name; do
    echo "drop $name" >> "$tmp/wishes"
    echo "$name" >> "$tmp/removable"
  done
}

# wished WISH...: names, one a line
wished() {
  for wish; do
    sed -n "s/^$wish //p" "$tmp/wishes"
  done
}

# ---- The transaction

swap_packages() {
  cat "$tmp/family" >> "$tmp/removable"
  unlock
  list_offers
  write_transaction
  protect
  download
  [ -z "$key" ] || check_signatures
  carry_out shell "$tmp/transaction"
  cat "$tmp/log"
  while read -r package; do
    rpm -q "${package%.rpm}" > /dev/null || refuse
  done < "$tmp/wanted"
  ldconfig
}

# Locks of former builds would hold the packages as they are, where the versionlock plugin is.
unlock() {
  for file in "$root/etc/dnf/plugins/versionlock.list" "$root/etc/yum/pluginconf.d/versionlock.list"; do
    [ -e "$file" ] || continue
    while read -r name; do
      sed -i -E "/^(# rdmaprep: .*|!?([0-9]+:)?$name-([0-9]+:)?[0-9*].*)\$/d" "$file"
    done < "$tmp/removable"
  done
}

# Ends for a package that is not where it was to come from.
# fail_for_lack SENTENCE
fail_for_lack() {
  case "$origin-$elsewhere" in
    repository-*) fail package-missing "$1" ;;
    files-*) fail files-lack-package "$1" ;;
    *-"$tmp/base") fail given-repositories-lack-package "$1" ;;
    *) fail yum-repositories-lack-package "$1" ;;
  esac
}

# Writes lines `NAME EPOCH: VERSION RELEASE ARCH [FILE]` of what can be had.
list_offers() {
  if [ "$origin" = files ]; then
    list_files
  else
    list_repositories
  fi
  [ -s "$tmp/offers" ] || {
    cat "$tmp/log" >&2
    [ "$origin" = repository ] || fail_for_lack "none of the packages is in $origin_text: can they be reached?"
    fail_for_lack "none of the packages is in $origin_text"
  }
}

list_files() {
  sha256sum -c "$tmp/sums" > "$tmp/log" 2>&1 || {
    cat "$tmp/log" >&2
    fail files-changed "the package files are not those that this Dockerfile was written for"
  }
  for file in "$files"/*.rpm; do
    rpm -qp --nosignature --qf "%{NAME} %{EPOCHNUM}: %{VERSION} %{RELEASE} %{ARCH} $file\\n" "$file"
  done > "$tmp/offers"
}

# What is offered, as a system sees it that has no package yet: what is installed would hide it.
list_repositories() {
  database=$tmp/root$(rpm --eval '%{_dbpath}')
  mkdir -p "$database"
  rpm --dbpath "$database" --initdb
  wished also > "$tmp/words"
  cat "$tmp/family" >> "$tmp/words"
  set --
  while read -r name; do
    set -- "$@" "$name"
  done < "$tmp/words"
  if [ "$origin" = repository ]; then
    run_manager --installroot="$tmp/root" --releasever=0 --setopt=reposdir="$tmp/alone" \
      info available "$@" > "$tmp/info" 2> "$tmp/log" || true
    read_info > "$tmp/offers"
    return 0
  fi
  find_release
  for directory in dnf yum; do
    [ -d "$root/etc/$directory/vars" ] || continue
    mkdir -p "$tmp/root/etc/$directory"
    cp -R "$root/etc/$directory/vars" "$tmp/root/etc/$directory"
  done
  run_manager --installroot="$tmp/root" --releasever="$release" --setopt=reposdir="$elsewhere" \
    info --showduplicates available "$@" > "$tmp/info" 2> "$tmp/log" || true
  # Of several builds the latest: they come in ascending order.
  read_info > "$tmp/all"
  tac "$tmp/all" > "$tmp/offers"
}

read_info() {
  while read -r field _ value; do
    case "$field" in
      Name)
        o_name=$value
        o_epoch=
        o_version=
        o_release=
        o_arch= ;;
      Epoch) o_epoch=$value: ;;
      Version) o_version=$value ;;
      Release) o_release=$value ;;
      Arch|Architecture) o_arch=$value ;;
      Repo|Repository) ! is_offer || echo "$o_name ${o_epoch:-0:} $o_version $o_release $o_arch" ;;
    esac
  done < "$tmp/info"
}

is_offer() {
  [ "$o_arch" = "$arch" ] || [ "$o_arch" = noarch ] || return 1
  # Mellanox's builds outrank the distribution's by their versions, wherever they are from.
  [ "$origin" = repository ] || case "$o_version-$o_release" in *mlnx*) return 1 ;; esac
}

# What the package manager takes for $releasever, which it does not find out in a system without packages.
find_release() {
  rpm -q --provides --whatprovides system-release > "$tmp/provided" || true
  release=$(sed -n '/^system-release(releasever) = /{s/.*= //p;q}' "$tmp/provided")
  [ -n "$release" ] || release=$(sed -n '/^system-release = /{s/.*= \([^-]*\).*/\1/p;q}' "$tmp/provided")
  [ -n "$release" ] || {
    rpm -q --qf '%{VERSION}\n' --whatprovides system-release > "$tmp/provided" ||
      fail no-release "no package of the image says which release of its distribution it is"
    read -r release < "$tmp/provided"
  }
}

write_transaction() {
  : > "$tmp/transaction"
  : > "$tmp/sought"
  : > "$tmp/wanted"
  # dnf takes files by the first command only, older ones too; those that are installed already it only gets to know.
  [ "$origin-$manager" != files-dnf ] || echo install "$files"/*.rpm > "$tmp/transaction"
  while read -r wish name more; do
    case "$wish" in
      take) offer_any "$name" "$more" || fail_for_lack "package $name is not in $origin_text" ;;
      companion) offer "$name" || [ "$more" = keep ] || echo "remove $name" >> "$tmp/transaction" ;;
      also) offer "$name" || seek "$name" ;;
      dependency) offer "$name" || fail_for_lack "package $name is not in $origin_text" ;;
      drop) echo "remove $name" >> "$tmp/transaction" ;;
    esac
  done < "$tmp/wishes"
  echo run >> "$tmp/transaction"
}

# offer_any NAME WORDS
offer_any() {
  for candidate in $1 $2; do
    ! offer "$candidate" || return 0
  done
  return 1
}

# A package that no repository was asked for by name: the transaction finds it, or the build fails. Among files there is
# none, and the one that is installed stays.
# seek NAME
seek() {
  [ "$origin" != files ] || return 0
  echo "install $1" >> "$tmp/transaction"
  echo "$1" >> "$tmp/sought"
}

# One line of the transaction: the exact build that is offered, whichever is installed.
# offer NAME
offer() {
  while read -r o_name o_epoch o_version o_release o_arch o_file; do
    [ "$o_name" = "$1" ] || continue
    choose_verb
    case "$origin-$manager" in
      files-dnf) [ "$verb" != reinstall ] || echo "$verb $o_name-$o_epoch$o_version-$o_release.$o_arch" >> "$tmp/transaction" ;;
      files-*) echo "$verb $o_file" >> "$tmp/transaction" ;;
      *) echo "$verb $o_name-$o_epoch$o_version-$o_release.$o_arch" >> "$tmp/transaction" ;;
    esac
    echo "$o_name-$o_version-$o_release.$o_arch.rpm" >> "$tmp/wanted"
    return 0
  done < "$tmp/offers"
  return 1
}

choose_verb() {
  verb=install
  rpm -q --qf '%{EPOCHNUM}: %{VERSION} %{RELEASE}\n' "$o_name.$o_arch" > "$tmp/have" < /dev/null || true
  read -r h_epoch h_version h_release < "$tmp/have"
  case "$h_epoch $h_version $h_release" in
    *' is not installed'*) return 0 ;;
    "$o_epoch $o_version $o_release") verb=reinstall ;;
    *) ! is_older || verb=downgrade ;;
  esac
}

# Whether what is offered is older than what is installed.
is_older() {
  if [ "$h_epoch" != "$o_epoch" ]; then
    [ "${h_epoch%:}" -gt "${o_epoch%:}" ]
  elif [ "$h_version" = "$o_version" ]; then
    is_newer "$h_release" "$o_release"
  else
    is_newer "$h_version" "$o_version"
  fi
}

# is_newer VERSION VERSION
is_newer() {
  [ "$(rpm --eval "%{lua:print(rpm.vercmp('$1', '$2'))}")" = 1 ]
}

# Nothing but the RDMA packages may go: all others are protected, as the package manager is.
protect() {
  rpm -qa --qf '%{NAME}\n' > "$tmp/before"
  lines_only_in "$tmp/before" "$tmp/removable" > "$tmp/protected.conf" || true
  rpm -Va --nofiles --noscripts > "$tmp/unmet" 2>&1 || true
}

# carry_out ARGUMENT...
carry_out() {
  set -- --setopt=protected_packages=glob:"$tmp/protected.conf" "$@"
  [ "$origin" = files ] || set -- --setopt=reposdir="$from" "$@"
  run_manager "$@" > "$tmp/log" 2>&1 || true
}

# Writes the paths of the package files that the outcome is compared with.
download() {
  case "$origin" in
    files)
      printf '%s\n' "$files"/*.rpm > "$tmp/files"
      return 0 ;;
    repository)
      # A dependency that is missing comes from the image's own repositories, which are only asked if there is one.
      from=$tmp/alone
      carry_out --downloadonly shell "$tmp/transaction"
      if ! is_fetched || [ -s "$tmp/sought" ]; then
        from=$elsewhere
        cat "$tmp/log"
        echo "rdmaprep: not from this repository alone; asking $elsewhere_text too"
        carry_out --downloadonly shell "$tmp/transaction"
      fi ;;
    *)
      from=$elsewhere
      carry_out --downloadonly shell "$tmp/transaction" ;;
  esac
  is_fetched || refuse
  list_fetched > "$tmp/files"
}

is_fetched() {
  while read -r file; do
    set -- "$tmp"/cache/*/packages/"$file"
    [ -e "$1" ] || return 1
  done < "$tmp/wanted"
}

list_fetched() {
  if [ "$origin" = repository ]; then
    set -- "$tmp/cache/$repository"/packages/*.rpm "$tmp/cache/$repository"-????????????????/packages/*.rpm
    for file; do
      [ ! -e "$file" ] || echo "$file"
    done
  else
    while read -r file; do
      printf '%s\n' "$tmp"/cache/*/packages/"$file"
    done < "$tmp/wanted"
  fi
}

# Says why the package manager did not do it.
refuse() {
  cat "$tmp/log" >&2
  unsigned=$(sed -n -e '/^Package .* is not signed/{s/^Package \([^ ]*\) .*/\1/p;q}' \
    -e '/^Public key for .* is not installed/{s/^Public key for \([^ ]*\) .*/\1/p;q}' "$tmp/log")
  [ -z "$unsigned" ] || fail untrusted-package "no key that the image trusts has signed ${unsigned##*/}"
  gone=$(sed -n -e '/removing the following protected packages/{s/.*packages: \([^, ]*\).*/\1/p;q}' \
    -e '/Trying to remove .* which is protected/{s/.*remove "\([^"]*\)".*/\1/p;q}' "$tmp/log")
  if [ "$manager" = dnf ]; then
    # Rather than say what a new package lacks, dnf tries to remove what needs it: where nothing may go, it says it.
    sed '/^remove /d' "$tmp/transaction" > "$tmp/additions"
    set -- --assumeno shell "$tmp/additions"
    [ "$origin" = files ] || set -- --setopt=reposdir="$from" "$@"
    run_manager "$@" > "$tmp/log" 2>&1 || true
    lacks=$(sed -n '/nothing provides .* needed by /{s/.*nothing provides //p;q}' "$tmp/log")
    [ -z "$lacks" ] || {
      cat "$tmp/log" >&2
      fail rpm-conflict "$manager cannot put these packages together: nothing provides $lacks"
    }
  fi
  [ -z "$gone" ] || fail swap-removes-package "the swap would remove $gone, which is outside the RDMA set"
  fail rpm-conflict "$manager cannot put these packages together"
}

# Signed by this key, and not by any that the image happens to trust.
check_signatures() {
  mkdir "$tmp/keys"
  rpmkeys --dbpath "$tmp/keys" --import "$key" || fail bad-key "$key is not a key that rpm can read"
  while read -r file; do
    signed=$(rpmkeys --dbpath "$tmp/keys" -K "$file") || true
    case "${signed#"$file:"}" in
      *NOT\ OK*) ;;
      *pgp*OK|*signatures*OK) continue ;;
    esac
    echo "$signed" >&2
    [ "$signer" = given ] || fail key-mismatch "${file##*/} is not signed by the key of the repository"
    fail key-mismatch "${file##*/} is not signed by the key that was given"
  done < "$tmp/files"
}

# ---- Is the outcome what was meant?

prove_packages() {
  while read -r package; do
    rpm -q --whatprovides "$package" > /dev/null || fail package-unknown "package $package is in no repository"
  done < "$tmp/sought"
  rpm -qa --qf '%{NAME}\n' > "$tmp/after"
  lines_only_in "$tmp/before" "$tmp/after" > "$tmp/lost" || true
  while read -r package; do
    grep -qxF -e "$package" "$tmp/removable" ||
      fail swap-removes-package "the swap removed $package, which is outside the RDMA set"
  done < "$tmp/lost"
  while read -r file; do
    prove_package "$file"
  done < "$tmp/files"
  rpm -Va --nofiles --noscripts > "$tmp/unmet-now" 2>&1 || true
  if lines_only_in "$tmp/unmet-now" "$tmp/unmet" >&2; then
    fail requirements-unmet "packages miss what they require"
  fi
  wished drop > "$tmp/dropped"
  while read -r package; do
    ! rpm -q "$package" > /dev/null || fail still-there "package $package is still there"
  done < "$tmp/dropped"
}

# The installed package is the one of the file, header and files.
# prove_package FILE
prove_package() {
  about='%{NAME} %{EVR} %{ARCH} %{SIGMD5} %{SHA1HEADER}\n'
  rpm -qp --nosignature --qf "$about" "$1" > "$tmp/offered"
  read -r name evr _ < "$tmp/offered"
  rpm -q --qf "$about" "$name" > "$tmp/got" || fail not-installed "$name is not installed"
  grep -qxF -f "$tmp/offered" "$tmp/got" || {
    cat "$tmp/offered" "$tmp/got" >&2
    fail other-build "the installed $name is not the build that $origin_text offers"
  }
  rpm -V --nomtime --nomode --nouser --nogroup "$name" > "$tmp/verified" ||
    ! grep -v '^[^ ]* * [cdg] /' "$tmp/verified" || fail files-differ "the files of $name are not those of its package"
  echo "rdmaprep: $name $evr from $origin_text"
}

# No package of the set, nor one that was asked for, is Mellanox's build: those are for other devices.
prove_no_mellanox() {
  wished also > "$tmp/words"
  while read -r package; do
    case "$(rpm -q "$package")" in
      *mlnx*) fail mellanox-only "package $package is in no repository but Mellanox's" ;;
    esac
  done < "$tmp/words"
  set --
  while read -r name; do
    set -- "$@" "$name"
  done < "$tmp/family"
  rpm -q --qf '%{VERSION}-%{RELEASE} %{NAME}\n' "$@" > "$tmp/builds" || true
  left=$(sed -n '/mlnx/s/.* //p' "$tmp/builds")
  [ -z "$left" ] || fail still-mellanox "still Mellanox builds: $left"
}

# found PATTERN: where the loader finds a library
found() {
  sed -n "/^[[:space:]]*$1 (.*$loader_arch.*) => /{s/.* => //p;q}" "$tmp/loader"
}

# is_libibverbs PATH: whether it belongs to that package
is_libibverbs() {
  rpm -qf --qf '%{NAME}\n' "$1" > "$tmp/owners" || true
  grep -qx libibverbs "$tmp/owners"
}

# prove_loader DRIVER
prove_loader() {
  ldconfig -p > "$tmp/loader"
  lib=$(found 'libibverbs\.so\.1')
  [ -n "$lib" ] || fail no-libibverbs "the loader finds no libibverbs.so.1"
  lib=$(readlink -f "$lib")
  is_libibverbs "$lib" || fail other-libibverbs "the loader finds $lib before the libibverbs.so.1 of package libibverbs"
  dev=$(found 'libibverbs\.so')
  [ -z "$dev" ] || [ "$(readlink -f "$dev")" = "$lib" ] ||
    fail other-libibverbs "libibverbs.so is $dev and libibverbs.so.1 is $lib: NCCL opens the first"
  providers=${lib%/*}/libibverbs
  set -- "$1" "$providers/lib$1"-rdmav*.so
  is_libibverbs "$2" || fail no-provider "package libibverbs brings no $1 provider to $providers"
  grep -qx "driver $1" "$root/etc/libibverbs.d/$1.driver" ||
    fail no-driver-file "/etc/libibverbs.d/$1.driver does not name the $1 driver"
}

# ---- What remains

# Holds the packages that came in, where the versionlock plugin is; what came along as a dependency stays free.
pin_packages() {
  locks=$root/etc/yum/pluginconf.d
  [ "$manager" != dnf ] || locks=$root/etc/dnf/plugins
  mkdir -p "$locks"
  wished dependency > "$tmp/free"
  while read -r file; do
    read_evr "$file"
    ! grep -qxF -e "$name" "$tmp/free" || continue
    echo "# rdmaprep: $name $epoch$evr"
    case "$manager" in
      dnf) echo "$name-${epoch:-0:}$evr.*" ;;
      *) echo "${epoch:-0:}$name-$evr.*" ;;
    esac
  done < "$tmp/files" >> "$locks/versionlock.list"
}

# read_evr FILE
read_evr() {
  rpm -qp --nosignature --qf '%{NAME} %{EVR}\n' "$1" > "$tmp/offered"
  read -r name evr < "$tmp/offered"
  case "$evr" in
    *:*) epoch=${evr%%:*}: ;;
    *) epoch= ;;
  esac
  evr=${evr#*:}
}

# A driver file without a provider makes libibverbs complain in every process.
remove_stray_drivers() {
  for file in "$root"/etc/libibverbs.d/*.driver; do
    driver=$(sed -n '/^driver /{s/^driver  *\([^ ]*\).*/\1/p;q}' "$file")
    set -- "$providers/lib$driver"-rdmav*.so
    [ -e "$1" ] || rm -f "$file"
  done
}

clean_up() {
  [ "$origin" != files ] || rm -rf "$files"
  [ "$origin" != files ] || [ -z "$key" ] || rm -f "$key"
  rm -rf "$tmp" "$root/var/cache/$manager"/*
}
