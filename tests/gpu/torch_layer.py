#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""One layer of llama3_8b forward and backward in PyTorch's eager mode (bf16, flash attention), and the
same layer here: memory that is saved, time of its ops.

usage: torch_layer.py PLIMSOLL
"""
import json
import os
import pathlib
import subprocess
import sys

SEQ, HIDDEN, HEADS, KV, FFN, DIM = 8192, 4096, 32, 8, 14336, 128
PLAN = pathlib.Path(__file__).parent / "ladder" / "6_one_layer.plan"
# What stands beside the layer in that plan is small; these ops are the layer's.
OURS = {"linear", "attention", "rmsnorm", "rope", "glu", "silu", "mul", "add"}


def torch_layer():
    import torch
    import torch.nn.functional as F

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
            self.norm1, self.norm2 = torch.nn.RMSNorm(HIDDEN), torch.nn.RMSNorm(HIDDEN)
            self.q, self.k, self.v = linear(HIDDEN, HEADS * DIM), linear(HIDDEN, KV * DIM), linear(HIDDEN, KV * DIM)
            self.o = linear(HEADS * DIM, HIDDEN)
            self.gate, self.up, self.down = linear(HIDDEN, FFN), linear(HIDDEN, FFN), linear(FFN, HIDDEN)

        def forward(self, x, cos, sin):
            def turn(t):
                a, b = t.chunk(2, -1)
                return t * cos + torch.cat((-b, a), -1) * sin

            h = self.norm1(x)
            split = lambda t, n: t.view(1, SEQ, n, DIM).transpose(1, 2)
            q, k, v = turn(split(self.q(h), HEADS)), turn(split(self.k(h), KV)), split(self.v(h), KV)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(1, SEQ, HEADS * DIM))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    if not torch.cuda.is_available():
        return None
    torch.manual_seed(0)
    layer = Layer().to("cuda", torch.bfloat16)
    x = torch.randn(1, SEQ, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    angle = torch.outer(torch.arange(SEQ, device="cuda"), 10000.0 ** (-torch.arange(0, DIM, 2, device="cuda") / DIM))
    cos, sin = (torch.cat((f, f), -1).to(torch.bfloat16) for f in (angle.cos(), angle.sin()))
    times, saved = [], 0
    for turn in range(8):
        before = torch.cuda.memory_allocated()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        marks[0].record()
        y = layer(x, cos, sin)
        marks[1].record()
        saved = torch.cuda.memory_allocated() - before
        y.backward(torch.ones_like(y))
        marks[2].record()
        torch.cuda.synchronize()
        if turn >= 3:
            times.append((marks[0].elapsed_time(marks[1]), marks[1].elapsed_time(marks[2])))
        del y
    forward, backward = (sorted(t)[len(t) // 2] for t in zip(*times))
    print(f"PyTorch {torch.__version__}: forward {forward:.2f} ms, backward {backward:.2f} ms, "
          f"{saved / 2**20:.0f} MiB after forward")
    return forward + backward


def our_layer(plimsoll):
    done = subprocess.run([plimsoll, "verify", str(PLAN), "--device", "cuda", "--steps", "4", "--json"],
                          capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, 4) or not done.stdout:
        print(done.stderr)
        return None
    ops = json.loads(done.stdout)["gpu"]["ops"]
    forward, backward = (1000 * sum(o["seconds"] for o in ops if o["name"] in OURS and o["backward"] == b)
                         for b in (False, True))
    for o in sorted(ops, key=lambda o: -o["seconds"])[:10]:
        print(f"  {o['name']:<18} {'backward' if o['backward'] else 'forward':<9} {1000 * o['seconds']:8.3f} ms, "
              f"{1000 * o.get('predicted_seconds', 0):8.3f} predicted")
    print(f"plimsoll: forward {forward:.2f} ms, backward {backward:.2f} ms (the last of four steps)")
    return forward + backward


def main():
    ours = our_layer(sys.argv[1])
    try:
        theirs = torch_layer()
    except ImportError:
        print("no PyTorch here")
        return 0 if ours is not None else 1
    if ours is None:
        return 1
    if theirs is None:
        print("PyTorch has no GPU here")
        return 0 if os.environ.get("REHEARSAL") else 1
    print(f"plimsoll takes {ours / theirs:.2f} x of PyTorch's eager time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
