#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""How far measured runs lie from their bills: tests/data/residuals.csv, and the quantiles of it in planner/residuals.hpp.

usage: residuals.py --plimsoll PROGRAM --write        price every run anew; write both files
       residuals.py --check                           the header is what the table says (no program needed)
       residuals.py --plimsoll PROGRAM --current      no limit has moved by more than 1 % (a room's: 0.5 GiB) since
       residuals.py --leave-out                       how often a range made without a recipe holds that recipe

A residual is measured / counted bytes of the allocator, of one recipe (its rows averaged); of a server's pool of cache blocks (room)
measured - counted, in GiB. Runs count of which nothing had to be
assumed but the age of the A100 stack. `imbalance` is what a run's routed tokens must have been, over balanced ones, for its bill
to be right.
"""
import argparse
import collections
import csv
import io
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/data/residuals.csv"
HEADER = ROOT / "planner/residuals.hpp"
FIELDS = ["framework", "feature", "counter", "set", "recipe", "stage", "ratio"]
FEWEST = 5          # recipes that make a range
SHARE = 0.9         # of the measured runs, in the middle
ROUTED_SHARE = 0.1  # of a run's bytes that must be routed for them to tell its imbalance
OLD_STACK = "A100: the older stack"
# Runs that do what their bills do not know of.
LEFT_OUT = {"fine_grained_offloading": "activations offloaded, which no bill of it counts"}


def feature_of(plan):
    """What sorts runs of one framework: experts or dense, states sharded whole or not."""
    words = ["experts" if re.search(r"^\s*experts = ", plan, re.M) else "dense"]
    if re.search(r"\bzero = 3\b", plan):
        words.append("fsdp")
    return " ".join(words)


def measured(program):
    """Rows of the table from the published runs."""
    import accuracy
    import memory_rows
    cases, skipped = memory_rows.cases(str(ROOT / "tests/data/memory_rows.csv"), program)
    used = [c for c in cases if set(c.assumed) <= {OLD_STACK} and not any(word in c.id for word in LEFT_OUT)]
    recipes, _ = accuracy.measure(program, used, skipped)
    rows = []
    for (name, recipe, stage), of in recipes.items():
        for counter in ("allocated", "reserved"):
            if of.errors.get(counter):
                ratio = 1 / (1 + of.mean(counter) / 100)
                rows.append([of.case.framework, feature_of(of.case.plan), counter, name, recipe, stage, f"{ratio:.5f}"])
    return rows + routing(program, used) + rooms(program)


def rooms(program):
    """GiB of cache that start-ups of vLLM V1 printed beyond what their bills count; of other engines too few say their version."""
    import contextlib
    import serving_rows
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        serving_rows.report(str(ROOT / "tests/data/serving_rows.csv"), program, [])
    rows = []
    for line in printed.getvalue().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 5 and cells[2].startswith("vLLM V1") and re.fullmatch(r"[+-][\d.]+", cells[5]):
            rows.append(["vllm", "serving", "room", "serving", cells[1], "", f"{-float(cells[5]):.5f}"])
    return rows


def routing(program, used):
    """The imbalance that each run with dropless experts must have had."""
    import accuracy
    import memory_rows
    implied = collections.OrderedDict()
    for case in used:
        if "experts" not in feature_of(case.plan) or "fsdp" in feature_of(case.plan) or "capacity" in case.plan or case.first_step:
            continue
        try:
            even = accuracy.bill(program, case.plan)
            more = accuracy.bill(program, case.plan.replace("train t {", "train t {\n  imbalance = 1.2", 1))
        except memory_rows.Skip:
            continue
        for figure in case.figures:
            if figure.counter != "allocated":
                continue
            at = lambda found: accuracy.stage_of(found, figure)["allocated_bytes"] / accuracy.GIB
            slope = (at(more) - at(even)) / 0.2
            if slope < ROUTED_SHARE * at(even):
                continue
            implied.setdefault((case.set, case.recipe, figure.stage), []).append(1 + (figure.gib - at(even)) / slope)
    return [["megatron", "routing", "imbalance", name, recipe, stage, f"{sum(v) / len(v):.5f}"]
            for (name, recipe, stage), v in implied.items()]


def read():
    with open(TABLE, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def groups(rows):
    """(framework, feature, counter) -> sorted [(ratio, recipe)]."""
    out = collections.defaultdict(list)
    for row in rows:
        out[(row["framework"], row["feature"], row["counter"])].append((float(row["ratio"]), row["recipe"]))
    return {key: sorted(of) for key, of in sorted(out.items())}


def limits(ratios):
    """The middle of sorted ratios that a further run falls in with SHARE; of few the lowest and the highest."""
    n = len(ratios)
    k = max(1, int((1 - SHARE) / 2 * (n + 1) + 1e-9))
    return ratios[k - 1], ratios[n - k]


def header(rows):
    out = io.StringIO()
    fitted, imbalances = groups(rows), []
    print("""// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

// Written by bench/residuals.py --write from tests/data/residuals.csv; do not edit.
// clang-format off

/// Measured over counted bytes of published runs, in 1/100,000: of a framework, a feature of the
/// job and a counter of the allocator the number of recipes, and the limits of their middle 90 %
/// (of fewer than 20 recipes: the lowest and the highest).
#define PLIMSOLL_RESIDUALS(X) \\""", file=out)
    lines = []
    for (framework, feature, counter), of in fitted.items():
        ratios = [r for r, _ in of]
        if counter == "imbalance":
            imbalances = ratios
        elif len(ratios) >= FEWEST:
            low, high = limits(ratios)
            lines.append(f'  X("{framework}", "{feature}", {counter}, {len(ratios)}, {round(low * 1e5)}, {round(high * 1e5)})')
    width = max(len(line) for line in lines) + 1
    print(" \\\n".join(line.ljust(width) if line is not lines[-1] else line for line in lines), file=out)
    print("""
/// Routed tokens over balanced ones, in 1/100,000, that runs of dropless experts must have had for
/// their bills to be right; in order.
#define PLIMSOLL_IMBALANCES(X) \\""", file=out)
    lines = ["  " + " ".join(f"X({round(r * 1e5)})" for r in imbalances[i:i + 8]) for i in range(0, len(imbalances), 8)]
    width = max(len(line) for line in lines) + 1
    print(" \\\n".join(line.ljust(width) if line is not lines[-1] else line for line in lines), file=out)
    print("// clang-format on", file=out)
    return out.getvalue()


def moved(then, now):
    """What differs between two tables by more than a reader would forgive."""
    old, new = groups(then), groups(now)
    for key in sorted(set(old) | set(new)):
        if key[2] == "imbalance":
            continue
        ends = [limits([r for r, _ in of[key]]) if len(of.get(key, [])) >= FEWEST else None for of in (old, new)]
        most = 0.5 if key[2] == "room" else 0.01
        if (ends[0] is None) != (ends[1] is None) or (ends[0] and max(abs(a - b) for a, b in zip(*ends)) > most):
            yield f"{', '.join(key)}: {ends[0]} in the table, {ends[1]} now"


def leave_out(rows):
    """Of each group: in how many recipes' cases the range made without the recipe holds it."""
    print("| framework | feature | figure | recipes | range | held by the range of the others |\n| --- | --- | --- | ---: | ---: | ---: |")
    for (framework, feature, counter), of in groups(rows).items():
        if counter == "imbalance" or len(of) < FEWEST:
            continue
        low, high = limits([r for r, _ in of])
        scale, unit, base = (1, "GiB", 0) if counter == "room" else (100, "%", 1)
        held = 0
        for ratio, recipe in of:
            others = [r for r, name in of if name != recipe]
            a, b = limits(others)
            held += a <= ratio <= b
        print(f"| {framework} | {feature} | {counter} | {len(of)} | {scale * (low - base):+.1f} to {scale * (high - base):+.1f} {unit} | {held} of {len(of)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--current", action="store_true")
    parser.add_argument("--leave-out", action="store_true")
    options = parser.parse_args()
    if options.write:
        rows = measured(options.plimsoll)
        with open(TABLE, "w", newline="", encoding="utf-8") as f:
            writer = csv.writer(f, lineterminator="\n")
            writer.writerow(FIELDS)
            writer.writerows(sorted(rows, key=lambda r: [str(v) for v in r]))
        HEADER.write_text(header(read()), encoding="utf-8")
    if options.check and HEADER.read_text(encoding="utf-8") != header(read()):
        print("planner/residuals.hpp is not what tests/data/residuals.csv says: bench/residuals.py --write")
        return 1
    if options.current:
        stale = sorted(moved(read(), [dict(zip(FIELDS, row)) for row in measured(options.plimsoll)]))
        for line in stale:
            print(line)
        if stale:
            print("bench/residuals.py --plimsoll PROGRAM --write")
            return 1
    if options.leave_out:
        leave_out(read())
    return 0


if __name__ == "__main__":
    sys.exit(main())
