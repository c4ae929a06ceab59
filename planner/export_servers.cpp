// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// vLLM's command (vllm/engine/arg_utils.py) and SGLang's (sglang/srt/server_args.py of 0.5.23).

#include <fmt/format.h>

#include <algorithm>

#include "planner/export.hpp"

namespace plimsoll::exports {
namespace {

bool has_experts(const Problem& p) {
  return std::any_of(p.program->ops.begin(), p.program->ops.end(),
                     [](const Op& op) { return op.kind == OpKind::experts; });
}

/// Flags, one a line, behind a command.
class Command {
 public:
  explicit Command(std::string start) : text_(std::move(start)) {}
  void add(std::string_view flag, const std::string& value = "") {
    text_ += fmt::format(" \\\n  --{}{}{}", flag, value.empty() ? "" : " ", value);
  }
  void add(std::string_view flag, std::int64_t value) { add(flag, std::to_string(value)); }
  std::string take() { return text_ + " \\\n  \"$@\"\n"; }

 private:
  std::string text_;
};

std::string script(const Subject& s, const std::vector<std::string>& head) {
  std::string text = "#!/usr/bin/env bash\n" + as_comment(head) + "set -eu\n\n";
  if (s.layout.nodes > 1)
    text +=
        "# Several nodes: start Ray (vLLM) or give --node-rank and --dist-init-addr (SGLang).\n";
  return text;
}

std::string model_path(const Subject& s) {
  return fmt::format("\"${{MODEL:?a folder, or a name on Hugging Face, of {}}}\"",
                     s.problem.job->model);
}

std::string share(const Rational& r) { return fmt::format("{:.4g}", r.to_double()); }

}  // namespace

void settle_server(Subject& s, Exported& out) {
  const Job& job = *s.problem.job;
  const Layout& l = s.layout;
  check_switches(s, "the server", "max_sequences attention", out);
  for (const std::string& bits : {job.weights, job.kv})
    if (bits != "bf16" && bits != "fp8" && bits != "int8" && bits != "int4")
      out.warnings.push_back(fmt::format(
          "{} is a storage format of the file's own: the checkpoint must have it", bits));
  if (job.weights == "int8" || job.weights == "int4")
    out.warnings.push_back(fmt::format(
        "weights = {}: MODEL must be a checkpoint in that format; no flag makes one", job.weights));
  if (job.kv != "bf16" && job.kv != "fp8")
    out.mistakes.push_back(
        {fmt::format("neither server keeps its cache in {}", job.kv), "set kv = fp8 or bf16"});
  if (!job.weights_on.empty())
    out.warnings.push_back(
        "weights_on is what the checkpoint or the quantization method does; no "
        "flag limits it");
  if (l.cp > 1) out.mistakes.push_back({"servers do not divide a sequence (cp)", "set cp = 1"});
  if (job.imbalance != Rational(1))
    out.warnings.push_back(
        fmt::format("imbalance = {} is what the bill counts, no flag", job.imbalance.str()));
  if (has_experts(s.problem) && l.ep > 1 && l.ep != l.tp * l.dp && l.ep != l.tp)
    out.mistakes.push_back(
        {fmt::format("servers divide experts over all of tp = {} or not at all, not over ep = {}",
                     l.tp, l.ep),
         "set ep = tp, or leave it out"});
}

std::string write_vllm(const Subject& s, const std::vector<std::string>& head, Exported&) {
  const Layout& l = s.layout;
  const Job& job = *s.problem.job;
  const Serving& serving = s.problem.inventory.serving;
  Command c(script(s, head) + "exec vllm serve " + model_path(s));
  c.add("tensor-parallel-size", l.tp);
  c.add("pipeline-parallel-size", l.pp);
  c.add("data-parallel-size", l.dp);
  if (has_experts(s.problem) && l.ep > 1) c.add("enable-expert-parallel");
  c.add("max-model-len", job.context.to_int64());
  c.add("gpu-memory-utilization", share(serving.utilization));
  c.add("max-num-batched-tokens", serving.batch_tokens);
  if (serving.max_sequences > 0) c.add("max-num-seqs", serving.max_sequences);
  c.add("block-size", job.kv_block);
  c.add("dtype", "bfloat16");
  c.add("kv-cache-dtype", job.kv == "fp8" ? "fp8" : "auto");
  if (job.weights == "fp8") c.add("quantization", "fp8");
  return c.take();
}

std::string write_sglang(const Subject& s, const std::vector<std::string>& head, Exported&) {
  const Layout& l = s.layout;
  const Job& job = *s.problem.job;
  const Serving& serving = s.problem.inventory.serving;
  Command c(script(s, head) + "exec python3 -m sglang.launch_server --model-path " + model_path(s));
  c.add("tp-size", l.tp);
  c.add("pp-size", l.pp);
  c.add("dp-size", l.dp);
  if (l.nodes > 1) c.add("nnodes", l.nodes);
  if (has_experts(s.problem) && l.ep > 1) c.add("ep-size", l.ep);
  c.add("context-length", job.context.to_int64());
  c.add("mem-fraction-static", share(serving.utilization));
  c.add("chunked-prefill-size", serving.batch_tokens);
  if (serving.max_sequences > 0) c.add("max-running-requests", serving.max_sequences);
  c.add("page-size", job.kv_block);
  c.add("dtype", "bfloat16");
  c.add("kv-cache-dtype", job.kv == "fp8" ? "fp8_e4m3" : "auto");
  if (job.weights == "fp8") c.add("quantization", "fp8");
  return c.take();
}

}  // namespace plimsoll::exports
