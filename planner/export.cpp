// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/export.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lang/diagnostics.hpp"
#include "lang/units.hpp"
#include "planner/export_shape.hpp"
#include "planner/report_bill.hpp"
#include "planner/report_parts.hpp"
#include "planner/report_plan.hpp"
#include "planner/stages.hpp"
#include "planner/time.hpp"

namespace plimsoll::exports {
namespace {

// A further tool is a row here and a file of its own.
const std::vector<Writer> kWriters = {
    {"megatron", "a launch script of Megatron-LM", false, "megatron", settle_megatron,
     write_megatron},
    {"nemo", "a YAML of overrides for NeMo's Megatron Bridge", false, "megatron", settle_megatron,
     write_nemo},
    {"torchtitan", "a TOML of torchtitan", false, "torchtitan", settle_torchtitan,
     write_torchtitan},
    {"deepspeed", "a JSON of DeepSpeed", false, "deepspeed", settle_deepspeed, write_deepspeed},
    {"accelerate", "a YAML of Accelerate", false, "huggingface deepspeed", settle_accelerate,
     write_accelerate},
    {"vllm", "vLLM's command", true, "vllm", settle_server, write_vllm},
    {"sglang", "SGLang's command", true, "sglang", settle_server, write_sglang},
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// What every export begins with: whose it is, what it needs, and where.
std::vector<std::string> head_of(const Writer& writer, const Problem& p, const Layout& l) {
  report::Style style;
  style.unicode = false;
  style.width = 96;
  const Bill billed = bill(p, l);
  const report::Heading heading = report::heading(p, l);
  std::string text = fmt::format("Job '{}' as {}, by 'plimsoll export --to {}'.\n", p.job->name,
                                 writer.what, writer.tool);
  text += report::layout_line(p, l, "exported") + "\n\n";
  text += report::answer(heading, billed) + "\n" + report::title(heading, billed, style);
  if (billed.stages.size() > 1) text += report::stage_table(heading, billed, style);
  const StageBill& worst = billed.stages[static_cast<std::size_t>(billed.peak_stage)];
  for (std::size_t i = 0; i < kCategoryCount; ++i)
    if (worst.categories[i] > 0)
      text += fmt::format("  {:<13} {:>10}\n", report::label(static_cast<Category>(i)),
                          human_bytes(worst.categories[i]));
  return lines_of(report::finish(style, text));
}

/// The bill is of the stack that the file names; the tool may be another one.
void check_framework(const Writer& writer, const Problem& p, Exported& out) {
  const std::string& own = p.job->framework;
  const std::string all(writer.frameworks);
  std::string known = own;
  // A framework of one's own is a copy of the prelude's under another name.
  if ((" " + all + " ").find(" " + known + " ") != std::string::npos) return;
  if (!p.module->sources()[p.framework->span.file].is_prelude()) return;
  out.warnings.push_back(
      fmt::format("the bill is of framework = {}, which keeps other things in memory than {} does; "
                  "see 'plimsoll bill FILE --against {}'",
                  own, writer.tool, all.substr(0, all.find(' '))));
}

}  // namespace

const std::vector<Writer>& writers() { return kWriters; }

const Writer* find_writer(std::string_view tool) {
  for (const Writer& w : kWriters)
    if (w.tool == tool) return &w;
  return nullptr;
}

Exported export_layout(const Writer& writer, const Problem& p, const Layout& layout) {
  Exported out;
  Subject subject{p, layout, {}};
  check_framework(writer, p, out);
  writer.settle(subject, out);
  if (!out.mistakes.empty()) return out;
  if (!bill(p, subject.layout).fits)
    out.warnings.push_back("this layout does not fit, by the bill");
  const std::string why = why_impossible(p, subject.layout);
  PLIMSOLL_ASSERT(why.empty());
  std::vector<std::string> head = head_of(writer, p, subject.layout);
  const std::string text = writer.write(subject, {}, out);  // for its warnings and mistakes
  (void)text;
  if (!out.mistakes.empty()) return out;
  const std::size_t said = out.warnings.size();
  if (said > 0) head.push_back("");
  for (const std::string& warning : out.warnings) head.push_back("Note: " + warning + ".");
  out.text = writer.write(subject, head, out);
  out.warnings.resize(said);
  return out;
}

std::string as_comment(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line.empty() ? "#\n" : "# " + line + "\n";
  return out;
}

void warn_changed(const Subject& s, const Layout& asked, const std::string& why, Exported& out) {
  std::string text = why;
  Diagnostics said;
  if (check_rates(*s.problem.module, *s.problem.job, said)) {
    Clock clock(s.problem);
    const auto before = static_cast<double>(clock.step(asked).nanoseconds);
    const auto after = static_cast<double>(clock.step(s.layout).nanoseconds);
    text += fmt::format("; a step takes {:.1f} % {}", 100 * std::abs(after / before - 1),
                        after < before ? "less" : "more");
  }
  const std::string before = human_bytes(bill(s.problem, asked).peak_bytes);
  const std::string after = human_bytes(bill(s.problem, s.layout).peak_bytes);
  text += before == after ? fmt::format(" and the peak stays {}", after)
                          : fmt::format(" and the peak is {}, not {}", after, before);
  out.warnings.push_back(std::move(text));
}

void check_switches(const Subject& s, std::string_view tool, std::string_view known,
                    Exported& out) {
  const std::string all = fmt::format(" {} ", known);
  for (const auto& [name, value] : s.problem.job->switches)
    if (all.find(" " + name + " ") == std::string::npos)
      out.warnings.push_back(fmt::format("{} = {} is what the bill counts; {} is not told of it",
                                         name, switch_of(s.problem, name), tool));
}

void check_common(const Subject& s, std::string_view tool, std::string_view known, Exported& out) {
  check_switches(s, tool, known, out);
  const Job& job = *s.problem.job;
  if (!job.adapt.kind.empty() && job.adapt.kind != "none")
    out.mistakes.push_back(
        {fmt::format("adapt = {} is set in the training script, not in what {} "
                     "is launched with",
                     job.adapt.kind, tool),
         "export the job without it, and configure the adapter where it is made"});
  if (!job.freeze.empty())
    out.mistakes.push_back(
        {fmt::format("'freeze' is set in the training script, not in what {} is launched with",
                     tool),
         "export the job without it, and freeze the weights where the model is made"});
  if (!job.beside.empty())
    out.warnings.push_back(
        fmt::format("'beside {}' is another process or model: {} is not told of it",
                    job.beside.front().name, tool));
  if (!job.items.empty())
    out.warnings.push_back(
        fmt::format("explicit items of the job are counted, and {} is not told "
                    "of them",
                    tool));
  if (job.imbalance != Rational(1))
    out.warnings.push_back(
        fmt::format("imbalance = {} is what the bill counts; {} does not hold "
                    "routers to it",
                    job.imbalance.str(), tool));
  if (s.problem.cluster->pools.size() > 1)
    out.mistakes.push_back({fmt::format("{} cannot be told of pools of unlike GPUs", tool),
                            "export a job whose cluster is of one kind"});
}

std::vector<std::vector<ChunkLayers>> chunk_layers(const Problem& p, const Layout& l) {
  std::vector<std::vector<ChunkLayers>> out;
  const std::vector<bool> empty = shape_of(*p.program).empty;
  const auto held = [&](std::int64_t first, std::int64_t count) {
    return std::count(empty.begin() + first, empty.begin() + first + count, false);
  };
  for (const auto& stage : pieces(*p.program, l)) {
    const std::int64_t recomputed =
        l.recompute == kFullRecompute ? l.recompute_layers[out.size()] : 0;
    out.emplace_back();
    for (const Piece& piece : stage) {
      const std::int64_t again = recomputed_of_chunk(recomputed, l.vpp, std::ssize(out.back()));
      out.back().push_back({held(piece.first, piece.count), held(piece.first, again)});
    }
  }
  return out;
}

}  // namespace plimsoll::exports
