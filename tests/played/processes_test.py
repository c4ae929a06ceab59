#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Four ranks that are processes, started as torchrun does and by mpirun. On emulated GPUs over an NCCL
that is played they lose what the host loses, in the bill's bytes; and whatever becomes of one of them,
none waits for it for long. The same of --device host.

usage: processes_test.py PLIMSOLL PLAYED_RANKS PLAYED_NCCL
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PLAN = """gpu toy {{ memory = 1 GiB  bandwidth = 1 TB/s  nvlink = 100 GB/s }}
cluster box {{ gpu = toy  gpus_per_node = 4  nodes = 1 }}
model tiny = {model}
train run {{ model = tiny  cluster = box  framework = plain  optimizer = adamw
  precision = fp32  seq = 16  batch = 8 }}
layout here {{ {layout} }}
"""
LLAMA = "llama { layers = 4  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32 }"
EXPERTS = ("decoder { layers = 2  hidden = 16  heads = 4  kv_heads = 2  ffn = 24  vocab = 32  experts = 4  "
           "top_k = 2  expert_ffn = 12 }")
GPT = "gpt { layers = 4  hidden = 16  heads = 4  vocab = 30  positions = 16 }"
RUNS = [(LLAMA, "tp = 2  pp = 2  sp = true"), (LLAMA, "pp = 2  vpp = 2  zero = 1"), (LLAMA, "zero = 3"),
        (LLAMA, "cp = 2  zero = 2"), (EXPERTS, "ep = 4  zero = 1"), (GPT, "pp = 4")]
# A run in which one of four fails computes for a second or two; without an end of its own it would never end.
SECONDS = 60
failures = []


def check(what, condition, *seen):
    if not condition:
        failures.append(what)
        print("FAILED:", what, *seen, sep="\n  ")


