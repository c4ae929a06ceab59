#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""The harness must fail where it should: run_golden.py and run_docs.py against a program that says what it is told."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# Says its file's lines that begin with OUT or ERR, and ends with the number after EXIT.
PROGRAM = """#!/usr/bin/env python3
import sys
code = 0
for line in open(sys.argv[-1]):
    word, _, rest = line.partition(" ")
    if word == "OUT": print(rest, end="")
    if word == "ERR": print(rest, end="", file=sys.stderr)
    if word == "EXIT": code = int(rest)
sys.exit(code)
"""


class Harness(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.program = self.root / "plimsoll"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def golden(self, folder, *more):
        return subprocess.run([sys.executable, HERE / "run_golden.py", "--plimsoll", self.program, *more, self.root / folder],
                              capture_output=True, text=True)

    def docs(self, *more):
        return subprocess.run([sys.executable, HERE / "run_docs.py", "--plimsoll", self.program, *more, self.root,
                               self.root / "a.md"], capture_output=True, text=True)

    def test_expected_output(self):
        self.write("golden/a.plan", "#$ plimsoll FILE\nOUT one\n")
        self.assertEqual(self.golden("golden").returncode, 1, "nothing blessed yet")
        self.assertEqual(self.golden("golden", "--update").returncode, 0)
        self.assertEqual((self.root / "golden/a.expected").read_text(), "$ plimsoll FILE\none\n")
        self.assertEqual(self.golden("golden").returncode, 0)
        self.write("golden/a.plan", "#$ plimsoll FILE\nOUT two\n")
        failed = self.golden("golden")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("-one", failed.stdout)
        self.assertIn("+two", failed.stdout)

    def test_no_update_blesses_a_wrong_exit(self):
        for folder, code in (("golden", 1), ("golden", 3), ("errors", 0), ("errors", 2), ("examples", 1)):
            self.write(f"{folder}/a.plan", f"#$ plimsoll FILE\nERR x\nEXIT {code}\n")
            self.assertEqual(self.golden(folder, "--update").returncode, 1, (folder, code))

    def test_no_fit_is_2(self):
        self.write("golden/no_fit.a.plan", "#$ plimsoll FILE\nOUT no\nEXIT 2\n")
        self.assertEqual(self.golden("golden", "--update").returncode, 0)
        self.write("golden/no_fit.a.plan", "#$ plimsoll FILE\nOUT no\n")
        self.assertEqual(self.golden("golden", "--update").returncode, 1)

    def test_output_beside_an_error(self):
        self.write("errors/a.plan", "#$ plimsoll FILE\nOUT half a report\nERR x\nEXIT 1\n")
        self.assertEqual(self.golden("errors", "--update").returncode, 1)

    def test_inline(self):
        said = "ERR a.plan:4:1: error: wrong\nERR   = help: mend it\nEXIT 1\n"
        self.write("errors/a.plan", said + "x  #! error: wrong\n")
        self.assertEqual(self.golden("errors").returncode, 0)
        for other in ("x  #! error: other\n", "x  #! warning: wrong\n", "\nx  #! error: wrong\n", "#! error: wrong\n#! error: more\n"):
            self.write("errors/a.plan", said + other)
            self.assertEqual(self.golden("errors").returncode, 1, other)
        self.write("errors/a.plan", said.replace("help", "note") + "x  #! error: wrong\n")
        self.assertEqual(self.golden("errors").returncode, 1, "without help")

    def test_no_files_is_a_failure(self):
        (self.root / "golden").mkdir()
        self.assertEqual(self.golden("golden").returncode, 1)

    def test_docs(self):
        self.write("a.txt", "OUT one\nOUT two\n")
        self.write("a.md", "```console\n$ plimsoll a.txt\none\ntwo\n```\n```console\n$ ./dev run a.txt\n...\ntwo\n```\n")
        self.assertEqual(self.docs().returncode, 0)
        self.write("a.md", "```console\n$ plimsoll a.txt\none\n```\n")
        self.assertEqual(self.docs().returncode, 1)
        self.assertEqual(self.docs("--update").returncode, 0)
        self.assertIn("one\ntwo\n```", (self.root / "a.md").read_text())


if __name__ == "__main__":
    unittest.main()
