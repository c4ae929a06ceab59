#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""An interrupted plan (Ctrl-C) prints the best so far, marked so, and ends with 130; a budget and a deadline are said.

usage: interrupt_test.py PROGRAM
"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
SECONDS = 60  # to end after it was asked to

# Minutes of search: a million GPUs, and an objective that no bound follows from.
ENDLESS = """cluster pod { gpu = h100_sxm  nodes = 125000  gpus_per_node = 8 }
train run {
  model = llama3_405b  cluster = pod  seq = 8Ki  batch = 1000000
  minimize bytes("activations") + step_time / 1 s * 1 B
}
"""


class Ended(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "endless.plan"
        self.file.write_text(ENDLESS, encoding="utf-8")

    def interrupted(self, *options):
        """(exit code, stdout, stderr) of a search that gets SIGINT after a while."""
        search = subprocess.Popen([PROGRAM, "plan", str(self.file), *options], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")
        time.sleep(2)  # a start; an earlier signal would end the program as any
        self.assertIsNone(search.poll(), "the search ended before it could be interrupted")
        search.send_signal(signal.SIGINT)
        out, err = search.communicate(timeout=SECONDS)
        return search.returncode, out, err

    def test_text(self):
        code, out, err = self.interrupted()
        self.assertEqual(code, 130, err)
        self.assertRegex(out, r"\A(best so far: |nothing found that fits)")
        found = out.startswith("best so far: ")
        self.assertIn(f"plimsoll: interrupted; {'this is the best' if found else 'nothing was found'} so far\n", err)
        self.assertIn("Stopped before the end", out)

    def test_json(self):
        code, out, err = self.interrupted("--json")
        self.assertEqual(code, 130, err)
        answer = json.loads(out)
        self.assertIn(answer["status"], ("feasible", "unknown"))
        self.assertEqual(answer["best"] is None, answer["status"] == "unknown")

    def test_deadline(self):
        done = subprocess.run([PROGRAM, "plan", str(self.file), "--timeout", "1s"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, encoding="utf-8", timeout=SECONDS)
        self.assertIn(done.returncode, (0, 2), done.stderr)
        said = ("this is the best so far, and another run may find another" if done.returncode == 0 else
                "nothing was found so far, and another run may find something")
        self.assertIn(f"plimsoll: the time is over; {said}\n", done.stderr)
        self.assertIn("Stopped before the end", done.stdout)

    def test_budget(self):
        said = [subprocess.run([PROGRAM, "plan", str(self.file), "--budget", "50"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, encoding="utf-8", timeout=SECONDS).stdout for _ in range(2)]
        self.assertEqual(said[0], said[1])
        self.assertIn("The budget ended the search", said[0])


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
