#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Installs the build to an empty place, builds examples/library against it with find_package(plimsoll), and
holds what it prints against the program's own answer to the same job.

usage: library_test.py --cmake CMAKE --compiler CXX --config CONFIG BUILD EXAMPLE
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile

JOB = """
cluster pod { gpu = h100_sxm  nodes = 2  gpus_per_node = 8 }
train tune {
  model = llama3_8b  cluster = pod  seq = 8Ki  batch = 64
  require "inside a node": tp <= gpus_per_node
  require headroom >= 5%
}
"""


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} gave {done.returncode}:\n{done.stdout}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("example", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch)
        run(options.cmake, "--install", options.build, "--prefix", place / "prefix")
        # Only what was installed may be found: the sources are elsewhere as far as the example knows.
        run(options.cmake, "-S", options.example, "-B", place / "out", f"-DCMAKE_PREFIX_PATH={place}/prefix",
            f"-DCMAKE_CXX_COMPILER={options.compiler}", f"-DCMAKE_BUILD_TYPE={options.config}")
        run(options.cmake, "--build", place / "out")
        said = run(place / "out" / "example").splitlines()
        (place / "job.plan").write_text(JOB)
        program = place / "prefix" / "bin" / "plimsoll"
        best = json.loads(run(program, "plan", place / "job.plan", "--json",
                              env=dict(os.environ, NO_COLOR="1")))["best"]
    gib = f"{best['peak_bytes'] / 2 ** 30:.4g} GiB"
    assert said[1].startswith(gib), f"the library says {said[1]!r}, the program {gib}"
    assert f"zero {best['layout']['zero']}" in said[0], (said[0], best["layout"])
    assert said[2] == "the dry run agrees to the byte", said[2]
    print("installed, linked, and the same answer:", "; ".join(said))


if __name__ == "__main__":
    main()
