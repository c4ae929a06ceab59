#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Runs every command shown in ```console fences of Markdown files and compares its output to the letter.

usage: run_docs.py --plimsoll PROGRAM [--update] ROOT FILE...

Inside a fence a line `$ COMMAND` is a command and what follows, up to the next one, is what it prints (standard
error after standard output). `...` alone on a line stands for any lines. Commands run in ROOT with the program on
PATH, so `plimsoll` and `./dev run` may both be shown; `./dev run` is run as `plimsoll`. A fence opened as
```console no-test is only shown.
"""
import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys

FENCE = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def split(fence):
    """The (command, output) pairs of one fence."""
    pairs = []
    for line in fence.splitlines(keepends=True):
        if line.startswith("$ "):
            pairs.append([line[2:].strip(), ""])
        elif pairs:
            pairs[-1][1] += line
        elif line.strip():
            raise SystemExit(f"a console fence begins with output: {line!r}")
    return pairs


def run(command, root, program):
    environment = dict(os.environ, PATH=f"{program.parent}:{os.environ['PATH']}", NO_COLOR="1")
    command = re.sub(r"(^|\| *|; *)\./dev run ", r"\1plimsoll ", command)
    done = subprocess.run(["bash", "-c", command], cwd=root, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    return done.stdout.decode("utf-8", "replace")


def matches(shown, said):
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) for line in shown.splitlines(keepends=True))
    return re.fullmatch(pattern, said) is not None


def check(path, options):
    """Runs the fences of one file; returns how many commands ran and how many differed."""
    text, count, wrong = path.read_text(encoding="utf-8"), 0, 0
    renewed = text
    for fence in FENCE.findall(text):
        fresh = ""
        for command, shown in split(fence):
            count += 1
            said = run(command, options.root, options.plimsoll)
            same = matches(shown, said)
            fresh += f"$ {command}\n" + (shown if same else said)
            if same or options.update:
                continue
            wrong += 1
            print(f"FAILED {path}: $ {command}")
            print(*difflib.unified_diff(shown.splitlines(), said.splitlines(), "shown", "said", lineterm=""), sep="\n")
        renewed = renewed.replace(f"```console\n{fence}```", f"```console\n{fresh}```")
    if options.update and renewed != text:
        path.write_text(renewed, encoding="utf-8")
        print(f"updated {path}")
    return count, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--update", action="store_true")
    parser.add_argument("root", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    results = [check(path, options) for path in options.files]
    count, wrong = sum(r[0] for r in results), sum(r[1] for r in results)
    print(f"{count} commands in {len(results)} files, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
