// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/problem.hpp"
#include "cli/progress.hpp"
#include "lang/module.hpp"
#include "planner/report_bill.hpp"
#include "runtime/cuda/cuda_verify.hpp"
#include "runtime/cuda/gpu_error.hpp"
#include "runtime/cuda/gpus.hpp"
#include "runtime/host/host_verify.hpp"
#include "runtime/report_verify.hpp"
#include "runtime/wire.hpp"

namespace plimsoll::cli {

namespace {

/// Runs the ranks on the device that was asked for, or says why that cannot be.
std::variant<runtime::Verification, Outcome> run_on_device(const Options& options,
                                                           const Problem& problem, const Bill& bill,
                                                           const runtime::RankChoice& choice,
                                                           runtime::Wire* wire) {
  if (options.device == "dry")
    return runtime::verify_dry(problem, bill, runtime::chosen_ranks(bill, choice), options.limit);
  if (options.device == "host") {
    auto ran = runtime::host::verify_host(problem, bill, runtime::chosen_ranks(bill, choice),
                                          options.limit,
                                          static_cast<int>(options.steps.value_or(2)), wire);
    if (auto* why = std::get_if<std::string>(&ran))
      return user_error(*why, "'--device dry' counts, and runs any layout");
    return std::get<runtime::Verification>(std::move(ran));
  }
  if (wire) {
    auto together = runtime::cuda::verify_together(
        runtime::cuda::open_own_gpu, *wire, problem, bill, runtime::chosen_ranks(bill, choice),
        options.limit, static_cast<int>(options.steps.value_or(2)));
    if (auto* why = std::get_if<std::string>(&together))
      return user_error(*why, "'--device dry' counts, and runs any layout");
    return std::get<runtime::Verification>(std::move(together));
  }
  if (const std::string why = runtime::cuda::why_no_gpu(); !why.empty())
    return user_error(why, "'--device dry' counts, and runs anywhere");
  if (choice.kind == runtime::RankChoice::all)
    return user_error("one GPU runs one rank: '--ranks all' needs a GPU for each",
                      "give '--ranks worst' or a number, or start it with mpirun or torchrun");
  try {
    const auto machine = runtime::cuda::open_gpu(0);
    auto ran = runtime::cuda::verify_on(*machine, problem, bill,
                                        runtime::chosen_ranks(bill, choice).front(), options.limit,
                                        static_cast<int>(options.steps.value_or(2)));
    if (auto* why = std::get_if<std::string>(&ran))
      return user_error(*why, "'--device dry' counts, and runs any layout");
    return std::get<runtime::Verification>(std::move(ran));
  } catch (const runtime::cuda::GpuError& e) {
    return user_error(e.what(), "'--device dry' counts, and runs anywhere");
  }
}

}  // namespace

Outcome verify(const Options& options, const Terminal& terminal) {
  return with_problem(
      options, terminal, [&](const Problem& problem, Diagnostics& diags) -> Outcome {
        if (problem.job->serve)
          return user_error(
              fmt::format("'{}' serves; only training steps are run", problem.job->name),
              "name a train job with --job, or ask 'plimsoll bill'");
        return with_bill(
            problem, options, diags,
            [&](const Layout& layout, const Bill& bill) -> Outcome {
              const std::int64_t ranks = runtime::rank_count(layout);
              if (options.ranks.kind == runtime::RankChoice::one && options.ranks.rank >= ranks)
                return user_error(
                    fmt::format("there is no rank {}; the layout has {}", options.ranks.rank,
                                ranks),
                    fmt::format("give --ranks worst, all, or a number from 0 to {}", ranks - 1));
              std::unique_ptr<runtime::Wire> wire;
              if (options.device != "dry" && runtime::processes_started() > 1) {
                auto opened = runtime::open_wire();
                if (const auto* why = std::get_if<std::string>(&opened))
                  return user_error(*why, "start it without mpirun: ranks are threads then");
                wire = std::get<std::unique_ptr<runtime::Wire>>(std::move(opened));
              }
              auto ran = [&] {
                const Watched watched(terminal.progress && (!wire || wire->rank() == 0),
                                      "running the steps");
                return run_on_device(options, problem, bill, options.ranks, wire.get());
              }();
              // Rank 0 speaks for all, unless it is gone.
              if (wire && wire->rank() != 0 && wire->gone() != 0) return {kDone, "", ""};
              if (auto* cannot = std::get_if<Outcome>(&ran)) return std::move(*cannot);
              const auto& seen = std::get<runtime::Verification>(ran);
              return {seen.agrees ? kDone : kDisagreed,
                      options.json ? report::verify_json(problem, bill, seen)
                                   : report::verify_text(report::heading(problem, layout), bill,
                                                         problem, seen, terminal.style),
                      ""};
            },
            false);
      });
}

}  // namespace plimsoll::cli
