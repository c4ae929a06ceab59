#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Has a tool's own parser read exports, and prints what it made of them.

usage: read_export.py TOOL FILE...

Run by the Python that has the tools (see exchange_tools.py). Prints JSON: {"version": V, "played": [PACKAGE...], "read": [...]}
with {"mistake": TEXT} or {"fields": {NAME: VALUE}} a file: what the tool understood, under the names of its own flags.
Exit 77 where the tool's package is missing.
"""
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import sys
import traceback

import played_modules

SKIPPED = 77
PACKAGES = {"megatron": "megatron-core", "nemo": "megatron-bridge"}  # others are named as the tool
MODULES = {"nemo": "megatron.bridge", "megatron": "megatron.training"}
# What the parsers' packages import besides: played where it is not installed. Modules within a package are what rewrites
# torch or transformers when it is imported, and models that are not ours.
PLAYED = """torch torchao torchaudio torchdata torchvision triton transformer_engine transformer_engine_torch transformers tokenizers
    safetensors datasets apex causal_conv1d flash_attn fla flashinfer mamba_ssm modelopt nvidia nvtx pynvml sgl_kernel xgrammar
    compressed_tensors gguf outlines llguidance lark interegular openai openai_harmony anthropic mistral_common mcp tiktoken
    aiohttp fastapi uvicorn starlette uvloop zmq pybase64 msgpack zstandard blake3 diskcache depyf dill setproctitle opentelemetry
    PIL av cv2 soundfile timm qwen_vl_utils numba scipy pandas IPython ray wandb hydra nemo_run cpuinfo ninja einops
    modelscope partial_json_parser watchfiles ijson megatron.energon megatron.bridge.diffusion vllm.env_override vllm.ir
    sglang.srt.utils.hf_transformers_patches""".split()


def plain(value):
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return str(getattr(value, "name", value))


def fields_of(value, prefix=""):
    """The fields of a dataclass and of those in it, with dots between."""
    found = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name, None)
        if dataclasses.is_dataclass(inner) and not isinstance(inner, type):
            found |= fields_of(inner, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = plain(inner)
    return found


def forget_played(value):
    """Takes stand-ins out of a dataclass and those in it, for who would look at their types."""
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name, None)
        if isinstance(inner, (played_modules.Played, played_modules.Thing)):
            setattr(value, field.name, None)
        elif dataclasses.is_dataclass(inner) and not isinstance(inner, type):
            forget_played(inner)


def flags_of(path, command):
    """What a launch script gives `command`, as bash hands it over; the script's environment is checked to be set."""
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        played = pathlib.Path(folder, command)
        played.write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\n', encoding="utf-8")
        played.chmod(0o755)
        done = subprocess.run(["bash", path], capture_output=True, text=True, check=True, timeout=60,
                              env={"PATH": f"{folder}:/usr/bin:/bin", "MODEL": "a/model"})
    return done.stdout.split("\n")[:-1]


def megatron():
    from megatron.training.arguments import parse_args, validate_args
    if "torch" in played_modules.PLAYING:
        import torch
        torch.cuda.get_device_capability = lambda *device: (9, 0)

    def read(path):
        words = flags_of(path, "torchrun")
        at = next(place for place, word in enumerate(words) if word.endswith("pretrain_gpt.py"))
        sys.argv = ["pretrain_gpt.py", *words[at + 1:]]
        os.environ["WORLD_SIZE"] = str(int(words[words.index("--nnodes") + 1]) * int(words[words.index("--nproc-per-node") + 1]))
        args = parse_args()
        args.train_iters = args.train_iters or 1
        args = validate_args(args)
        return {name: plain(value) for name, value in vars(args).items()}
    return read


def torchtitan():
    from torchtitan.config import ConfigManager
    return lambda path: fields_of(ConfigManager().parse_args(["--job.config_file", path]))


