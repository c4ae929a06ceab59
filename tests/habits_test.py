#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""What people expect of a program in a terminal: completions, a manual page, colours, progress, doctor, JSON by its schemas.

usage: habits_test.py PROGRAM
"""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import json_outputs

PROGRAM = ""
ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "04_llama3_70b_64xh100.plan"
# Minutes of search: a million GPUs, and an objective that no bound follows from.
ENDLESS = """cluster pod { gpu = h100_sxm  nodes = 125000  gpus_per_node = 8 }
train run {
  model = llama3_405b  cluster = pod  seq = 8Ki  batch = 1000000
  minimize bytes("activations") + step_time / 1 s * 1 B
}
"""
# An NVML with one GPU, for machines without: enough of its interface for doctor.
FAKE_NVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned n) { strncpy(text, "999.01", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 13020; return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) { *device = (void*)(long)(i + 1); return 0; }
int nvmlDeviceGetName(void* device, char* text, unsigned n) { strncpy(text, device == (void*)1 ? "NVIDIA H200" : "NVIDIA Other 9", n); return 0; }
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* m) { m[0] = 150754820096ull; m[2] = 1073741824ull; m[1] = m[0] - m[2]; return 0; }
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) { *major = 9; *minor = 0; return 0; }
"""

# Seconds of steps: all ranks of a large job, one after the other.
LONG_STEPS = """cluster pod { gpu = h100_sxm  nodes = 128  gpus_per_node = 8 }
train run { model = llama3_405b  cluster = pod  seq = 8Ki  batch = 4096 }
layout l { tp = 8  pp = 16  zero = 1  mbs = 1 }
"""


