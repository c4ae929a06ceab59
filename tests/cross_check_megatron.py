#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Megatron-LM runs priced twice: by `import` and `bill`, and by ../shared/tools/megatron_bytes.py, which
prices the same flags by its own rules. Every stage's peak and steady bytes have to agree to a tenth of a percent.

usage: cross_check_megatron.py --plimsoll PROGRAM [--count 1000] [--seed 1] [--tool FILE] [-v]

Random flag sets: dense models with and without grouped queries, latent attention, experts with capacity; tensor
parallelism with and without sequence parallelism, pipelines, interleaving, context parallelism; DDP and the distributed
optimizer; the losses; full recomputation. Exit 77 (skipped) where the tool is missing.
"""
import argparse
import collections
import concurrent.futures
import importlib.util
import json
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOLERANCE = 0.001
GPUS = {"A100": "a100_80gb", "H100": "h100_sxm", "B200": "b200", "GB200": "gb200"}


def load(path):
    spec = importlib.util.spec_from_file_location("megatron_bytes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flag_set(rng):
    """(flags, GPU, number of GPUs, environment) of a run that Megatron-LM would start."""
    kind = rng.choice(["dense", "dense", "gqa", "gqa", "mla", "moe", "moe", "mla moe"])
    tp = rng.choice([1, 1, 2, 4, 8])
    pp = rng.choice([1, 1, 2, 4])
    cp = rng.choice([1, 1, 1, 2, 4])
    vpp = rng.choice([1, 1, 2, 3]) if pp > 1 else 1
    dp = rng.choice([1, 2, 4, 8])
    each = rng.choice([1, 2, 3])
    layers = pp * vpp * each
    heads = rng.choice([8, 16, 32])
    width = rng.choice([64, 128])
    hidden = heads * width
    seq = rng.choice([1024, 2048, 4096, 8192])
    mbs = rng.choice([1, 1, 2, 4])
    m = pp * rng.choice([1, 2, 4]) if vpp > 1 else rng.choice([1, 2, 4, 8])
    gpu = rng.choice(list(GPUS))
    flags = [("num-layers", layers), ("hidden-size", hidden), ("num-attention-heads", heads),
             ("seq-length", seq), ("max-position-embeddings", seq), ("micro-batch-size", mbs),
             ("global-batch-size", mbs * dp * m), ("vocab-size", rng.choice([32000, 50257, 128256])), ("bf16", None)]
    add = lambda name, value=None: flags.append((name, value))
    if tp > 1:
        add("tensor-model-parallel-size", tp)
    sp = tp > 1 and (rng.random() < 0.6 or "moe" in kind)  # experts under tensor parallelism need it
    if sp:
        add("sequence-parallel")
    if pp > 1:
        add("pipeline-model-parallel-size", pp)
        if vpp > 1:
            add("num-virtual-stages-per-pipeline-rank", vpp)
    if cp > 1:
        add("context-parallel-size", cp)
        add("cp-comm-type", rng.choice(["p2p", "a2a"]))
    if "mla" in kind:
        add("multi-latent-attention")
        if rng.random() < 0.7:
            add("q-lora-rank", rng.choice([256, 512]))
        add("kv-lora-rank", rng.choice([128, 256]))
        if rng.random() < 0.7:
            add("qk-layernorm")
    elif kind != "dense":
        add("group-query-attention")
        add("num-query-groups", rng.choice([n for n in (2, 4, 8) if n >= tp]))  # fewer: see the docstring
        if rng.random() < 0.3:
            add("qk-layernorm")
    if rng.random() < 0.6:
        add("swiglu")
        if rng.random() < 0.7:
            add("ffn-hidden-size", rng.choice([2, 3, 4]) * hidden)
    if rng.random() < 0.7 or "moe" in kind:
        add("disable-bias-linear")
    if rng.random() < 0.6:
        add("normalization", "RMSNorm")
    if rng.random() < 0.6:
        add("position-embedding-type", "rope")
    if rng.random() < 0.6:
        add("untie-embeddings-and-output-weights")
    if rng.random() < 0.6:
        add("hidden-dropout", 0.0)
        add("attention-dropout", 0.0)
    if rng.random() < 0.6:
        add("no-create-attention-mask-in-dataloader")
    if rng.random() < 0.5:
        add("no-gradient-accumulation-fusion")
    if rng.random() < 0.6:
        add("use-distributed-optimizer")
    if rng.random() < 0.4:
        add("cross-entropy-loss-fusion")
        add("cross-entropy-fusion-impl", rng.choice(["native", "te"]))
    if rng.random() < 0.3:
        add("deterministic-mode")
    backend = rng.choice([None, None, "flash", "fused", "unfused"]) if cp == 1 else rng.choice([None, "flash"])
    if backend:
        add("attention-backend", backend)
    if "moe" in kind:
        experts = rng.choice([8, 16])
        ep = rng.choice([n for n in (1, 2, 4, 8) if (tp * dp * cp) % n == 0])
        add("num-experts", experts)
        add("moe-router-topk", rng.choice([1, 2, 4]))
        add("moe-ffn-hidden-size", rng.choice([1, 2]) * hidden // 2)
        add("moe-grouped-gemm")
        add("moe-expert-capacity-factor", 1.0)
        add("moe-pad-expert-input-to-capacity")
        add("moe-token-dispatcher-type", "alltoall")
        add("expert-model-parallel-size", ep)
        add("expert-tensor-parallel-size", 1)
        if rng.random() < 0.5:
            add("moe-shared-expert-intermediate-size", hidden // 2)
    if rng.random() < 0.2:
        add("recompute-granularity", "full")
        if rng.random() < 0.5:
            add("recompute-method", "uniform")
            add("recompute-num-layers", 1)
        else:
            add("recompute-method", "block")
            add("recompute-num-layers", rng.choice([1, each]))
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if rng.random() < 0.2 else {}
    words = " ".join(f"--{name}" + ("" if value is None else f" {value}") for name, value in flags)
    return words, gpu, tp * pp * cp * dp, environment


def correct(tool):
    """Where the tool and the bill differ and the bill is the better one, the tool is given the bill's rule; each docstring says
    why. What is left has to agree."""
    mla_ops, attn_ops, layer_ops, predict = tool.mla_ops, tool.attn_ops, tool.layer_ops, tool.predict

    def latent_attention(c):
        """Context parallelism keeps the output twice and has its ring whatever made q, k and v (MEGATRON 4)."""
        ops = mla_ops(c)
        for op in ops:
            if op.name == "core" and c.c > 1 and c.attn != "unfused":
                q, k, v = op.saved["q"], op.saved["k"], op.saved["v"]
                op.saved.pop("out_fa", None)
                op.saved["out_cp"] = v
                if c.cpcomm == "p2p":
                    op.saved["cp_lse_steps"] = op.saved["lse"] * (c.c - 1)
                    op.ft = c.c * (k + v) + (c.c + 1) * v // 2 + 2 * v
                    op.bt += 4 * (k + v)
                else:
                    op.ft = 2 * (q + k + v)
            if op.name == "core" and c.attn == "fused" and c.det and c.sm90:  # as without latents (ACCOUNTING A.2)
                op.bt += 2 * (c.n // c.t) * c.b * (c.s // c.c) ** 2
        return ops

    def layer(c, number):
        """Attention's backward reads its output, which the projection after it shares: it is there until then. The gradient of a
        gathered input is reduced into a share of its own (TE layernorm_linear.py)."""
        ops = layer_ops(c, number)
        by_name = {op.name: op for op in ops}
        core, proj = by_name["core"], by_name["proj"]
        if not c.mla and c.c > 1 and c.cpcomm == "p2p" and c.attn == "fused" and c.det and c.sm90:  # lost beside the ring's buffers
            core.bt += 2 * (c.n // c.t) * c.b * (c.s // c.c) ** 2
        if "lse" in core.saved and "out_fa" not in core.saved and "out_cp" not in core.saved:
            core.saved["o"], proj.saved = proj.saved["o"], {}
        if c.sp and "shared" in by_name:  # behind the activation its input is gathered, and so is the input's gradient
            op, wide, tokens = by_name["shared"], 2 if c.swiglu else 1, tool.dims(c)[0]
            op.bt = max(op.bt, 2 * wide * c.shf // c.t * tokens + 2 * 2 * c.h * tokens + tool.wg(c, wide * c.shf // c.t * c.h) - sum(op.saved.values()))
        if c.det and not c.old and "combine" in by_name:  # rows that index_add_ adds up are kept (Megatron-LM 0.15 moe_utils.py unpermute)
            op, rows = by_name["combine"], sent(c)
            op.saved["rows"] = 2 * c.h * rows
            op.ft -= op.saved["rows"]
        if c.sp:
            for name in ("qkv", "fc1"):
                if name in by_name:
                    by_name[name].bt += 2 * c.h * tool.dims(c)[1]
        return ops

    def sent(c):
        """Rows that a rank sends to experts, dropped or padded to their capacity."""
        tokens = tool.dims(c)[1] if c.sp else tool.dims(c)[0]
        return c.E * -(-int(c.cap * tokens * c.topk) // c.E) if c.cap else tokens * c.topk

    def temporaries_beside_what_is_there(c, ops):
        """While an op runs forward, what the layer's later ops will save does not exist yet. A residual's sum is a tensor beside
        what is added (Megatron-LM fusions/fused_bias_dropout.py)."""
        later = tool.saved(ops)
        most = -later
        unit = 2 * c.h * tool.dims(c)[1]
        for op in ops:
            later -= sum(op.saved.values())
            most = max(most, (2 * unit if op.name in ("bda1", "bda2") else op.ft) - later)
        return most

    def backward_of_a_layer(c, ops, carry):
        """Without dropout the gradient of what is added to a residual is the residual's own (torch add: one gradient for both)."""
        live, most, where = tool.saved(ops), 0, ""
        unit = 2 * c.h * tool.dims(c)[1]
        shared = ("fc2", "proj", "combine") if c.pd_h == 0 else ()
        for op in reversed(ops):
            rest = unit if op.name not in ("bda1", "bda2") + shared else 0
            if c.pd_h > 0 and c.shf and op.name in ("dispatch", "efc1", "eact", "efc2"):
                rest += unit  # what the shared expert's backward will read
            now = live + op.gout + op.gin + op.bt + rest
            if now > most:
                most, where = now, op.name
            live -= sum(op.saved.values())
        return most, where

    def with_ends(c, r=None):
        """The data loader makes a mask on the first and the last stage only (Megatron-LM pretrain_gpt.py get_batch). At the end
        of backward the embedding's gradient is made in bf16 before it is added to the buffer (torch embedding_dense_backward;
        the allocator's segments of S1 show it: FSDP.md R23.2)."""
        mask = c.mask
        c.mask = mask and r in (0, c.p - 1)
        result = predict(c, r)
        if r == c.p - 1:  # the final norm has run backward, and its input is gone
            for name in result["moments"]:
                if name.startswith("bwd_"):
                    result["moments"][name] -= (2 * c.h + (4 if c.rms else 8)) * tool.dims(c)[1]
        if r == 0:
            result["moments"]["embedding"] = embedding(c, result)
            more = inputs_alive(c) - result["fl"].get(0, 0)
            for name in result["moments"]:
                if name.startswith(("bwd_", "fwd_")) and more > 0:
                    result["moments"][name] += more * ((c.h * tool.dims(c)[1] if c.pd_h > 0 else 0) + 8 * tool.dims(c)[0])
        recomputing(c, r, result)
        result["peak"] = max(result["moments"].values())
        c.mask = mask
        return result

    def inputs_alive(c):
        """Micro-batches of the first chunk that are alive at a backward of the last one: in an interleaved schedule the first such
        backward does not see the most."""
        rounds, total = c.G * c.v, c.m * c.v
        if c.v == 1:
            return 0
        warm = 2 * (c.p - 1) + (c.v - 1) * c.G
        done = lambda i: (i % rounds) // c.G
        most = 0
        for j in range(total):
            forward = sum(done(i) == 0 for i in range(min(total, warm + 1 + j)))
            backward = sum(c.v - 1 - done(i) == 0 for i in range(j))
            if done(j) == 0:
                most = max(most, forward - backward)
        return most

    def recomputing(c, r, result):
        """A recomputed layer runs forward again, beside the gradient of its output."""
        r = c.p - 1 if r is None else r
        layers = tool.chunks_of(c)[r][c.v - 1]
        if not layers or not tool.recomputed(c, layers, layers[-1]):
            return
        ops, unit = tool.layer_ops(c, layers[-1]), 2 * c.h * tool.dims(c)[1]
        backward = next(n for n in result["moments"] if n.startswith("bwd_last"))
        alive = result["moments"][backward] - backward_of_a_layer(c, ops, unit)[0]
        result["moments"]["recomputing"] = alive + tool.saved(ops) + temporaries_beside_what_is_there(c, ops) + unit

    def embedding(c, result):
        tokens, own = tool.dims(c)
        unit, first = 2 * c.h * own, tool.chunks_of(c)[0]
        ends = (c.h * own if c.pd_h > 0 else 0) + 8 * tokens

        def kept(k):
            layers = first[k]
            each = [unit if tool.recomputed(c, layers, i) else tool.saved(tool.layer_ops(c, i)) for i in layers]
            return sum(each) + (ends if k == 0 else 0)

        total, rounds = c.m * c.v, c.G * c.v
        passed = (c.v - 1) * c.G  # backwards of later chunks before chunk 0's first
        warm = c.p - 1 if c.v == 1 else 2 * (c.p - 1) + (c.v - 1) * c.G
        alive = collections.Counter((i % rounds) // c.G for i in range(min(total, warm + 1 + passed)))
        alive.subtract((c.v - 1 - (j % rounds) // c.G) for j in range(passed))
        held = sum(kept(k) * n for k, n in alive.items()) - kept(0) + ends
        last = c.p == 1 and c.v == 1
        rest = result["steady"] - result["retained"] - result["states"]["main_grad_copy"] + (c.s * c.s * c.b if c.mask else 0)
        shared = unit if c.v > 1 and c.m > 1 else 0
        whole = 2 * c.h * tokens if c.sp else 0
        return rest + held + 2 * c.V * c.h // c.t + unit + shared + whole + (0 if last else 0)

    tool.mla_ops, tool.layer_ops, tool.fwd_tmp, tool.bwd_peak, tool.predict = \
        latent_attention, layer, temporaries_beside_what_is_there, backward_of_a_layer, with_ends


def theirs(tool, flags, gpu, gpus, environment):
    """Peak and steady bytes by stage, with the moments, as the tool's own main() finds them."""
    c = tool.from_flags(tool.parse_flags(flags), gpus, gpu)
    c.cublas32 = c.det or "CUBLAS_WORKSPACE_CONFIG" in environment
    return [tool.predict(c, stage) for stage in range(c.p)]


def ours(program, flags, gpu, gpus, environment):
    lines = "".join(f"export {name}={value}\n" for name, value in environment.items())
    command = [program, "import", "--from", "megatron", "--gpu", GPUS[gpu], "--gpus", str(gpus)]
    if gpu == "A100":  # the tool means the older stack by it
        command += ["--set", "te_version=1.13"]
    imported = subprocess.run(command + ["-"], input=lines + "pretrain " + flags, capture_output=True, text=True, check=False)
    if imported.returncode:
        raise RuntimeError(imported.stderr)
    plan = imported.stdout
    bill = subprocess.run([program, "bill", "-", "--json"], input=plan, capture_output=True, text=True, check=False)
    if bill.returncode:
        raise RuntimeError(bill.stderr + plan)
    return plan, json.loads(bill.stdout)["stages"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--tool", default=next((str(p) for up in (1, 2) for p in [ROOT.parents[up - 1] / "shared/tools/megatron_bytes.py"] if p.is_file()),
                                               str(ROOT.parent / "shared/tools/megatron_bytes.py")))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true", help="print every flag set that differs")
    options = parser.parse_args()
    if not pathlib.Path(options.tool).is_file():
        print(f"skipped: {options.tool} is not here")
        return 77
    tool = load(options.tool)
    correct(tool)
    rng = random.Random(options.seed)
    sets = [flag_set(rng) for _ in range(options.count)]
    with concurrent.futures.ThreadPoolExecutor(4) as workers:  # they wait for processes
        answers = [workers.submit(ours, options.plimsoll, *one) for one in sets]
    stages = wrong = 0
    kinds = collections.Counter()
    worst = (0, "")
    for number, (flags, gpu, gpus, environment) in enumerate(sets):
        expected = theirs(tool, flags, gpu, gpus, environment)
        try:
            _, found = answers[number].result()
        except RuntimeError as mistake:
            wrong += 1
            kinds["refused"] += 1
            print(f"seed {options.seed}, set {number}: {gpu} x {gpus} {flags}\n{mistake}")
            continue
        for stage, (a, b) in enumerate(zip(found, expected)):
            stages += 1
            for what, mine, tools in (("peak", a["live_bytes"], b["peak"]), ("steady", a["steady_allocated_bytes"], b["steady"])):
                error = mine / tools - 1
                if abs(error) > abs(worst[0]):
                    worst = (error, f"set {number}, stage {stage}, {what}")
                if abs(error) > TOLERANCE:
                    wrong += 1
                    moment = max(b["moments"], key=b["moments"].get)
                    kinds[f"{what}: {a['peak_moment'] if what == 'peak' else ''} / {moment if what == 'peak' else ''}"] += 1
                    if options.verbose:
                        print(f"seed {options.seed}, set {number}, stage {stage}: {what} {mine / 2**20:.2f} MiB, the tool "
                              f"{tools / 2**20:.2f} ({(mine - tools) / 2**20:+.2f} MiB, {error:+.2%}); {a['peak_moment']}, the tool's "
                              f"{moment}\n  {gpu} x {gpus} {environment} {flags}")
    print(f"{options.count} flag sets, {stages} stages: {wrong} figures differ by more than {TOLERANCE:.1%}; "
          f"worst {worst[0]:+.3%} ({worst[1]})")
    for kind, n in kinds.most_common():
        print(f"  {n:5} {kind}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
