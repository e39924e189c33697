#!/usr/bin/env bash
# explain.sh RDMAPREP - rdmaprep explain of a log of 1,024 interleaved ranks and 1 GB, beside grep -c NCCL of the same
# file: in pairs, the order changing, from the page cache. Prints both speeds by wall time and by CPU time (which says more
# where others use the machine), the median of the ratios, and the peak memory.
set -euo pipefail
# shellcheck source=../tests/rig/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tests/rig/lib.sh"
rdmaprep=$(realpath "$1")
log=$rig/explain-1024-ranks.log

RUNS=${RUNS:-5} /usr/bin/python3 - "$rdmaprep" "$log" <<'PY'
import os, random, statistics, sys, time

rdmaprep, log = sys.argv[1:]
SIZE, RANKS = 1_000_000_000, 1024

# What each rank prints, in NCCL 2.28's words; lines of all ranks in turn, as one pipe gets them.
def made():
    dice = random.Random(20260102)
    prefix = [f"host-{r // 8:03}:{4000 + r}:{4000 + r} [{r % 8}] " for r in range(RANKS)]
    devices = " ".join(f"[{n}]erdma_{n}:1/RoCE" for n in range(2))
    def begin(r):
        comm = f"ncclCommInitRank comm 0x55d0{r:04x}0 rank {r} nranks {RANKS} cudaDev {r % 8} nvmlDev {r % 8} busId {r % 8}3000 commId 0x9c1d"
        for text in [
            "Bootstrap: Using eth0:192.0.2.7<0>", "cudaDriverVersion 13000", "NCCL version 2.28.9+cuda13.0",
            "NET/Plugin: Could not find: libnccl-net.so", "NCCL_IB_GID_INDEX set by environment to 1.",
            f"NET/IB : Using {devices} [RO]; OOB eth0:192.0.2.7<0>", "Initialized NET plugin IB", "Using network IB",
            f"{comm} - Init START", "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1", f"{comm} - Init COMPLETE",
        ]:
            yield f"{prefix[r]}NCCL INFO {text}\n"
    rounds = zip(*(begin(r) for r in range(RANKS)))
    for lines in rounds:
        lines = list(lines)
        dice.shuffle(lines)
        yield "".join(lines)
    channel = 0
    while True:
        lines = []
        for r in range(RANKS):
            c, peer = channel % 32, (r + 1 + channel // 32 % 8 * 8) % RANKS
            lines.append(f"{prefix[r]}NCCL INFO Channel {c:02}/0 : {r}[{r % 8}] -> {peer}[{peer % 8}] [send] via NET/IB/{c % 2}/GDRDMA\n")
            lines.append(f"{prefix[r]}NCCL INFO Channel {c:02}/0 : {peer}[{peer % 8}] -> {r}[{r % 8}] [receive] via NET/IB/{c % 2}/GDRDMA\n")
            lines.append(f"{prefix[r]}NCCL INFO Channel {c:02}/0 : {r}[{r % 8}] -> {r ^ 1}[{(r ^ 1) % 8}] via P2P/CUMEM\n")
            if channel % 4 == 0:
                lines.append(f"{prefix[r]}NCCL INFO NVLS comm 0x55d0{r:04x}0 headRank {r % 8} nHeads 8 nvlsRanks 8 buffSize 1048576 memSize 2097152\n")
            if r % 64 == channel % 64:
                lines.append(f"[rank{r}]: step {channel} loss 2.{channel:06} grad norm 0.{r:04} tokens per second 12345\n")
        if channel % 512 == 1:
            lines.append(f"\n[2026-01-02 03:04:05] host-000:4000:4100 [0] transport/net_ib.cc:12 NCCL WARN NET/IB : number {channel} of a few\n")
        dice.shuffle(lines)
        yield "".join(lines)
        channel += 1

if not os.path.exists(log):
    print("making", log, flush=True)
    with open(log + ".part", "w") as out:
        written = 0
        for block in made():
            written += out.write(block)
            if written >= SIZE:
                break
    os.rename(log + ".part", log)
size = os.path.getsize(log)

def measure(command):
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        # To a file: where grep's output goes to /dev/null, it stops at the first line.
        os.dup2(os.open(log + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.environ["LC_ALL"] = "C"
        os.execvp(command[0], command)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000

ours, grep = [rdmaprep, "explain", log, "--format", "json"], ["grep", "-c", "NCCL", log]
measure(grep)
runs = int(os.environ["RUNS"])
print(f"explain of {size / 1e6:.0f} MB of {RANKS} ranks, median of {runs}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
pairs = []
for number in range(runs):
    order = [ours, grep] if number % 2 else [grep, ours]
    taken = {id(command): measure(command) for command in order}
    pairs.append((taken[id(ours)], taken[id(grep)]))
middle = lambda values: statistics.median(values)
for name, at in [("rdmaprep explain", 0), ("grep -c NCCL", 1)]:
    wall, cpu = middle(pair[at][0] for pair in pairs), middle(pair[at][1] for pair in pairs)
    memory = max(pair[at][2] for pair in pairs)
    print(f"  {name:<17} {size / 1e6 / wall:6.0f} MB/s by wall time, {size / 1e6 / cpu:6.0f} MB/s by CPU time, peak {memory:6.1f} MB")
print(f"  ratio {middle(a[0] / b[0] for a, b in pairs):.2f} by wall time, {middle(a[1] / b[1] for a, b in pairs):.2f} by CPU time (limit 4)")
PY
