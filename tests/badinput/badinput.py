#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Mistakes that no readable file in tests/errors can hold: bytes that are no text, sizes that no person types, and
what surrounds a file (directories, closed pipes, full disks). Each must end with 1, say nothing on standard output, say
on standard error where and what with a line of help, and leave every file as it was.

usage: badinput.py PROGRAM [unittest arguments]
"""
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
MANY = 100_000
SECONDS = 20  # a hang is a failure; nothing here should take one


def job(body="", *, model="llama3_8b"):
    return ("cluster one { gpu = h100_sxm nodes = 1 gpus_per_node = 8 }\n"
            f"train tune {{ model = {model} cluster = one seq = 2Ki batch = 8 {body} }}\n")


class Mistake(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)

    def write(self, content, name="wrong.plan"):
        path = self.at / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path.name

    def run_program(self, *arguments, **how):
        how.setdefault("stdin", subprocess.DEVNULL) if "input" not in how else None
        return subprocess.run([PROGRAM, *arguments], cwd=self.at, capture_output=True, timeout=SECONDS, **how)

    def tree(self):
        return {path.name: path.read_bytes() if path.is_file() else None for path in self.at.iterdir()}

    def refused(self, *arguments, says="", shape=r"plimsoll: .+", **how):
        """Runs a command that must be refused; the first line has this shape and somewhere it says this."""
        before = self.tree()
        done = self.run_program(*arguments, **how)
        said = done.stderr.decode("utf-8")  # what is said is always text
        self.assertEqual(done.returncode, 1, said[:2000])
        self.assertEqual(done.stdout, b"")
        self.assertRegex(said.split("\n")[0], f"^{shape}$")
        self.assertRegex(said, r"(?m)^( *= )?help: \S")
        self.assertIn(says, said)
        self.assertEqual(self.tree(), before)
        return said

    def refused_at(self, content, place=r"\d+:\d+", says="", commands=("check",)):
        """A file whose first complaint stands at \\a place; the same must be said of standard input."""
        name = self.write(content)
        for command in commands:
            said = self.refused(command, name, says=says, shape=rf"wrong\.plan:{place}: error: .+")
        raw = (self.at / name).read_bytes()
        piped = self.refused(commands[-1], "-", says=says, shape=rf"<stdin>:{place}: error: .+", input=raw)
        self.assertEqual(piped.split("\n")[0].split(":", 1)[1], said.split("\n")[0].split(":", 1)[1])
        return said


class Bytes(Mistake):
    def test_nul(self):
        self.refused_at(b"gpu a {\n  memory = 8\0 GiB\n}\n", place=r"2:\d+")

    def test_only_nuls(self):
        self.refused_at(b"\0" * 1000, place="1:1")

    def test_broken_utf8_in_a_name(self):
        self.refused_at(b"gpu caf\xe9 { memory = 8 GiB }\n", place=r"1:\d+")

    def test_broken_utf8_in_a_comment(self):
        self.refused_at(b"# caf\xe9\ngpu a { memory = 8 GiB }\n", place=r"1:\d+")

    def test_broken_utf8_in_a_string(self):
        self.refused_at(b'use "caf\xc3"\n', place=r"1:\d+")

    def test_overlong_and_surrogate(self):
        for wrong in (b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff\xfe"):
            self.refused_at(b"gpu a { memory = " + wrong + b" }\n", place=r"1:\d+")

    def test_utf16(self):
        self.refused_at("gpu a { memory = 8 GiB }\n".encode("utf-16"), place="1:1")

    def test_a_binary(self):
        self.refused_at(pathlib.Path(PROGRAM).read_bytes()[:65536], place=r"\d+:\d+")

    def test_letters_that_are_not_ascii(self):
        self.refused_at("gpu größe { memory = 8 GiB }\n", place=r"1:\d+")


class Sizes(Mistake):
    def test_parentheses(self):
        self.refused_at("gpu a { memory = " + "(" * MANY + "1" + ")" * MANY + " }\n", place=r"1:\d+")

    def test_open_parentheses(self):
        self.refused_at("gpu a { memory = " + "(" * MANY, place=r"1:\d+")

    def test_brackets_and_braces(self):
        for opening, closing in ("[]", "{}"):
            self.refused_at(f"gpu a {{ memory = {opening * MANY}1{closing * MANY} }}\n", place=r"1:\d+")

    def test_prefix_operators(self):
        for operator in ("- ", "not "):
            self.refused_at(f"gpu a {{ memory = {operator * MANY}1 }}\n", place=r"1:\d+")

    def test_operators_that_bind_to_the_right(self):
        for operator in (" ^ ", " => "):
            self.refused_at(f"gpu a {{ memory = {operator.join(['2'] * MANY)} }}\n", place=r"1:\d+")

    def test_calls_and_indices(self):
        self.refused_at("gpu a { memory = " + "min(" * MANY + "1" + ")" * MANY + " }\n", place=r"1:\d+")
        self.refused_at("gpu a { memory = x" + "[0]" * MANY + " }\n", place=r"1:\d+")

    def test_nested_repeats(self):
        self.refused_at("model a { " + "repeat 2 { " * MANY + "}" * MANY + " }\n", place=r"1:\d+")

    def test_literal_of_400_digits(self):
        self.refused_at("gpu a { memory = " + "9" * 400 + " B }\n", place=r"1:18")

    def test_fraction_of_400_digits(self):
        self.refused_at("gpu a { memory = 0." + "3" * 400 + " B }\n", place=r"1:18")

    def test_huge_exponent(self):
        for literal in ("1e400", "1e999999999999999999999", "1e-400"):
            self.refused_at(f"gpu a {{ memory = {literal} B }}\n", place=r"1:18")

    def test_overflow_of_a_power(self):
        self.refused_at("gpu a { memory = 2 B * 2^200 }\n", place=r"1:\d+")
        self.refused_at("gpu a { memory = 2 B * 10^10^10 }\n", place=r"1:\d+")

    def test_overflow_of_a_unit(self):
        self.refused_at("gpu a { memory = " + "9" * 37 + " PiB }\n", place=r"1:\d+")

    def test_larger_than_a_file_may_be(self):
        self.write(b"#" * (17 << 20))
        self.refused("check", "wrong.plan", says="16 MiB")
        self.refused("check", "-", says="16 MiB", input=b"#" * (17 << 20))

    def test_endless(self):
        self.refused("check", "/dev/zero", says="16 MiB")

    def test_endless_in_use(self):
        self.refused_at('use "/dev/zero"\n', place="1:5")
        os.mkfifo(self.at / "pipe.plan")
        self.refused_at('use "pipe.plan"\n', place="1:5")
        with open(self.at / "large.plan", "wb") as large:
            large.truncate(17 << 20)
        self.refused_at('use "large.plan"\n', place="1:5")

    def test_long_name(self):
        self.refused_at("gpu a { memory = 8 GiB reserved = 1 GiB " + "n" * MANY + " = 1 }\n", place=r"1:\d+")

    def test_a_hundred_thousand_mistakes(self):
        said = self.refused_at("gpu a { memory = ) }\n" * MANY, place=r"1:18")
        self.assertLess(len(said), 100_000)


class Texts(Mistake):
    def test_empty_file(self):
        for content in ("", "\n\n", "# nothing yet\n", b"\xef\xbb\xbf"):
            self.refused_at(content, place=r"1:1")

    def test_unterminated_string(self):
        self.refused_at('gpu a { memory = 8 GiB }\nuse "b.plan\ngpu c { }\n', place=r"2:5")

    def test_unclosed_brace(self):
        self.refused_at("gpu a {\n  memory = 8 GiB\n", place=r"\d:\d+")

    def test_stray_words(self):
        self.refused_at("hello, world\n", place=r"1:\d+")

    def test_every_mistake_is_told_in_order(self):
        name = self.write("gpu a { memory = ) }\ngpu b { memory = 8 GiB }\ngpu c { memory = ] }\n")
        said = self.refused("check", name, shape=r"wrong\.plan:1:\d+: error: .+")
        places = [int(line) for line in re.findall(r"(?m)^wrong\.plan:(\d+):", said)]
        self.assertEqual(places, [1, 3])


class Surroundings(Mistake):
    COMMANDS = ("check", "fmt")

    def test_missing_file(self):
        for command in self.COMMANDS:
            self.refused(command, "nowhere.plan", says="nowhere.plan")

    def test_directory(self):
        (self.at / "folder").mkdir()
        for command in self.COMMANDS:
            self.refused(command, "folder", says="directory")

    def test_unreadable_file(self):
        self.write("gpu a { memory = 8 GiB }\n")
        (self.at / "wrong.plan").chmod(0)
        if os.geteuid() == 0:
            self.skipTest("root may read every file")
        before = stat.S_IMODE((self.at / "wrong.plan").stat().st_mode)
        done = self.run_program("check", "wrong.plan")
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"permission denied", done.stderr)
        self.assertEqual(stat.S_IMODE((self.at / "wrong.plan").stat().st_mode), before)

    def test_name_through_a_file(self):
        self.write("gpu a { memory = 8 GiB }\n")
        self.refused("check", "wrong.plan/inner.plan")

    def test_empty_name_and_long_name(self):
        self.refused("check", "")
        self.refused("check", "n" * 5000)

    def test_closed_standard_input(self):
        done = subprocess.run(["bash", "-c", 'exec "$0" check - <&-', PROGRAM], capture_output=True, timeout=SECONDS)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertRegex(done.stderr.decode(), r"^plimsoll: cannot read standard input")

    def test_command_lines(self):
        good = self.write("gpu a { memory = 8 GiB }\n")
        self.refused("chekc", good, says="did you mean 'check'?")
        self.refused("zzzzzz", good, says="unknown command")
        self.refused(good, says="plimsoll check wrong.plan")
        self.refused("check", says="needs a file")
        self.refused("check", good, good, says="one file")
        self.refused("check", "--jsn", good, says="did you mean '--json'?")
        self.refused("fmt", "--write", "-", says="standard input", input=b"")


class Values(Mistake):
    """A value that was forgotten is said to be, and not taken from what follows."""

    def test_forgotten_values(self):
        name = self.write(job())
        for command, option in (("bill", "--html"), ("bill", "--layout"), ("plan", "--job"), ("plan", "--on"), ("bill", "--against"), ("export", "--to"),
                                ("export", "--layout"), ("diagnose", "--layout"), ("import", "--from"), ("import", "--gpu"), ("import", "--set")):
            for given in ([option, "--json"], [option + "="], [option, ""]):
                self.refused(command, name, *given, says=option)

    def test_numbers_that_do_not_fit(self):
        name = self.write(job())
        for option, command in (("--routing", "bill"), ("--timeout", "plan"), ("--budget", "plan"), ("--top", "plan"), ("--limit", "verify"), ("--stage", "bill"), ("--rank", "timeline"), ("--gpus", "import")):
            for number in ("1e999", "1e-999", "9" * 60, "0x10", "nan", "-1", "1_0", " 1", "1 ", "٣"):
                if (option, number) != ("--routing", "1_0"):
                    self.refused(command, name, f"{option}={number}", says=option)


class Imports(Mistake):
    """What import and diagnose are given is written by other programs, by people, and by nobody."""

    CONFIG = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
              "intermediate_size": 8192, "vocab_size": 128256}

    def config(self, **change):
        return self.write(json.dumps({**self.CONFIG, **change}), "config.json")

    def test_no_config(self):
        for text in ("", "\0" * 100, "[]", "null", "1e999", "[" * MANY, '{"a":' * MANY, "{" + "// a comment"):
            self.refused("import", self.write(text, "config.json"))
            self.refused("import", self.write(text, "config.json"), "--from", "huggingface")

    def test_sizes_that_no_model_has(self):
        for wrong in (0, -1, 10**30, 2048.5, 1e300, "2048", True, [1]):
            self.refused("import", self.config(hidden_size=wrong), says="hidden_size")
        self.refused("import", self.config(head_dim=-5), says="head_dim")
        self.refused("import", self.config(hidden_size=10**18, num_hidden_layers=10**18))
        self.refused("import", self.config(num_hidden_layers=10**7))

    def test_what_is_said_of_a_name_is_fit_for_a_terminal(self):
        said = self.refused("import", self.config(model_type="x\x1b[31m\0"), says="x\\x1b[31m\\x00")
        self.assertNotIn("\x1b", said)
        self.assertLess(len(self.refused("import", self.config(model_type="a" * MANY))), 2000)

    def launch(self, text, **how):
        return self.refused("import", self.write(text, "launch.sh"), "--from", "megatron", "--gpu", "h100_sxm", "--gpus", "8", **how)

    def test_launch_scripts(self):
        for text in ("", "#!/bin/bash\n", "pretrain_gpt.py --num-layers", "pretrain_gpt.py --num-layers '80", "pretrain_gpt.py --num-layers -4",
                     "pretrain_gpt.py --num-layers 99999999999999999999", "pretrain_gpt.py --num-layers $(cat /etc/passwd)",
                     b"pretrain_gpt.py --num-layers 8\0 --hidden-size 64", "pretrain_gpt.py \\\n" * 5000):
            self.launch(text)

    def test_names_that_double_one_another(self):
        self.launch("A=x\n" + 'A="$A$A"\n' * 60 + "pretrain_gpt.py --num-layers $A")
        self.launch('A="$A$A"\n' * 60 + "pretrain_gpt.py --num-layers $A")

    def titan(self, text, **how):
        return self.refused("import", self.write(text, "job.toml"), "--from", "torchtitan", "--gpu", "h100_sxm", "--gpus", "8", **how)

    def test_tomls(self):
        for text in ("", "[model", "a = " + "[" * MANY, '[model]\nname = "llama3', b"[model]\nname = 1\0", '[model]\nname = "\\u0000"'):
            self.titan(text)
        self.titan('[model]\nname="llama3"\nflavor="8B"\n[training]\nseq_len=8192\nlocal_batch_size=1\n[parallelism]\n'
                   "tensor_parallel_degree=1000000000000\npipeline_parallel_degree=999999999999\n", says="degrees")

    def test_deepspeed(self):
        model = self.config()
        for text in ('{"zero_optimization": []}', '{"zero_optimization": {"stage": 99}, "train_batch_size": -1}'):
            self.refused("import", self.write(text, "ds.json"), model, "--from", "deepspeed", "--gpu", "h100_sxm", "--gpus", "8", "--set", "seq=8192")

    def test_depth_that_no_configuration_has(self):
        deep = "[" * MANY + "]" * MANY
        for config in (f'{{"zero_optimization": {deep}, "train_batch_size": 8}}', f'{{"model_type": "llama", "hidden_size": {deep}}}', deep,
                       f'{{"_plimsoll": {deep}, "train_batch_size": 8}}', '{"model_type": "llama", "a": ' + '{"a": ' * MANY + "1" + "}" * MANY + "}"):
            name = self.write(config, "deep.json")
            for kind in ("huggingface", "deepspeed"):
                self.refused("import", name, "--from", kind)
            self.refused("import", name)
        self.refused("import", self.write(f"[model]\nname = {deep}\n", "deep.toml"), "--from", "torchtitan")

    def test_shares_that_are_none(self):
        for share in ("2", "-1", "x", "1e999"):
            script = self.write("torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 "
                                f"--global-batch-size 64 --vocab-size 32000 --use-distributed-optimizer --optimizer-cpu-offload --optimizer-offload-fraction {share}\n", "run.sh")
            self.refused("import", script, "--from", "megatron", "--gpus", "8", says="--optimizer-offload-fraction")

    def test_logs(self):
        plan = self.write(job() + "layout l { tp = 1 }\n", "job.plan")
        for text in ("", b"\0" * 1000, b"\xff" * 1000, "out of memory " * MANY, "," * MANY + " MiB"):
            self.refused("diagnose", plan, self.write(text, "log"))
        tried = "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which {} is free."
        for sizes in (("9" * 25 + ".00 GiB", "1e400 GiB", "-5 GiB"), ("-2.00 GiB", "0 bytes", "0 bytes"), ("2.00 GiB", "8191.00 PiB", "1.00 GiB"),
                      ("2.00 GiB", "79.18 GiB", "1.00 GiB")):
            done = self.run_program("diagnose", plan, self.write(tried.format(*sizes) * 300, "log"))
            self.assertIn(done.returncode, (0, 1), done.stderr)


class Output(Mistake):
    def setUp(self):
        super().setUp()
        self.good = self.write("gpu a { memory = 8 GiB reserved = 1 GiB }\n", "good.plan")

    def to(self, redirection, command="fmt good.plan"):
        return subprocess.run(["bash", "-c", f'"$0" {command} {redirection}', PROGRAM], cwd=self.at,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)

    def test_closed_pipe_ends_quietly(self):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([PROGRAM, "fmt", self.good], cwd=self.at, stdin=subprocess.DEVNULL, stdout=writing,
                              stderr=subprocess.PIPE, timeout=SECONDS)
        os.close(writing)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_full_disk(self):
        for command in ("fmt good.plan", "--help", "--version"):
            done = self.to(">/dev/full", command)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"cannot write to standard output", done.stderr)

    def test_closed_standard_output(self):
        done = self.to(">&-")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write to standard output", done.stderr)

    def test_fmt_write_of_a_broken_file_changes_nothing(self):
        name = self.write("gpu a { memory = ) }\n")
        self.refused("fmt", "--write", name, shape=r"wrong\.plan:1:18: error: .+")

    def test_fmt_write_keeps_mode_and_link(self):
        (self.at / self.good).chmod(0o640)
        (self.at / "link.plan").symlink_to(self.good)
        done = self.run_program("fmt", "--write", "link.plan")
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stderr)
        self.assertTrue((self.at / "link.plan").is_symlink())
        self.assertEqual(stat.S_IMODE((self.at / self.good).stat().st_mode), 0o640)
        self.assertEqual(self.run_program("fmt", "--check", self.good).returncode, 0)
        self.assertEqual(sorted(self.tree()), ["good.plan", "link.plan"])

    def test_fmt_check_says_what_to_do(self):
        name = self.write("gpu   a{memory=8 GiB}\n")
        self.refused("fmt", "--check", name, says="fmt --write wrong.plan")


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
