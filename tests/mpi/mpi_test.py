#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Ranks as processes give what threads give: four that are started as torchrun does, over TCP, and
mpirun -np 4. The latter is skipped (77, after the former) where there is no mpirun or no MPI in the
build.

usage: mpi_test.py PLIMSOLL MPI_RANKS
"""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

PLAN = """gpu toy { memory = 1 GiB  bandwidth = 1 TB/s  nvlink = 100 GB/s }
cluster box { gpu = toy  gpus_per_node = 4  nodes = 1 }
model tiny = llama { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32 }
train run { model = tiny  cluster = box  framework = plain  optimizer = adamw
  precision = fp32  seq = 16  batch = 8 }
layout here { tp = 2  pp = 2  sp = true }
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def mpirun(count, *command):
    # Open MPI asks for words before it starts as root or beside others on few cores.
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", NO_COLOR="1")
    return subprocess.run(["mpirun", "--oversubscribe", "-np", str(count), *command], env=env,
                          capture_output=True, text=True, timeout=300)


def torchrun(count, *command):
    """As torchrun starts processes: its words in the environment of each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(count):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), MASTER_ADDR="localhost",
                   MASTER_PORT=str(port))
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return [(p.communicate(timeout=300), p.returncode) for p in started]


def main():
    plimsoll, ranks = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder) / "run.plan"
        plan.write_text(PLAN, encoding="utf-8")
        ask = [plimsoll, "verify", str(plan), "--device", "host", "--ranks", "all"]
        failed = check(plimsoll, ranks, ask)
    print("failed" if failed else "processes make what threads make")
    return 1 if failed else 0


def check(plimsoll, ranks, ask):
    failed = 0
    threads = subprocess.run(ask, capture_output=True, text=True, timeout=120)
    expected = [(threads.stdout, 0)] + [("", 0)] * 3
    processes = torchrun(4, *ask)
    if [(out, code) for (out, _), code in processes] != expected:
        print("threads said:", threads.returncode, threads.stdout, threads.stderr, sep="\n")
        print("processes over TCP said:", processes, sep="\n")
        failed += 1
    if any(code == 0 or "started as 2 processes; this layout has 4 ranks" not in err for (_, err), code in
           torchrun(2, *ask)[:1]):
        print("two processes did not say that they are too few")
        failed += 1
    if failed:
        return failed

    if not shutil.which("mpirun"):
        skip("no mpirun on this machine (Debian: openmpi-bin)")
    if not (pathlib.Path(plimsoll).parent / "libplimsoll_mpi.so").is_file():
        skip("built without MPI")
    done = mpirun(4, str(ranks))
    print(done.stdout[-3000:], done.stderr[-3000:])
    failed += done.returncode != 0
    processes = mpirun(4, *ask)
    if (threads.returncode, threads.stdout) != (processes.returncode, processes.stdout):
        print("threads said:", threads.returncode, threads.stdout, threads.stderr, sep="\n")
        print("processes said:", processes.returncode, processes.stdout, processes.stderr, sep="\n")
        failed += 1
    few = mpirun(3, *ask)
    if few.returncode == 0 or "started as 3 processes; this layout has 4 ranks" not in few.stderr:
        print("three processes said:", few.returncode, few.stdout, few.stderr, sep="\n")
        failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
