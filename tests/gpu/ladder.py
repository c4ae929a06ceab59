#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""verify --device cuda on the plans of ladder/, in order, and a table of what was predicted and seen.

usage: ladder.py PLIMSOLL [RESULTS.json]
"""
import json
import pathlib
import re
import subprocess
import sys

GIB = 2**30
HERE = pathlib.Path(__file__).parent


def runs():
    for plan in sorted((HERE / "ladder").glob("*.plan")):
        for layout in re.findall(r"^layout (\w+)", plan.read_text(encoding="utf-8"), re.M):
            yield plan, layout


def gib(n):
    return f"{n / GIB:.3f}"


def row(plan, layout, answer):
    name = f"{plan.stem} {layout}"
    if answer is None or "ranks" not in answer:
        return [name, "no answer"]
    gpu = answer.get("gpu", {})
    if answer.get("failure"):
        f = answer["failure"]
        return [name, f"out of memory: {f['tensor']}, {f['bytes']} B, {f['moment']}"]
    rank = answer["ranks"][0]
    return [name, gib(rank["predicted_bytes"]), gib(rank["observed_bytes"]), str(rank["difference"]),
            gib(gpu["predicted_reserved_bytes"]), gib(rank["reserved_bytes"]),
            gib(gpu["predicted_used_bytes"]), gib(gpu["used_bytes"]), gib(gpu["scratch_bytes"]),
            f"{gpu['predicted_step_seconds']:.3f}", f"{gpu['step_seconds'][-1]:.3f}"]


def main():
    plimsoll, results, table, failed = sys.argv[1], {}, [], 0
    head = ["run", "predicted", "allocated", "diff B", "replayed", "reserved", "expected", "driver", "scratch",
            "time model s", "step s"]
    for plan, layout in runs():
        try:
            done = subprocess.run([plimsoll, "verify", str(plan), "--layout", layout, "--device", "cuda", "--json"],
                                  capture_output=True, text=True, timeout=60)
            answer = json.loads(done.stdout) if done.stdout else None
            failed += done.returncode != 0
            if done.stderr:
                print(done.stderr.strip())
        except subprocess.TimeoutExpired:
            answer, failed = None, failed + 1
        results[f"{plan.stem} {layout}"] = answer
        if len(sys.argv) > 2:  # now, for time may run out
            pathlib.Path(sys.argv[2]).write_text(json.dumps(results, indent=1), encoding="utf-8")
        table.append(row(plan, layout, answer))
        print(" | ".join(table[-1]), flush=True)
    print("\nGiB | " + " | ".join(head[1:]))
    for line in table:
        print(" | ".join(line))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