def run(*arguments, env=None, cwd=None):
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, env=env, cwd=cwd)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def commands():
    """The commands and their options, as --help tells them."""
    found = {}
    for name in re.findall(r"^  ([a-z]+) ", run("--help")[1].partition("ubcommands:")[2], re.M):
        found[name] = sorted(set(re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", run(name, "--help")[1], re.M)) - {"--help"})
    return found


def on_terminal(words, seconds, env=None, stop=None):
    """Everything that a program writes to a terminal; ended after a while, or when stop(text)."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8"})
        os.environ.pop("NO_COLOR", None)
        os.environ.update(env or {})
        os.execv(words[0], words)
    text, end = b"", time.time() + seconds
    while time.time() < end and not (stop and stop(text.decode("utf-8", "replace"))):
        if not select.select([master], [], [], 0.2)[0]:
            continue
        try:
            got = os.read(master, 65536)
        except OSError:
            break
        if not got:
            break
        text += got
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
    os.close(master)
    return text.decode("utf-8", "replace")


class Pages(unittest.TestCase):
    def test_bare_program_names_every_command(self):
        code, out, err = run()
        self.assertEqual((code, err), (0, ""))
        for command in commands():
            self.assertRegex(out, rf"plimsoll {command}\b")
        job = re.search(r"^  cluster one .*\n  train tune .*$", out, re.M).group(0)
        with tempfile.TemporaryDirectory() as folder:
            first = pathlib.Path(folder, "first.plan")
            first.write_text(job)
            self.assertEqual(run("plan", first)[0], 0)  # what it offers to try works

    def test_manual_page_is_the_one_in_docs(self):
        self.assertEqual((ROOT / "docs" / "plimsoll.1").read_text(), run("man")[1], "plimsoll man > docs/plimsoll.1")

    def test_manual_page_has_every_option(self):
        page = run("man")[1].replace("\\-", "-")
        for command, options in commands().items():
            part = page.partition(f'.SS "plimsoll {command}')[2]
            self.assertTrue(part, command)
            part = re.split(r"^\.S[SH] ", part, flags=re.M)[0]
            for option in options:
                self.assertIn(f".B {option}", part, command)

    def test_manual_page_is_good_roff(self):
        for words in (["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-T", "utf8", "-ww", "-z"]):
            if shutil.which(words[0]):
                done = subprocess.run([*words, str(ROOT / "docs" / "plimsoll.1")], capture_output=True, text=True)
                said = [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line]  # it has none, to stay the same
                self.assertEqual(said, [], words[0])

    def test_mistakes(self):
        self.assertEqual(run("completions")[0], 1)
        code, out, err = run("completions", "tcsh")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("bash or zsh or fish", err)


class Completions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        (pathlib.Path(cls.folder.name) / "plimsoll").symlink_to(PROGRAM)
        shutil.copy(EXAMPLE, pathlib.Path(cls.folder.name) / "job.plan")
        (pathlib.Path(cls.folder.name) / "notes.txt").write_text("")
        cls.env = dict(os.environ, PATH=f"{cls.folder.name}:{os.environ['PATH']}", HOME=cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def bash(self, *words):
        script = 'source <(plimsoll completions bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _plimsoll; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, env=self.env, cwd=self.folder.name)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def fish(self, *words):
        done = subprocess.run(["fish", "-c", f"plimsoll completions fish | source; complete -C '{' '.join(words)}'"], capture_output=True, text=True, env=self.env, cwd=self.folder.name)
        self.assertEqual(done.stderr, "")
        return [line.partition("\t")[0] for line in done.stdout.splitlines()]

    def check(self, complete):
        self.assertEqual(sorted(set(complete("plimsoll", "ti")) - {""}), ["timeline"])
        self.assertLessEqual(set(commands()), set(complete("plimsoll", "")))
        for command, options in commands().items():
            self.assertLessEqual(set(options), set(complete("plimsoll", command, "--")), command)
        self.assertIn("job.plan", complete("plimsoll", "plan", ""))
        self.assertNotIn("notes.txt", complete("plimsoll", "plan", ""))
        self.assertEqual(complete("plimsoll", "bill", "job.plan", "--layout", ""), ["hand"])
        self.assertEqual(complete("plimsoll", "bill", "job.plan", "--job", ""), ["pretrain"])
        self.assertIn("h200", complete("plimsoll", "plan", "job.plan", "--on", "h2"))
        self.assertEqual(complete("plimsoll", "verify", "--device", "ho"), ["host"])
        self.assertEqual(set(complete("plimsoll", "completions", "")), {"bash", "zsh", "fish"})
        self.assertIn("textbook", complete("plimsoll", "bill", "job.plan", "--against", "t"))

    def test_bash(self):
        self.check(self.bash)

    @unittest.skipUnless(shutil.which("fish"), "no fish on this machine")
    def test_fish(self):
        self.check(self.fish)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh on this machine")
    def test_zsh(self):
        start = pathlib.Path(self.folder.name) / ".zshrc"
        start.write_text(f"PATH={self.folder.name}:$PATH; cd {self.folder.name}; PS1='ready> '; autoload -U compinit; compinit -u -D; source <(plimsoll completions zsh)\n")
        for typed, wanted in (("plimsoll timel\t", "timeline"), ("plimsoll bill job.plan --layout \t", "--layout hand"), ("plimsoll plan j\t", "job.plan"),
                              ("plimsoll verify --dev\t", "--device"), ("plimsoll completions f\t", "fish")):
            pid, master = pty.fork()
            if pid == 0:
                os.environ.update({"HOME": self.folder.name, "ZDOTDIR": self.folder.name, "TERM": "dumb"})
                os.execvp("zsh", ["zsh", "-i"])
            text, sent, end = "", False, time.time() + 60
            while time.time() < end and wanted not in text:
                if select.select([master], [], [], 0.2)[0]:
                    text += os.read(master, 65536).decode("utf-8", "replace")
                elif not sent and "ready> " in text:
                    os.write(master, typed.encode())
                    sent = True
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(master)
            self.assertIn(wanted, text, typed)


class Terminal(unittest.TestCase):
    def test_colour_only_on_a_terminal(self):
        words = [PROGRAM, "bill", str(EXAMPLE), "--layout", "hand"]
        self.assertIn("\x1b[", on_terminal(words, 60))
        self.assertNotIn("\x1b[", on_terminal(words, 60, {"NO_COLOR": "1"}))
        self.assertNotIn("\x1b[", on_terminal(words, 60, {"TERM": "dumb"}))
        self.assertIn("\x1b[", on_terminal(words, 60, {"NO_COLOR": ""}))  # no-color.org: set and not empty
        self.assertNotIn("\x1b[", run(*words[1:])[1])
        self.assertNotIn("\x1b[", on_terminal(words + ["--json"], 60))

    def test_progress_only_on_a_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            endless = pathlib.Path(folder, "endless.plan")
            endless.write_text(ENDLESS)
            text = on_terminal([PROGRAM, "plan", str(endless)], 90, stop=lambda text: "searching, 3 s" in text)
            self.assertRegex(text, r"plimsoll: searching, 3 s; Ctrl-C ends it with the best so far")
            _, _, err = run("plan", endless, "--timeout", "4s")
            self.assertNotIn("searching", err)
            self.assertNotIn("searching", on_terminal([PROGRAM, "plan", str(endless), "--timeout", "4s"], 60, {"TERM": "dumb"}))
            long = pathlib.Path(folder, "long.plan")
            long.write_text(LONG_STEPS)
            text = on_terminal([PROGRAM, "verify", str(long), "--ranks", "all"], 120, stop=lambda text: "running the steps, 2 s" in text)
            self.assertIn("plimsoll: running the steps, 2 s", text)
        # Short work says nothing.
        self.assertNotIn("\x1b[K", on_terminal([PROGRAM, "bill", str(EXAMPLE), "--layout", "hand"], 60))


class Answers(unittest.TestCase):
    def schema(self, name):
        return json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text())

    def hold(self, answer, name):
        schema = self.schema(name)
        self.assertEqual(json_outputs.violations(answer, schema, schema), [])

    def test_every_json_has_a_schema(self):
        for command, options in commands().items():
            if "--json" in options:
                self.assertTrue((ROOT / "docs" / "schemas" / f"{command}.schema.json").is_file(), command)

    def test_check(self):
        for plan in sorted((ROOT / "examples").glob("*.plan")):
            self.hold(json.loads(run("check", plan, "--json")[1]), "check")

    def test_against_is_two_bills(self):
        both = json.loads(run("bill", EXAMPLE, "--layout", "hand", "--against", "textbook", "--json")[1])
        self.assertEqual((both["schema"], sorted(both)), ("plimsoll.against/1", ["against", "bill", "schema"]))
        for name in ("bill", "against"):
            self.hold(both[name], "bill")

    def test_doctor(self):
        code, out, err = run("doctor")
        self.assertEqual((code, err), (0, ""))
        answer = json.loads(run("doctor", "--json")[1])
        self.hold(answer, "doctor")
        for said in (answer["version"], answer["z3"]["running"], answer["build"]["compiler"]):
            self.assertIn(said, out)
        self.assertEqual(answer["cpus"], os.cpu_count())
        self.assertEqual(answer["device_cuda"], answer["why_not"] is None)

    @unittest.skipUnless(shutil.which("cc"), "no C compiler on this machine")
    def test_doctor_sees_gpus(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "nvml.c")
            source.write_text(FAKE_NVML)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", f"{folder}/libnvidia-ml.so.1", source], check=True)
            env = dict(os.environ, LD_LIBRARY_PATH=folder)
            answer = json.loads(run("doctor", "--json", env=env)[1])
            self.hold(answer, "doctor")
            self.assertEqual((answer["driver"], answer["driver_cuda"]), ("999.01", "13.2"))
            self.assertEqual(answer["gpus"], [{"name": "NVIDIA H200", "known_as": "h200", "memory_bytes": 150754820096, "used_bytes": 1073741824, "sm": 90},
                                              {"name": "NVIDIA Other 9", "known_as": None, "memory_bytes": 150754820096, "used_bytes": 1073741824, "sm": 90}])
            self.assertIn("NVIDIA H200, 140.4 GiB, 1.00 GiB in use, sm 90; gpu = h200", run("doctor", env=env)[1])

    def test_known_gpus_are_in_the_prelude(self):
        source = (ROOT / "runtime" / "machine.cpp").read_text()
        names = {name for name in re.findall(r'\{"[^"]*", "[^"]*", "([a-z0-9_]*)"\}', source) if name}
        prelude = (ROOT / "lang" / "prelude" / "gpus.plan").read_text()
        self.assertGreater(len(names), 8)
        for name in names:
            self.assertRegex(prelude, rf"(?m)^gpu {name}\b")


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
