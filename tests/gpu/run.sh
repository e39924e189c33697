#!/usr/bin/env bash
# run.sh OUT - the preflight on real GPUs, beside nccl-tests: OUT/results.json and OUT/results.md.
#
# Needs a host with an NVIDIA GPU, a Docker engine with its command, python3, and
#   RDMAPREP        the program (default: target/dist/rdmaprep, else target/release/rdmaprep)
#   ALL_REDUCE_PERF all_reduce_perf of nccl-tests, or
#   NCCL_TESTS      its source, which is built here with nvcc
#   IMAGE           an image with libnccl and what all_reduce_perf needs (default: made from this host's own root)
#   GPUS            how many GPUs take part (default: 1)
#   MPI_PERF        all_reduce_perf built with MPI=1, for several ranks, where ALL_REDUCE_PERF has none (default: built too,
#                   if there is an mpicc); without it several GPUs are compared with one process for all of them
#   PAIRS           how often the two are compared (default: 5)
#   PARTS           what is done: all, many and network are tables, whole is the time of the whole command, failures is what
#                   must fail (default: all of these)
# It removes the images and containers that it made, and asks at the end whether anything is left.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
gpus=${GPUS:-1}
pairs=${PAIRS:-5}
parts=" ${PARTS:-all many network whole failures} "
does() { [[ $parts == *" $1 "* ]]; }
tool=${RDMAPREP:-$root/target/dist/rdmaprep}
[[ -x $tool ]] || tool=$root/target/release/rdmaprep
say() { echo "gpu: $*" >&2; }
die() { say "$*"; exit 1; }
[[ -x $tool ]] || die "there is no program: make dist, or set RDMAPREP"
docker version -f '{{.Server.Version}}' >/dev/null || die "no Docker engine answers"
nvidia-smi -L || die "no NVIDIA driver answers"

