#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Runs each .plan file of some folders and compares what the program says; tests/README.md explains it.

usage: run_golden.py --plimsoll PROGRAM [--update] [--only TEXT] FOLDER...
"""
import argparse
import difflib
import pathlib
import re
import shlex
import subprocess
import sys

SHELL_COMMENT = re.compile(r"^#\$ (.*)$", re.M)
# Only so that a hang ends: a sanitized build beside its own unit tests takes ten times as long as the program does alone.
SECONDS = 600
INLINE = re.compile(r"#!\s*(?:(\d+):\s*)?(error|warning|note): (.*?)\s*(?=#!|$)")
DIAGNOSTIC = re.compile(r"^(.+?):(\d+):(\d+): (error|warning|note): (.*)$", re.M)


def redact(text):
    """The only place where volatile text is made stable: places in the prelude move with every edit of it."""
    text = re.sub(r"(prelude/\w+\.plan):\d+:\d+", r"\1:LINE:COLUMN", text)
    return re.sub(r"\bplimsoll \d+\.\d+\.\d+", "plimsoll VERSION", text)


def commands_of(plan):
    """The commands to run on a file: NAME.cmd, else the file's `#$` lines, else `check` for errors/."""
    listed = plan.with_suffix(".cmd")
    if listed.exists():
        return [line for line in listed.read_text().splitlines() if line and not line.startswith("#")]
    found = SHELL_COMMENT.findall(plan.read_text(encoding="utf-8", errors="replace"))
    return found or (["plimsoll check FILE"] if plan.parent.name == "errors" else [])


def allowed_exits(plan):
    """What the folder and the name promise; --update cannot bless anything else."""
    if plan.name.startswith("no_fit."):
        return {2}
    if plan.name.startswith("disagrees."):
        return {4}
    return {"golden": {0}, "errors": {1}}.get(plan.parent.name, {0, 2})


def run(program, command, plan):
    words = shlex.split(command)
    if words[:1] != ["plimsoll"]:
        raise SystemExit(f"{plan}: a command must begin with 'plimsoll', not {command!r}")
    words = [str(program)] + [plan.name if word == "FILE" else word for word in words[1:]]
    return subprocess.run(words, cwd=plan.parent, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)


def transcript(command, done):
    """One command and its answer as a person would see them, standard error and failure marked."""
    text = f"$ {command}\n" + redact(done.stdout.decode("utf-8", "replace"))
    if done.stderr:
        text += "[stderr]\n" + redact(done.stderr.decode("utf-8", "replace"))
    if done.returncode:
        text += f"[exit {done.returncode}]\n"
    return text


def compare_inline(plan, stderr):
    """Every `#!` comment must be said, on its line and to the letter, and nothing else may be."""
    wanted, problems = [], []
    for number, line in enumerate(plan.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        for at, severity, message in INLINE.findall(line):
            wanted.append((int(at or number), severity, message))
    said = [(int(line), severity, message) for name, line, _, severity, message in DIAGNOSTIC.findall(stderr)]
    problems += [f"  missing: line {line}: {kind}: {text}" for line, kind, text in wanted if (line, kind, text) not in said]
    problems += [f"  not expected: line {line}: {kind}: {text}" for line, kind, text in said if (line, kind, text) not in wanted]
    if not problems and len(said) != len(wanted):
        problems.append(f"  {len(wanted)} diagnostics expected, {len(said)} said")
    if any(kind == "error" for _, kind, _ in said) and "help:" not in stderr:
        problems.append("  no help: line")
    return wanted, problems


def compare_expected(plan, text, update):
    expected = plan.with_suffix(".expected")
    before = expected.read_text(encoding="utf-8") if expected.exists() else ""
    if text == before:
        return []
    if update:
        expected.write_text(text, encoding="utf-8")
        print(f"updated {expected}")
        return []
    difference = difflib.unified_diff(before.splitlines(), text.splitlines(), expected.name, "now", lineterm="")
    return ["  " + line for line in difference]


def test(program, plan, update):
    """The problems of one file, as lines; none where it passes."""
    commands = commands_of(plan)
    if not commands:
        return [f"  no command: write a first line '#$ plimsoll bill FILE', or {plan.stem}.cmd"]
    problems, text, stderr = [], "", ""
    for command in commands:
        done = run(program, command, plan)
        text += transcript(command, done)
        stderr += done.stderr.decode("utf-8", "replace")
        if done.returncode not in allowed_exits(plan):
            problems.append(f"  exit {done.returncode} of '{command}', allowed here: {sorted(allowed_exits(plan))}")
        if done.returncode == 1 and done.stdout:
            problems.append(f"  something on standard output though '{command}' ended with 1")
    if problems:
        return problems + ["  " + line for line in text.splitlines()]
    if plan.parent.name == "errors" and not plan.with_suffix(".expected").exists():
        wanted, problems = compare_inline(plan, stderr)
        if wanted or not update:
            return problems
    return compare_expected(plan, text, update)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True, type=pathlib.Path)
    parser.add_argument("--update", action="store_true", help="write what is said now into the .expected files")
    parser.add_argument("--only", default="", help="only files whose name holds this text")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    program, count, failed = options.plimsoll.resolve(), 0, 0
    for folder in options.folders:
        for plan in sorted(folder.resolve().glob("*.plan")):
            if options.only not in plan.name:
                continue
            count += 1
            if problems := test(program, plan, options.update):
                failed += 1
                print(f"FAILED {folder.name}/{plan.name}", *problems, sep="\n")
    print(f"{count} files, {failed} failed")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
