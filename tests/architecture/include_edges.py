#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Checks the directions of #include: cli -> runtime -> planner -> lang, and who may see which library.

usage: include_edges.py ROOT
"""
import pathlib
import re
import sys

# A folder may include itself and what stands before it.
ORDER = ["lang", "planner", "runtime", "cli"]

# Headers of other people that must stay behind a door of ours: pattern -> the files that own them.
OWNERS = {
    r"boost/": r"lang/(grammar\w*|parse)\.(cpp|hpp)",
    r"z3(\+\+)?\.h": r"planner/smt\.cpp",
    r"(cuda|cublas|nccl|nvml|cudnn|thrust/|cub/)": r"runtime/cuda/.*",
    r"mpi\.h": r"runtime/mpi/mpi_wire\.cpp",
    r"Eigen/": r"runtime/host/matrix\.cpp",
    r"nlohmann/": r"bench/.*|(planner|runtime)/\w*report\w*\.cpp|planner/report_json\.hpp|planner/foreign_json\.(hpp|cpp)|planner/import\w*\.cpp|planner/import_hub_config\.hpp|planner/export\w*\.cpp|cli/(check|calibrate|doctor)\.cpp|cli/(lsp|page)/\w+\.(cpp|hpp)|tests/.*",
    r"CLI/": r"cli/arguments\.cpp",
    r"catch2/": r"tests/.*",
}
# At most so many files may include such a header, however they are named.
AT_MOST = {r"boost/spirit": 3, r"z3(\+\+)?\.h": 1, r"CLI/": 1}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
SUFFIXES = {".cpp", ".hpp", ".cu", ".cuh", ".h"}


def sources(root):
    for folder in ORDER + ["tests", "bench"]:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def wrong_direction(name, header):
    """Why \\a name may not include the project's own \\a header, or None."""
    here, there = name.split("/")[0], header.split("/")[0]
    if there not in ORDER:
        return None if here in ("tests", "bench") else "is not rooted at the repository"
    if here in ORDER and ORDER.index(there) > ORDER.index(here):
        return f"points from {here}/ up to {there}/"
    return None


def check(root):
    problems, users = [], {pattern: [] for pattern in AT_MOST}
    count = 0
    for name, text in sources(root):
        for quote, header in INCLUDE.findall(text):
            count += 1
            if quote == '"':
                if why := wrong_direction(name, header):
                    problems.append(f'{name}: "{header}" {why}')
                elif not (root / header).is_file():
                    problems.append(f'{name}: "{header}" does not exist')
                continue
            for pattern, owner in OWNERS.items():
                if re.match(pattern, header) and not re.fullmatch(owner, name):
                    problems.append(f"{name}: <{header}> belongs to {owner} only")
            for pattern in AT_MOST:
                if re.match(pattern, header) and name not in users[pattern]:
                    users[pattern].append(name)
    for pattern, limit in AT_MOST.items():
        if len(users[pattern]) > limit:
            problems.append(f"<{pattern}> is in {len(users[pattern])} files, at most {limit}: {users[pattern]}")
    return count, problems


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    count, problems = check(root)
    if count == 0:
        problems.append(f"no #include found under {root}")
    for problem in problems:
        print(problem)
    print(f"{count} includes looked at, {len(problems)} wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
