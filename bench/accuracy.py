#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Sets the bill beside published measurements of memory, and of what servers say when they start.

usage: accuracy.py --plimsoll PROGRAM [--detail] [--only SET] [FILES...]

FILES are CSVs in the columns of cases/memory.csv or cases/serving.csv, at any path; without any, tests/data's copies. Errors
are of recipes: rows that ran one recipe (on several GPUs, or a step of it) are averaged first. --detail prints every recipe.
"""
import argparse
import collections
import contextlib
import datetime
import difflib
import io
import json
import pathlib
import re
import subprocess
import sys

import memory_rows
import serving_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIB = 2 ** 30
MARKER = "<!-- below: bench/accuracy.py -->"

# What other estimators of training memory publish of their own errors, |%|.
OTHERS = [
    ("SimuMax v1.2 on its own runs (S1), allocated", "0.38", "0.77", "docs/b200/b200_release_v1.2_summary.json of MooreThreads/SimuMax 4dcaae5"),
    ("the same, reserved", "1.79", "3.11", "the same"),
    ("Megatron-LM's --log-theoretical-memory, Qwen3-30B-A3B", "21", "39", "swiss-ai's notes of 2026-03: 96.8 GiB said, 69.6 to 82.1 allocated"),
]


def bill(program, plan):
    done = subprocess.run([program, "bill", "-", "--json"], input=plan, capture_output=True, text=True, check=False)
    if done.returncode:
        raise memory_rows.Skip("the bill: " + done.stderr.split("error: ")[-1].splitlines()[0])
    return json.loads(done.stdout)


def stage_of(found, figure):
    """The stage that a figure is of; of the fullest, by its own counter."""
    stages = found["stages"]
    if figure.stage == "last":
        return stages[-1]
    if figure.stage == "most":
        return max(stages, key=lambda s: s[figure.counter + "_bytes"])
    return stages[figure.stage]


class Recipe:
    """Errors of the rows of one recipe."""

    def __init__(self, case):
        self.case, self.errors, self.items = case, collections.defaultdict(list), []

    def mean(self, counter):
        return sum(self.errors[counter]) / len(self.errors[counter])


def measure(program, used, skipped):
    """(set, counter) -> recipes; verdicts of all rows with an outcome."""
    recipes, verdicts = collections.OrderedDict(), collections.defaultdict(list)
    for case in used:
        try:
            found = bill(program, case.plan)
        except memory_rows.Skip as why:
            skipped.append((case.id, case.set, str(why)))
            continue
        verdicts[("OOM" if "OOM" in case.outcome else "ran", found["verdict"])].append(case.id)
        for figure in case.figures:
            stage = stage_of(found, figure)
            key = (case.set, case.recipe, figure.stage)
            recipe = recipes.setdefault(key, Recipe(case))
            of = stage[figure.counter + "_bytes"]
            if case.first_step:
                # What lies outside the allocator, and segments, come off in the proportion that they have at the peak.
                first = (stage["first_step_bytes"] - stage["categories"]["overhead"]) * stage["allocated_bytes"] // stage["reserved_bytes"]
                of = max(first, stage["steady_allocated_bytes"])
            recipe.errors[figure.counter].append(100 * (of / GIB / figure.gib - 1))
            recipe.items = sorted(((i["bytes"], i["name"]) for i in stage["items"]), reverse=True)[:4]
            recipe.moment = stage["peak_moment"]
        if case.steady:
            recipe.errors["steady"].append(100 * (stage["steady_allocated_bytes"] / GIB / case.steady - 1))
    return recipes, verdicts


def quantile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def summary(errors):
    """(count, mean, median, p90, worst, bias) of recipes' errors."""
    sizes = sorted(abs(e) for e in errors)
    return len(sizes), sum(sizes) / len(sizes), quantile(sizes, 0.5), quantile(sizes, 0.9), sizes[-1], sum(errors) / len(errors)


