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
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

CLUSTER = "cluster c {{ gpu = h100_sxm  nodes = {nodes}  gpus_per_node = 8  host_memory = 2 TiB  pcie = 512 GB/s }}\n"
FILLED = """model filled = decoder { layers = 16 hidden = 2048 heads = 16 ffn = 8192 vocab = 32_000
  experts = 8 top_k = 2 expert_ffn = 2048
  pattern = [dense, routed, routed, empty, routed, routed, routed, routed, routed, routed, routed, routed, routed, routed, routed, empty] }
"""

# A job and layout each, and the tools that it is exported to; "back" are read back by our importers.
CASES = [
    ("even", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 512 framework = megatron }",
     "tp = 8 pp = 4 zero = 1 mbs = 1 recompute = selective", ["megatron", "nemo"], ["megatron"]),
    ("uneven", 8, "train t { model = llama3_70b cluster = c seq = 8Ki batch = 512 framework = megatron loss = te attention = cudnn segments = expandable }",
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
    ("offloaded", 2, "train t { model = llama3_8b cluster = c seq = 4Ki batch = 64 framework = megatron }",
     "tp = 2 pp = 2 mbs = 1 zero = 1 offload = 0.5", ["megatron", "nemo"], ["megatron"]),
    ("offloaded_stage_3", 2, "train t { model = llama3_8b cluster = c seq = 4Ki batch = 64 framework = deepspeed }",
     "mbs = 1 zero = 3 offload = 0.5", ["deepspeed"], ["deepspeed"]),
    ("titan_of_ones_own", 2, "train t { model = mistral_7b cluster = c seq = 4Ki batch = 96 framework = torchtitan }",
     "tp = 2 mbs = 1 zero = 3 recompute = full", ["torchtitan"], ["torchtitan"]),
    ("titan_experts", 8, "train t { model = qwen3_30b_a3b cluster = c seq = 3_000 batch = 96 framework = torchtitan compile = false loss = eager }",
     "tp = 2 pp = 2 ep = 8 mbs = 2 zero = 3", ["torchtitan"], ["torchtitan"]),
    ("hf_fsdp", 1, "train t { model = qwen2_5_7b cluster = c seq = 4Ki batch = 64 framework = huggingface }",
     "mbs = 1 zero = 3 recompute = full", ["accelerate"], []),
    ("capacity", 2, "model padded = mixtral_8x7b { capacity = 1.25 }\ntrain t { model = padded cluster = c seq = 4Ki batch = 256 framework = megatron deterministic = true }",
     "tp = 2 pp = 2 ep = 4 zero = 1 mbs = 1 sp = true recompute = full", ["megatron", "nemo"], ["megatron"]),
    # Chunks of 3, 4, 4 and 3 layers, filled up; what fills up is recomputed only where earlier chunks are before later ones.
    ("filled_up", 2, FILLED + "train t { model = filled cluster = c seq = 4Ki batch = 64 framework = megatron }",
     "tp = 2 pp = 2 vpp = 2 mbs = 1 zero = 1", ["megatron", "nemo"], ["megatron"]),
    ("filled_up_recomputed", 2, FILLED + "train t { model = filled cluster = c seq = 4Ki batch = 64 framework = megatron }",
     "tp = 2 pp = 2 vpp = 2 mbs = 1 zero = 1 recompute = full recompute_layers = [8, 7]", ["megatron", "nemo"], ["megatron"]),
    ("filled_up_block", 2, FILLED + "train t { model = filled cluster = c seq = 4Ki batch = 64 framework = megatron }",
     "tp = 2 pp = 2 vpp = 2 mbs = 1 zero = 1 recompute = full recompute_layers = [4, 4]", ["megatron", "nemo"], ["megatron"]),
    ("server", 1, "serve t { model = llama3_70b cluster = c context = 32Ki framework = vllm kv = fp8 }", "tp = 8", ["vllm"], []),
    ("server2", 1, "serve t { model = llama3_70b cluster = c context = 32Ki framework = sglang weights = fp8 }", "tp = 8", ["sglang"], []),
]


def seed_of_run():
    """PLIMSOLL_SEED, or one of this run's own."""
    return int(os.environ.get("PLIMSOLL_SEED") or random.SystemRandom().randrange(10**6))


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


