# Shared by the scripts of this folder: source it, don't run it.
# shellcheck shell=bash

rig_src=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$rig_src/../.." && pwd)
rig=${RDMAPREP_RIG_DIR:-$root/target/rig}
mkdir -p "$rig"
rig=$(cd "$rig" && pwd)

say() { printf 'rig: %s\n' "$*"; }
die() { printf 'rig: %s\n' "$*" >&2; exit 1; }

# What an image was made from is written in it as a label. A file beside the
# checkout would not know that another checkout has moved the tag.
# shellcheck disable=SC2034 # of the scripts that make images
label=rdmaprep.rig

# Runs a command with its output in $log; shows the end of it if it fails.
logged() {
  printf '== %(%T)T %s\n' -1 "$*" >>"$log"
  "$@" >>"$log" 2>&1 && return
  tail -n 30 "$log" >&2
  die "failed: $1 $2 (all of it: $log)"
}

# One at a time: two test runs may start the same script together, and the
# second must wait and then find the work done. The lock is the machine's, not
# the checkout's, since dpkg and the Docker daemon are the machine's too.
# The lock goes with file descriptor 9: a daemon that is left running must be
# started with 9>&-.
lock() {
  exec 9>"/run/lock/rdmaprep-rig-$1"
  flock 9
}

# Debian bookworm's mirror as this machine names it, as sources.list lines.
# apt knows a mirror's origin only after its first update.
mirrors() {
  local lines
  lines=$(list_mirrors)
  if [[ $lines != *' bookworm '* ]]; then
    apt-get update -qq >&2
    lines=$(list_mirrors)
  fi
  [[ $lines == *' bookworm '* ]] || die "apt has no mirror of Debian bookworm"
  printf '%s\n' "$lines"
}

list_mirrors() {
  # shellcheck disable=SC2016 # the $(…) are apt's
  apt-get indextargets --format 'deb $(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' \
    'Created-By: Packages' |
    sed -nE 's/^(deb \S+ (bookworm|bookworm-security) main) Debian$/\1/p' | sort -u
}

# new_key ADDRESS: a throwaway key in $GNUPGHOME, which must exist. Its agent
# stays behind: end it with gpgconf --kill all.
new_key() {
  gpg --batch --quiet --passphrase '' --quick-generate-key \
    "rdmaprep test rig <$1>" rsa3072 sign never
}

# Files and any further words in, one hash out.
hash_of() {
  local file
  { for file in "$@"; do
      if [[ -f $file ]]; then cat "$file"; else printf '%s\n' "$file"; fi
    done; } | sha256sum | cut -c1-16
}
