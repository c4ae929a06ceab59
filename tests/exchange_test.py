#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""What `export` writes, held against the names that the tools know, and read back by `import`.

usage: exchange_test.py --plimsoll PROGRAM NAMES

NAMES is the folder of tool_names: every flag and key that the newest version looked at knows, with its source in the first
line. That and the round trips are tested here; exchange_tools.py has the tools' own parsers read the exports.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

CLUSTER = "cluster c {{ gpu = h100_sxm  nodes = {nodes}  gpus_per_node = 8 }}\n"

# A job and layout each, and the tools that it is exported to; "back" are read back by our importers.
CASES = [
    ("even", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 512 framework = megatron }",
     "tp = 8 pp = 4 zero = 1 mbs = 1 recompute = selective", ["megatron", "nemo"], ["megatron"]),
    ("uneven", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 512 framework = megatron loss = te attention = cudnn }",
     "tp = 4 pp = 4 cp = 2 zero = 1 mbs = 1 stage_layers = [19, 21, 21, 19] sp = true", ["megatron", "nemo"], ["megatron"]),
    ("interleaved", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 512 framework = megatron }",
     "tp = 4 pp = 4 vpp = 5 zero = 1 mbs = 1 sp = true recompute = full recompute_layers = [5, 5, 5, 5]", ["megatron", "nemo"], ["megatron"]),
    ("recomputed", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 512 framework = megatron }",
     "tp = 8 pp = 4 zero = 1 mbs = 2 recompute = full recompute_layers = [7, 7, 7, 7]", ["megatron", "nemo"], ["megatron"]),
    ("mixture", 2, "train t { model = mixtral_8x7b cluster = c seq = 4Ki batch = 256 framework = megatron }",
     "tp = 2 pp = 2 ep = 4 zero = 1 mbs = 1 sp = true recompute = full", ["megatron", "nemo"], ["megatron"]),
    ("latent", 32, "train t { model = deepseek_v3 cluster = c seq = 4Ki batch = 1024 framework = megatron }",
     "tp = 2 pp = 16 ep = 8 zero = 1 mbs = 1 sp = true recompute = full stage_layers = [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3]",
     ["megatron", "nemo"], ["megatron"]),
    ("gpt", 1, "train t { model = gpt3_5b cluster = c seq = 2Ki batch = 64 framework = megatron dropout = 0.1 attention_dropout = 0.1 }",
     "tp = 2 zero = 0 mbs = 2", ["megatron"], ["megatron"]),
    ("megatron_fsdp", 1, "train t { model = llama3_8b cluster = c seq = 8Ki batch = 64 framework = megatron }",
     "tp = 2 zero = 3 mbs = 1 sp = true recompute = full", ["megatron", "nemo"], ["megatron"]),
    ("fsdp", 1, "train t { model = llama3_8b cluster = c seq = 8Ki batch = 64 framework = torchtitan }",
     "mbs = 1 zero = 3 recompute = selective", ["torchtitan"], ["torchtitan"]),
    ("hsdp", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 256 framework = torchtitan loss = loss_parallel }",
     "tp = 8 mbs = 2 zero = 3 shard = 4 recompute = full", ["torchtitan"], ["torchtitan"]),
    ("titan_pipeline", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 256 framework = torchtitan compile = false loss = eager }",
     "pp = 4 cp = 2 mbs = 1 zero = 3 stage_layers = [19, 21, 21, 19]", ["torchtitan"], ["torchtitan"]),
    ("titan_interleaved", 8, "train t { model = qwen3_32b cluster = c seq = 8Ki batch = 256 framework = torchtitan precision = fp8 }",
     "pp = 4 vpp = 2 mbs = 1 zero = 3 recompute = full", ["torchtitan"], ["torchtitan"]),
    ("titan_folded", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 256 framework = torchtitan }",
     "pp = 4 vpp = 2 mbs = 1 zero = 3 schedule = zb_v recompute = full", ["torchtitan"], ["torchtitan"]),
    ("zero2", 1, "train t { model = llama3_8b cluster = c seq = 4Ki batch = 64 framework = deepspeed }",
     "mbs = 2 zero = 2 recompute = full", ["deepspeed", "accelerate"], ["deepspeed"]),
    ("zero3", 2, "train t { model = llama3_8b cluster = c seq = 4Ki batch = 64 framework = deepspeed bucket = 200M }",
     "mbs = 1 zero = 3", ["deepspeed", "accelerate"], ["deepspeed"]),
    ("hf_fsdp", 1, "train t { model = qwen2_5_7b cluster = c seq = 4Ki batch = 64 framework = huggingface }",
     "mbs = 1 zero = 3 recompute = full", ["accelerate"], []),
    ("server", 1, "serve t { model = llama3_70b cluster = c context = 32Ki framework = vllm kv = fp8 }", "tp = 8", ["vllm"], []),
    ("server2", 1, "serve t { model = llama3_70b cluster = c context = 32Ki framework = sglang weights = fp8 }", "tp = 8", ["sglang"], []),
]