# What random layouts are made of: a framework, with what its jobs may say, and where it comes back from.
RANDOM_JOBS = {
    "megatron": ["", "loss = te", "attention = cudnn", 'te_version = "2.1"', "precision = fp8", "attention = unfused", "dropout = 0.1", "segments = expandable"],
    "torchtitan": ["", "compile = false loss = eager", "loss = eager", "precision = fp8", "loss = loss_parallel"],
    "deepspeed": ["", "bucket = 200M", "precision = fp16"],
}
RANDOM_MODELS = {"llama3_70b": 80, "llama3_8b": 32, "qwen2_5_7b": 28, "mixtral_8x7b": 32, "qwen3_32b": 64, "deepseek_v3": 61, "qwen3_30b_a3b": 48, "mistral_7b": 32}
EXPERTS = ("mixtral_8x7b", "deepseek_v3", "qwen3_30b_a3b")
UNCHANGED = ("does not fit", "training script", "does not meet", "no flavor of the shape")


def random_case(any_of):
    """A job and a layout, most of them possible: uneven stages, interleaving, recomputation by stage, offload."""
    framework, model = any_of.choice(list(RANDOM_JOBS)), any_of.choice(list(RANDOM_MODELS))
    layers, pp, at = RANDOM_MODELS[model], 1, {"mbs": any_of.choice((1, 2)), "zero": 3 if framework == "torchtitan" else any_of.randrange(4)}
    if framework != "deepspeed":
        pp = any_of.choice((1, 2, 4, 8))
        at.update(tp=any_of.choice((1, 2, 4, 8)), pp=pp, cp=any_of.choice((1, 1, 2)))
        if model in EXPERTS:
            at["ep"] = any_of.choice((1, 2, 4))
        if pp > 1 and any_of.random() < 0.3:
            at["vpp"] = 2
        if pp > 1 and any_of.random() < 0.5:
            stages = [layers // pp + (i < layers % pp) for i in range(pp)]
            moved = any_of.randrange(3)
            stages[0], stages[-2] = stages[0] - moved, stages[-2] + moved
            at["stage_layers"] = f"[{', '.join(map(str, stages))}]"
    at["recompute"] = any_of.choice(("none", "selective", "full", "full"))
    if at["recompute"] == "full" and any_of.random() < 0.6:
        most = any_of.randint(1, layers // pp - 2)
        at["recompute_layers"] = f"[{', '.join(str(most if any_of.random() < 0.7 else any_of.randint(0, most)) for _ in range(pp))}]"
    if any_of.random() < 0.15:
        at["offload"] = any_of.choice(("0.5", "1"))
    job = (f"train t {{ model = {model} cluster = c seq = {any_of.choice(('4Ki', '8Ki', '3_000'))} batch = 512 "
           f"framework = {framework} {any_of.choice(RANDOM_JOBS[framework])} }}")
    return framework, job, " ".join(f"{name} = {value}" for name, value in at.items())


def check_random(program, names, count, seed):
    """import(export(x)) has the layout and the peak of x, or the export says what it changed and x is refused or told of."""
    any_of, problems, back = random.Random(seed), [], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for number in range(count):
            tool, job, layout = random_case(any_of)
            nodes = any_of.choice((4, 8, 16))
            plan = folder / "random.plan"
            plan.write_text(CLUSTER.format(nodes=nodes) + job + f"\nlayout l {{ {layout} }}\n", encoding="utf-8")
            billed, done = run(program, "bill", str(plan), "--json"), run(program, "export", str(plan), "--to", tool)
            if billed.returncode or done.returncode:  # not every random layout is possible, nor sayable
                if {billed.returncode, done.returncode} - {0, 1} or done.stdout and done.returncode:
                    problems.append(f"{job} {layout}: {billed.stderr}{done.stderr}")
                continue
            if unknown := sorted(names_of(tool, done.stdout) - known_names(names, tool)):
                problems.append(f"{job} {layout}: {tool} does not know {unknown}")
            warnings = re.findall(r"warning: (.*)", done.stderr)
            if any(not any(same in warning for same in UNCHANGED) for warning in warnings):
                continue  # something else runs, and the warning says what
            back += 1
            problems += [f"{job} {layout}: {said}" for said in round_trip(program, folder, f"random{number}", plan, tool, done.stdout, {"gpus": nodes * 8, "bill": json.loads(billed.stdout)})]
    print(f"{count} random layouts (--seed {seed}), {back} there and back")
    if count >= 40 and back < count // 8:
        problems.append("hardly any random layout went there and back")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("names", type=pathlib.Path)
    parser.add_argument("--random", type=int, default=60, help="how many random layouts")
    parser.add_argument("--seed", type=int, default=seed_of_run())
    options = parser.parse_args()
    count, problems = check(options.plimsoll, options.names)
    problems += check_random(options.plimsoll, options.names, options.random, options.seed)
    print("\n".join(problems) or f"{count} exports, all as their tools have it")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
