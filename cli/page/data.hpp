// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/page/page.hpp"

/// The numbers of a page as compact JSON: `plimsoll.page/1`, read by data.js and nothing else.
namespace plimsoll::cli {

using Json = nlohmann::ordered_json;

/// Texts that repeat are written once.
class Strings {
 public:
  std::size_t add(const std::string& text);
  Json take() { return std::move(all_); }

 private:
  std::map<std::string, std::size_t> index_;
  Json all_ = Json::array();
};

Json page_bill(const Page&, Strings&);
Json page_plan(const Page&);
Json page_timeline(const Page&, Strings&);
Json page_workshop(const Workshop&);

}  // namespace plimsoll::cli
