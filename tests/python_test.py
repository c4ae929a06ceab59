#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Drives the Python module and holds its answers against the program's own.

usage: python_test.py PLIMSOLL PYTHON_PATH (a folder that holds the package)
"""
import json
import subprocess
import sys
import threading

if len(sys.argv) < 3 or not sys.argv[2]:
    print("skipped: the Python module was not built (Debian's pybind11-dev and python3-dev are missing)")
    sys.exit(77)
program, path = sys.argv[1:3]
sys.path.insert(0, path)
import plimsoll  # noqa: E402

JOB = """
cluster pod { gpu = h100_sxm  nodes = 2  gpus_per_node = 8 }
train tune { model = llama3_8b  cluster = pod  seq = 8Ki  batch = 64  require headroom >= 5% }
layout hand { tp = 2  zero = 1 }
"""
TOO_MUCH = JOB.replace("llama3_8b", "llama3_405b").replace("nodes = 2", "nodes = 1")


def by_program(*arguments, text=JOB):
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True)
    return done.stdout


assert plimsoll.plan(JOB) == json.loads(by_program("plan", "-", "--json"))
assert plimsoll.plan(JOB, top=1, proof=False) == json.loads(by_program("plan", "-", "--json", "--top", "1", "--no-proof"))
assert plimsoll.bill(JOB, layout="hand") == json.loads(by_program("bill", "-", "--json", "--layout", "hand"))
assert plimsoll.timeline(JOB, layout="hand") == json.loads(by_program("timeline", "-", "--json", "--layout", "hand"))
assert plimsoll.explain(JOB, layout="hand") == json.loads(by_program("explain", "-", "--json", "--layout", "hand"))
assert plimsoll.check(JOB) == json.loads(by_program("check", "-", "--json"))
seen = plimsoll.verify(JOB, layout="hand")
assert seen["agrees"] and seen["worst_difference"] == 0, seen
assert plimsoll.format(JOB) == by_program("fmt", "-")
assert isinstance(plimsoll.plan(JOB)["best"]["peak_bytes"], int)

# That nothing fits is an answer, not an exception.
never = plimsoll.plan(TOO_MUCH, budget=2000)
assert never["status"] in ("infeasible", "unknown") and never.get("best") is None, never["status"]

try:
    plimsoll.plan(JOB.replace("llama3_8b", "llama3_9b"))
    raise SystemExit("a model that does not exist gave no Error")
except plimsoll.Error as error:
    assert "<stdin>:3:" in str(error) and "did you mean" in str(error), str(error)
try:
    plimsoll.plan("\0\xff" * 10)
    raise SystemExit("a text of rubbish gave no Error")
except plimsoll.Error:
    pass
try:
    plimsoll.bill(JOB, layout="another")
    raise SystemExit("a layout that does not exist gave no Error")
except plimsoll.Error as error:
    assert "another" in str(error)

try:
    plimsoll.check("# \ud83d\n")
    raise SystemExit("half a character gave no Error")
except plimsoll.Error as error:
    assert "<stdin>:1:3" in str(error), str(error)
for wrong in (None, 5, [JOB], open):
    try:
        plimsoll.plan(wrong)
        raise SystemExit(f"{wrong} gave no TypeError")
    except TypeError as error:
        assert "expected the text of a .plan file" in str(error), str(error)
assert plimsoll.check(JOB.encode()) == plimsoll.check(JOB)

# 0 is a number that was given, and no option that was left out.
PIPE = JOB.replace("tp = 2  zero = 1", "tp = 2  pp = 4  zero = 1  stage_layers = [4, 12, 8, 8]").replace("seq", "framework = megatron  seq")
assert plimsoll.timeline(PIPE, layout="hand")["rank"] != 0
assert plimsoll.timeline(PIPE, layout="hand", rank=0)["rank"] == 0
assert plimsoll.timeline(PIPE, layout="hand", rank=15)["rank"] == 15
for wrong in (dict(top=0), dict(budget=0), dict(timeout=0), dict(timeout=1e-9), dict(timeout=-1.5), dict(top=2.5), dict(job="a\0b"), dict(job="\ud83d"), dict(on="nope")):
    try:
        plimsoll.plan(JOB, **wrong)
        raise SystemExit(f"{wrong} gave no Error")
    except plimsoll.Error:
        pass
assert plimsoll.plan(JOB, timeout=60.0) == plimsoll.plan(JOB, on=None) == plimsoll.plan(JOB)
assert plimsoll.plan(JOB, on="h200") == plimsoll.plan(JOB, on=["h200"]) == json.loads(by_program("plan", "-", "--json", "--on", "h200"))

# One text a thread, side by side, the same bytes.
answers = [None] * 4


def ask(i):
    answers[i] = plimsoll.run("plan", "-", "--json", text=JOB)


threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(answer == answers[0] for answer in answers) and answers[0][0] == 0
print("the module's answers are the program's")
