#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Checks every .plan file of a folder, and where a folder of originals is given that the copies are still those.

usage: shared_plans.py --plimsoll PROGRAM [--originals FOLDER] FOLDER

With --originals the files checked are the originals; where that folder is missing the test is skipped (exit 77).
A copy may differ only where README.md of FOLDER names it under "Changes".
"""
import argparse
import pathlib
import subprocess
import sys

SKIPPED = 77


def check(program, plan):
    """What is wrong with one file, as lines; none where `plimsoll check` accepts it."""
    done = subprocess.run([program, "check", plan.name], cwd=plan.parent, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=600)
    if done.returncode == 0 and done.stdout:
        return []
    said = done.stderr.splitlines() or ["nothing was said"]
    return [f"{plan}: exit {done.returncode}"] + ["  " + line for line in said]


def compare(copies, originals):
    """Files that are not the same in both folders and are not named as changed."""
    readme = (copies / "README.md").read_text(encoding="utf-8")
    changes = readme.partition("## Changes")[2]
    names = sorted({path.name for folder in (copies, originals) for path in folder.glob("*.plan")})
    problems = []
    for name in names:
        here, there = copies / name, originals / name
        if not here.exists() or not there.exists():
            problems.append(f"{name} is in one folder only")
        elif here.read_bytes() != there.read_bytes() and f"`{name}`" not in changes:
            problems.append(f"{name} differs from the original, and README.md does not say why")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True, type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--originals", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    problems, folder = [], options.folder
    if options.originals:
        if not options.originals.is_dir():
            print(f"skipped: {options.originals} is not here")
            return SKIPPED
        problems += compare(options.folder, options.originals)
        changes = (options.folder / "README.md").read_text(encoding="utf-8").partition("## Changes")[2]
        plans = [path for path in sorted(options.originals.glob("*.plan")) if f"`{path.name}`" not in changes]
    else:
        plans = sorted(folder.glob("*.plan"))
    if not plans:
        problems.append("no .plan file found")
    for plan in plans:
        problems += check(options.plimsoll, plan)
    print("\n".join(problems) or f"{len(plans)} files, all accepted")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