def print_sets(recipes, detail):
    groups = collections.OrderedDict()
    for (name, _, _), recipe in recipes.items():
        for counter in recipe.errors:
            groups.setdefault((name, counter), []).append(recipe)
    print("| set | framework | figure | recipes | mean | median | p90 | worst | bias |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (name, counter), of in sorted(groups.items()):
        n, mean, median, p90, worst, bias = summary([r.mean(counter) for r in of])
        print(f"| {name} | {of[0].case.framework} | {counter} | {n} | {mean:.2f} % | {median:.2f} % | {p90:.2f} % | {worst:.2f} % | {bias:+.2f} % |")
    for (name, counter), of in sorted(groups.items()):
        of = sorted(of, key=lambda r: -abs(r.mean(counter)))
        print(f"\n{name}, {counter}:" + ("" if detail else " the worst five"))
        for recipe in of if detail else of[:5]:
            items = ", ".join(f"{item} {size / GIB:.2f}" for size, item in recipe.items)
            print(f"- {recipe.mean(counter):+.2f} % {recipe.case.id}; {recipe.moment}; GiB: {items}")


def print_verdicts(verdicts):
    print("\n| runs that | fits | edge | does not fit |\n| --- | ---: | ---: | ---: |")
    for what, name in (("ran", "ran"), ("OOM", "ran out of memory")):
        total = max(sum(len(ids) for (kind, _), ids in verdicts.items() if kind == what), 1)
        print(f"| {name} | " + " | ".join(f"{len(ids)} ({100 * len(ids) / total:.1f} %)"
                                          for ids in (verdicts.get((what, v), []) for v in ("fits", "edge", "does not fit"))) + " |")
    for what, verdict, text in (("OOM", "fits", "Ran out of memory and called \"fits\""), ("OOM", "edge", "Ran out of memory and called \"edge\""),
                                ("ran", "does not fit", "Ran and called \"does not fit\""), ("ran", "edge", "Ran and called \"edge\"")):
        print(f"\n{text}: " + (", ".join(verdicts.get((what, verdict), [])) or "none") + ".")


def print_others():
    print("\nWhat other estimators say of themselves:\n")
    print("| estimator | mean or median | worst | said where |\n| --- | ---: | ---: | --- |")
    for name, middle, worst, where in OTHERS:
        print(f"| {name} | {middle} % | {worst} % | {where} |")


def print_skipped(skipped):
    why = collections.Counter((name, reason) for _, name, reason in skipped)
    print("\nRows left out:")
    for (name, reason), n in sorted(why.items()):
        print(f"- {n} of {name}: {reason}")


def is_serving(path):
    with open(path, encoding="utf-8") as f:
        return "kv_cache_GiB" in f.readline()


def page_with(path, output):
    """A page with everything below its marker replaced."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return text, text[:text.index(MARKER)] + MARKER + "\n\n" + output


def main():
    options = arguments()
    captured = io.StringIO()
    with contextlib.redirect_stdout(captured if options.document or options.check else sys.stdout):
        run(options)
    if options.document:
        _, page = page_with(options.document, captured.getvalue())
        page = re.sub(r"(?<=Made on )\d{4}-\d\d-\d\d", datetime.date.today().isoformat(), page)
        pathlib.Path(options.document).write_text(page, encoding="utf-8")
    if options.check:
        old, new = page_with(options.check, captured.getvalue())
        if old != new:
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), options.check, "now"))
            print(f"\n{options.check} is out of date: bench/accuracy.py --document {options.check}")
            return 1
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--detail", action="store_true")
    parser.add_argument("--only", help="of this set only")
    parser.add_argument("--document", metavar="FILE", help="put the output into a page, below its marker")
    parser.add_argument("--check", metavar="FILE", help="only say whether the page still has this output")
    parser.add_argument("files", nargs="*")
    return parser.parse_args()


def run(options):
    files = options.files or [str(ROOT / "tests/data/memory_rows.csv"), str(ROOT / "tests/data/serving_rows.csv")]
    used, skipped = [], []
    for path in files:
        if is_serving(path):
            continue
        more, left = memory_rows.cases(path, options.plimsoll)
        used += [c for c in more if not options.only or c.set == options.only]
        skipped += [s for s in left if not options.only or s[1] == options.only]
    if used:
        recipes, verdicts = measure(options.plimsoll, used, skipped)
        print(f"{len(used)} training runs, {len({k[:2] for k in recipes})} recipes.\n")
        print_sets(recipes, options.detail)
        print_verdicts(verdicts)
    for path in files:
        if is_serving(path):
            serving_rows.report(path, options.plimsoll, skipped)
    print_others()
    print_skipped(skipped)


if __name__ == "__main__":
    sys.exit(main())
