#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""CPU seconds (user + system, not wall time) of what a user waits for, beside its target; see README.md.

usage: run.py --plimsoll PROGRAM [--runs N] [--only TEXT]
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL, LARGE, RUN = 0.020, 0.3, 0.050  # seconds: a command on an example; a file of 10,000 lines; a step, counted

BIG = """cluster c { gpu = h100_sxm  nodes = 128  gpus_per_node = 8 }
train t { model = llama3_405b  cluster = c  seq = 8Ki  batch = 2048  framework = megatron }
layout l { tp = 8  pp = 16  zero = 1  mbs = 1 }
"""


def long_file(lines=10_000):
    """A file that people could have written, only longer: clusters, models, blocks, jobs and layouts in turn."""
    parts, count, number = [], 0, 0
    while count < lines:
        part = f"""## Number {number} of many.
cluster pod_{number} {{
  gpu           = h100_sxm
  nodes         = {1 + number % 64}   # of eight
  gpus_per_node = 8
}}

block mixer_{number}(x, ffn) {{
  up = gelu(linear(x, ffn, split = column, name = up))
  return linear(up, width(x), split = row, name = down)
}}

model net_{number} {{
  param layers = 4, hidden = 512, vocab = 32000
  x = embedding(vocab, hidden)
  repeat layers {{
    x = x + mixer_{number}(rmsnorm(x), 4 * hidden)
  }}
  loss = cross_entropy(linear(rmsnorm(x), vocab, split = column, name = head))
}}

train job_{number} {{
  model     = net_{number}
  cluster   = pod_{number}
  seq       = 2Ki
  batch     = {64 * (1 + number % 8)}
  optimizer = adamw
  tp in {{1, 2, 4, 8}}
  require "inside a node": tp <= gpus_per_node and mbs * seq <= 8Ki
  require headroom >= 5%
  minimize step_time
}}

layout by_hand_{number} {{ tp = 4  zero = 1  mbs = 1  recompute = full }}

"""
        parts.append(part)
        count += part.count("\n")
        number += 1
    return "".join(parts)


def bills_of(plan):
    """The options of each bill that an example shows of itself."""
    shown = re.findall(r"^#\$ plimsoll bill FILE(.*)$", plan.read_text(encoding="utf-8"), re.M)
    return [words.split() for words in shown]


def cpu_seconds(command, cwd):
    """CPU of one run, and its exit status."""
    child = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, child.returncode


def measures(folder):
    """(name, arguments, target) of each thing measured."""
    yield "start-up", ["--version"], SMALL
    for plan in sorted((ROOT / "examples").glob("*.plan")):
        yield f"check {plan.stem}", ["check", str(plan)], SMALL
        for words in bills_of(plan):
            yield " ".join(["bill", plan.stem, *words]), ["bill", str(plan), *words], SMALL
    long = pathlib.Path(folder) / "long.plan"
    long.write_text(long_file())
    yield f"check of {len(long.read_text().splitlines()):,} lines", ["check", str(long)], LARGE
    yield "fmt of the same", ["fmt", str(long)], LARGE
    big = pathlib.Path(folder) / "big.plan"
    big.write_text(BIG)
    yield "timeline of llama3_405b's fullest stage", ["timeline", str(big)], RUN
    yield "verify of the same on dry, with its allocator", ["verify", str(big)], RUN


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True, type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--only", default="", help="only measures whose name holds this text")
    options = parser.parse_args()
    print(f"{'CPU of one run':52}{'median':>12}{'least':>12}{'target':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments, target in measures(folder):
            if options.only not in name:
                continue
            runs = [cpu_seconds([options.plimsoll, *arguments], ROOT) for _ in range(options.runs)]
            seconds, code = [run[0] for run in runs], runs[0][1]
            median = statistics.median(seconds)
            remark = "" if median < target else "   over"
            if code not in (0, 2):
                remark += f"   ended with {code}"
            print(f"{name:52}{median * 1e3:9.1f} ms{min(seconds) * 1e3:9.1f} ms{target * 1e3:9.0f} ms{remark}")


if __name__ == "__main__":
    main()
