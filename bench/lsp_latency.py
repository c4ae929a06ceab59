#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""How long `plimsoll lsp` takes to answer on a file of 1,000 lines, right after a letter was typed in it.

usage: lsp_latency.py PROGRAM [LINES]
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

DECLARATIONS = """\
## Model number {n}.
model m{n} = llama {{
  layers = {layers}
  hidden = 4096
  heads  = 32
  ffn    = 14336
  vocab  = 128256
}}

train job{n} {{
  model     = m{n}
  cluster   = pod
  seq       = 8Ki
  batch     = 512
  framework = megatron
  require "inside a node": tp <= gpus_per_node
  require headroom >= 5%
  minimize step_time
}}

layout l{n} {{
  tp = 8
  pp = 2
}}

"""


def text_of(lines):
    text, n = "cluster pod { gpu = h100_sxm  nodes = 8  gpus_per_node = 8 }\n", 0
    while text.count("\n") < lines:
        text, n = text + DECLARATIONS.format(n=n, layers=20 + n % 40), n + 1
    return text


def cpu_of(pid):
    """Milliseconds of CPU that a process has taken."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def waited_of(pid):
    """Milliseconds that a process stood in line for a core; 0 where the kernel does not count them."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6
    except (OSError, IndexError, ValueError):
        return 0.0


def main():
    program, lines = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    server = subprocess.Popen([str(pathlib.Path(program).resolve()), "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        server.stdin.flush()

    def ask(number, method, params):
        send({"id": number, "method": method, "params": params})
        while True:
            length = 0
            while (line := server.stdout.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            message = json.loads(server.stdout.read(length))
            if message.get("id") == number:
                return message.get("result")

    ask(0, "initialize", {"capabilities": {}})
    text, uri = text_of(lines), "file:///bench.plan"
    send({"method": "textDocument/didOpen", "params": {"textDocument": {"uri": uri, "text": text}}})
    at = {"line": text[:text.index("model     = m9")].count("\n"), "character": 14}
    print(f"{text.count(chr(10)):,} lines; milliseconds from the letter typed to the answer (median and worst of 20); the same without the server's wait for a core; "
          "CPU that it took")
    number = 1
    for method in ("hover", "completion", "definition", "documentSymbol", "formatting"):
        took, alone, cpu = [], [], cpu_of(server.pid)
        for round in range(20):
            edit = {"line": 1, "character": 3}
            waited, begun = waited_of(server.pid), time.perf_counter()
            send({"method": "textDocument/didChange", "params": {"textDocument": {"uri": uri}, "contentChanges": [{"range": {"start": edit, "end": edit}, "text": "x"}]}})
            ask(number, "textDocument/" + method, {"textDocument": {"uri": uri}, "position": at, "options": {}})
            took.append((time.perf_counter() - begun) * 1000)
            alone.append(took[-1] - (waited_of(server.pid) - waited))
            number += 1
        print(f"  {method:15} median {statistics.median(took):6.1f}   worst {max(took):6.1f}   unwaited {statistics.median(alone):6.1f}, {max(alone):6.1f}   CPU {(cpu_of(server.pid) - cpu) / 20:6.1f}")
    send({"method": "exit"})
    server.wait()


if __name__ == "__main__":
    main()
