// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "cli/answer.hpp"

/// The program for Python, as plimsoll/__init__.py calls it: a command line and a text in, an exit
/// code and two texts out. Other Python threads run meanwhile.
PYBIND11_MODULE(_plimsoll, module) {
  module.doc() = "The plimsoll program as a function; use the package plimsoll.";
  module.def(
      "answer",
      [](const std::vector<std::string>& arguments, const std::string& input) {
        const plimsoll::cli::Outcome outcome = plimsoll::cli::answer(arguments, input);
        return std::make_tuple(outcome.code, outcome.out, outcome.err);
      },
      pybind11::arg("arguments"), pybind11::arg("input"),
      pybind11::call_guard<pybind11::gil_scoped_release>());
}