def run(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=300)


def names_of(tool, text):
    """The flags or keys of an export."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    if tool in ("megatron", "vllm", "sglang"):
        start = body.index("pretrain_gpt.py") if tool == "megatron" else 0
        return set(re.findall(r"--([a-z0-9-]+)", body[start:]))
    if tool == "torchtitan":
        found, table = set(), ""
        for line in body.splitlines():
            if match := re.match(r"\[([\w.]+)\]$", line):
                table = match.group(1)
            elif match := re.match(r"(\w+) =", line):
                found.add(f"{table}.{match.group(1)}")
        return found
    if tool == "deepspeed":
        def walk(value, prefix):
            for key, inner in value.items():
                if key == "_plimsoll":
                    continue
                if isinstance(inner, dict):
                    yield from walk(inner, f"{prefix}{key}.")
                else:
                    yield prefix + key
        return set(walk(json.loads(text), ""))
    found, part = set(), ""
    for line in body.splitlines():
        if match := re.match(r"(\w+):(.*)$", line):
            part = match.group(1)
            if match.group(2).strip():
                found.add(part)
        elif match := re.match(r"  (\w+):", line):
            found.add(f"{part}.{match.group(1)}")
    return found


def known_names(folder, tool):
    lines = (folder / f"{tool}.txt").read_text(encoding="utf-8").splitlines()
    return set(lines[1:])


def what_counts(bill):
    """Layout and peaks of a bill: what a round trip must keep."""
    layout = bill["layout"]
    return layout, bill["params"], bill["peak_bytes"], [(s["layers"], s["live_bytes"], s["peak_bytes"]) for s in bill["stages"]]


def round_trip(program, folder, name, plan, tool, text, before):
    back = folder / f"{name}.{tool}"
    back.write_text(text, encoding="utf-8")
    nodes = before["gpus"]
    words = ["import", str(back), "--from", tool, "--gpu", "h100_sxm"] + (["--gpus", str(nodes)] if tool != "deepspeed" else [])
    done = run(program, *words)
    if done.returncode:
        return [f"{name}: import --from {tool}: exit {done.returncode}: {done.stderr}"]
    imported = folder / f"{name}.{tool}.plan"
    imported.write_text(done.stdout, encoding="utf-8")
    priced = run(program, "bill", str(imported), "--json")
    if priced.returncode:
        return [f"{name}: the bill of what came back from {tool}: {priced.stderr}"]
    after = json.loads(priced.stdout)
    if what_counts(after) != what_counts(before["bill"]):
        return [f"{name}: {tool} and back: {what_counts(before['bill'])}\n  is now {what_counts(after)}\n{done.stdout}"]
    return []


def check(program, names):
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, nodes, job, layout, tools, back in CASES:
            plan = folder / f"{name}.plan"
            plan.write_text(CLUSTER.format(nodes=nodes) + job + f"\nlayout l {{ {layout} }}\n", encoding="utf-8")
            billed = run(program, "bill", str(plan), "--json")
            if billed.returncode:
                problems.append(f"{name}: bill: {billed.stderr}")
                continue
            before = {"gpus": nodes * 8, "bill": json.loads(billed.stdout)}
            for tool in tools:
                count += 1
                done = run(program, "export", str(plan), "--to", tool)
                if done.returncode:
                    problems.append(f"{name}: export --to {tool}: exit {done.returncode}: {done.stderr}")
                    continue
                unknown = sorted(names_of(tool, done.stdout) - known_names(names, tool))
                if unknown:
                    problems.append(f"{name}: {tool} does not know {unknown}")
                if tool in back:
                    problems += round_trip(program, folder, name, plan, tool, done.stdout, before)
    return count, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("names", type=pathlib.Path)
    options = parser.parse_args()
    count, problems = check(options.plimsoll, options.names)
    print("\n".join(problems) or f"{count} exports, all as their tools have it")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
