#!/usr/bin/env python3
"""results.py OUT GPUS COMMAND - the files that run.sh left in OUT -> OUT/results.json and OUT/results.md."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

out, gpus, command = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def query(field):
    text = subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"], capture_output=True, text=True)
    return text.stdout.splitlines()[0].strip() if text.stdout else "unknown"


def rows_of_nccl_tests(path):
    """One list of rows per cycle: size -> (time out of place, time in place, wrong), in microseconds."""
    cycles, seen = [{}], None
    for line in path.read_text().splitlines():
        fields = line.split()
        if len(fields) != 13 or not fields[0].isdigit():
            continue
        size = int(fields[0])
        if seen is not None and size <= seen:
            cycles.append({})
        seen = size
        cycles[-1][size] = (float(fields[5]), float(fields[9]), int(float(fields[8])) + int(float(fields[12])))
    return cycles


wrong, nccl = 0, None


def compare(name, ranks):
    """The table of one set of pairs."""
    global wrong, nccl
    ours, first, second = {}, {}, {}
    for path in sorted(out.glob(f"{name}[0-9]*.json")):
        report = json.loads(path.read_text())
        for row in report["run"]["rows"]:
            sides = row["out_of_place"], row["in_place"]
            ours.setdefault(row["size_bytes"], []).append(tuple(side["time_us"] for side in sides))
            wrong += sum(side["wrong"] for side in sides)
        nccl = report["run"]["facts"]["ranks"][0]["nccl_version_code"]
        cycles = rows_of_nccl_tests(path.with_suffix(".nccl-tests.txt"))
        for size, row in cycles[0].items():
            first.setdefault(size, []).append(row)
        for size, row in cycles[-1].items():
            second.setdefault(size, []).append(row)
    table = []
    for size in sorted(set(ours) & set(second)):
        median = lambda rows, side: statistics.median(row[side] for row in rows)
        factor = 2 * (ranks - 1) / ranks
        row = {"size_bytes": size}
        for side, place in enumerate(("out_of_place", "in_place")):
            times = [r[side] for r in second[size]]
            row[place] = {
                "time_us": median(ours[size], side),
                "nccl_tests_time_us": median(second[size], side),
                "algbw_gb_per_s": size / median(ours[size], side) / 1e3,
                "busbw_gb_per_s": size / median(ours[size], side) / 1e3 * factor,
                # Bandwidth over bandwidth is time over time, turned round; the median over the pairs.
                "ratio": median_ratio(ours[size], second[size], side),
                "ratio_first_cycle": median_ratio(ours[size], first[size], side),
                # How far nccl-tests is from itself.
                "nccl_tests_spread": (max(times) - min(times)) / statistics.median(times),
            }
        table.append(row)
    return table


def median_ratio(mine, theirs, side):
    return statistics.median(b[side] / a[side] for a, b in zip(mine, theirs) if a[side] > 0)


tables = {name: compare(name, ranks) for name, ranks in (("all", gpus), ("many", gpus), ("network", 2))}
times = {"preflight": [], "docker-run": []}
for line in (out / "times.txt").read_text().splitlines():
    name, begin, end = line.split()
    times[name].append(float(end) - float(begin))
outcomes, left = {}, None
for line in (out / "outcomes.txt").read_text().splitlines():
    fields = line.split()
    if fields[0] == "left":
        left = int(fields[1])
    else:
        outcomes[fields[0]] = {"expected": int(fields[1]), "exit_code": int(fields[2])}

results = {
    "date": subprocess.run(["date", "-u", "+%Y-%m-%d"], capture_output=True, text=True).stdout.strip(),
    "card": query("name"),
    "gpus": gpus,
    "driver": query("driver_version"),
    "nccl_version_code": nccl,
    "compared_with": command,
    "wrong_values": wrong,
    "tables": {name: table for name, table in tables.items() if table},
    "preflight_time_s": statistics.median(times["preflight"] or [0]),
    "docker_run_time_s": statistics.median(times["docker-run"] or [0]),
    "outcomes": outcomes,
    "containers_left": left,
}
(out / "results.json").write_text(json.dumps(results, indent=1) + "\n")

lines = [f"{results['date']}, {gpus} x {results['card']}, driver {results['driver']}, NCCL {nccl}; beside {command}"]
titles = {"all": "20 operations a size", "many": "2000 operations a size", "network": "two ranks on one GPU, over TCP"}
for name, table in results["tables"].items():
    lines += ["", titles[name], ""]
    lines.append("| bytes | us | nccl-tests us | algbw GB/s | busbw GB/s | ratio | ratio in place | to the first cycle | spread |")
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for row in table:
        o, i = row["out_of_place"], row["in_place"]
        lines.append(
            f"| {row['size_bytes']} | {o['time_us']:.2f} | {o['nccl_tests_time_us']:.2f} | {o['algbw_gb_per_s']:.2f} | {o['busbw_gb_per_s']:.2f}"
            f" | {o['ratio']:.3f} | {i['ratio']:.3f} | {o['ratio_first_cycle']:.3f} | {o['nccl_tests_spread']:.3f} |"
        )
lines.append("")
lines.append(f"wrong values: {wrong}; containers left: {left}")
lines.append(f"preflight {results['preflight_time_s']:.2f} s, docker run {results['docker_run_time_s']:.2f} s")
lines += [f"{name}: exit {o['exit_code']} (expected {o['expected']})" for name, o in outcomes.items()]
text = "\n".join(lines) + "\n"
(out / "results.md").write_text(text)
print(text, end="")
bad = [name for name, outcome in outcomes.items() if outcome["exit_code"] != outcome["expected"]]
sys.exit(1 if bad or left or wrong else 0)
