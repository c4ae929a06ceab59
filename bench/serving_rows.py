# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""What servers printed when they started (the columns of cases/serving.csv) beside the bill of a serve job."""
import csv
import json
import re
import subprocess

GIB = 2 ** 30
MODELS = {  # what rows call them: the prelude's name
    "gptoss120b": "gpt_oss_120b", "llama318b": "llama_3_1_8b", "metallama38b": "llama_3_1_8b", "llama38b": "llama_3_1_8b",
    "qwen306b": "qwen3_0_6b", "qwen332b": "qwen3_32b", "qwen34b": "qwen3_4b", "qwen38b": "qwen3_8b",
    "deepseekr10528qwen38b": "qwen3_8b", "llama27b": "llama_2_7b", "llama270b": "llama_2_70b", "qwen3235b": "qwen3_235b_a22b",
    "qwen27b": "qwen2_5_7b", "mistralsmall3224b": "small",
}
SHAPES = {"small": "model small = decoder { layers = 40  hidden = 5120  heads = 32  kv_heads = 8  head_dim = 128  ffn = 32768  vocab = 131072 }\n"}
GPUS = {"h10080gb": ("h100_sxm", None), "a10080gb": ("a100_80gb", None), "a10040gb": ("a100_40gb", None), "l40s": ("l40s", None),
        "rtx3090": ("rtx4090", 23.68), "a40": ("a100_40gb", 44.35)}


def plain(text):
    return re.sub(r"[^a-z0-9]", "", text.lower())


def model_of(row):
    name = plain(row["model"].split("/")[-1])
    for word in sorted(MODELS, key=len, reverse=True):
        if name.startswith(word):
            return MODELS[word]
    return None


def plan_of(row):
    """The serve job of a row, or None where model, memory or share of it are not told."""
    model = model_of(row)
    gpu = row["gpu"]
    memory = re.search(r"([\d.]+) GiB", gpu)
    base, total = next((v for k, v in GPUS.items() if plain(gpu).startswith(k)), ("h100_sxm", None))
    if model is None or not row["gpu_memory_utilization"] or not (memory or any(plain(gpu).startswith(k) for k in GPUS)):
        return None
    total = memory[1] if memory else total
    share = float(row["gpu_memory_utilization"])
    if found := re.search(r"really run at ([\d.]+)", row["notes"]):
        share = float(found[1])
    tp = int(row["tp"] or 1)
    quant = {"mxfp4": "weights = mxfp4  weights_on = {expert}", "fp8": "weights = fp8", "w8a8": "weights = int8  weights_on = {linear}"}
    fields = [f"model = {model}", "cluster = c", f"context = {row['max_model_len'] or 8192}", f"utilization = {share:g}",
              f"kv_block = {row['block_size'] or 16}", f"tp = {tp}", f"framework = {'sglang' if row['engine'] == 'SGLang' else 'vllm'}",
              quant.get(row["quant"], "")]
    if row["max_num_batched_tokens"]:
        fields.append(f"batch_tokens = {row['max_num_batched_tokens']}")
    return (f"gpu one = {base}" + (f" {{ memory = {total} GiB }}" if total else "") + "\n" + SHAPES.get(model, "") +
            f"cluster c {{ gpu = one  nodes = 1  gpus_per_node = {tp} }}\nserve s {{ {'  '.join(f for f in fields if f)} }}\n")


def report(path, program, skipped):
    rows, rooms, tokens = [], [], []
    with open(path, newline="", encoding="utf-8") as f:
        all_rows = list(csv.DictReader(f))
    for row in all_rows:
        plan = plan_of(row)
        if not plan or not (row["kv_cache_GiB"] or row["kv_tokens"]):
            skipped.append((row["id"], "serving", "no model, memory, share of it or room"))
            continue
        done = subprocess.run([program, "bill", "-", "--json"], input=plan, capture_output=True, text=True, check=False)
        if done.returncode:
            skipped.append((row["id"], "serving", "the bill: " + done.stderr.splitlines()[0][:80]))
            continue
        found = json.loads(done.stdout)
        stage = found["stages"][0]
        pool = stage["categories"]["kv_cache"] + sum(i["bytes"] for i in stage["items"] if i["name"] == "rest of the cache's pool")
        block = int(row["block_size"] or 16)
        page = pool / found["kv_blocks"] if found["kv_blocks"] else 0
        room = float(row["kv_cache_GiB"]) if row["kv_cache_GiB"] else None
        known = room is not None and room > 0
        error = pool / GIB - room if known else None
        if known:
            rooms.append((abs(error), row["engine"]))
        token_error = None
        if known and row["kv_tokens"] and page:
            # A block's bytes are the pool's over its blocks: short of one block's by less than a block in thousands.
            made = int(room * GIB / page) * block
            token_error = 100 * (made / float(row["kv_tokens"]) - 1)
            tokens.append(abs(token_error))
        rows.append((row, pool / GIB, room, error, token_error))
    print(f"\nServing: {len(rows)} start-ups.\n\n| start-up | engine | room, GiB | printed | difference | tokens from the printed room |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for row, made, room, error, token_error in rows:
        print(f"| {row['id']} | {row['engine']} {row['version']} | {made:.2f} | {'' if room is None else f'{room:.2f}'} | "
              f"{'' if error is None else f'{error:+.2f}'} | {'' if token_error is None else f'{token_error:+.2f} %'} |")
    for name in sorted({e for _, e in rooms}):
        of = sorted(e for e, engine in rooms if engine == name)
        print(f"\n{name}: room within a median of {of[len(of) // 2]:.2f} GiB on {len(of)} rows, worst {of[-1]:.2f}.")
    if tokens:
        tokens.sort()
        print(f"\nTokens from the printed room: median {tokens[len(tokens) // 2]:.2f} %, worst {tokens[-1]:.2f} % on {len(tokens)} rows.")
