#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Exports of examples, of exchange_test's cases and of random layouts, read by the tools' own parsers.

usage: exchange_tools.py --plimsoll PROGRAM [--seed N] [--random N] [--keep FOLDER]

The parsers run in the Python of the virtual environment PLIMSOLL_TOOLS (`./dev tools FOLDER` makes one), or in this one.
Each must take every export, and what it understood must be the layout. A tool that is missing is told and passed over; where
all are, the test is skipped (exit 77). The seed is printed, and --seed runs it again.
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

import exchange_test

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
TOOLS = ["megatron", "nemo", "torchtitan", "deepspeed", "accelerate", "vllm", "sglang"]
# What Megatron-Core 0.19.2 refuses where the export has said so: an older one takes it.
TOLD = {"loss = te": "Transformer Engine cross entropy loss fusion is disabled"}


def megatron_of(bill, at=lambda name: name):
    layout = bill["layout"]
    return {at("tensor_model_parallel_size"): layout["tp"], at("pipeline_model_parallel_size"): layout["pp"],
            at("context_parallel_size"): layout["cp"], at("expert_model_parallel_size"): layout["ep"]}


def expected(tool, bill, plan):
    """What the tool must have understood, by its own names. Layers that hold nothing are none of its."""
    layout = bill["layout"]
    layers = sum(layout["stage_layers"]) - len(re.findall(r"\bempty\b", plan))
    if tool == "megatron":
        return {**megatron_of(bill), "data_parallel_size": layout["dp"], "micro_batch_size": layout["mbs"],
                "num_layers": layers}
    if tool == "nemo":
        return {**megatron_of(bill, lambda name: f"model.{name}"), "train.micro_batch_size": layout["mbs"],
                "model.num_layers": layers}
    if tool == "torchtitan":
        shard = "parallelism.data_parallel_shard_degree"
        return {"parallelism.tensor_parallel_degree": layout["tp"], "parallelism.pipeline_parallel_degree": layout["pp"],
                "parallelism.context_parallel_degree": layout["cp"], "parallelism.expert_parallel_degree": layout["ep"],
                **({shard: layout["shard"] // layout["cp"]} if layout["zero"] == 3 else {}),
                # The pipeline is fed the local batch in micro-batches.
                ("parallelism.pipeline_parallel_microbatch_size" if layout["pp"] > 1 else "training.local_batch_size"): layout["mbs"]}
    if tool == "deepspeed":
        return {"zero": layout["zero"], "mbs": layout["mbs"], "accumulation": layout["microbatches"]}
    if tool == "accelerate":
        return {"num_processes": layout["tp"] * layout["cp"] * layout["pp"] * layout["dp"]}
    if tool == "vllm":
        return {"tensor_parallel_size": layout["tp"], "pipeline_parallel_size": layout["pp"], "data_parallel_size": layout["dp"]}
    # SGLang's dp is within its tp where attention is divided by it.
    return {"pp_size": layout["pp"]}


def random_job(rng):
    """A cluster's nodes, a job and a layout; not each is possible."""
    nodes = rng.choice([1, 1, 2, 4, 8])
    kind = rng.choice(["megatron", "megatron", "torchtitan", "deepspeed", "huggingface", "vllm", "sglang"])
    if kind in ("vllm", "sglang"):
        model = rng.choice(["llama3_8b", "llama3_70b", "qwen3_32b", "mixtral_8x7b"])
        job = f"serve t {{ model = {model} cluster = c context = {rng.choice(['8Ki', '32Ki'])} framework = {kind}"
        job += rng.choice(["", " kv = fp8"]) + rng.choice(["", " weights = fp8"]) + " }"
        layout = f"tp = {rng.choice([1, 2, 4, 8])}" + rng.choice(["", "", " pp = 2"]) + rng.choice(["", " ep = 8"])
        return 1, job, layout
    model = rng.choice({"megatron": ["llama3_8b", "llama3_70b", "mixtral_8x7b", "qwen3_32b", "gpt3_5b"], "torchtitan": ["llama3_8b", "llama3_70b", "qwen3_32b"]}
                       .get(kind, ["llama3_8b", "qwen2_5_7b", "llama3_70b"]))
    job = f"train t {{ model = {model} cluster = c seq = {rng.choice(['4Ki', '8Ki'])} batch = {rng.choice([128, 256])} framework = {kind}"
    if kind == "megatron":
        job += rng.choice(["", " loss = native", " loss = te", " attention = cudnn", " precision = fp8", " precision = fp16", " grads = bf16"])
    if kind == "torchtitan":
        job += rng.choice(["", " loss = loss_parallel", " compile = false loss = eager", " precision = fp8"])
    job += " }"
    tp, pp = rng.choice([1, 1, 2, 4, 8]), rng.choice([1, 1, 2, 4])
    words = [f"tp = {tp}", f"mbs = {rng.choice([1, 2, 4])}"]
    if kind in ("megatron", "torchtitan"):
        words.append(f"pp = {pp}")
        words += [f"vpp = {rng.choice([2, 4])}"] if pp > 1 and rng.random() < 0.3 else []
        words += ["cp = 2"] if rng.random() < 0.3 else []
    if kind == "megatron":
        words += ["sp = true"] if tp > 1 and rng.random() < 0.6 else []
        words += [f"ep = {rng.choice([2, 4, 8])}"] if model == "mixtral_8x7b" else []
    words.append(f"zero = {rng.choice({'megatron': [0, 1, 1, 3], 'torchtitan': [3]}.get(kind, [0, 1, 2, 3]))}")
    words.append(f"recompute = {rng.choice(['none', 'selective', 'full'])}")
    return nodes, job, " ".join(words)


def random_plans(program, folder, rng, count):
    """Files of `count` random layouts that the bill takes, with it and the tools that may launch them."""
    made = []
    for number in range(6 * count):
        if len(made) == count:
            break
        nodes, job, layout = random_job(rng)
        plan = folder / f"random{number}.plan"
        plan.write_text(exchange_test.CLUSTER.format(nodes=nodes) + job + f"\nlayout l {{ {layout} }}\n", encoding="utf-8")
        if exchange_test.run(program, "bill", str(plan), "--json").returncode in (0, 2):
            framework = job.split("framework = ")[1].split()[0]
            made.append((plan, [], {"megatron": ["megatron", "nemo"], "deepspeed": ["deepspeed", "accelerate"], "huggingface": ["accelerate"]}
                         .get(framework, [framework])))
    return made


def plans(program, folder, rng, count):
    made = []
    for name, nodes, job, layout, tools, _ in exchange_test.CASES:
        plan = folder / f"{name}.plan"
        plan.write_text(exchange_test.CLUSTER.format(nodes=nodes) + job + f"\nlayout l {{ {layout} }}\n", encoding="utf-8")
        made.append((plan, [], tools))
    made += [(EXAMPLES / "04_llama3_70b_64xh100.plan", ["--layout", "hand"], ["megatron", "nemo"]), (EXAMPLES / "03_zero_70b_64.plan", [], ["deepspeed", "accelerate"])]
    return made + random_plans(program, folder, rng, count)


def exported(program, folder, made):
    """Exports by tool: (file, plan, what was warned of, bill). What a tool cannot say is refused with a reason, and is no export."""
    found, refused, problems = {tool: [] for tool in TOOLS}, 0, []
    for number, (plan, words, tools) in enumerate(made):
        for tool in tools:
            done = exchange_test.run(program, "export", str(plan), *words, "--to", tool)
            if done.returncode == 1 and "help:" in done.stderr:
                refused += 1
                continue
            if done.returncode not in (0, 2):
                problems.append(f"{plan.name}: export --to {tool}: exit {done.returncode}: {done.stderr}")
                continue
            file = folder / f"{number}.{tool}"
            file.write_text(done.stdout, encoding="utf-8")
            # The bill of what is exported: a layout that the tool runs otherwise was changed, and its head says to what.
            again = folder / f"{number}.{tool}.plan"
            head = next(line for line in done.stdout.splitlines() if "layout exported {" in line)
            text = "\n".join(line for line in plan.read_text(encoding="utf-8").splitlines() if not line.startswith("layout "))
            again.write_text(f"{text}\n{head[head.index('layout'):].rstrip(',').rstrip(chr(34))}\n", encoding="utf-8")
            billed = exchange_test.run(program, "bill", str(again), "--layout", "exported", "--json")
            if billed.returncode not in (0, 2):
                problems.append(f"{plan.name}: the layout in the head of --to {tool}: {billed.stderr}")
                continue
            found[tool].append((file, plan, done.stderr, json.loads(billed.stdout)))
    return found, refused, problems


def read_by(tool, exports):
    """What the tool's parser says of each, or None where it is missing."""
    tools = os.environ.get("PLIMSOLL_TOOLS")
    python = str(pathlib.Path(tools).resolve() / "bin" / "python") if tools else sys.executable
    with tempfile.TemporaryDirectory() as elsewhere:  # some packages leave caches where they are run
        done = subprocess.run([python, str(HERE / "tools" / "read_export.py"), tool, *(str(file) for file, *_ in exports)],
                              capture_output=True, text=True, timeout=600, cwd=elsewhere)
    if done.returncode == SKIPPED:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{tool}: {done.stderr[-2000:]}")
    return json.loads(done.stdout), ""


def judge(tool, export, answer):
    _, plan, warned, bill = export
    job = next(line for line in plan.read_text(encoding="utf-8").splitlines() if line.startswith(("train", "serve")))
    if "mistake" in answer:
        if any(said in answer["mistake"] and name in warned for name, said in TOLD.items()):
            return []
        return [f"{plan.name}: {tool}: {answer['mistake']}\n  {job}\n{plan.read_text(encoding='utf-8').splitlines()[-1]}\n{answer['trace']}"]
    fields = answer["fields"]
    wrong = {name: (fields.get(name), value) for name, value in expected(tool, bill, plan.read_text(encoding="utf-8")).items() if fields.get(name) != value}
    return [f"{plan.name}: {tool} understood (theirs, ours): {wrong}\n  {job}\n  {bill['layout']}"] if wrong else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--seed", type=int, default=exchange_test.seed_of_run())
    parser.add_argument("--random", type=int, default=20)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        made = plans(options.plimsoll, folder, random.Random(options.seed), options.random)
        found, refused, problems = exported(options.plimsoll, folder, made)
        read = 0
        for tool in TOOLS:
            answers, why = read_by(tool, found[tool])
            if answers is None:
                print(f"{tool}: passed over, its package is not at hand{': ' + why[-600:] if why else ''}")
                continue
            read += 1
            played = f", with {', '.join(answers['played'])} played" if "torch" in answers["played"] else ""
            print(f"{tool} {answers['version']}: {len(found[tool])} exports{', torch played' if played else ''}")
            for export, answer in zip(found[tool], answers["read"]):
                problems += judge(tool, export, answer)
    if not read:
        print("skipped: no tool's package is at hand (./dev tools FOLDER, then PLIMSOLL_TOOLS=FOLDER)")
        return SKIPPED
    print("\n".join(problems) or f"every export as its tool has it; {refused} refused with a reason")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
