#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""The time model against published runs: errors of step time, order of layouts, and what the planner makes of each run.

usage: throughput.py --plimsoll build/plimsoll CSV...               errors and pairs, with the constants that are built in
       throughput.py --plimsoll build/plimsoll --planner CSV...     plans each run's model, GPUs and batch

CSV has the columns of cases/throughput.csv; published.py says how a row becomes a .plan file. The rows of cases/throughput.csv
were fitted to; for rows that were not, see fit_time.py.
  --planner  the published layout must be priced as fitting, and no layout proposed may be slower than it, by the tool's own time
  --every N  every N-th row only       --keep DIR  leaves the .plan files there       --worst N  the rows furthest off
"""
import argparse
import collections
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import published  # noqa: E402

TIE = 0.03  # measured times closer than this are not a pair: runs of one layout spread as much


def line(name, errors):
    a = sorted(abs(e) for e in errors)
    return (f"  {name:44s}{len(a):5d}{100 * statistics.mean(a):8.1f}{100 * statistics.median(a):8.1f}"
            f"{100 * a[min(len(a) - 1, int(0.9 * len(a)))]:8.1f}{100 * statistics.mean(errors):+8.1f}")


def times_of_bills(program, cases):
    """Seconds of each layout as `bill --json` tells them; None where it cannot be priced."""
    out = []
    for c in cases:
        try:
            out.append(run(program, "bill", "--layout", "run", "--json", plan=c.plan)["step_seconds"])
        except (RuntimeError, KeyError) as why:
            print(f"not priced: {c.id}: {why}")
            out.append(None)
    return out


def times_of_rows(program, cases):
    """The same from plimsoll_time_rows, all at once."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump([{"plan": c.plan, "gpu": c.gpu} for c in cases], f)
        f.flush()
        done = subprocess.run([program, f.name], input="\n", capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def errors(times, cases, worst):
    priced = [(c, t) for c, t in zip(cases, times) if t is not None]
    for c, t in zip(cases, times):
        if t is None:
            print(f"not priced: {c.id}")
    print(f"\n  {'errors of step time, %':44s}{'rows':>5s}{'mean':>8s}{'median':>8s}{'p90':>8s}{'bias':>8s}")
    print(line("all", [t / c.measured - 1 for c, t in priced]))
    for title, key in (("source", lambda c: c.source), ("GPU", lambda c: c.gpu),
                       ("framework", lambda c: re.sub(r"[ /].*", "", c.framework) or "?")):
        groups = collections.defaultdict(list)
        for c, t in priced:
            groups[key(c)].append(t / c.measured - 1)
        for name, values in sorted(groups.items()):
            print(line(f"{title}: {name}", values))
    for c, t in sorted(priced, key=lambda p: -abs(p[1] / p[0].measured - 1))[:worst]:
        print(f"  {100 * (t / c.measured - 1):+7.1f} %  {c.measured:9.3f} s  {c.id}")
    return priced


def pairs(priced):
    """Of layouts that differ in nothing else, how many pairs are in the right order."""
    for title, key in (("same global batch", lambda c: c.alike), ("any batch, by tokens a second", lambda c: c.alike[:-1])):
        groups = collections.defaultdict(list)
        for c, t in priced:
            groups[key(c)].append((c, t))
        right, total, told = collections.Counter(), collections.Counter(), []
        for rows in groups.values():
            for (a, ta), (b, tb) in itertools.combinations(rows, 2):
                measured = (a.tokens / a.measured) / (b.tokens / b.measured)
                predicted = (a.tokens / ta) / (b.tokens / tb)
                if abs(measured - 1) < TIE:
                    continue
                total[a.source] += 1
                right[a.source] += (measured > 1) == (predicted > 1)
                if (measured > 1) != (predicted > 1):
                    told.append((abs(measured - 1), a.id, b.id, measured, predicted))
        if total:
            print(f"\n  pairs in the right order ({title}): {sum(right.values())} of {sum(total.values())}, "
                  f"{100 * sum(right.values()) / sum(total.values()):.1f} %")
            for name in sorted(total):
                print(f"    {name:20s}{right[name]:5d} of {total[name]}")
            for _, a, b, measured, predicted in sorted(told, reverse=True)[:10]:
                print(f"    wrong: {a} / {b}: measured {measured:.3f}, predicted {predicted:.3f}")


def run(program, *args, plan):
    done = subprocess.run([program, *args, "-"], input=plan, capture_output=True, text=True, timeout=600)
    if done.returncode not in (0, 2):
        raise RuntimeError(done.stderr.strip().splitlines()[0] if done.stderr else f"exit {done.returncode}")
    return json.loads(done.stdout)


def planner(program, rows, cases, show):
    """Broken promises, over cases of unlike model, GPUs, batch and layout. Where it is not told what is recomputed, or modules are
    whose memory is not ours to say, a layout priced as not fitting is told and not counted."""
    seen, slower, unfit, untold, failed, done = set(), [], [], [], [], 0
    step = dict(zip((c.id for c, _ in rows), (t for _, t in rows)))
    for c in cases:
        key = c.plan.split("\n", 1)[1]
        if key in seen or c.id not in step:
            continue
        seen.add(key)
        try:
            bill = run(program, "bill", "--layout", "run", "--json", plan=c.plan)
            found = run(program, "plan", "--json", "--no-proof", plan=c.plan)
        except (RuntimeError, subprocess.TimeoutExpired, json.JSONDecodeError) as why:
            failed.append((c.id, str(why)))
            continue
        done += 1
        best = found.get("best")
        if show:
            print(f"  {c.id}: runs {step[c.id]:.3f} s, planned {best['step_seconds'] if best else float('nan'):.3f} s"
                  f"{'' if bill['fits'] else ', priced as not fitting'}", flush=True)
        if not bill["fits"]:
            stage = bill["stages"][bill["peak_stage"]]
            items = sorted(stage["items"], key=lambda i: -i["bytes"])[:3]
            (unfit if c.recompute_told else untold).append((c.id, bill["peak_bytes"] / bill["hbm_bytes"] - 1, [(i["name"], i["bytes"] / 2**30) for i in items]))
        elif best is None or best["step_seconds"] > step[c.id] * (1 + 1e-9):
            slower.append((c.id, step[c.id], best and best["step_seconds"]))
    print(f"\n  {done} runs planned, {len(failed)} could not be")
    for id_, why in failed:
        print(f"    failed: {id_}: {why}")
    for title, list_ in (("that ran are priced as not fitting", unfit),
                         ("more are, of which what is recomputed is not told in full", untold)):
        print(f"  {len(list_)} {title}")
        for id_, over, items in list_:
            print(f"    {id_}: {100 * over:.1f} % over; " + ", ".join(f"{n} {b:.1f} GiB" for n, b in items))
    print(f"  {len(slower)} proposals slower than the published layout")
    for id_, own, ours in slower:
        print(f"    {id_}: {own:.3f} s, proposed {ours}")
    return len(slower) + len(failed) + len(unfit)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--rows", help="plimsoll_time_rows")
    parser.add_argument("--plimsoll")
    parser.add_argument("--planner", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    parser.add_argument("--worst", type=int, default=10)
    parser.add_argument("--most-median", type=float, help="fail where the median error is above this, %%")
    args = parser.parse_args()
    if not args.rows and not args.plimsoll:
        parser.error("give --rows or --plimsoll")
    cases, skipped = [], []
    for path in args.csv:
        used, out = published.cases(path)
        cases += used
        skipped += out
    cases = [c for c in cases if re.search(args.only, c.id)][::args.every]
    print(f"{len(cases)} rows, {len(skipped)} skipped:")
    for why, count in collections.Counter(why for _, why in skipped).most_common():
        print(f"  {count:5d}  {why}")
    if args.keep:
        folder = pathlib.Path(args.keep)
        folder.mkdir(parents=True, exist_ok=True)
        for c in cases:
            text = "".join(f"# assumed: {a}\n" for a in c.assumed) + c.plan
            (folder / (re.sub(r"[^\w.+-]", "_", c.id) + ".plan")).write_text(text)
    if args.planner:
        rows = [(c, t) for c, t in zip(cases, times_of_bills(args.plimsoll, cases)) if t is not None]
        return 1 if planner(args.plimsoll, rows, cases, args.worst > 10) else 0
    times = times_of_rows(args.rows, cases) if args.rows else times_of_bills(args.plimsoll, cases)
    priced = errors(times, cases, args.worst)
    pairs(priced)
    if args.most_median is not None:
        median = 100 * statistics.median(abs(t / c.measured - 1) for c, t in priced)
        if median > args.most_median:
            print(f"the median error {median:.1f} % is above {args.most_median} %")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
