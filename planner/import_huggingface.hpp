// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <vector>

#include "planner/import.hpp"

/// Models of Hugging Face's transformers by their config.json.
namespace plimsoll::imports {

/// A model read from a config.json.
struct HubModel {
  std::string name;  ///< for the declaration: letters, digits and "_"
  std::string text;  ///< "model NAME = decoder { … }", with comments; "" after mistakes
};

/// Reads the object; what was not understood goes to \a into.
HubModel read_hub_config(const std::string& text, Imported& into);

}  // namespace plimsoll::imports
