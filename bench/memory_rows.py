# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Rows of published memory measurements (the columns of cases/memory.csv) as .plan files.

A row with Megatron-LM's launch flags is imported from them; another is turned into such flags, or into a .plan, from its
columns. What a row does not say is assumed by rules that look at no measured figure, and every assumption is named.
"""
import csv
import dataclasses
import re
import subprocess

GIB = 2 ** 30


class Skip(Exception):
    """Why a row is not used."""


@dataclasses.dataclass
class Figure:
    """One measured figure, and the stage and counter of the bill that it is of."""
    stage: object   # a number, "last", or "most": the fullest
    counter: str    # "allocated", "reserved"
    gib: float


@dataclasses.dataclass
class Case:
    id: str
    set: str          # "S1", "S2m", "torchao", "litgpt LoRA" …
    recipe: str       # rows of one recipe count as one
    framework: str
    plan: str
    figures: list
    steady: float     # GiB between steps, or None
    outcome: str
    assumed: list
    first_step: bool = False   # the run made one step only


def read(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def value(row, name, otherwise=None):
    text = (row.get(name) or "").strip()
    if not text:
        return otherwise
    return float(text) if re.search(r"[.e]", text) else int(text)


def set_name(row):
    """The set that a row counts in, from its `set` column, else from its framework."""
    if row["set"]:
        name = row["set"].split()[0].rstrip(":")
        return name
    stack = row["framework"]
    if stack.startswith("torchtitan"):
        return "torchao" if "ao-" in row["id"] else "torchtitan, other"
    if stack.startswith("litgpt"):
        if "full" in row["precision"]:
            return "litgpt full"
        return "litgpt QLoRA" if re.search(r"qlora|nf4", row["precision"]) else "litgpt LoRA"
    return stack.split(" (")[0]


def import_flags(program, flags, gpu, gpus, environment="", fields=()):
    """The .plan that `plimsoll import` makes of flags."""
    text = "".join(f"export {pair}\n" for pair in re.findall(r"[A-Z][A-Z_0-9]*=\S+", environment)) + "pretrain_gpt.py " + flags
    command = [program, "import", "--from", "megatron", "--gpu", gpu]
    if gpus:
        command += ["--gpus", str(gpus)]
    for field in fields:
        command += ["--set", field]
    done = subprocess.run(command + ["-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if "error:" in line or "changes memory" in line), done.stderr[:100])
        raise Skip(why.replace("plimsoll: ", ""))
    return done.stdout


# --- Megatron-LM

def golden(row, program):
    """Megatron-LM's own test recipes: the last rank's figures."""
    if not row["gpus"]:
        raise Skip("on how many GPUs is not recorded")
    fields, assumed = [], []
    if row["gpu"].startswith("A100") and "_te_4experts2parallel" not in row["id"]:
        # The A100 figures come from an older image than the others (MEGATRON.md 0): by the history of Megatron-LM's golden values
        # of 2025-10-21 or before, but for those of its recipes of four experts, which were taken again in 2026.
        fields.append("te_version=1.13")
        assumed.append("A100: the older stack")
    flags = row["megatron_args"]
    if row["vocab"] and "--vocab-size" not in flags:
        flags += f" --vocab-size {row['vocab']}"
    plan = import_flags(program, flags, row["gpu"], row["gpus"], row["environment"], fields)
    exact = re.search(r"raw peak (\d+) B", row["notes"])
    peak = int(exact[1]) / GIB if exact else value(row, "measured_GiB_allocated")
    if peak is None:
        raise Skip("no figure")
    steady = value(row, "steady_allocated_bytes")
    # A run that ends with its peak made one step: what was alive before is without the optimizer's moments.
    only = bool(steady) and abs(steady / GIB / peak - 1) < 1e-5
    return Case(row["id"], set_name(row), re.sub(r"-dgx_\w+$", "", row["id"]), "megatron", plan, [Figure("last", "allocated", peak)],
                steady / GIB if steady else None, row["outcome"], assumed, only)


def latent(text):
    """Flags of MLA(q1536,kv512,nope128,rope64,v128)."""
    found = re.search(r"MLA\(([^)]*)\)", text)
    keys = dict(re.findall(r"(q|kv|nope|rope|v)(\d+)", found[1])) if found else {}
    flags = ["--multi-latent-attention", "--qk-layernorm"]
    for key, flag in (("q", "q-lora-rank"), ("kv", "kv-lora-rank"), ("nope", "qk-head-dim"), ("rope", "qk-pos-emb-head-dim"),
                      ("v", "v-head-dim")):
        if key in keys:
            flags.append(f"--{flag} {keys[key]}")
    return flags


def llama_like(row):
    """Flags of the shape that a row's columns tell, Llama's way."""
    pick = lambda name: value(row, name)
    flags = ["--bf16", "--swiglu", "--normalization RMSNorm", "--disable-bias-linear", "--position-embedding-type rope",
             "--untie-embeddings-and-output-weights", "--hidden-dropout 0", "--attention-dropout 0",
             "--no-create-attention-mask-in-dataloader", "--transformer-impl transformer_engine"]
    for name, flag in (("layers", "num-layers"), ("hidden", "hidden-size"), ("heads", "num-attention-heads"), ("seq", "seq-length"),
                       ("ffn", "ffn-hidden-size"), ("vocab", "vocab-size"), ("mbs", "micro-batch-size"), ("gbs", "global-batch-size")):
        if pick(name) is None:
            raise Skip(f"no {name}")
        flags.append(f"--{flag} {pick(name)}")
    if pick("kv_heads") != pick("heads"):
        flags.append(f"--group-query-attention --num-query-groups {pick('kv_heads')}")
    for name, flag in (("tp", "tensor-model-parallel-size"), ("pp", "pipeline-model-parallel-size"), ("cp", "context-parallel-size"),
                       ("ep", "expert-model-parallel-size")):
        if (pick(name) or 1) > 1:
            flags.append(f"--{flag} {pick(name)}")
    if (pick("vpp") or 1) > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {pick('vpp')}")
    if row["sequence_parallel"].startswith("yes"):
        flags.append("--sequence-parallel")
    if "zero1" in row["sharding"]:
        flags.append("--use-distributed-optimizer")
    moe = row["moe"]
    if moe:
        find = lambda pattern: (lambda m: m and int(m[1]))(re.search(pattern, moe))
        experts, width, top_k = find(r"\bE(\d+)"), find(r"moe_ffn(\d+)"), find(r"top(\d+)")
        flags += [f"--num-experts {experts}", f"--moe-router-topk {top_k}", f"--moe-ffn-hidden-size {width}",
                  "--moe-grouped-gemm", "--moe-token-dispatcher-type alltoall", "--expert-tensor-parallel-size 1"]
        shared = find(r"shared_ffn(\d+)") or (find(r"shared(\d+)\b") or 0) * width
        if shared:
            flags.append(f"--moe-shared-expert-intermediate-size {shared}")
        dense = find(r"first_dense(\d+)")
        if dense:
            flags.append(f"--moe-layer-freq ([0]*{dense}+[1]*{pick('layers') - dense})")
        if capacity := find(r"capacity(\d+)"):
            flags.append(f"--moe-expert-capacity-factor {capacity} --moe-pad-expert-input-to-capacity")
        if "MLA" in moe:
            flags += latent(moe)
            if "Moonlight" in row["model"]:
                flags += ["--kv-lora-rank 512", "--qk-head-dim 128", "--qk-pos-emb-head-dim 64", "--v-head-dim 128"]
    return flags


def simumax(row, program):
    """All eight ranks of Megatron-LM on B200 (S1)."""
    flags = llama_like(row) + ["--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl te", "--cp-comm-type a2a"]
    plan = import_flags(program, " ".join(flags), "B200", row["gpus"])
    ranks = re.findall(r"r(\d+):([\d.]+)/([\d.]+)", row["notes"])
    stages = value(row, "pp") or 1
    figures = []
    for rank, allocated, reserved in ranks:
        stage = int(rank) * stages // len(ranks)
        figures += [Figure(stage, "allocated", float(allocated)), Figure(stage, "reserved", float(reserved))]
    shared = re.search(r"memory_source_case=(\w+)", row["notes"])
    return Case(row["id"], "S1", shared[1] if shared else row["id"], "megatron", plan, figures, None, row["outcome"], [])


def bridge(row, program):
    """Megatron-Bridge (S4): which rank is not said; the last one writes the log."""
    assumed = ["the last rank", "Transformer Engine as of 2026"]
    flags = llama_like(row)
    if "fp8" in row["precision"]:
        # bf16_with_fp8_current_scaling_mixed of Megatron-Bridge's training/mixed_precision.py.
        flags += ["--fp8-format hybrid", "--fp8-recipe tensorwise", "--fp8-param-gather"]
    if "MLA" in row["moe"]:
        # Megatron-Bridge's recipes of DeepSeek and Moonlight (recipes/moonlight/h100/moonlight_16b.py): bf16 gradients and moments,
        # shared experts beside the exchange. training/mixed_precision.py hands its default fp8_recipe, tensorwise, to the optimizer
        # of bf16 runs too, which makes Megatron-LM hold fp32 masters and copy gradients to fp32.
        flags += ["--use-precision-aware-optimizer", "--main-grads-dtype bf16", "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16",
                  "--fp8-recipe tensorwise", "--moe-shared-expert-overlap"]
        assumed.append("the recipe's precision-aware optimizer")
    if m := re.search(r"modules=([\w,]+)", row["recompute"]):
        flags.append("--recompute-granularity selective --recompute-modules " + m[1].replace(",", " "))
    # Its recipes set the fused loss; the last rank writes the log, as in Megatron-LM.
    flags += ["--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl te"]
    plan = import_flags(program, " ".join(flags), row["gpu"], row["gpus"], "", ["te_version=2.12"])
    return Case(row["id"], "S4", row["id"], "megatron", plan, [Figure("last", "allocated", value(row, "measured_GiB_allocated"))], None,
                row["outcome"], assumed)


def vocabulary(row, program):
    """A fork of Megatron-LM that spreads large vocabularies (S5). Its baseline is Megatron-LM's own; its other methods are not."""
    if "method=baseline" not in row["notes"] and "method=redis" not in row["notes"]:
        raise Skip("a way of spreading the vocabulary that no framework here has")
    layers, stages = value(row, "layers"), value(row, "pp")
    flags = ["--fp16", "--hidden-dropout 0", "--attention-dropout 0", "--untie-embeddings-and-output-weights", "--use-distributed-optimizer",
             "--attention-backend flash", "--no-create-attention-mask-in-dataloader", "--accumulate-allreduce-grads-in-fp32"]
    for name, flag in (("layers", "num-layers"), ("hidden", "hidden-size"), ("heads", "num-attention-heads"), ("seq", "seq-length"),
                       ("ffn", "ffn-hidden-size"), ("vocab", "vocab-size"), ("mbs", "micro-batch-size"), ("gbs", "global-batch-size"),
                       ("pp", "pipeline-model-parallel-size"), ("seq", "max-position-embeddings")):
        flags.append(f"--{flag} {row[name]}")
    if m := re.search(r"last stage keeps (\d+) layers", row["notes"]):
        last = int(m[1])
        if last != layers // stages and "method=redis" in row["notes"]:
            raise Skip("how the other stages share the layers is not told")
    plan = import_flags(program, " ".join(flags), row["gpu"], row["gpus"], "", ["te_version=1.13"])
    return Case(row["id"], "S5", row["id"], "megatron", plan, [Figure("most", "reserved", value(row, "measured_GiB_reserved"))], None,
                row["outcome"], ["an older stack: Megatron-LM of 2024", "gradients in fp32: its rows grow by 18 B a parameter of the vocabulary"])


