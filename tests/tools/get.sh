#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
# get.sh FOLDER: a virtual environment with the tools whose parsers exchange_tools.py asks, from PyPI.
# Without what they would train with (torch and CUDA's libraries, several gigabytes): played_modules.py stands in for that.
# About 0.5 GB to fetch and 1.4 GB on disk, most of it vLLM's kernels.
set -euo pipefail
folder=${1:?usage: get.sh FOLDER}
python=${PYTHON:-python3}
"$python" -m venv "$folder"
pip() { "$folder/bin/python" -m pip "$@" --quiet --disable-pip-version-check; }
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# What the parsers themselves need.
pip install absl-py cachetools cbor2 cloudpickle hjson huggingface_hub msgspec numpy omegaconf orjson packaging \
  prometheus_client psutil pydantic pyyaml regex requests rich tqdm typer tyro
for package in accelerate==1.15.0 torchtitan==0.2.2 sglang==0.5.23 vllm==0.33.0 deepspeed==0.19.8; do
  pip install --no-deps --ignore-requires-python "$package" || echo "get.sh: going on without $package" >&2
done
# These two share the package `megatron` and want Python 3.12; their Python is read by 3.11 as well.
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
for package in megatron-core==0.19.2 megatron-bridge==0.6.2; do
  pip download --no-deps --dest "$wheels" --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 "$package" ||
    echo "get.sh: going on without $package" >&2
done
for wheel in "$wheels"/*.whl; do [ ! -f "$wheel" ] || "$folder/bin/python" -m zipfile -e "$wheel" "$site"; done
echo "export PLIMSOLL_TOOLS=$(cd "$folder" && pwd)"
