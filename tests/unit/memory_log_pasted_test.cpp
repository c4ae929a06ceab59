// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Logs as people pasted them (tests/data/pasted_logs.txt, each with its source): what is read of
// each.

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "planner/memory_log.hpp"
#include "tests/catch.hpp"

using namespace plimsoll::logs;

namespace {

struct Pasted {
  std::string source, text;
  std::vector<std::string> expected;
};

std::vector<Pasted> pasted_logs() {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/data/pasted_logs.txt");
  std::vector<Pasted> all;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("@ "))
      all.push_back({line.substr(2), "", {}});
    else if (!all.empty() && line.starts_with("=> "))
      all.back().expected.push_back(line.substr(3));
    else if (!all.empty())
      all.back().text += line + "\n";
  }
  return all;
}

/// " name=12.34" in MiB, "" where there is none.
std::string told(const char* name, const std::optional<Seen>& size) {
  return size ? fmt::format(" {}={:.2f}", name, static_cast<double>(size->bytes) / (1 << 20)) : "";
}
std::string told(const char* name, const std::optional<std::int64_t>& n) {
  return n ? fmt::format(" {}={}", name, *n) : "";
}

std::vector<std::string> read_of(const MemoryLog& log) {
  std::vector<std::string> lines;
  for (const Failure& f : log.failures) {
    const char* where[] = {"", " construction", " forward", " backward", " update"};
    lines.push_back("failure" + told("line", f.line) + told("gpu", f.gpu) +
                    told("segment", f.segment) + told("capacity", f.capacity) +
                    told("free", f.free) + told("allowed", f.allowed) + told("in_use", f.in_use) +
                    told("allocated", f.allocated) + told("unallocated", f.unallocated) +
                    told("graphs", f.graphs) + told("others", f.others) +
                    (f.outside ? " outside" : "") + where[static_cast<int>(f.where)]);
  }
  for (const Counters& c : log.counters)
    lines.push_back(c.tool + told("line", c.line) + told("rank", c.rank) +
                    told("allocated", c.allocated) + told("most_allocated", c.most_allocated) +
                    told("reserved", c.reserved) + told("most_reserved", c.most_reserved));
  for (const Device& d : log.devices)
    lines.push_back("device" + told("line", d.line) + told("gpu", d.gpu) +
                    told("used", std::optional(d.used)) + told("total", d.total));
  if (log.server) {
    const Server& s = *log.server;
    lines.push_back(s.tool + told("line", s.line) + told("total", s.total) +
                    told("share", s.share) + told("weights", s.weights) +
                    told("activations", s.activations) + told("outside", s.outside) +
                    told("graphs", s.graphs) + told("cache", s.cache) +
                    told("needed", s.cache_needed) + told("left", s.left) +
                    told("free_at_start", s.free_at_start) +
                    (s.utilization ? fmt::format(" utilization={}", *s.utilization) : "") +
                    told("tokens", s.cache_tokens) + told("blocks", s.blocks) +
                    told("context", s.context) + (s.no_room ? " no_room" : ""));
  }
  return lines;
}

}  // namespace

TEST_CASE("pasted logs are read", "[logs]") {
  const std::vector<Pasted> all = pasted_logs();
  REQUIRE(all.size() >= 35);
  for (const Pasted& one : all) {
    INFO(one.source << "\n" << one.text);
    CHECK(read_of(read_memory_log(one.text)) == one.expected);
  }
}