# --- PyTorch

def shape(row):
    """Fields of `decoder` from a row's columns."""
    fields = []
    for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab"):
        if value(row, name) is None:
            raise Skip(f"no {name}")
        fields.append(f"{name} = {value(row, name)}")
    if re.search(r"3\.2", row["model"]):
        fields.append("tied = true")
    if value(row, "heads") * 128 != value(row, "hidden") and "qwen3" in row["model"].lower():
        fields.append("head_dim = 128  qk_norm = head")
    return "model m = decoder { " + "  ".join(fields) + " }\n"


def gpu_of(row):
    text = row["gpu"].lower()
    for part, name in (("gb200", "gb200"), ("b200", "b200"), ("h200", "h200"), ("h100", "h100_sxm"), ("a100-40", "a100_40gb"),
                       ("a100", "a100_80gb"), ("a800", "a100_80gb"), ("mi300", "mi300x"), ("l40s", "l40s"), ("4090", "rtx4090"), ("5090", "rtx5090")):
        if part in text:
            return name
    if "a10g" in text:
        return "l40s { memory = 23606000000 B  sm = 86 }"
    raise Skip("a GPU that the prelude has not")


def cluster(row, gpus):
    memory = "memory = 102049000000 B" if re.search(r"96GB|95\.04", row["gpu"]) else ""
    gpu = gpu_of(row)
    body = f"gpu one = {gpu}" + (f" {{ {memory} }}" if memory and "{" not in gpu else "") + "\n"
    per = min(8, gpus)
    return body + f"cluster c {{ gpu = one  nodes = {gpus // per}  gpus_per_node = {per} }}\n"


