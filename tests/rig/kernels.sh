#!/usr/bin/env bash
# kernels.sh [FILE] - compiles the agent's GPU kernels to src/agent/kernels/all_reduce.ptx, or to FILE, with NVRTC out of
# NVIDIA's wheel. No GPU and no CUDA toolkit are needed.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source=$root/src/agent/kernels/all_reduce.cu
result=${1:-$root/src/agent/kernels/all_reduce.ptx}

# The oldest CUDA 12.1 driver reads PTX 8.1; every GPU since Pascal (2016) can run what is compiled for compute_60.
nvrtc=12.1.105 newest_ptx=8.1 target=60

lib=nvidia/cuda_nvrtc/lib
wheel=$("$rig_src/wheel.sh" "nvidia-cuda-nvrtc-cu12==$nvrtc" $lib/libnvrtc.so.12 $lib/libnvrtc-builtins.so.12.1)
work=$(mktemp -d "$rig/kernels.XXXXXX")
trap 'rm -rf "$work"' EXIT
# NVRTC opens its builtins by name.
LD_LIBRARY_PATH=$wheel/$lib /usr/bin/python3 "$rig_src/nvrtc.py" "$wheel/$lib/libnvrtc.so.12" "$source" \
  "--gpu-architecture=compute_$target" --std=c++03 >"$work/ptx"

version=$(sed -n 's/^\.version //p' "$work/ptx")
[[ -n $version && $(printf '%s\n' "$version" "$newest_ptx" | sort -V | tail -n 1) == "$newest_ptx" ]] ||
  die "PTX $version: older drivers would refuse it"
[[ $(sed -n 's/^\.target //p' "$work/ptx") == "sm_$target" ]] || die "the PTX is not for sm_$target"
for kernel in rdmaprep_{fill,check}_{float,half,bfloat16}; do
  grep -q "^\.visible \.entry $kernel(" "$work/ptx" || die "$kernel is not in the PTX"
done
cp "$work/ptx" "$result"
