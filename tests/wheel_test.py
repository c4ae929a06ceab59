#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Builds the wheel of cli/python, installs it in a fresh virtual environment and asks it for a plan.

usage: wheel_test.py PROGRAM SOURCE_FOLDER [--wheel FILE]

It compiles everything once more, so it runs only where PLIMSOLL_WHEEL=1 is set; it is skipped (exit 77), with the reason,
where that, pip, or what pip fetches is missing. --wheel takes one that was built before.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
JOB = "cluster pod { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }\ntrain tune { model = llama3_8b  cluster = pod  seq = 8Ki  batch = 64 }\n"
ASK = "import json, sys, plimsoll; made = plimsoll.plan(sys.stdin.read()); assert type(made) is dict; json.dump(made, sys.stdout)"


def run(*words, **how):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, **how)


def main():
    program, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    wheel = pathlib.Path(sys.argv[sys.argv.index("--wheel") + 1]).resolve() if "--wheel" in sys.argv else None
    if wheel is None and not os.environ.get("PLIMSOLL_WHEEL"):
        print("skipped: PLIMSOLL_WHEEL is not set (the wheel compiles everything once more)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if run(sys.executable, "-m", "venv", folder / "venv").returncode:
            print("skipped: this Python makes no virtual environments (Debian: python3-venv)")
            return SKIPPED
        python = folder / "venv" / "bin" / "python"
        if wheel is None:
            fetched = run(python, "-m", "pip", "download", "--quiet", "--dest", folder, "scikit-build-core>=0.8", "pybind11>=2.10")
            if fetched.returncode:
                print(f"skipped: pip cannot fetch scikit-build-core and pybind11: {fetched.stderr.strip()[-300:]}")
                return SKIPPED
            built = run(python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, source / "cli" / "python")
            assert built.returncode == 0, built.stderr[-3000:] + built.stdout[-3000:]
            [wheel] = folder.glob("plimsoll-*.whl")
        installed = run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel)
        assert installed.returncode == 0, installed.stderr
        # Elsewhere than in the sources, so that it is the wheel's package that answers.
        asked = run(python, "-c", ASK, input=JOB, cwd=folder)
        assert asked.returncode == 0, asked.stderr
        own = run(program, "plan", "-", "--json", input=JOB)
        assert json.loads(asked.stdout) == json.loads(own.stdout), "the wheel's plan is another than the program's"
    print(f"{wheel.name}: its plan is the program's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
