#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""CPU seconds (user + system) of `plan` on the problems that it is measured by, beside their bound, brute
force over the same space, and other tools; see README.md.

usage: plan.py --plimsoll PROGRAM [--brute PROGRAM] [--seconds N] [--runs N] [--only TEXT]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
from dataclasses import dataclass


@dataclass
class Problem:
    name: str
    model: str
    gpus: int
    seq: str
    batch: int
    bound: float = None  # CPU seconds
    gpu: str = "h100_sxm"
    rest: str = ""
    others: str = ""  # the measured CPU seconds of other tools on such a machine
    fits: bool = True

    def text(self):
        return (f"cluster c {{ gpu = {self.gpu}  nodes = {self.gpus // 8}  gpus_per_node = 8 }}\n"
                f"train t {{ model = {self.model}  cluster = c  seq = {self.seq}  batch = {self.batch}\n"
                f"{self.rest} }}\n")


# Of other tools, over a far smaller space each: SimuMax; Galvatron; calculon did not finish in 1,500 s.
PROBLEMS = [
    Problem("llama3_8b on 8", "llama3_8b", 8, "8Ki", 128, 0.3, others="SimuMax 9.5, Galvatron 34.7"),
    Problem("llama3_70b on 64", "llama3_70b", 64, "8Ki", 512, 1, others="SimuMax 39"),
    Problem("llama3_405b on 1,024", "llama3_405b", 1024, "8Ki", 2048, 1),
    Problem("llama3_405b on 16,384", "llama3_405b", 16384, "8Ki", 2048, 1),
    Problem("llama3_405b at 128Ki on 16,384", "llama3_405b", 16384, "128Ki", 128, 1),
    Problem("deepseek_v3 on 2,048", "deepseek_v3", 2048, "4Ki", 15360, 1.5),
    Problem("deepseek_v3 on 16,384", "deepseek_v3", 16384, "4Ki", 16384, 1.5),
    Problem("gpt3_175b on 1,024 A100", "gpt3_175b", 1024, "2Ki", 1536, 1, gpu="a100_80gb",
            others="SimuMax 60, calculon > 1,500"),
    Problem("llama3_70b on 8", "llama3_70b", 8, "8Ki", 128, 0.5, fits=False, others="Galvatron 274"),
    Problem("llama3_405b on 512, constrained", "llama3_405b", 512, "8Ki", 2048, 0.5, fits=False,
            rest="  require tp <= 8  require pp <= 4  require zero <= 1"),
]
GROWTH = [Problem(f"llama3_405b on {2 ** k:,}", "llama3_405b", 2 ** k, "8Ki", 16384) for k in range(7, 18)]


def run(command):
    """CPU seconds, the exit status and what was printed."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return usage.ru_utime + usage.ru_stime, child.returncode, out.read()


def start(options, path):
    """The median CPU seconds until a file is compiled: of `check`, and the job's model and framework."""
    return statistics.median(run([options.plimsoll, "check", str(path)])[0] for _ in range(options.runs))


def plan(options, path):
    """The median CPU seconds, and the JSON answer (None after a failure, with the status)."""
    seconds = []
    for _ in range(options.runs):
        cpu, code, printed = run([options.plimsoll, "plan", str(path), "--json"])
        seconds.append(cpu)
        if code not in (0, 2):
            return statistics.median(seconds), None, code
    return statistics.median(seconds), json.loads(printed), code


def brute(options, path, answer):
    """Words for what brute force took, whether it came to the same answer, and what looking at a candidate and
    one layout alone take."""
    if not options.brute:
        return "", "", "", ""
    cpu, code, printed = run([options.brute, str(path), str(options.seconds)])
    if code != 0:
        return f"ended with {code}", "", "", ""
    tried = json.loads(printed)
    cpu, alone, look = tried["cpu"], f"{tried['alone_us']:6.0f} us", f"{tried['look_us']:5.2f} us"
    outer = tried["outer"]
    if not tried["whole"]:
        return f"> {cpu:.1f} s, {outer:,} looked at", "", look, alone
    best = answer["best"] if answer else None
    mine = round(best["step_seconds"] * 1e9) if best else None
    # Seconds are printed with fewer digits than nanoseconds have.
    same = (mine is None) == (tried["step_ns"] is None) and (
        mine is None or abs(mine - tried["step_ns"]) <= 1e-6 * mine)
    return f"{cpu:.2f} s, {outer:,} looked at", "same" if same else "OTHER", look, alone


def verdict(problem, answer, code):
    if answer is None:
        return f"ended with {code}"
    words = answer["status"]
    if not problem.fits and answer["status"] == "infeasible":
        words += f", core of {len(answer['core'])}, {len(answer['relaxations'])} changes"
    return words


def measure(options, folder, problems, with_brute):
    for problem in problems:
        if options.only not in problem.name:
            continue
        path = pathlib.Path(folder) / "problem.plan"
        path.write_text(problem.text())
        cpu, answer, code = plan(options, path)
        space = answer["search"]["space"] if answer else 0
        looked = answer["search"]["evaluated"] if answer else 0
        each = f"{max(0, cpu - start(options, path)) / space * 1e6:7.2f}" if space else f"{'':7}"
        bound = f"{problem.bound:5.1f}" if problem.bound else f"{'':5}"
        remark = " over" if problem.bound and cpu > problem.bound else ""
        tried, same, look, alone = brute(options, path, answer) if with_brute else ("", "", "", "")
        print(f"{problem.name:34}{cpu:7.2f} s{bound}{remark:6}{space:>11,}{looked:>9,}{each}   "
              f"{verdict(problem, answer, code):36}{look:10}{tried:34}{same:6}{alone:10}{problem.others}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    absolute = lambda text: str(pathlib.Path(text).resolve())
    parser.add_argument("--plimsoll", required=True, type=absolute)
    parser.add_argument("--brute", type=absolute, help="bench/brute.cpp; without it that column is empty")
    parser.add_argument("--seconds", type=float, default=20, help="of brute force on a problem, at most")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="only problems whose name holds this text")
    options = parser.parse_args()
    print(f"{'problem':34}{'CPU':>9}{'bound':>5}{'':6}{'space':>11}{'looked':>9}{'us each':>8}  "
          f"{'answer':36}{'one look':10}{'brute force':40}{'one alone':10}others, s")
    with tempfile.TemporaryDirectory() as folder:
        measure(options, folder, PROBLEMS, True)
        print("\ngrowth, which should be that of the space")
        measure(options, folder, GROWTH, False)


if __name__ == "__main__":
    main()