def by_tcp(env, *command, kill=None, hangs=None):
    """As torchrun starts four processes. kill: the rank that is killed after two seconds; hangs: one that is
    not waited for."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    begun, ranks = time.monotonic(), []
    for rank in range(4):
        mine = dict(env, RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank), MASTER_ADDR="localhost",
                    MASTER_PORT=str(port))
        ranks.append(subprocess.Popen(command, env=mine, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    if kill is not None:
        time.sleep(2)
        begun = time.monotonic()
        ranks[kill].send_signal(signal.SIGKILL)
    ends = [(*p.communicate(timeout=300), p.returncode) for r, p in enumerate(ranks) if r != hangs]
    seconds = time.monotonic() - begun
    if hangs is not None:
        ranks[hangs].kill()
        ranks[hangs].communicate()
    return ends, seconds


def by_mpi(env, *command):
    env = dict(env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    begun = time.monotonic()
    done = subprocess.run(["mpirun", "--oversubscribe", "-np", "4", *command], env=env, capture_output=True,
                          text=True, timeout=300)
    return done, time.monotonic() - begun


def on_gpus(played, nccl, folder, has_mpi):
    env = dict(os.environ, LD_LIBRARY_PATH=str(pathlib.Path(nccl).parent), NO_COLOR="1")
    plan = folder / "gpus.plan"
    for model, layout in RUNS:
        plan.write_text(PLAN.format(model=model, layout=layout), encoding="utf-8")
        ends, _ = by_tcp(env, played, str(plan))
        check(f"emulated GPUs, {layout}", ends[0][2] == 0 and "losses are the host's" in ends[0][0]
              and "agrees: 4 ranks" in ends[0][0] and all(code == 0 for _, _, code in ends), ends)
    # 1 MiB of each of two ranks in half a microsecond.
    ends, _ = by_tcp(env, played, "calibrate")
    check("links of two ranks on each of two machines", ends[0][2] == 0 and "nvlink = 2097.2 GB/s" in ends[0][0]
          and "nic = 2097.15 GB/s" in ends[0][0] and "nodes = 2  gpus_per_node = 2" in ends[0][0]
          and ends[0][0].count("all-reduce") == 4, ends)
    plan.write_text(PLAN.format(model=LLAMA, layout="tp = 2  pp = 2  sp = true"), encoding="utf-8")
    if has_mpi:
        done, _ = by_mpi(env, played, str(plan))
        check("emulated GPUs by mpirun", done.returncode == 0 and "losses are the host's" in done.stdout, done)
    for rank in (0, 3):
        for fault, code, words in (
                ("memory", 4, f"out of memory: rank {rank} could not have"),
                ("error", 1, f"rank {rank} failed: an illegal address was met"),
                ("no_gpu", 1, f"rank {rank}: this machine has no driver")):
            ends, seconds = by_tcp(env, played, str(plan), fault, str(rank))
            check(f"{fault} of rank {rank}", ends[0][2] == code and words in ends[0][0], ends)
            check(f"{fault} of rank {rank}: the others end soon", seconds < SECONDS, seconds)
            if has_mpi and rank == 3:
                done, seconds = by_mpi(env, played, str(plan), fault, str(rank))
                check(f"{fault} by mpirun", done.returncode == code and words in done.stdout, done)
                check(f"{fault} by mpirun: the others end soon", seconds < SECONDS, seconds)
    ends, seconds = by_tcp(env, played, str(plan), "killed", "2")
    check("rank 2 killed", ends[0][2] == 1 and "process of rank 2 ended without a word" in ends[0][0], ends)
    check("rank 2 killed: the others end soon", seconds < SECONDS, seconds)
    ends, seconds = by_tcp(env, played, str(plan), "memory", "3", "1", hangs=1)
    check("one without memory, another hangs", ends[0][2] == 4 and "out of memory: rank 3" in ends[0][0], ends)
    check("one without memory, another hangs: nobody waits on", seconds < 2 * SECONDS, seconds)
    ends, seconds = by_tcp(env, played, str(plan), "killed", "0")
    check("rank 0 killed: the others end soon", seconds < SECONDS and ends[0][2] == -signal.SIGKILL, ends)
    if has_mpi:
        done, seconds = by_mpi(env, played, str(plan), "killed", "2")
        check("rank 2 killed by mpirun", done.returncode != 0 and seconds < SECONDS, done, seconds)


def on_the_host(plimsoll, folder, has_mpi):
    env = dict(os.environ, NO_COLOR="1")
    plan = folder / "host.plan"
    plan.write_text(PLAN.format(model=LLAMA, layout="tp = 2  pp = 2  sp = true"), encoding="utf-8")
    ask = [plimsoll, "verify", str(plan), "--device", "host", "--ranks", "all"]
    # The limit lets the run begin, for tensors fit in it, and end for what segments take beyond them.
    limit = ["--limit", "3MiB"]
    threads = subprocess.run(ask + limit, env=env, capture_output=True, text=True, timeout=120)
    check("threads without memory", threads.returncode == 4 and "out of memory: rank" in threads.stdout, threads)
    ends, seconds = by_tcp(env, *ask, *limit)
    check("processes without memory say what threads say", ends[0][:1] == (threads.stdout,) and ends[0][2] == 4, ends)
    check("processes without memory end soon", seconds < SECONDS, seconds)
    for killed in (0, 2):
        ends, seconds = by_tcp(env, *ask, "--steps", "1000000", kill=killed)
        words = f"process of rank {killed} ended without a word"
        told = ends[0] if killed else ends[1]
        check(f"rank {killed} killed on the host", told[2] == 1 and words in told[1], ends)
        check(f"rank {killed} killed on the host: the others end soon", seconds < SECONDS, seconds)
    if has_mpi:
        done, seconds = by_mpi(env, *ask, *limit)
        check("processes without memory by mpirun", (done.returncode, done.stdout) == (4, threads.stdout), done)
        check("processes without memory by mpirun end soon", seconds < SECONDS, seconds)


def main():
    plimsoll, played, nccl = sys.argv[1:4]
    has_mpi = shutil.which("mpirun") and (pathlib.Path(plimsoll).parent / "libplimsoll_mpi.so").is_file()
    with tempfile.TemporaryDirectory() as folder:
        on_the_host(plimsoll, pathlib.Path(folder), has_mpi)
        on_gpus(played, nccl, pathlib.Path(folder), has_mpi)
    if failures:
        print(f"{len(failures)} failed")
        return 1
    print("whatever becomes of a rank, the others end" + ("" if has_mpi else " (not by mpirun: it is not here)"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
