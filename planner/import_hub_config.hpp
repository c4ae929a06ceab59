// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "planner/import.hpp"

/// The fields of a config.json, and the families that are known by them. Seen by import_hub*.cpp
/// only: the JSON library's header is large.
namespace plimsoll::imports {

/// The object of a decoder, and which of its fields were read.
class HubConfig {
 public:
  HubConfig(const nlohmann::json& json, Imported& into) : json_(json), into_(into) {}

  bool has(const std::string& key) const {
    used_.insert(key);
    const auto at = json_.find(key);
    return at != json_.end() && !at->is_null();
  }
  std::int64_t number(const std::string& key, std::int64_t otherwise) const {
    if (!has(key)) return otherwise;
    const nlohmann::json& v = json_[key];
    if (v.is_number_integer()) return v.get<std::int64_t>();
    if (v.is_number_float() && std::abs(v.get<double>()) < 9e18 &&
        v.get<double>() == static_cast<double>(v.get<std::int64_t>()))
      return v.get<std::int64_t>();
    into_.mistakes.push_back(
        {fmt::format("'{}' is to be a whole number, found {}", key, v.dump()), "correct the file"});
    return otherwise;
  }
  /// Of the first of several spellings.
  std::int64_t needed(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (has(key)) {
        const std::int64_t n = number(key, 0);
        if (n <= 0 && into_.mistakes.empty())
          into_.mistakes.push_back(
              {fmt::format("'{}' is {}, which no model has", key, n), "correct the file"});
        return n;
      }
    into_.mistakes.push_back({fmt::format("there is no '{}'", *keys.begin()),
                              "give the config.json of the model itself, with its sizes"});
    return 1;
  }
  std::int64_t either(std::initializer_list<const char*> keys, std::int64_t otherwise) const {
    for (const char* key : keys)
      if (has(key)) return number(key, otherwise);
    return otherwise;
  }
  bool flag(const std::string& key, bool otherwise) const {
    return has(key) && json_[key].is_boolean() ? json_[key].get<bool>() : otherwise;
  }
  std::string word(const std::string& key, const std::string& otherwise = "") const {
    return has(key) && json_[key].is_string() ? json_[key].get<std::string>() : otherwise;
  }
  /// "16" or "16.0" of a number that may be a fraction.
  std::string quantity(const std::string& key) const {
    const nlohmann::json& v = json_[key];
    const double d = v.is_number() ? v.get<double>() : 0;
    return fmt::format("{:g}", d);
  }
  const nlohmann::json& at(const std::string& key) const {
    used_.insert(key);
    return json_[key];
  }
  std::vector<std::string> unread() const {
    std::vector<std::string> out;
    for (const auto& [key, value] : json_.items())
      if (!used_.contains(key)) out.push_back(key);
    return out;
  }

 private:
  const nlohmann::json& json_;
  Imported& into_;
  mutable std::set<std::string> used_;
};

/// The body of the declaration, in the order written.
class HubBody {
 public:
  void add(std::string_view field, std::int64_t n) {
    text_ += fmt::format("  {} = {}\n", field, n);
  }
  void add(std::string_view field, std::string_view word) {
    text_ += fmt::format("  {} = {}\n", field, word);
  }
  void on(std::string_view field, bool yes) {
    if (yes) text_ += fmt::format("  {} = true\n", field);
  }
  void note(std::string_view line) { comments_ += fmt::format("# {}\n", line); }
  const std::string& text() const { return text_; }
  const std::string& comments() const { return comments_; }

 private:
  std::string text_, comments_;
};

/// Reads a model of \a type into \a body; false where the type is not known.
bool read_hub_family(const std::string& type, const HubConfig&, HubBody& body, Imported& into);
/// The types that are known, for "did you mean".
std::vector<std::string> hub_families();

}  // namespace plimsoll::imports
