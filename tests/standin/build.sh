#!/usr/bin/env bash
# build.sh FOLDER [SYMBOL...] - builds the stand-ins into FOLDER: libcuda.so.1, libnccl.so.2, libibverbs.so.1, and
# all_reduce, the program that tries them out. For each SYMBOL the library that it is of once more, without it, at
# FOLDER/without/SYMBOL.
set -euo pipefail
source=$(cd "$(dirname "$0")" && pwd)
folder=$1
shift
mkdir -p "$folder"
work=$(mktemp -d "$folder/build.XXXXXX")
trap 'rm -rf "$work"' EXIT

flags=(-std=gnu11 -O2 -g -Wall -Wextra -Werror -Wno-unused-function -fvisibility=hidden -D_GNU_SOURCE)

# library NAME SONAME FOLDER [SYMBOL]: without the symbol.
library() {
  local name=$1 soname=$2 to=$3 hidden=${4:+$4;} linking=()
  case $name in
    # As the real one has it, with versions at its symbols.
    ibverbs) echo "IBVERBS_1.1 { global: ibv_*; local: $hidden *; };" >"$work/versions" ;;
    *) echo "{ global: *; ${hidden:+local: $hidden} };" >"$work/versions" ;;
  esac
  if [[ $name == ibverbs || -n $hidden ]]; then linking=("-Wl,--version-script=$work/versions"); fi
  mkdir -p "$to"
  cc "${flags[@]}" -fPIC -shared "-Wl,-soname,$soname" "${linking[@]}" -o "$work/$soname" "$source/$name.c" \
    -Wl,-z,defs -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2
  mv "$work/$soname" "$to/$soname"
}

library cuda libcuda.so.1 "$folder"
library nccl libnccl.so.2 "$folder"
library ibverbs libibverbs.so.1 "$folder"
cc "${flags[@]}" -o "$work/all_reduce" "$source/all_reduce.c" -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2
mv "$work/all_reduce" "$folder/all_reduce"
for symbol in "$@"; do
  case $symbol in
    cu*) library cuda libcuda.so.1 "$folder/without/$symbol" "$symbol" ;;
    nccl*) library nccl libnccl.so.2 "$folder/without/$symbol" "$symbol" ;;
    ibv_*) library ibverbs libibverbs.so.1 "$folder/without/$symbol" "$symbol" ;;
    *) echo "$symbol: of none of the libraries" >&2; exit 1 ;;
  esac
done
