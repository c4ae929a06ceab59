# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Rows of published step times (the columns of cases/throughput.csv) as .plan files.

A row says a model's shape, GPUs and their links, a layout and what was measured. What it does not say and a .plan file needs is
assumed here, by rules that look at no measured time, and every assumption is named in the Case. A row without a full layout, or
that is no optimizer step of full training, is skipped with its reason.
"""
import csv
import dataclasses
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent


CONSTANTS = {}
RECIPES = {}


class Skip(Exception):
    """Why a row is not used."""


@dataclasses.dataclass
class Case:
    id: str
    source: str          # the published collection, without the file's path
    gpu: str             # class of machine: "a100_80gb", "h100_500w", "b200 power-limited" …
    framework: str
    plan: str            # a whole file with one job and one layout `run`
    measured: float      # seconds a step
    tokens: float        # a step
    gpus: int
    alike: tuple         # what two rows share that differ in their layout alone
    model: str
    assumed: list
    recompute_told: bool
    doubtful: bool       # the release's recipe has another layout than the row


def constants():
    """Name -> value of planner/time_constants.hpp."""
    text = (ROOT / "planner/time_constants.hpp").read_text()
    return {m[1]: float(m[2]) for m in re.finditer(r"^  X\((\w+), ([-+.\de]+),", text, re.M)}


def read(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def number(row, name, otherwise=None):
    text = (row.get(name) or "").strip()
    if not text:
        return otherwise
    return float(text) if "." in text or "e" in text else int(text)


def source_of(row):
    """One name a site: a repository or a paper."""
    text = row["source"] + " " + row["framework"]
    for name, words in (
            ("SimuMax", "SimuMax"), ("vTrain", "vTrain"), ("SC21", "2104.04473"), ("Korthikanti", "2205.05198"),
            ("llm-foundry", "foundry"), ("Megatron-Bridge", "Megatron-Bridge"), ("NeMo launcher", "NeMo-Framework-Launcher"),
            ("Automodel", "Automodel"), ("torchao", "pytorch/ao"), ("torchtitan", "torchtitan"), ("fms-fsdp", "fms-fsdp"),
            ("InternEvo", "InternEvo"), ("NeMo RL", "NeMo RL"), ("Megatron-LM", "NVIDIA/Megatron-LM"), ("ColossalAI", "ColossalAI")):
        if words in text:
            return name
    return re.split(r"[@ ]", row["source"])[0]


# --- machines

def machine(row, assumed):
    """(name of the class, text of the gpu declaration, GPUs a node, NVLink domain, link overrides)."""
    text = row["gpu"].lower().replace(" ", "").replace("-", "").replace("_", "")
    source = source_of(row)
    overrides, extra = [], ""
    if "500w" in text or "hbm2e" in text or "95.04" in text:
        name, label = "h100_sxm", "h100_500w"
        extra = "{ memory = 102000000000 B  bandwidth = 2400 GB/s  gemm_efficiency = @gemm_h100_500w@  fp8_efficiency = @fp8_h100_500w@ }"
        assumed.append("H100 of 96 GB HBM2e at 500 W: 2400 GB/s, products as measured on that machine")
    else:
        for pattern, name in (("gb300", "gb300"), ("gb200", "gb200"), ("b300", "b300"), ("b200", "b200"), ("h200", "h200"),
                              ("h20", "h20"), ("h100pcie", "h100_pcie"), ("h100", "h100_sxm"), ("h800", "h100_sxm"),
                              ("a10080", "a100_80gb"), ("a10040", "a100_40gb"), ("a800", "a100_80gb"), ("a100", "a100_80gb"),
                              ("mi300x", "mi300x"), ("mi325x", "mi325x")):
            if pattern in text:
                break
        else:
            raise Skip("a GPU that the prelude has not")
        label = name
        if name == "a100_80gb" and "80" not in text:
            assumed.append("A100 of 80 GB")
        if name == "b200" and ("powerlimited" in text or source == "SimuMax"):
            label = "b200 power-limited"
            extra = "{ gemm_efficiency = @gemm_b200_limited@  fp8_efficiency = @fp8_b200_limited@ }"
            assumed.append("a power-limited machine: products as measured on it")
    link = (row.get("interconnect") or "").replace("Gb/s", "Gbps").replace("Gb ", "Gbps ")
    per_node = 4 if name in ("gb200", "gb300") else 8
    domain = 72 if name in ("gb200", "gb300") else 8
    nic = None
    if m := re.search(r"(\d+)\s*x\s*(\d+)\s*Gbps", link):
        nic = int(m[1]) * int(m[2]) / per_node
    elif m := re.search(r"(\d+)\s*Gbps RDMA per GPU", link):
        nic = float(m[1])
    elif m := re.search(r"(\d+)\s*Gbps", link):
        nic = float(m[1]) / per_node
        assumed.append(f"{m[1]} Gb/s are a node's")
    if nic is not None:
        overrides.append(f"nic = {nic:g} Gb/s")
    elif number(row, "gpus", 1) > domain:
        assumed.append("the data sheet's NIC")
    if "nvlink" not in link.lower() and not link.startswith("NVL"):
        assumed.append(f"NVLink joins {domain} GPUs")
    return label, name, extra, per_node, domain, overrides


# --- models

KNOWN = {  # shapes that rows name and do not give
    "llama 7b": (32, 4096, 32, 32, 11008, 32000), "llama 13b": (40, 5120, 40, 40, 13824, 32000),
    "llama 34b": (48, 8192, 64, 8, 22016, 32000), "llama 70b": (80, 8192, 64, 8, 28672, 32000),
}
MLA = re.compile(r"MLA\(([^)]*)\)")


def experts_of(row, shape, assumed):
    """Fields of `decoder` for the mixture of experts that a row's `moe` column tells, and the latent attention's."""
    text = row["moe"]
    fields = []
    if not text:
        return fields
    find = lambda pattern: (lambda m: int(m[1]) if m else None)(re.search(pattern, text))
    experts, top_k = find(r"\bE(\d+)"), find(r"top(\d+)")
    width = find(r"moe_ffn(\d+)") or find(r"moe-ffn-hidden-size=(\d+)")
    if width is None:
        width = shape["ffn"]
        assumed.append("experts as wide as ffn")
    fields += [f"experts = {experts}", f"top_k = {top_k}", f"expert_ffn = {width}"]
    shared = find(r"shared_ffn(\d+)") or find(r"shared-expert-intermediate-size=(\d+)")
    if shared is None and (count := find(r"shared(\d+)\b")):
        shared = count * width
    if shared:
        fields.append(f"shared = {shared}")
    if dense := find(r"first_dense(\d+)") or find(r"layer-freq=\(\[0\]\*(\d+)"):
        fields.append(f"first_dense = {dense}")
    if capacity := find(r"capacity(\d+)"):
        fields.append(f"capacity = {capacity}")
    if m := MLA.search(text):
        keys = {}
        for part in m[1].split(","):
            part = part.replace("-lora-rank=", "").replace("qk-head-dim=", "nope").replace("qk-pos-emb-head-dim=", "rope") \
                .replace("v-head-dim=", "v")
            if found := re.match(r"([a-z]+)(\d+)$", part.strip()):
                keys[found[1]] = int(found[2])
    elif "MLA" in text:
        keys = {"q": 1536, "kv": 512, "nope": 128, "rope": 64, "v": 128}
        assumed.append("latent attention with DeepSeek V3's ranks")
    else:
        return fields
    fields += [f"q_lora = {keys.get('q', 0)}", f"kv_lora = {keys['kv']}", f"nope = {keys['nope']}",
               f"rope_dim = {keys['rope']}", f"v_dim = {keys['v']}"]
    return fields


def model(row, assumed):
    name = row["model"].lower()
    shape = {k: number(row, k) for k in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")}
    if shape["layers"] is None:
        for known, values in KNOWN.items():
            if re.sub(r"[^a-z0-9]", "", known) == re.sub(r"[^a-z0-9]", "", name):
                shape = dict(zip(shape, values))
                assumed.append(f"the published shape of {known}")
                break
        else:
            raise Skip("no shape of the model")
    if shape["hidden"] is None or shape["heads"] is None:
        raise Skip("no shape of the model")
    shape["kv_heads"] = shape["kv_heads"] or shape["heads"]
    plain = any(w in name for w in ("gpt", "mpt", "megatron", "turing", "bloom", "opt")) and "oss" not in name
    if shape["ffn"] is None:
        shape["ffn"] = 4 * shape["hidden"]
        assumed.append("ffn = 4 hidden")
    if shape["vocab"] is None:
        shape["vocab"] = 51200
        assumed.append("vocabulary of 51,200")
    if "mpt" in name and "70b" in name and shape["layers"] == 64:
        shape["layers"] = 80
        assumed.append("80 layers: 64 contradict the row's own parameter count")
    if "deepseekv3" in name.replace("-", "").replace(" ", "").replace("_", "") and shape["layers"] == 61 and \
            "Bridge" in row["source"]:
        assumed.append("one head predicts a second token (the recipe's default)")
        shape["layers"] = 62
        return "deepseek_v3_mtp", "", shape
    fields = [f"{k} = {v}" for k, v in shape.items()]
    if plain:
        fields += ["gated = false", "kind = gelu", "norm = layernorm", "tied = true"]
        if "mpt" in name:
            fields += ["position = alibi" if "alibi" in row["notes"] else f"position = learned  positions = {row['seq']}"]
        else:
            fields += [f"position = learned  positions = {row['seq']}", "bias_qkv = true", "bias_o = true", "bias_mlp = true"]
    if "oss" in name:
        fields += ["head_dim = 64", "bias_qkv = true", "bias_o = true", "sinks = true", "router_bias = true",
                   "expert_bias = true", "window = 128", "period = 2"]
    if "qwen3" in name:
        fields += ["qk_norm = head"]
        if shape["hidden"] != 128 * shape["heads"]:
            fields += ["head_dim = 128"]
    if "glm" in name:
        fields += ["head_dim = 128"]
    fields += experts_of(row, shape, assumed)
    return "m", "model m = decoder { " + "  ".join(fields) + " }\n", shape


# --- how the stack runs

def release(row):
    """A Megatron-Bridge release as (year, month), or None."""
    m = re.search(r"\b(2\d)\.(\d\d)", row["framework"])
    return (int(m[1]), int(m[2])) if m else None


# Modules whose outputs Megatron-LM discards, in the words of `import`.
MODULES = {"mla_up_proj": "q_up, k_up, v_up, rope, concat", "layernorm": "residual_norms", "moe_act": "expert_activations", "mlp": "dense_mlp"}


def recipes():
    """Row -> what the release's own recipe says of it (bench/README.md)."""
    return {r["id"]: r for r in read(ROOT / "bench/recipes.csv")}


