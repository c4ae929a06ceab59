#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""PyTorch as an outside oracle: the same models in eager mode on the CPU, in fp32.

usage: torch_cpu_eager.py [--write FILE | --check FILE]

Counts the bytes of the tensors that autograd saves (each storage once; what the model owns, its
parameters and tables, is not counted) and computes loss and gradients from the weights and the text
that the `host` device draws. --write keeps the figures with torch's version, --check compares them with
this torch's; the unit tests compare them with Plimsoll's own. Exits 77 where torch is missing.
"""
import argparse
import json
import math
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SEED, BATCH, SEQ, VOCAB, HIDDEN, HEADS, FFN = 1, 4, 16, 32, 16, 4, 24
EPSILON = 1e-5
MASK = (1 << 64) - 1


# --- the host device's random numbers (runtime/host/random.hpp) --------------------------------------
def mix(*words):
    h = 0x243F6A8885A308D3
    for w in words:
        h = ((h ^ w) + 0x9E3779B97F4A7C15) & MASK
        h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
        h ^= h >> 31
    return h


def uniform(bits):
    return (bits >> 11) * 2.0**-53


def normal(bits):
    u, v = uniform(mix(bits, 1)), uniform(mix(bits, 2))
    return math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v)


def text():
    """Tokens and the ones after them, sequence by sequence."""
    token = [[mix(SEED, 0x746F6B656E, 0, b, s) % VOCAB for s in range(SEQ + 1)] for b in range(BATCH)]
    ids = torch.tensor(token)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


# --- models --------------------------------------------------------------------------------------------
class Model:
    """Weights in the order in which the program makes them; matrices are inputs x outputs there."""

    def __init__(self):
        self.weights = []
        self.owned = []  # tables that the model keeps

    def weight(self, kind, *shape):
        number, values = len(self.weights), []
        for i in range(math.prod(shape)):
            x = normal(mix(SEED, 0x776569676874, number, i))
            if kind == "norm":
                x = 1 + 0.1 * x
            elif kind == "bias":
                x = 0.1 * x
            else:
                x = x / math.sqrt(shape[1] if kind == "embedding" else shape[0])
            values.append(x)
        w = torch.tensor(values, dtype=torch.float32).reshape(shape)
        if kind == "linear":
            w = w.t().contiguous()  # as torch stores it
        w.requires_grad_()
        self.weights.append((kind, w))
        return w

    def gradients(self):
        return [w.grad.t().contiguous() if kind == "linear" else w.grad for kind, w in self.weights]


def heads_of(x, heads):
    return x.view(BATCH, SEQ, heads, -1).transpose(1, 2)


class Llama(Model):
    """RMSNorm, rotary positions, grouped queries through SDPA, gated SiLU."""

    def __init__(self, layers, kv_heads):
        super().__init__()
        d = HIDDEN // HEADS
        self.kv_heads = kv_heads
        self.embedding = self.weight("embedding", VOCAB, HIDDEN)
        self.layers = []
        for _ in range(layers):
            self.layers.append([
                self.weight("norm", HIDDEN),
                self.weight("linear", HIDDEN, HIDDEN),
                self.weight("linear", HIDDEN, kv_heads * d),
                self.weight("linear", HIDDEN, kv_heads * d),
                self.weight("linear", HIDDEN, HIDDEN),
                self.weight("norm", HIDDEN),
                self.weight("linear", HIDDEN, FFN),
                self.weight("linear", HIDDEN, FFN),
                self.weight("linear", FFN, HIDDEN),
            ])
        self.norm = self.weight("norm", HIDDEN)
        self.head = self.weight("linear", HIDDEN, VOCAB)
        angle = torch.arange(SEQ)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)[None, :]
        angle = torch.cat([angle, angle], 1)
        self.cos, self.sin = angle.cos().float(), angle.sin().float()
        self.owned = [self.cos, self.sin]

    def rope(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def loss(self, ids, targets):
        x = F.embedding(ids, self.embedding)
        for n1, wq, wk, wv, wo, n2, gate, up, down in self.layers:
            n = F.rms_norm(x, (HIDDEN,), n1, EPSILON)
            q = self.rope(heads_of(F.linear(n, wq), HEADS))
            k = self.rope(heads_of(F.linear(n, wk), self.kv_heads))
            v = heads_of(F.linear(n, wv), self.kv_heads)
            if self.kv_heads < HEADS:
                k = k.repeat_interleave(HEADS // self.kv_heads, 1)
                v = v.repeat_interleave(HEADS // self.kv_heads, 1)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(o.transpose(1, 2).reshape(BATCH, SEQ, HIDDEN), wo)
            n = F.rms_norm(x, (HIDDEN,), n2, EPSILON)
            x = x + F.linear(F.silu(F.linear(n, gate)) * F.linear(n, up), down)
        z = F.linear(F.rms_norm(x, (HIDDEN,), self.norm, EPSILON), self.head)
        return F.cross_entropy(z.view(-1, VOCAB), targets.view(-1))


class Gpt(Model):
    """LayerNorm, biases, learned positions, attention from matmul and softmax, GELU, tied head."""

    def __init__(self, layers, dropout):
        super().__init__()
        self.dropout = dropout
        self.embedding = self.weight("embedding", VOCAB, HIDDEN)
        self.positions = self.weight("embedding", SEQ, HIDDEN)
        self.layers = []
        for _ in range(layers):
            layer = [self.weight("norm", HIDDEN), self.weight("bias", HIDDEN)]
            for rows, cols in [(HIDDEN, HIDDEN)] * 4:
                layer += [self.weight("linear", rows, cols), self.weight("bias", cols)]
            layer += [self.weight("norm", HIDDEN), self.weight("bias", HIDDEN)]
            for rows, cols in [(HIDDEN, 4 * HIDDEN), (4 * HIDDEN, HIDDEN)]:
                layer += [self.weight("linear", rows, cols), self.weight("bias", cols)]
            self.layers.append(layer)
        self.norm = (self.weight("norm", HIDDEN), self.weight("bias", HIDDEN))
        hidden = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
        self.mask = torch.zeros(SEQ, SEQ).masked_fill(hidden, -math.inf)
        self.owned = [self.mask]

    def loss(self, ids, targets):
        x = F.embedding(ids, self.embedding) + self.positions
        for n1, b1, wq, bq, wk, bk, wv, bv, wo, bo, n2, b2, w1, c1, w2, c2 in self.layers:
            n = F.layer_norm(x, (HIDDEN,), n1, b1, EPSILON)
            q, k, v = (heads_of(F.linear(n, w, b), HEADS) for w, b in ((wq, bq), (wk, bk), (wv, bv)))
            scale = 1 / math.sqrt(HIDDEN // HEADS)
            p = F.softmax(torch.matmul(q, k.transpose(-1, -2)) * scale + self.mask, -1)
            o = torch.matmul(F.dropout(p, self.dropout), v)
            a = F.linear(o.transpose(1, 2).reshape(BATCH, SEQ, HIDDEN), wo, bo)
            x = x + F.dropout(a, self.dropout)
            n = F.layer_norm(x, (HIDDEN,), n2, b2, EPSILON)
            m = F.linear(F.gelu(F.linear(n, w1, c1)), w2, c2)
            x = x + F.dropout(m, self.dropout)
        z = F.linear(F.layer_norm(x, (HIDDEN,), *self.norm, EPSILON), self.embedding)
        return F.cross_entropy(z.view(-1, VOCAB), targets.view(-1))


# --- what is measured ----------------------------------------------------------------------------------
def measure(model):
    ids, targets = text()
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = (storage.nbytes(), storage)  # held, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = model.loss(ids, targets)
    owned = {t.untyped_storage().data_ptr() for t in [w for _, w in model.weights] + model.owned}
    loss.backward()
    saved = sum(size for at, (size, _) in storages.items() if at not in owned)
    return saved, loss.item(), model.gradients()


def figures_of(gradient, number):
    """Length, and the sum of products with fixed numbers, of a gradient."""
    by = [normal(mix(777, number, i)) for i in range(gradient.numel())]
    dot = sum(a * b for a, b in zip(gradient.double().flatten().tolist(), by))
    return {"norm": gradient.double().norm().item(), "dot": dot}


def measure_all():
    cases = {}
    for name, make in {
        "llama": lambda n: Llama(n, HEADS),
        "llama_grouped": lambda n: Llama(n, HEADS // 2),
        "gpt": lambda n: Gpt(n, 0.0),
    }.items():
        saved = [measure(make(n))[0] for n in (1, 2, 3)]
        _, loss, gradients = measure(make(2))
        cases[name] = {"saved_bytes": saved, "loss": loss,
                       "gradients": [figures_of(g, i) for i, g in enumerate(gradients)]}
    torch.manual_seed(0)
    cases["gpt_dropout"] = {"saved_bytes": [measure(Gpt(n, 0.1))[0] for n in (1, 2, 3)]}
    return {"torch": torch.__version__, "cases": cases}


def near(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(near(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(near(x, y) for x, y in zip(a, b))
    if isinstance(a, int):
        return a == b
    return abs(a - b) <= 1e-5 * max(1.0, abs(a))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--check", metavar="FILE")
    arguments = parser.parse_args()
    found = measure_all()
    if arguments.write:
        with open(arguments.write, "w", encoding="utf-8") as out:
            json.dump(found, out, indent=1)
            out.write("\n")
    elif arguments.check:
        with open(arguments.check, encoding="utf-8") as kept:
            expected = json.load(kept)
        if not near(expected["cases"], found["cases"]):
            print(f"torch {found['torch']} gives other figures than {expected['torch']} gave:")
            print(json.dumps(found, indent=1))
            return 1
        print(f"{len(found['cases'])} cases as kept, with torch {found['torch']}")
    else:
        print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
