#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Fits the constants of planner/time_constants.hpp that are marked "fit" to published step times, and says how well they do on
rows that they were not fitted to. Needs numpy and scipy; built with `ninja plimsoll_time_rows`.

usage: fit_time.py --rows build/plimsoll_time_rows --csv ../shared/cases/throughput.csv [--folds N] [--write]

The loss is a soft |ln(predicted / measured)|, a row weighing 1 / sqrt(rows of its source), with a pull towards round numbers.
Folds: `layout` leaves out whole layouts of a model (all releases and precisions of them together), `model` whole models of a
source, both in eight folds; `source` one source (a machine never seen). Rows that TIME.md 7 names as inconsistent are in every table, in no fit.
"""
import argparse
import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import numpy
from scipy.optimize import least_squares

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import published  # noqa: E402

HEADER = published.ROOT / "planner/time_constants.hpp"
LEFT_OUT = re.compile(  # TIME.md 2 and 7
    r"26\.06\.01.*GPT_OSS|mbridge-qwen3-30b-16h100")
SHARES = re.compile(r"gemm_|fp8_|attention_(?!fp8)|ep_overlapped|overlap_|tp_overlapped|experts_exposed|rowwise$")  # never above 1
# Where a constant starts and is pulled to: round numbers set by hand, so that no fold's own rows stand behind them.
PRIORS = {
    "gemm_": 0.6, "attention_": 0.5, "gemm_ampere": 0.75, "gemm_b200_limited": 0.45, "gemm_mi300": 0.4,
    "fp8_mi300": 0.35, "fp8_b200_limited": 0.3, "attention_2023_ampere": 0.325, "attention_torch": 0.6, "attention_mi300": 0.25,
    "blackwell_ultra": 1.3, "rowwise": 0.6, "cp_torch": 1.5, "eager": 3,
    "routed_fused": 0.35, "expert_bias": 35, "expert_bias_fused": 0.35,
    "tp_overlapped": 0.5, "experts_exposed_nic": 0.6, "attention_fp8": 1.3, "overlap_dp": 0.5, "overlap_fsdp": 0.6,
    "host_op": 5e-5, "host_counts": 2e-3, "host_legacy": 1e-3, "host_legacy_tp8": 0.6e-3,
    "legacy_send": 2e-3, "step_torch": 200e-3, "step_2023": 50e-3}
# What is pulled to a share of another constant instead, wherever the fold's rows draw that one: fp8 products to the efficiency of
# 16-bit ones of the same GPU; a GPU held to 500 of its 700 W to the cube root of that (power goes with clock and voltage squared);
# flash attention of 2023 on Hopper to half its share of an A100 (it has Ampere's instructions, half of Hopper's rate a cycle).
RELATIVE = {
    "fp8_hopper": ("gemm_hopper", 1), "fp8_blackwell": ("gemm_blackwell", 1),
    "gemm_h100_500w": ("gemm_hopper", (500 / 700) ** (1 / 3)), "fp8_h100_500w": ("gemm_h100_500w", 1),
    "attention_2023_hopper": ("attention_2023_ampere", 0.5)}
PULL = 3.0  # of a factor e away from there, in the units of a row's loss; of efficiencies twenty


def prior(name, held):
    """The longest entry that the name begins with; of what is relative, its share of the other's, or of the value held."""
    if name in RELATIVE:
        other, share = RELATIVE[name]
        return share * (held[other] if other in held else prior(other, held))
    return PRIORS[max((k for k in PRIORS if name.startswith(k)), key=len)]