def of_recipe(recipe, row, assumed):
    """(fields of the job, declaration of the framework or "") of a Megatron-Bridge run."""
    if recipe["layout_differs"] != "0":
        assumed.append(f"as the recipe {recipe['recipe']} says, though its layout is another")
    fields = [f"launch = {dict(step='graphs', partial='partial', none='kernels')[recipe['graphs']]}"]
    # scripts/performance/perf_plugins.py: its pre-training of DeepSeek V3 on these has expandable segments.
    if re.search(r"DeepSeekV3-DGX-(H100|GB200)-", row["id"]):
        fields.append("segments = expandable")
    if row["moe"]:
        fields.append(f"dispatcher = {recipe['dispatcher']}")
        fields.append(f"moe_kernels = {'fused' if recipe['fused_experts'] == '1' else 'separate'}")
    fields += [f"{name} = true" for name in ("moe_overlap", "fp8_attention") if recipe[name] == "1"]
    discarded = [MODULES[name] for name in recipe["recompute"].split() if name in MODULES]
    declared = f"framework bridge = megatron {{ recompute modules {{ discard = {{{', '.join(discarded)}}} }} }}\n" if discarded else ""
    return fields, declared


def stack(row, assumed):
    """(framework, its declaration, fields of the job that say how it runs)."""
    source, name = source_of(row), row["framework"]
    recipe = row["precision"].lower()
    fields, fw, declared = [], "megatron", ""
    sharding = row["sharding"].lower()
    if source in ("vTrain", "SC21", "Korthikanti"):
        fields += ["launch = legacy", "attention = unfused"]
        assumed.append("Megatron-LM of 2021-22: unfused attention")
    elif source == "llm-foundry":
        fw, declared = "composer", "framework composer = torchtitan { compile = false  kernels = y2023 }\n"
    elif source in ("torchtitan", "torchao", "fms-fsdp", "Automodel") or "torchtitan" in name:
        fw = "torchtitan"
        eager = source == "torchtitan" and ("compile=no" in row["notes"] or
                                            ("pr165" in row["id"] and "compile" not in row["id"]))
        if eager:
            fields.append("compile = false")
        elif "compile" not in row["notes"] + name + row["id"]:
            assumed.append("compiled")
        if re.search(r"async ?tp", row["id"] + row["notes"], re.I) and "vanilla" not in row["id"].lower():
            fields.append("tp_overlap = true")
        if "rowwise" in recipe:
            fields.append("fp8_recipe = rowwise")
        if source == "Automodel":
            fields += ["kernels = te"]
    elif source == "Megatron-Bridge":
        at = release(row)
        if "fsdp" not in sharding:
            fields.append("grads = bf16")
            assumed.append("gradients reduced in bf16 (the recipes' default)")
        if told := RECIPES.get(row["id"]):
            more, declared = of_recipe(told, row, assumed)
            fields += more
            fw = "bridge" if declared else fw
        elif at and at >= (26, 6) and "mx" in recipe and row["moe"]:
            fields += ["launch = graphs", "moe_kernels = fused"]
            assumed.append("from 26.06 on MXFP8 runs fused experts under a full CUDA graph (release notes)")
        elif row["moe"] and at and (at > (26, 2) or "26.02.01" in name or row["gpu"].startswith("GB")):
            fields += ["launch = graphs"]
            assumed.append("CUDA graphs: recipes from 26.02.01 on, and those for Grace, capture layers")
    elif source == "NeMo launcher":
        fields += ["tp_overlap = true", "grads = bf16"]
        assumed.append("gradients reduced in bf16 (the recipes' default)")
        assumed.append("tensor parallelism overlapped (the launcher's default)")
    if "fsdp" in sharding and fw in ("megatron", "bridge"):
        assumed.append("Megatron-FSDP shards everything")
    if "mx" in recipe and fw != "composer":
        fields.append("fp8_recipe = mxfp8")
    return fw, declared, fields