def recompute_of(row):
    return row["recompute"].lower()


def torchtitan(row, _):
    if row["sharding"] and not row["sharding"].startswith("fsdp2"):
        raise Skip("not FSDP2")
    if value(row, "measured_GiB_reserved") is None or row["moe"]:
        raise Skip("no dense model with reserved bytes")
    assumed = []
    words = f"{row['id']} {row['notes']} {row['precision']}".lower()
    job = []
    pick = lambda name: value(row, name) or 1
    seq, mbs = value(row, "seq"), value(row, "mbs")
    if seq is None:
        raise Skip("no sequence length")
    if mbs is None:
        mbs = 1
        assumed.append("one sequence a rank")
    compiled = ("compile=yes" in words or "compile" in words) and "compile=no" not in words
    if "eager" in row["precision"] or ("pr165" in row["id"] and "compile" not in row["id"]):
        compiled = False
    old = row["id"].startswith("titan-") and "async-" not in row["id"]  # tables and pull requests of 2024
    if not compiled:
        job.append("compile = false")
    # Whether the loss is compiled: torchtitan's since 2025; before, a plain cross entropy of fp32 logits.
    # (ao-f8nc: pull request 778 of January 2025)
    loss = "eager" if old or not compiled or re.search(r"2\.7\.0a|h100 table|ao-f8nc", words) else "compiled"
    # Until December 2025 (commit b39377f9f) the list of ops that selective recomputation keeps lacked cuDNN's attention, which runs
    # of torchtitan on a B200 take first (models/attention.py): it is made again.
    framework, own = "torchtitan", ""
    if "b200" in row["gpu"].lower() and recompute_of(row).startswith("selective"):
        framework, own = "torchtitan_2025", "framework torchtitan_2025 = torchtitan { recompute selective { keep = {q, v, gate} } }\n"
    if "pr165" in row["id"]:
        loss = "upcast"  # before mid-2024 the model gave fp32 logits, which the caller held
        job.append('torch_version = "2.3"')
    if pick("tp") > 1:
        loss = "loss_parallel"
    job.append(f"loss = {loss}")
    if old or "MI3" in row["gpu"]:  # expandable since October 2024 (run_llama_train.sh); on AMD torch has had none before 2.11
        job.append("segments = plain")
    layout = {"tp": pick("tp"), "pp": pick("pp"), "cp": pick("cp"), "zero": 3, "mbs": mbs}
    dp = value(row, "gpus") // (layout["tp"] * layout["pp"] * layout["cp"])
    batch = value(row, "gbs") or mbs * dp
    if layout["pp"] > 1:
        layout["mbs"] = max(mbs // layout["pp"], 1)
        assumed.append("as many micro-batches as stages (torchtitan's default)")
    recompute = recompute_of(row)
    if recompute.startswith("full"):
        layout["recompute"] = "full"
    elif "every-2nd" in recompute:
        layout["recompute"] = "full"
        layout["recompute_layers"] = f"[{value(row, 'layers') // 2}]"
    elif recompute.startswith("selective"):
        layout["recompute"] = "selective"
    if layout["tp"] > 1 and re.search(r"async ?tp", words):
        job.append("tp_overlap = true")
    plan = (cluster(row, value(row, "gpus")) + shape(row) + own +
            f"train t {{ model = m  cluster = c  seq = {seq}  batch = {batch}  precision = bf16  framework = {framework}\n  " +
            "  ".join(job) + " }\nlayout run { " + "  ".join(f"{k} = {v}" for k, v in layout.items()) + " }\n")
    return Case(row["id"], set_name(row), row["id"], "torchtitan", plan, [Figure("most", "reserved", value(row, "measured_GiB_reserved"))],
                None, row["outcome"], assumed)


def tune_once(row):
    """A run of torchtune's recipes for a single device (recipes/configs/llama3_1/8B_*_single_device.yaml and their like)."""
    if row["gpus"] != "1":
        raise Skip("torchtune on several GPUs, which no framework here stands for")
    kind = next((k for k in ("qlora", "lora", "full") if k in row["precision"].lower()), None)
    if kind is None or not value(row, "mbs") or not value(row, "seq"):
        raise Skip("a recipe that is not told")
    rank = 64 if re.search(r"3\.2", row["model"]) else 8
    adapter = f"rank = {rank}, on = {{q, v, o, gate, up, down}}"
    job = {"full": "optimizer = adamw_paged  optimizer_in_backward = true", "lora": f"m_dtype = bf16  v_dtype = bf16  adapt = lora({adapter})",
           "qlora": f"m_dtype = bf16  v_dtype = bf16  adapt = qlora({adapter}, base = nf4)"}[kind]
    machine = cluster(row, 1).replace("gpus_per_node = 1", "gpus_per_node = 1  host_memory = 1 TiB  pcie = 200 GB/s")
    plan = (machine + shape(row) + f"train t {{ model = m  cluster = c  seq = {row['seq']}  batch = {row['mbs']}  framework = torchtune\n"
            f"  compile = true  loss = chunked  offload_activations = true  {job} }}\nlayout run {{ zero = 0  mbs = {row['mbs']}  recompute = full }}\n")
    return Case(row["id"], "torchtune, one GPU", row["id"], "torchtune", plan, [Figure("most", "allocated", value(row, "measured_GiB_allocated"))],
                None, row["outcome"], ["everything recomputed, inputs of layers offloaded: the whole of its page's ladder"])


def torchtune(row, _):
    """torchtune's ladder of techniques on one GPU; each row adds one to those before it."""
    ladder = ["baseline", "+packed", "+compile", "+chunked", "+ac full", "+optim in bwd", "+act offload", "+8bit", "lora", "qlora"]
    words = re.search(r"this row adds (.+?);", row["notes"])
    step = next((i for i, word in reversed(list(enumerate(ladder))) if words and words[1].lower().startswith(word)), None)
    if step is None or step == 0:
        raise Skip("sequences of a length that is not told")
    job = []
    job += ["m_dtype = bf16", "v_dtype = bf16"] if step != 7 else ["optimizer = adamw8bit"]
    job += ["compile = true"] if step >= 2 else []
    job += ["loss = chunked"] if step >= 3 else []
    job += ["optimizer_in_backward = true"] if 5 <= step < 8 else []
    job += ["offload_activations = true"] if step >= 6 else []
    # recipes/configs/llama3_2/3B_{lora,qlora}_single_device.yaml: q, v, the output projection and the feed-forward.
    adapter = "rank = 64, on = {q, v, o, gate, up, down}"
    job += [f"adapt = lora({adapter})"] if step == 8 else [f"adapt = qlora({adapter}, base = nf4)"] if step == 9 else []
    machine = cluster(row, 1).replace("gpus_per_node = 1", "gpus_per_node = 1  host_memory = 1 TiB  pcie = 200 GB/s")
    plan = (machine + shape(row) +
            f"train t {{ model = m  cluster = c  seq = {row['seq']}  batch = {row['gbs']}  framework = torchtune\n  {'  '.join(job)} }}\n"
            f"layout run {{ zero = 0  mbs = {row['mbs']}" + ("  recompute = full" if step >= 4 else "") + " }\n")
    return Case(row["id"], "S6", row["id"], "torchtune", plan, [Figure("most", "allocated", value(row, "measured_GiB_allocated"))], None,
                row["outcome"], [])


# --- litgpt

# Models that its rows name, in the prelude's words; litgpt never shares the head with the embedding (litgpt model.py GPT).
LITGPT_MODELS = {
    "falcon-7b": "falcon_7b { tied = false }", "falcon-40b": "falcon_40b { tied = false }",
    "gemma-2-9b": "gemma_2_9b { tied = false }", "gemma-2-2b": "gemma_2_2b { tied = false }",
    "gemma-2b": "decoder { layers = 18  hidden = 2048  heads = 8  kv_heads = 1  head_dim = 256  ffn = 16384  vocab = 256000  kind = gelu  plus_one = true }",
    "gemma-7b": "decoder { layers = 28  hidden = 3072  heads = 16  kv_heads = 16  head_dim = 256  ffn = 24576  vocab = 256000  kind = gelu  plus_one = true }",
    "mistral-7b": "mistral_7b {}", "mistral-7b-v0.2": "mistral_7b {}", "phi-2": "phi_2 {}", "phi-3-mini-4k-instruct": "phi_3_mini {}",
    "tiny-llama": "tinyllama {}", "llama-2-7b": "llama2_7b {}", "llama-2-13b": "llama2_13b {}", "llama-2-70b": "llama2_70b {}",
    "llama-3-8b": "llama3_8b {}", "llama-3.1-8b": "llama3_8b {}",
    "llama-3.2-1b": "llama_3_2_1b { tied = false }", "llama-3.2-3b": "llama_3_2_3b { tied = false }",
    # stabilityai/stablelm-base-alpha-3b: a GPT-NeoX; 50,688 is its vocabulary padded to a multiple of 512 (litgpt config.py).
    "stablelm-base-alpha-3b": "pythia { layers = 16  hidden = 4096  heads = 32  ffn = 16384  vocab = 50688 }",
}
# Its recipes (config_hub/finetune/*/lora.yaml, qlora.yaml): rank, and whether every matrix has an adapter or q and v alone.
LITGPT_RANK = {"falcon-7b": 32, "mistral-7b": 32, "mistral-7b-v0.2": 32, "stablelm-base-alpha-3b": 32, "llama-2-7b": 32,
               "llama-3-8b": 32, "llama-3.1-8b": 32, "llama-3.2-1b": 32, "llama-3.2-3b": 32, "tiny-llama": 32,
               "phi-2": 8, "phi-3-mini-4k-instruct": 8, "gemma-2b": 8, "gemma-2-2b": 8, "gemma-7b": 16, "gemma-2-9b": 16}
LITGPT_EVERY = ("tiny-llama", "phi-2", "phi-3-mini-4k-instruct", "gemma-2b", "gemma-7b", "gemma-2-2b", "gemma-2-9b")


def litgpt(row, program):
    """litgpt's fine-tuning on one GPU, from its recipes (config_hub) and its older table of resources."""
    name = re.sub(r"[ _]+", "-", row["model"].lower())
    name = {"stablelm-alpha-3-b": "stablelm-base-alpha-3b", "falcon-40-b": "falcon-40b", "falcon-7-b": "falcon-7b"}.get(name, name)
    name = re.sub(r"^llama-2-(\d+)-b$", r"llama-2-\1b", name)
    if name not in LITGPT_MODELS:
        raise Skip("a model that the prelude has not")
    words, assumed = row["precision"], ["sequences of the greatest length"]
    full, quantised = "full" in words, bool(re.search(r"qlora|nf4", words))
    if full and row["gpus"] != "1" or "fsdp-full" in row["sharding"]:
        raise Skip("FSDP1, which no framework here stands for")
    if full and name.startswith(("phi", "stablelm", "llama", "falcon", "mistral", "gemma")):
        raise Skip("8 B a parameter are more than one such GPU has: several, whatever the row says")
    if row["gpus"] != "1":
        assumed.append("one GPU: its page says that all runs were")
    every, rank = name in LITGPT_EVERY, LITGPT_RANK.get(name, 8)
    if told := re.search(r"trainable params ([\d,]+)", row["notes"]):
        every, rank = False, 8  # finetune/lora.py of 2023
        if told[1] not in ("2,097,152", "12,042,240", "4,194,304", "6,553,600", "16,384,000", "3,506,176"):
            raise Skip("LLaMA-Adapter, which no framework here has")
    job = ["m_dtype = bf16", "v_dtype = bf16", "framework = litgpt"] + (["longest_first = true"] if told else [])
    if not full:
        gated = not re.search(r"falcon|phi_2|pythia", LITGPT_MODELS[name])
        on = "q, k, v, o, gate, up, down, head" if every else "q, v"
        on = on if gated else on.replace(" up,", "")
        base = "nf4" if "dq" in words else "nf4_single"
        job.append(f"adapt = qlora(rank = {rank}, on = {{{on}}}, base = {base})" if quantised else f"adapt = lora(rank = {rank}, on = {{{on}}})")
        if quantised:
            job = [j for j in job if "dtype" not in j] + ["optimizer = adamw_paged"]
        if not every:
            job.append("scattered = true")
    if name.startswith("gemma-2-"):
        job.append("attention = unfused")
    plan = (cluster(dict(row, gpus="1"), 1) + f"model m = {LITGPT_MODELS[name]}\n" +
            f"train t {{ model = m  cluster = c  seq = {row['seq']}  batch = {4 * value(row, 'mbs')}\n  {'  '.join(job)} }}\n" +
            f"layout run {{ zero = 0  mbs = {row['mbs']} }}\n")
    figures = [Figure("most", "allocated", value(row, "measured_GiB_allocated"))] if row["measured_GiB_allocated"] else []
    kind = "full" if full else "QLoRA" if quantised else "LoRA"
    return Case(row["id"], f"litgpt {kind}", re.sub(r"-\dxA10G$", "", row["id"]), "litgpt", plan, figures, None, row["outcome"], assumed)


def swift(row, program):
    """ms-swift over DeepSpeed: without its batch only what ran out of memory can be judged, by the least that it could have asked for."""
    if "OOM" not in row["outcome"] or not re.match(r"zero[123]$", row["sharding"]):
        raise Skip("a batch that is not told")
    moe = re.match(r"E(\d+) top(\d+) moe_ffn(\d+)$", row["moe"])
    experts = f"  experts = {moe[1]}  top_k = {moe[2]}  expert_ffn = {moe[3]}" if moe else ""
    gpus = value(row, "gpus")
    plan = (cluster(row, gpus) + shape(row).replace(" }\n", experts + " }\n") +
            f"train t {{ model = m  cluster = c  seq = {row['seq']}  batch = {gpus}  framework = deepspeed }}\n"
            f"layout run {{ zero = {row['sharding'][4:]}  mbs = 1  recompute = full }}\n")
    return Case(row["id"], "ms-swift", row["id"], "deepspeed", plan, [], None, row["outcome"], ["one sequence a GPU, everything recomputed: the least"])


def case_of(row, program):
    name = set_name(row)
    if name == "suspect":
        raise Skip("published twice for different configurations")
    if row["tier"] == "P":
        raise Skip("computed, not measured")
    if name == "S1":
        return simumax(row, program)
    if row["megatron_args"]:
        return golden(row, program)
    if name == "S4":
        return bridge(row, program)
    if name == "S5":
        return vocabulary(row, program)
    if name.startswith("litgpt"):
        return litgpt(row, program)
    if name == "torchtune":
        return tune_once(row)
    if name.startswith("ms-swift DeepSpeed"):
        return swift(row, program)
    if name == "S6":
        return torchtune(row, program)
    if name == "S3" or name.startswith("torch") and row["framework"].startswith("torchtitan"):
        return torchtitan(row, program)
    raise Skip("a stack that no framework here stands for" if row["measured_GiB_allocated"] or row["measured_GiB_reserved"] else "no figure")


def cases(path, program):
    """(cases, [(id, set, reason)]) of a file."""
    used, skipped = [], []
    for row in read(path):
        try:
            used.append(case_of(row, program))
        except Skip as why:
            skipped.append((row["id"], set_name(row), str(why)))
    return used, skipped
