#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Where there is no GPU, the device cuda says what is missing, by name, and ends with 1. Skipped (77)
where there is one.

usage: no_gpu_test.py PLIMSOLL
"""
import pathlib
import subprocess
import sys

PLAN = pathlib.Path(__file__).parents[2] / "examples" / "09_run_it_here.plan"


def main():
    plimsoll, failed = sys.argv[1], 0
    version = subprocess.run([plimsoll, "--version"], capture_output=True, text=True).stdout
    built = next(line for line in version.splitlines() if line.startswith("CUDA")).split(None, 1)[1]
    missing = "no CUDA toolkit" if built.startswith("none") else "NVIDIA driver"
    for ask in (["verify", str(PLAN), "--device", "cuda"], ["calibrate"]):
        done = subprocess.run([plimsoll, *ask], capture_output=True, text=True, timeout=60)
        if done.returncode != 1 and not done.stderr:
            print("skipped: this machine has a GPU")
            return 77
        right = done.returncode == 1 and done.stdout == "" and missing in done.stderr and "\nhelp: " in done.stderr
        if not right:
            print(f"{ask}: exit {done.returncode}", done.stdout, done.stderr, sep="\n")
            failed += 1
    print(f"built with CUDA {built}; {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
