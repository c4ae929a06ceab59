#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""include_edges.py must catch what it is there to catch: one small tree a mistake, and one that is right."""
import pathlib
import tempfile
import unittest

import include_edges


def problems_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return include_edges.check(root)[1]


class IncludeEdges(unittest.TestCase):
    def test_downward_edges_are_right(self):
        self.assertEqual(problems_of({
            "lang/a.hpp": "#include <vector>\n",
            "planner/b.cpp": '#include "lang/a.hpp"\n',
            "cli/c.cpp": '#include "lang/a.hpp"\n  #  include "cli/d.hpp"\n',
            "cli/d.hpp": "",
        }), [])

    def test_upward_edge(self):
        found = problems_of({"lang/a.cpp": '#include "planner/b.hpp"\n', "planner/b.hpp": ""})
        self.assertEqual(found, ['lang/a.cpp: "planner/b.hpp" points from lang/ up to planner/'])

    def test_include_not_rooted_at_the_repository(self):
        found = problems_of({"lang/a.cpp": '#include "a.hpp"\n', "lang/a.hpp": ""})
        self.assertEqual(found, ['lang/a.cpp: "a.hpp" is not rooted at the repository'])

    def test_library_behind_its_door(self):
        for header in ("boost/spirit/home/x3.hpp", "z3++.h", "cuda_runtime.h", "CLI/CLI.hpp", "nlohmann/json.hpp"):
            found = problems_of({"lang/units.cpp": f"#include <{header}>\n"})
            self.assertEqual(len(found), 1, header)
            self.assertIn("belongs to", found[0])

    def test_owners_are_allowed(self):
        self.assertEqual(problems_of({
            "lang/grammar.cpp": "#include <boost/spirit/home/x3.hpp>\n",
            "planner/smt.cpp": "#include <z3++.h>\n",
            "cli/arguments.cpp": "#include <CLI/CLI.hpp>\n",
        }), [])

    def test_more_grammar_files_than_three(self):
        files = {f"lang/grammar_{i}.cpp": "#include <boost/spirit/home/x3.hpp>\n" for i in range(4)}
        self.assertEqual(len(problems_of(files)), 1)


if __name__ == "__main__":
    unittest.main()