def deepspeed():
    from deepspeed.runtime import config

    def read(path):
        text = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        ours = text["_plimsoll"]
        shared = text.get("tensor_parallel", {}).get("autotp_size", 1) or 1
        config.dist.get_rank = lambda group=None: 0
        config.dist.get_world_size = lambda group=None: ours["nodes"] * ours["gpus_per_node"] // shared
        made = config.DeepSpeedConfig(path)
        zero = made.zero_config
        return {"zero": plain(getattr(zero.stage, "value", zero.stage)), "mbs": made.train_micro_batch_size_per_gpu,
                "accumulation": made.gradient_accumulation_steps, "batch": made.train_batch_size, "bucket": zero.reduce_bucket_size,
                "offload": plain(zero.offload_optimizer and zero.offload_optimizer.device)}
    return read


def accelerate():
    from accelerate.commands.config.config_args import ClusterConfig
    return lambda path: fields_of(ClusterConfig.from_yaml_file(path))


def nemo():
    import logging

    import yaml
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.models.mla_provider import MLAModelProvider
    from megatron.bridge.training import config
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    said = []
    logging.getLogger("megatron.bridge.training.utils.omegaconf_utils").addFilter(lambda record: said.append(record.getMessage()) or True)

    def read(path):
        said.clear()
        latent = "multi_latent_attention" in yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))["model"]
        provider = MLAModelProvider if latent else GPTModelProvider
        base = config.ConfigContainer(
            train=config.TrainingConfig(global_batch_size=1, micro_batch_size=1, train_iters=1),
            model=provider(num_layers=1, hidden_size=64, num_attention_heads=1),
            optimizer=config.OptimizerConfig(), scheduler=config.SchedulerConfig(),
            dataset=config.GPTDatasetConfig(random_seed=1, reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False, seq_length=8),
            logger=config.LoggerConfig(), tokenizer=config.TokenizerConfig(), checkpoint=config.CheckpointConfig())
        forget_played(base)
        made = process_config_with_overrides(base, config_filepath=path)
        skipped = [one for one in said if "Skipping" in one]  # a key that it does not know is passed over
        if skipped:
            raise ValueError("; ".join(skipped))
        made.model.pipeline_dtype = "bf16"  # a recipe's own
        made.model.finalize()
        return fields_of(made)
    return read


def vllm():
    from vllm import platforms
    if not platforms.current_platform.device_type:  # no GPU here
        type(platforms.current_platform).device_type = "cuda"
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    # `vllm serve` takes the model as its first word.
    return lambda path: fields_of(EngineArgs.from_cli_args(parser.parse_args(["--model", *flags_of(path, "vllm")[1:]])))


def sglang():
    import argparse

    from sglang.srt.server_args import ServerArgs
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return lambda path: {name: plain(value) for name, value in vars(parser.parse_args(flags_of(path, "python3")[2:])).items()}


READERS = {made.__name__: made for made in (megatron, torchtitan, deepspeed, accelerate, nemo, vllm, sglang)}


def main():
    tool, *paths = sys.argv[1:]
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"  # it refuses to be imported on a machine without any GPU otherwise
    try:
        version = importlib.metadata.version(PACKAGES.get(tool, tool))
    except importlib.metadata.PackageNotFoundError:
        return SKIPPED
    played = played_modules.play(PLAYED)
    told, sys.stdout = sys.stdout, sys.stderr  # what the packages print while they are imported
    answers = []
    try:
        read = READERS[tool]()
    except Exception:  # a part that is missing, or a version whose parser is elsewhere
        traceback.print_exc(limit=-6)
        return SKIPPED
    for path in paths:
        try:
            answers.append({"fields": read(path)})
        except (Exception, SystemExit) as error:  # whatever the tool's parser raises is what is tested
            answers.append({"mistake": f"{type(error).__name__}: {error}", "trace": traceback.format_exc(limit=-4)})
    sys.stdout = told
    json.dump({"version": version, "played": sorted(played), "read": answers}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
