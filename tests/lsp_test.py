#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Drives `plimsoll lsp` as an editor would, message by message, and with messages that no editor should send.

usage: lsp_test.py PROGRAM
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
JOB = """\
cluster pod { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }

## The widest of ours.
model wide = llama { layers = 8  hidden = 4096  heads = 32  ffn = 14336  vocab = 128256 }

train tune {
  model = wide
  cluster = pod
  seq = 8Ki
  batch = 64
  require "in a node": tp <= gpus_per_node
  item "EMA of the weights" { bytes = 4 B * params_on_gpu  category = master  lifetime = always }
}
layout hand { tp = 8  mbs = 1 }
"""


class Editor:
    """One server and what it has said so far."""

    def __init__(self, initialize=True, encodings=None, env=None):
        self.process = subprocess.Popen([PROGRAM, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=dict(os.environ, **(env or {})))
        self.next_id, self.notices = 1, []
        if initialize:
            general = {"general": {"positionEncodings": encodings}} if encodings else {}
            self.capabilities = self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": general})["capabilities"]
            self.tell("initialized", {})

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        body = json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def receive(self):
        length = None
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise EOFError(self.process.stderr.read().decode())
            if line == b"\r\n":
                break
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(self.process.stdout.read(length))

    def respond(self, id):
        while True:
            message = self.receive()
            if "id" in message and message.get("id") == id and "method" not in message:
                return message
            self.notices.append(message)

    def ask(self, method, params):
        id, self.next_id = self.next_id, self.next_id + 1
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        answer = self.respond(id)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def tell(self, method, params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def open(self, text, uri="file:///nowhere/job.plan"):
        self.tell("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "plan", "version": 1, "text": text}})
        return uri

    def diagnostics(self, uri):
        while True:
            message = self.receive()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri:
                return message["params"]["diagnostics"]

    def at(self, method, uri, line, character, **more):
        return self.ask("textDocument/" + method, {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}, **more})

    def close(self):
        self.ask("shutdown", None)
        self.tell("exit", None)
        code = self.process.wait(timeout=20)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()
        return code


def place(text, what, after=0, occurrence=0):
    """Line and character of the occurrence of \\a what, plus \\a after characters."""
    at = -1
    for _ in range(occurrence + 1):
        at = text.index(what, at + 1)
    before = text[:at + after]
    return before.count("\n"), len(before.rpartition("\n")[2])


class Answers(unittest.TestCase):
    def setUp(self):
        self.editor = Editor()

    def tearDown(self):
        self.assertEqual(self.editor.close(), 0)

    def hover(self, text, what, after=1, occurrence=0):
        uri = self.editor.open(text)
        found = self.editor.at("hover", uri, *place(text, what, after, occurrence))
        return found["contents"]["value"] if found else None

    def labels(self, text, **more):
        """What is offered at the '|' of a text."""
        where = place(text, "|")
        uri = self.editor.open(text.replace("|", "", 1))
        return [one["label"] for one in self.editor.at("completion", uri, *where, **more)["items"]]

    def test_diagnostics_come_and_go(self):
        text = JOB.replace("seq = 8Ki", "sqe = 8Ki")
        uri = self.editor.open(text)
        said = self.editor.diagnostics(uri)
        wrong = [one for one in said if "unknown field 'sqe'" in one["message"]]
        self.assertEqual(len(wrong), 1, said)
        self.assertIn("did you mean 'seq'?", wrong[0]["message"])
        self.assertEqual(wrong[0]["severity"], 1)
        line, character = place(text, "sqe")
        self.assertEqual(wrong[0]["range"], {"start": {"line": line, "character": character}, "end": {"line": line, "character": character + 3}})
        self.editor.tell("textDocument/didChange", {
            "textDocument": {"uri": uri, "version": 2},
            "contentChanges": [{"range": {"start": {"line": line, "character": character}, "end": {"line": line, "character": character + 3}}, "text": "seq"}]})
        self.assertEqual(self.editor.diagnostics(uri), [])

    def test_related_places(self):
        uri = self.editor.open(JOB + "layout hand { tp = 4 }\n")
        said = [one for one in self.editor.diagnostics(uri) if "declared twice" in one["message"]]
        self.assertEqual(said[0]["relatedInformation"][0]["location"]["range"]["start"], dict(zip(("line", "character"), place(JOB, "hand"))))

    def test_hover_tells_a_declaration(self):
        text = self.hover(JOB, "model = wide", after=9)
        self.assertIn("model wide = llama", text)
        self.assertIn("The widest of ours.", text)
        self.assertIn("8 layers, 2,996,899,840 parameters", text)

    def test_hover_tells_an_items_bytes(self):
        bill = json.loads(subprocess.run([PROGRAM, "bill", "-", "--json"], input=JOB.encode(), capture_output=True, check=True).stdout)
        item = [one for one in bill["stages"][0]["items"] if one["name"] == "EMA of the weights"][0]
        text = self.hover(JOB, "EMA")
        self.assertIn(f"**{item['bytes'] / 2**30:.2f} GiB** at the peak of `tune`", text)

    def test_hover_tells_a_layout(self):
        bill = json.loads(subprocess.run([PROGRAM, "bill", "-", "--json"], input=JOB.encode(), capture_output=True, check=True).stdout)
        self.assertIn(f"{bill['peak_bytes'] / 2**30:.2f} GiB of", self.hover(JOB, "layout hand", after=8))
        self.assertIn(f"{bill['peak_bytes'] / 2**30:.2f} GiB", self.hover(JOB, "train tune", after=7))

    def test_hover_tells_variables_and_fields(self):
        self.assertIn("tensor parallelism", self.hover(JOB, "tp <= "))
        self.assertIn("tokens a sequence", self.hover(JOB, "seq = "))
        self.assertIn("gpus_per_node = 8", self.hover(JOB, "<= gpus_per_node", after=5))
        self.assertIsNone(self.hover("# tp in a comment\n" + JOB, "tp in a comment"))

    def test_hover_in_models(self):
        text = "block twice(x, width) {\n  y = linear(x, width)\n  return y + y\n}\nmodel m { param layers = 2\n  x = embedding(64, 8)\n  repeat layers { x = twice(x, 8) }\n  loss = cross_entropy(linear(x, 64)) }\n"
        self.assertIn("linear(x, out", self.hover(text, "linear(x"))
        self.assertIn("y = linear(x, width)", self.hover(text, "y + y", after=0))
        self.assertIn("block twice", self.hover(text, "twice(x, 8)"))
        self.assertIn("2 unless given", self.hover(text, "repeat layers", after=8))

    def test_definition(self):
        uri = self.editor.open(JOB)
        found = self.editor.at("definition", uri, *place(JOB, "model = wide", 9))
        self.assertEqual(found["uri"], uri)
        self.assertEqual(found["range"]["start"], dict(zip(("line", "character"), place(JOB, "wide = llama"))))
        # A derived number is nowhere declared.
        text = JOB.replace("require", "require headroom >= 5%\n  require")
        uri = self.editor.open(text)
        self.assertIsNone(self.editor.at("definition", uri, *place(text, "headroom", 1)))

    def test_definition_in_a_used_file(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder, "a model.plan")
            other.write_text("model mine = llama { layers = 2  hidden = 512  heads = 8  ffn = 1024  vocab = 1024 }\n")
            text = 'use "a model.plan"\ncluster pod { gpu = h100_sxm  nodes = 1  gpus_per_node = 1 }\ntrain t { model = mine  cluster = pod  seq = 1Ki  batch = 8 }\n'
            uri = self.editor.open(text, pathlib.Path(folder, "job.plan").as_uri())
            self.assertEqual(self.editor.diagnostics(uri), [])
            found = self.editor.at("definition", uri, *place(text, "mine", 1))
            self.assertEqual(found["uri"], other.as_uri())
            # A mistake in the used file, as it stands in the editor, is told there.
            self.editor.open("model mine = lama { layers = 2 }\n", other.as_uri())
            said = self.editor.diagnostics(other.as_uri())
            self.assertTrue(any("unknown model 'lama'" in one["message"] for one in said), said)

    def test_completion_of_fields(self):
        labels = self.labels("train t {\n  model = llama3_8b\n  s|\n}\n")
        for name in ("seq", "batch", "cluster", "tp", "require", "te_version", "loss"):
            self.assertIn(name, labels)
        self.assertNotIn("model", labels)  # it is given
        self.assertIn("host_memory", self.labels("cluster c {\n  |\n}\n"))
        self.assertIn("allocated", self.labels("train t { model = llama3_8b\n observed { | } }\n"))
        self.assertIn("category", self.labels('train t { item "x" { by| } }\n'))
        self.assertIn("kv_heads", self.labels("model m = llama {\n  lay|\n}\n"))
        self.assertNotIn("seq", self.labels("layout l { | }\n"))
        self.assertIn("train", self.labels("|"))

    def test_completion_of_values(self):
        self.assertIn("llama3_70b", self.labels("train t { model = ll| }\n"))
        self.assertIn("pod", self.labels("cluster pod { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }\ntrain t { cluster = | }\n"))
        self.assertEqual(self.labels("train t { precision = | }\n"), ["fp32", "fp16", "bf16", "fp8"])
        self.assertIn("selective", self.labels("train t { framework = megatron  recompute = | }\n"))
        self.assertIn("selective", self.labels("train t { framework = megatron  recompute in {none, | } }\n"))
        self.assertIn("interleaved", self.labels("layout l { schedule = | }\n"))
        self.assertIn("headroom", self.labels("train t { require | }\n"))
        self.assertIn("llama", self.labels("model mine = |\n"))
        self.assertIn("attention", self.labels("block b(x) {\n  y = |\n}\n"))
        self.assertIn("y", self.labels("block b(x) {\n  y = linear(x, 8)\n  return |\n}\n"))
        self.assertIn("GiB", self.labels("gpu g { memory = 80 | }\n"))
        self.assertIn("lse", self.labels("framework f { on attention { save | } }\n"))
        self.assertEqual(self.labels("# |\n"), [])

    def test_a_blank_lists_only_where_a_value_is_due(self):
        blank = {"context": {"triggerKind": 2, "triggerCharacter": " "}}
        self.assertEqual(self.labels("train t { model = llama3_8b | }\n", **blank), [])
        self.assertIn("llama3_8b", self.labels("train t { model = | }\n", **blank))

    def test_completion_replaces_the_word(self):
        text = "train t { model = lla }\n"
        uri = self.editor.open(text)
        items = self.editor.at("completion", uri, 0, 21)["items"]
        self.assertEqual(items[0]["textEdit"]["range"], {"start": {"line": 0, "character": 18}, "end": {"line": 0, "character": 21}})

    def test_formatting(self):
        text = JOB.replace("  seq", "      seq")
        uri = self.editor.open(text)
        edits = self.editor.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": {"tabSize": 2, "insertSpaces": True}})
        wanted = subprocess.run([PROGRAM, "fmt", "-"], input=text.encode(), capture_output=True, check=True).stdout.decode()
        self.assertEqual([edit["newText"] for edit in edits], [wanted])
        self.editor.open(wanted)
        self.assertEqual(self.editor.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": {}}), [])
        self.editor.open("train {")
        self.assertIsNone(self.editor.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": {}}))

    def test_symbols(self):
        uri = self.editor.open(JOB)
        names = [one["name"] for one in self.editor.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})]
        self.assertEqual(names, ["cluster pod", "model wide", "train tune", "layout hand"])

    def test_characters_are_utf16(self):
        text = "# \U0001F6A2\n" + JOB.replace('"in a node"', '"\U0001F6A2 é"')
        uri = self.editor.open(text)
        line, character = place(text, "tp <= ")
        found = self.editor.at("hover", uri, line, character + 1)  # the ship counts two
        self.assertEqual(found["range"]["start"], {"line": line, "character": character + 1})
        self.assertIn("tensor parallelism", found["contents"]["value"])

    def test_a_search_ahead_prices_jobs_without_a_layout(self):
        text = JOB.replace("layout hand { tp = 8  mbs = 1 }\n", "")
        uri = self.editor.open(text)
        for _ in range(200):
            value = self.editor.at("hover", uri, *place(text, "train tune", 7))["contents"]["value"]
            if "the best found" in value:
                return
            self.editor.process.stdout.flush()
            import time
            time.sleep(0.1)
        self.fail("no search was made")

    def test_hostile_places(self):
        uri = self.editor.open(JOB)
        for line, character in ((0, 10**6), (10**6, 0), (2**32 - 1, 2**32 - 1), (5, 0)):
            for method in ("hover", "definition", "completion"):
                self.editor.at(method, uri, line, character)

    def test_every_place_of_broken_texts(self):
        """Nothing that can be asked at any place of a half-written file is an error."""
        for text in (JOB[:len(JOB) // 2], JOB.replace("{", "", 3), JOB.replace("}", ""), "train t { model = ", "block b(x, ", "framework f { on {attention, ", "{{{((([[[", "model m = m { layers = 1 }\n"):
            uri = self.editor.open(text)
            line = character = 0
            for letter in text + " ":
                for method in ("hover", "completion"):
                    self.editor.at(method, uri, line, character)
                line, character = (line + 1, 0) if letter == "\n" else (line, character + 1)


class Prelude(unittest.TestCase):
    def test_definition_in_the_prelude_opens_a_copy(self):
        with tempfile.TemporaryDirectory() as cache:
            editor = Editor(env={"XDG_CACHE_HOME": cache})
            uri = editor.open(JOB)
            found = editor.at("definition", uri, *place(JOB, "llama", 1))
            path = pathlib.Path(found["uri"].removeprefix("file://"))
            self.assertTrue(path.is_relative_to(cache))
            self.assertIn("model llama", path.read_text().splitlines()[found["range"]["start"]["line"]])
            self.assertEqual(editor.close(), 0)


class Protocol(unittest.TestCase):
    def test_utf8_where_the_editor_offers_it(self):
        editor = Editor(encodings=["utf-16", "utf-8"])
        self.assertEqual(editor.capabilities["positionEncoding"], "utf-8")
        text = 'train t { require "é": tp <= 8 }\n'
        uri = editor.open(text)
        found = editor.at("hover", uri, 0, len(text[:text.index("tp")].encode()) + 1)
        self.assertIn("tensor parallelism", found["contents"]["value"])
        editor.close()

    def test_nothing_before_initialize(self):
        editor = Editor(initialize=False)
        editor.send({"jsonrpc": "2.0", "id": 7, "method": "textDocument/hover", "params": {}})
        self.assertEqual(editor.respond(7)["error"]["code"], -32002)
        editor.ask("initialize", {"capabilities": {}})
        editor.close()

    def test_wrong_messages_are_answered_and_survived(self):
        editor = Editor()
        body = b"{ no json"
        editor.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.assertEqual(editor.respond(None)["error"]["code"], -32700)
        for wrong, code in (({"jsonrpc": "2.0", "id": "a", "method": "no/such"}, -32601), ({"id": "a", "method": 5}, -32600), ({"id": "a"}, -32600),
                            ({"id": "a", "method": "textDocument/hover"}, -32602), ({"id": "a", "method": "textDocument/hover", "params": [1]}, -32602),
                            ({"id": "a", "method": "textDocument/hover", "params": {"textDocument": {"uri": "file:///x"}, "position": {"line": 0, "character": 0}}}, -32602),
                            ({"id": "a", "method": "textDocument/hover", "params": {"textDocument": 3, "position": None}}, -32602)):
            editor.send(wrong)
            self.assertEqual(editor.respond("a")["error"]["code"], code, wrong)
        for body in (b"3", b"null", b'"x"', b"[]", b"[3]", b"\xff\xfe", b"{}", b""):
            editor.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        for notice in ({"method": "textDocument/didChange"}, {"method": "textDocument/didChange", "params": {"textDocument": {"uri": "file:///x"}, "contentChanges": [1]}},
                       {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": 3}}}, {"method": "$/cancelRequest", "params": {"id": 1}}, {"result": 3}):
            editor.send(notice)
        editor.raw(b"garbage\r\nContent-Length: x\r\n\r\nContent-Type: y\r\n")
        uri = editor.open(JOB)
        editor.tell("textDocument/didChange", {"textDocument": {"uri": uri}, "contentChanges": [
            {"range": {"start": {"line": 5, "character": 0}, "end": {"line": 1, "character": 0}}, "text": "x"}]})
        found = editor.at("hover", uri, *place(JOB, "model = wide", 9))
        self.assertIn("model wide", found["contents"]["value"])
        self.assertEqual(editor.close(), 0)

    def test_depth_that_no_message_has_is_refused(self):
        editor = Editor()
        deep = b"[" * 200_000 + b"]" * 200_000
        for body in (deep, b'{"jsonrpc":"2.0","id":%s,"method":"shutdown"}' % deep, b'{"jsonrpc":"2.0","id":3,"method":"shutdown","params":%s}' % deep, b"[" * 10**6, b'{"a":' * 500_000):
            editor.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self.assertEqual(editor.respond(None)["error"]["code"], -32700)
        uri = editor.open("# " + "[{" * 1000 + '\\" \\\n' + JOB)  # brackets of a text are none of the message
        self.assertEqual(editor.diagnostics(uri), [])
        self.assertEqual(editor.close(), 0)

    def test_half_a_surrogate_is_a_character(self):
        """JavaScript's strings may hold one; the text around it must not be lost."""
        editor = Editor()
        for half in ("\\ud83d", "\\uDEA2", "\\udea2\\ud83d", "\\ud83dx", "\\ud83d\\ud83d"):
            body = ('{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file:///x","text":%s}}}'
                    % json.dumps(JOB.replace("in a node", "HALF tp")).replace("HALF", half)).encode()
            editor.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            line, character = place(JOB, '"in a node": tp')
            column = character + len('" tp": ') + half.count("\\u") + half.count("x")
            self.assertIn("tensor parallelism", editor.at("hover", "file:///x", line, column)["contents"]["value"], half)
        self.assertEqual(editor.close(), 0)

    def test_a_second_initialize_is_refused(self):
        editor = Editor()
        editor.send({"jsonrpc": "2.0", "id": "again", "method": "initialize", "params": {"capabilities": {}}})
        self.assertEqual(editor.respond("again")["error"]["code"], -32600)
        self.assertEqual(editor.close(), 0)

    def test_lines_may_end_as_the_protocol_allows(self):
        editor = Editor()
        for end in ("\n", "\r\n"):
            uri = editor.open(JOB.replace("\n", end))
            line, character = place(JOB, "tp <= ")
            self.assertEqual(editor.at("hover", uri, line, character)["range"]["start"], {"line": line, "character": character})
        uri = editor.open("train t {\r  model = llama3_8b\r}\n")
        self.assertEqual(editor.at("hover", uri, 1, 3)["range"]["start"], {"line": 1, "character": 2})
        self.assertEqual(editor.close(), 0)

    def test_many_declarations_are_listed_at_once(self):
        """The work grows with the text and not with its square: 20,000 declarations took ten seconds once."""
        editor = Editor()
        uri = editor.open("".join(f"layout l{i} {{ tp = 1 }}\n" for i in range(20_000)))
        found = editor.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
        self.assertEqual((len(found), found[-1]["range"]["start"]), (20_000, {"line": 19_999, "character": 0}))
        self.assertEqual(editor.close(), 0)

    def test_a_message_may_come_in_pieces(self):
        editor = Editor()
        body = json.dumps({"jsonrpc": "2.0", "id": 99, "method": "no/such"}).encode()
        message = b"Content-Type: application/vscode-jsonrpc\r\ncontent-length:  %d\r\n\r\n" % len(body) + body
        for at in range(0, len(message), 7):
            editor.raw(message[at:at + 7])
        self.assertEqual(editor.respond(99)["error"]["code"], -32601)
        editor.close()

    def test_the_end_without_shutdown_is_1(self):
        editor = Editor()
        editor.process.stdin.close()
        self.assertEqual(editor.process.wait(timeout=20), 1)
        editor.process.stdout.close()
        editor.process.stderr.close()


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