def precision(row):
    text = row["precision"].lower()
    if "fp4" in text:
        raise Skip("a 4-bit recipe")
    if "fp8" in text or "float8" in text:
        return "fp8"
    return "fp16" if "fp16" in text else "bf16"


def zero(row, fw, assumed):
    text = row["sharding"].lower()
    if "fsdp" in text or "zero3" in text:
        return 3
    if m := re.search(r"zero-?(\d)", text):
        return int(m[1])
    if "ddp" in text or "dist-opt" in text:
        return 1 if "dist-opt" in text else 0
    if fw not in ("megatron", "bridge"):
        return 3
    year = source_of(row)
    kind = 0 if year in ("vTrain", "SC21", "Korthikanti") else 1
    assumed.append(f"zero = {kind}")
    return kind


# --- layouts

def padded(name, declared, layers, chunks):
    """The model with empty layers at its ends, so that its chunks are of one length; Megatron counts embedding and head as
    layers, or takes a table of stages, to the same end."""
    more = -layers % chunks
    front = 1 if more > 1 and layers not in (61, 62) else 0  # DeepSeek's recipes leave the last chunk the short one
    template = name if name == "deepseek_v3_mtp" else "decoder"
    text = (ROOT / "lang/prelude/models.plan").read_text()
    start = text.index(f"model {template} {{")
    body = text[start:text.index("\n}\n", start) + 3].replace(f"model {template} {{", "model padded {", 1)
    empty = lambda n: f"  repeat {n} {{ x = rmsnorm(x, weight = false) }}\n"
    first = re.search(r"^  repeat ", body, re.M).start()
    head = re.search(r"^  (z|loss) = ", body, re.M).start()
    body = body[:first] + (empty(front) if front else "") + body[first:head] + empty(more - front) + body[head:]
    if template == "decoder":
        return "m", body + declared.replace("= decoder", "= padded", 1)
    return "padded", body


