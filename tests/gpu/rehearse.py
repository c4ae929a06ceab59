#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""run.sh from its first line to its last where there is no GPU: pack.sh packs a program and tests whose
GPU is played, and every step runs as it would on one, the ladder at full size. Numbers mean nothing; a
slip in the scripts is found here and not on a machine that is lent for minutes.

usage: rehearse.py PROGRAM TESTS
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
STEPS = ["small_tests", "calibrate", "ladder", "torch_layer", "all_tests", "memcheck"]
failures = []


def check(what, condition, *seen):
    if not condition:
        failures.append(what)
        print("FAILED:", what, *seen, sep="\n")


def run(env, *words):
    return subprocess.run(["bash", str(HERE / "run.sh"), *words], env=env, capture_output=True, text=True, timeout=560)


def without_a_gpu(folder):
    """A machine without a driver, or with one that finds nothing: a clear word, at once."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "mkdir", "cat", "head", "cd", "python3"):
        if at := shutil.which(name):
            (tools / name).symlink_to(at)
    env = dict(os.environ, OUT=str(folder / "none"), PATH=str(tools))
    done = run(env)
    check("no nvidia-smi", done.returncode == 1 and "no nvidia-smi, so no NVIDIA driver" in done.stdout, done)
    fake = tools / "nvidia-smi"
    fake.write_text("#!/bin/bash\necho 'No devices were found'\nexit 6\n", encoding="utf-8")
    fake.chmod(0o755)
    done = run(env)
    check("no GPU", done.returncode == 1 and "finds no GPU: No devices were found" in done.stdout, done)


def main():
    program, tests = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        without_a_gpu(folder)
        out = folder / "out"
        done = run(dict(os.environ, OUT=str(out)), "--rehearse", program, tests)
        print(done.stdout[-6000:], done.stderr[-2000:])
        check("all steps pass", done.returncode == 0 and "all passed" in done.stdout)
        for step in STEPS:
            check(f"step {step}", f"{step}: passed" in done.stdout)
        ladder = json.loads((out / "ladder.json").read_text(encoding="utf-8"))
        check("the ladder has seven answers", len(ladder) == 7 and all(a and a["agrees"] for a in ladder.values()))
        plan = folder / "measured.plan"
        shutil.copy(out / "calibrate.log", plan)
        done = subprocess.run([program, "check", str(plan)], capture_output=True, text=True, timeout=60)
        check("what calibrate prints is a file of the language", done.returncode == 0, done)
    print("failed" if failures else "rehearsed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