work=$(mktemp -d)
made=()
cleanup() {
  if ((${#made[@]})); then docker rmi -f "${made[@]}" >/dev/null 2>&1 || true; fi
  rm -rf "$work"
}
trap cleanup EXIT

# --- all_reduce_perf -------------------------------------------------------------------------------------------------
stage=$work/stage
mkdir -p "$stage/usr/local/bin"
build_perf() { # MPI TO
  local folder=$work/build-$1
  say "building all_reduce_perf (MPI=$1)"
  if (($1)); then
    CPATH=$(mpicc --showme:incdirs | tr ' ' ':'):${CPATH:-}
    LIBRARY_PATH=$(mpicc --showme:libdirs | tr ' ' ':'):${LIBRARY_PATH:-}
    export CPATH LIBRARY_PATH
  fi
  cp -r "$NCCL_TESTS" "$work/nccl-tests-$1"
  make -C "$work/nccl-tests-$1/src" -j"$(nproc)" MPI="$1" BUILDDIR="$folder" \
    NVCC_GENCODE="-gencode=arch=compute_$capability,code=sm_$capability" "$folder/all_reduce_perf" >"$out/build-$1.log" 2>&1 ||
    { tail -n 20 "$out/build-$1.log" >&2; return 1; }
  cp "$folder/all_reduce_perf" "$2"
}
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n1 | tr -d .)
if [[ -n ${ALL_REDUCE_PERF:-} ]]; then
  cp "$ALL_REDUCE_PERF" "$stage/usr/local/bin/all_reduce_perf"
elif [[ -n ${NCCL_TESTS:-} ]]; then
  build_perf 0 "$stage/usr/local/bin/all_reduce_perf" || die "nccl-tests could not be built"
else
  die "set ALL_REDUCE_PERF or NCCL_TESTS"
fi
mpi=0
if [[ -n ${MPI_PERF:-} ]]; then
  cp "$MPI_PERF" "$stage/usr/local/bin/all_reduce_perf_mpi"
  mpi=1
elif [[ -n ${NCCL_TESTS:-} ]] && command -v mpicc >/dev/null && build_perf 1 "$stage/usr/local/bin/all_reduce_perf_mpi"; then
  mpi=1
fi
cp "$here/pair.sh" "$stage/usr/local/bin/pair.sh"
chmod 755 "$stage"/usr/local/bin/*

# --- the image -------------------------------------------------------------------------------------------------------
if [[ -n ${IMAGE:-} ]]; then
  base=$IMAGE
else
  base=rdmaprep-gpu/host:local
  say "making $base from this host's root"
  kept=()
  for directory in bin lib lib64 sbin etc usr var/lib/dpkg ${IMAGE_DIRECTORIES:-}; do [[ -e /$directory ]] && kept+=("./$directory"); done
  # Driver libraries stay out: the launch brings them.
  tar -c --exclude='./usr/local/nvidia' --exclude='*.a' --exclude='./usr/share/doc' --exclude='./usr/share/man' \
    --exclude='./usr/local/cuda*/nsight*' --exclude='./usr/local/cuda*/extras' --exclude='./usr/local/cuda*/compute-sanitizer' \
    --exclude='libcudnn*' --exclude='libcublas*' --exclude='libcusparse*' --exclude='libcufft*' --exclude='libcusolver*' \
    --exclude='libnvrtc*' --exclude='libnpp*' --exclude='libcurand*' --exclude='libnvJit*' --exclude='./usr/lib/llvm*' \
    -C / "${kept[@]}" 2>/dev/null |
    docker import --change "ENV PATH=$PATH" ${LD_LIBRARY_PATH:+--change "ENV LD_LIBRARY_PATH=$LD_LIBRARY_PATH"} - "$base" >/dev/null
  made+=("$base")
fi
container=$(docker create "$base" true)
docker cp "$stage/usr/local/bin/." "$container:/usr/local/bin/" >/dev/null
base=rdmaprep-gpu/base:local pair=rdmaprep-gpu/pair:local
docker commit "$container" "$base" >/dev/null
docker commit --change 'ENTRYPOINT ["/usr/local/bin/pair.sh"]' "$container" "$pair" >/dev/null
docker rm "$container" >/dev/null
made=("$base" "$pair" "${made[@]}")

# --- the runs --------------------------------------------------------------------------------------------------------
# Judged by the run alone: an image made from a host is none for a cloud. Variables of the caller that NCCL must keep go along.
keep=()
for name in NCCL_NVLS_ENABLE NCCL_SOCKET_IFNAME; do [[ -n ${!name:-} ]] && keep+=(--env "$name"); done
preflight() { "$tool" preflight "$base" --run-only --target ecs --gpus "$gpus" --nccl loader "${keep[@]}" --progress plain "$@"; }
sizes=(-b 32K -e 4G -f 2 -n 20 -w 1)
perf="all_reduce_perf"
if ((gpus > 1)); then
  if ((mpi)); then perf="mpirun --allow-run-as-root --bind-to none --mca plm_rsh_agent sh -np $gpus all_reduce_perf_mpi"; else perf="all_reduce_perf -g $gpus"; fi
fi

# pairs NAME COMMAND ARGUMENT... - the agent with the arguments beside all_reduce_perf with the command, in one container each
pairs() {
  local name=$1 command=$2 i first
  shift 2
  say "$pairs pairs: $name"
  for ((i = 1; i <= pairs; i++)); do
    mkdir -p "$work/$name$i"
    first=nccl-tests
    if ((i % 2 == 0)); then first=agent; fi
    "$tool" preflight "$pair" --run-only --target ecs --nccl loader "${keep[@]}" --progress plain --keep-entrypoint \
      --mount "$work/$name$i:/out" --env PAIR_FIRST=$first --env "PAIR_COMMAND=$command" \
      "$@" --format json -o "nccl-tests=$out/$name$i.rdmaprep.txt" >"$out/$name$i.json" 2>"$out/$name$i.log" || true
    cp "$work/$name$i/nccl-tests.txt" "$out/$name$i.nccl-tests.txt"
  done
}
# Two cycles: in the first, nccl-tests' middle sizes are timed while the driver clears its buffers.
does all && pairs all "$perf ${sizes[*]} -N 2" --gpus "$gpus" "${sizes[@]}"
# Where an operation takes microseconds, its time is that of the call: many operations tell it best.
many=(-b 1M -e 8M -f 2 -n 2000 -w 1)
does many && pairs many "$perf ${many[*]} -N 2" --gpus "$gpus" "${many[@]}"
if does network && ((mpi && gpus == 1)); then
  # Ranks of two hosts on one GPU, as with --ranks-per-gpu 2.
  two="mpirun --allow-run-as-root --bind-to none --mca plm_rsh_agent sh -np 2 sh -c 'NCCL_HOSTID=h\$OMPI_COMM_WORLD_RANK NCCL_TESTS_DEVICE=0 exec all_reduce_perf_mpi"
  network=(-b 1M -e 16M -f 2 -n 20 -w 1)
  pairs network "$two ${network[*]}'" --gpus 1 --ranks-per-gpu 2 "${network[@]}"
fi

whole() {
  say "the whole preflight beside docker run, 32 KiB to 256 MiB"
  line=$("$tool" preflight "$base" --target ecs --gpus "$gpus" --nccl loader "${keep[@]}" --dry-run 2>/dev/null | head -n1)
  # The engine here may refuse a limit; then both go without.
  if ! eval "$line true" >/dev/null 2>&1; then line=${line/--ulimit memlock=-1 /}; fi
  now() { date +%s.%N; }
  for ((i = 1; i <= 3; i++)); do
    begin=$(now); preflight -e 256M --format json >"$out/whole.json" 2>/dev/null || true; end=$(now)
    echo "preflight $begin $end" >>"$out/times.txt"
    begin=$(now); eval "$line env -u NCCL_DEBUG $perf -b 32K -e 256M -f 2 -n 20 -w 1" >"$out/docker-run.txt" 2>&1; end=$(now)
    echo "docker-run $begin $end" >>"$out/times.txt"
  done
}

expect() { # NAME CODE ARGUMENT... - the exit code must be CODE
  local name=$1 code=$2 got=0
  shift 2
  preflight "$@" --format json >"$out/$name.json" 2>"$out/$name.log" || got=$?
  echo "$name $code $got" >>"$out/outcomes.txt"
  if ((got != code)); then say "$name: exit code $got, expected $code"; tail -n 5 "$out/$name.log" >&2; fi
}

failures() {
  say "two ranks on one GPU, through the network"
  expect two-ranks 0 --ranks-per-gpu 2 -e 64M --datatype float,half,bfloat16
  preflight --ranks-per-gpu 2 -e 1M 2>/dev/null >"$out/two-ranks.txt" || true
  # Without an RDMA device the NIC cannot be had, and that is the host's.
  forced=4
  if [[ -n $(ls /sys/class/infiniband 2>/dev/null) ]]; then forced=0; fi
  expect force-nic $forced --ranks-per-gpu 2 --force-nic -e 1M
  expect types 0 -e 64M --datatype float,half,bfloat16

  say "what must fail"
  expect planted 1 -e 1M --plant-wrong 0:1M:out-of-place:1234
  printf 'minimum_nccl = "99.0"\n' >"$work/policy.toml"
  expect version-gate 1 -e 1M --policy "$work/policy.toml"
  nodes=()
  for node in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia0; do nodes+=(--device "$node"); done
  expect no-driver-library 4 -e 1M --gpu-access none "${nodes[@]}"
  expect no-gpu 4 -e 1M --gpu-access none
  expect ib-disabled 4 -e 1M --ranks-per-gpu 2 --require-rdma --env NCCL_IB_DISABLE=1
  expect total-timeout 5 -b 1G -e 4G -n 200000 --timeout 4
  expect phase-timeout 5 -b 4G -e 4G -n 200000 --phase-timeout 3

  say "a rank is killed"
  (
    got=0
    preflight -b 1G -e 4G -n 20000 --ranks-per-gpu $((gpus > 1 ? 1 : 2)) --format json >"$out/killed.json" 2>"$out/killed.log" || got=$?
    echo "killed-rank 4 $got" >>"$out/outcomes.txt"
  ) &
  background=$!
  victim=
  for ((i = 0; i < 300; i++)); do
    container=$(docker ps -q --filter label=rdmaprep.run | head -n1)
    if [[ -n $container ]] && grep -q 'float 1073741824\|ranks connect' "$out/killed.log" 2>/dev/null; then
      victim=$(docker top "$container" -eo pid,args 2>/dev/null | awk '/agent rank/{print $1}' | tail -n1)
      [[ -n $victim ]] && break
    fi
    sleep 0.1
  done
  if [[ -n $victim ]]; then
    # Past the connections, into the operations.
    sleep 3
    kill -9 "$victim"
  else
    say "no rank was found to kill"
  fi
  wait "$background" || true
}

: >"$out/times.txt"
: >"$out/outcomes.txt"
if does whole; then whole; fi
if does failures; then failures; fi
echo "left $(docker ps -aq --filter label=rdmaprep.run | wc -l)" >>"$out/outcomes.txt"
python3 "$here/results.py" "$out" "$gpus" "$perf"