def layout(row, shape, fw, assumed):
    gpus = number(row, "gpus")
    if gpus is None:
        raise Skip("no number of GPUs")
    pick = lambda name: number(row, name, 1)
    tp, pp, vpp, cp, ep = pick("tp"), pick("pp"), pick("vpp"), pick("cp"), pick("ep")
    if row["moe"] and number(row, "ep") is None:
        raise Skip("no full layout: expert parallelism is not told")
    if number(row, "tp") is None or number(row, "pp") is None:
        raise Skip("no full layout")
    if gpus % (tp * pp * cp):
        raise Skip("degrees do not divide the GPUs")
    dp = gpus // (tp * pp * cp)
    gbs, mbs, seq = number(row, "gbs"), number(row, "mbs"), number(row, "seq")
    if seq is None:
        raise Skip("no sequence length")
    if gbs is None:
        raise Skip("no global batch")
    if mbs is None:
        if source_of(row) == "SC21":
            mbs = {1.7: 16, 3.6: 16, 7.5: 16, 18.4: 4, 39.1: 2, 76.1: 2}.get(float(re.search(r"[\d.]+", row["model"])[0]), 1)
            while gbs % (mbs * dp):
                mbs //= 2
            assumed.append(f"micro-batch {mbs}: the table does not say")
        else:
            raise Skip("no micro-batch")
    # torchtitan's local batch is cut in as many micro-batches as keep the pipeline full; the file does not say.
    if fw == "torchtitan" and pp > 1 and source_of(row) == "torchtitan":
        assumed.append("pipelined in micro-batches of one sequence")
        mbs = 1
    if source_of(row) == "Automodel" and (m := re.search(r"LBS (\d+) GA (\d+)", row["notes"])):
        if pp == 1 and gbs % (int(m[1]) * dp) == 0:
            mbs = int(m[1])
    if gbs % (mbs * dp):
        raise Skip("micro-batches do not divide the batch")
    layers = shape["layers"]
    m = gbs // (mbs * dp)
    fields = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "mbs": mbs, "zero": zero(row, fw, assumed)}
    if layers < pp:
        raise Skip("more stages than layers")
    if layers in (61, 62) and vpp == 1 and layers % pp:
        each = -(-layers // pp)
        fields["stage_layers"] = "[" + ", ".join([str(each)] * (pp - 1) + [str(layers - each * (pp - 1))]) + "]"
        assumed.append("the last stage is the short one (the recipe's table)")
    if vpp > 1:
        if m % pp:
            raise Skip("micro-batches do not divide over the stages, which interleaving needs")
        fields["vpp"] = vpp
    recompute = row["recompute"].lower()
    if recompute.startswith("full"):
        fields["recompute"] = "full"
    elif recompute.startswith("selective"):
        fields["recompute"] = "selective"
    elif fw == "bridge":
        fields["recompute"] = "modules"
    elif m := re.match(r"layers:(\d+)", RECIPES.get(row["id"], {}).get("recompute", "")):
        fields["recompute"] = "full"
        fields["recompute_layers"] = f"[{m[1]}]"
    elif not recompute and row["id"] not in RECIPES:
        assumed.append("nothing recomputed")
    if tp > 1:
        sp = not (source_of(row) in ("vTrain", "SC21") or (source_of(row) == "Korthikanti" and "full" in recompute))
        fields["sp"] = "true" if sp else "false"
        if not sp:
            assumed.append("no sequence parallelism")
    return fields, gbs, seq


def measured(row, gbs, seq, gpus, shape):
    if (t := number(row, "iteration_s")) is not None:
        return float(t)
    if (t := number(row, "tokens_per_s_per_gpu")) is not None:
        return gbs * seq / (t * gpus)
    if source_of(row) == "SC21" and (tflops := number(row, "tflops_per_gpu")) is not None:
        # The table counts 96 B s l h^2 (1 + s/6h + V/16lh), the forward's second time included.
        l, h, v = shape["layers"], shape["hidden"], shape["vocab"]
        flops = 96 * gbs * seq * l * h * h * (1 + seq / (6 * h) + v / (16 * l * h))
        return flops / (tflops * 1e12 * gpus)
    if "Bridge" in row["source"] and (tflops := number(row, "tflops_per_gpu")) is not None:
        raise Skip("only TFLOP/s of a count that is not told")
    raise Skip("no time, nor tokens a second")


def case_of(row):
    if "NeMo RL" in row["framework"] or "RL end-to-end" in row["notes"] or "RL" in row["model"]:
        raise Skip("a step of reinforcement learning")
    if "LoRA" in row["model"] or "mode LoRA" in row["notes"] or \
            (source_of(row) == "Automodel" and row["id"].endswith("-33")):
        raise Skip("an adapter is trained, not the model")
    if "TRL" in row["framework"]:
        raise Skip("what the example offloads is not told")
    if "nemotron" in row["model"].lower() and not number(row, "layers"):
        raise Skip("no shape of the model")
    if "tokendrop" in row["model"]:
        raise Skip("tokens are dropped, at a capacity that the row does not say")
    assumed = []
    label, gpu, extra, per_node, domain, overrides = machine(row, assumed)
    name, declared_model, shape = model(row, assumed)
    fw, declared, job = stack(row, assumed)
    fields, gbs, seq = layout(row, shape, fw, assumed)
    chunks = fields["pp"] * fields.get("vpp", 1)
    if fields.get("vpp", 1) > 1 and shape["layers"] % chunks:
        name, declared_model = padded(name, declared_model, shape["layers"], chunks)
        assumed.append("chunks of one length, as if embedding and head were layers")
    gpus = number(row, "gpus")
    seconds = measured(row, gbs, seq, gpus, shape)
    kind = precision(row)
    nodes = max(1, math.ceil(gpus / per_node))
    if gpus % per_node and gpus > per_node:
        raise Skip("GPUs do not fill the nodes")
    cluster = [f"gpu = one  nodes = {nodes}  gpus_per_node = {min(gpus, per_node)}", f"nvlink_domain = {min(domain, gpus)}"] + overrides
    extra = re.sub(r"@(\w+)@", lambda m: f"{CONSTANTS[m[1]]:g}", extra)
    plan = (
        f"# {row['id']}\n"
        f"gpu one = {gpu} {extra}\n"
        f"cluster c {{ {'  '.join(cluster)} }}\n"
        f"{declared_model}{declared}"
        f"train t {{ model = {name}  cluster = c  seq = {seq}  batch = {gbs}  precision = {kind}  framework = {fw}\n"
        f"  {'  '.join(job)} }}\n"
        "layout run { " + "  ".join(f"{k} = {v}" for k, v in fields.items()) + " }\n")
    told = RECIPES.get(row["id"], {})
    doubtful = int(told.get("layout_differs", 0)) > 1
    alike = (source_of(row), row["model"], label, gpus, seq, row["precision"], row["framework"], "  ".join(job))
    return Case(row["id"], source_of(row), label, row["framework"], plan, seconds, gbs * seq, gpus, alike + (gbs,), row["model"], assumed,
                bool(row["recompute"].strip()) or (bool(re.match("none|layers", told.get("recompute", ""))) and not doubtful), doubtful)


def cases(path):
    """(cases, [(id, reason)]) of a file."""
    CONSTANTS.update(constants())
    RECIPES.update(recipes())
    used, skipped = [], []
    for row in read(path):
        try:
            used.append(case_of(row))
        except Skip as why:
            skipped.append((row["id"], str(why)))
    return used, skipped