class Model:
    """Step times of rows under constants."""

    def __init__(self, program, rows):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump([{"plan": c.plan, "gpu": c.gpu} for c in rows], self.file)
        self.file.flush()
        self.process = subprocess.Popen([program, self.file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.measured = numpy.array([c.measured for c in rows])

    def seconds(self, constants, only=None):
        asked = [] if only is None else ["@" + ",".join(map(str, only))]
        self.process.stdin.write(" ".join([f"{k}={v:.9g}" for k, v in constants.items()] + asked) + "\n")
        self.process.stdin.flush()
        return numpy.array(json.loads(self.process.stdout.readline()), dtype=float)

    def log_ratio(self, constants, only=None):
        measured = self.measured if only is None else self.measured[only]
        return numpy.log(self.seconds(constants, only) / measured)

    def touched(self, start, names):
        """By constant, the rows whose time it changes."""
        at = self.log_ratio(start)
        return {n: numpy.nonzero(numpy.abs(self.log_ratio(start | {n: start[n] * 1.3}) - at) +
                                 numpy.abs(self.log_ratio(start | {n: start[n] * 0.7}) - at) > 1e-12)[0] for n in names}


def fit(model, touched, used, weights, start, names, steps=12):
    """The fitted constants; those that are not among the names stay as they start."""
    held = {n: v for n, v in start.items() if n not in names}
    base = numpy.log([prior(n, held) for n in names])
    pull = numpy.array([20 if re.match("gemm_|fp8_|attention_", n) else PULL for n in names])
    tied = numpy.eye(len(names))  # rows of x that should equal those of base, but for what follows another
    for n, (other, _) in RELATIVE.items():
        if other in names:
            tied[names.index(n), names.index(other)] = -1
    there = tied @ base

    def constants(x):
        return held | dict(zip(names, numpy.exp(x)))

    def residuals(x, r=None):
        r = model.log_ratio(constants(x)) if r is None else r
        r = numpy.clip(r[used], -0.5, 0.5)
        return numpy.concatenate([numpy.sqrt(weights[used]) * r / SCALE, (tied @ x - there) * pull])

    def jacobian(x):
        step, here = 0.01, model.log_ratio(constants(x))
        at = residuals(x, here)
        columns = []
        for i, name in enumerate(names):
            moved = x.copy()
            moved[i] += step
            rows = touched[name]
            r = here.copy()
            if len(rows):
                r[rows] = model.log_ratio(constants(moved), rows)
            columns.append((residuals(moved, r) - at) / step)
        return numpy.array(columns).T

    upper = numpy.array([numpy.log(0.97) if SHARES.match(n) else b + 1.5 for n, b in zip(names, base)])
    found = least_squares(residuals, base, jac=jacobian, loss="soft_l1", max_nfev=steps, x_scale=0.2,
                          bounds=(base - 1.5, upper))
    return constants(found.x)


SCALE = 0.05


def table(errors):
    a = sorted(abs(e) for e in errors)
    if not a:
        return "-"
    return (f"{len(a):4d} rows  mean {100 * statistics.mean(a):5.1f}  median {100 * statistics.median(a):5.1f}  "
            f"p90 {100 * a[min(len(a) - 1, int(0.9 * len(a)))]:5.1f}  bias {100 * statistics.mean(errors):+5.1f}")


def report(title, rows, log_ratio):
    errors = numpy.exp(log_ratio) - 1
    print(f"\n== {title}\n{'all':22s}{table(list(errors))}")
    for key in ("source", "gpu"):
        groups = collections.defaultdict(list)
        for c, e in zip(rows, errors):
            groups[getattr(c, key)].append(e)
        for name, values in sorted(groups.items()):
            print(f"  {name:20s}{table(values)}")


def worst(rows, log_ratio, count):
    for i in numpy.argsort(-numpy.abs(log_ratio))[:count]:
        print(f"{100 * (numpy.exp(log_ratio[i]) - 1):+7.1f} %  {rows[i].measured:9.3f} s  {rows[i].id}")


def deal(rows, kind):
    """The fold of each row: a source each, or the groups of one layout or one model dealt, large ones first, to eight."""
    if kind == "source":
        names = sorted({c.source for c in rows})
        return numpy.array([names.index(c.source) for c in rows])
    layout = lambda c: c.plan[c.plan.index("layout run"):]
    group = lambda c: (c.source, c.model) if kind == "model" else (c.source, c.model, c.gpu, c.gpus, layout(c))
    groups = collections.Counter(group(c) for c in rows)
    size, fold = [0] * 8, {}
    for name, count in sorted(groups.items(), key=lambda g: (-g[1], g[0])):
        fold[name] = size.index(min(size))
        size[fold[name]] += count
    return numpy.array([fold[group(c)] for c in rows])


def write(found):
    text = HEADER.read_text()
    for name, value in found.items():
        text = re.sub(rf"(  X\({name}, )[-+.\deE]+(, \"fit)", lambda m: f"{m[1]}{value:.3g}{m[2]}", text)
    HEADER.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--csv", required=True)
    parser.add_argument("--folds", choices=("none", "layout", "model", "source", "all"), default="all")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--write", action="store_true", help="write the fit of all rows into the header")
    parser.add_argument("--worst", type=int, default=0, help="how many of the rows furthest off are named")
    parser.add_argument("--told", default="", help="print the constants of folds that leave out a row whose id matches")
    args = parser.parse_args()
    rows, skipped = published.cases(args.csv)
    everything = json.loads(subprocess.run([args.rows, "--constants"], capture_output=True, text=True, check=True).stdout)
    start = {k: v["value"] for k, v in everything.items()}
    names = [k for k, v in everything.items() if v["source"].startswith("fit")]
    model = Model(args.rows, rows)
    at = model.log_ratio(start)
    priced = numpy.isfinite(at)
    rows_ok = [c for c, ok in zip(rows, priced) if ok]
    if len(rows_ok) < len(rows):
        print("not priced:", [c.id for c, ok in zip(rows, priced) if not ok])
        model = Model(args.rows, rows_ok)
        rows = rows_ok
        at = model.log_ratio(start)
    sizes = collections.Counter(c.source for c in rows)
    weights = numpy.array([1 / numpy.sqrt(sizes[c.source]) for c in rows])
    weights *= len(rows) / weights.sum()
    good = numpy.array([not (c.doubtful or LEFT_OUT.search(c.id)) for c in rows])
    print(f"{len(rows)} rows, {len(skipped)} skipped, {len(names)} constants fitted on {good.sum()} rows")
    report("constants of the file", rows, at)
    touched = model.touched(start, names)
    found = fit(model, touched, good, weights, start, names, args.steps)
    fitted = model.log_ratio(found)
    report("fitted to all rows", rows, fitted)
    for name in names:
        print(f"  {name:26s}{start[name]:12.4g} -> {found[name]:<12.4g}{len(touched[name]):4d} rows")
    worst(rows, fitted, args.worst)
    for kind in ("layout", "model", "source"):
        if args.folds not in (kind, "all"):
            continue
        held = numpy.full(len(rows), numpy.nan)
        folds = deal(rows, kind)
        for fold in range(max(folds) + 1):
            out = folds == fold
            without = fit(model, touched, good & ~out, weights, start, names, args.steps)
            held[out] = model.log_ratio(without)[out]
            if args.told and any(re.search(args.told, rows[i].id) for i in numpy.nonzero(out)[0]):
                print(f"\nfold {fold}: " + "  ".join(f"{n} {without[n]:.3g} ({found[n]:.3g})" for n in names))
        report(f"held out, {max(folds) + 1} folds by {kind}", rows, held)
        worst(rows, held, args.worst)
    if args.write:
        write(found)


if __name__ == "__main__":
    main()
