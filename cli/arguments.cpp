// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

#include "cli/command_table.hpp"
#include "cli/version.hpp"
#include "lang/diagnostics.hpp"
#include "lang/units.hpp"
#include "planner/range.hpp"

namespace plimsoll::cli {
namespace {

constexpr std::string_view kShortPage =
    R"(plimsoll: what a training or serving job puts in each GPU's memory, and which layout fits.

  plimsoll plan FILE       the best layout of a job, and what comes close
  plimsoll bill FILE       what fills each GPU at one layout, item by item
  plimsoll explain FILE    why this layout, and what would change it
  plimsoll timeline FILE   what a GPU holds over a step, drawn, and why it peaks there
  plimsoll verify FILE     the ranks' steps run, and what was seen beside the bill
  plimsoll calibrate       this machine's GPU measured, as declarations
  plimsoll diagnose FILE LOG
                           an out-of-memory message, explained against the bill
  plimsoll export FILE     what Megatron-LM, torchtitan, vLLM … are launched with
  plimsoll check FILE      look for mistakes; say what the file declares
  plimsoll fmt FILE        the file in canonical form
  plimsoll import FILE     a .plan file from launch flags, a TOML, a JSON or a config.json

  plimsoll lsp             a language server for editors
  plimsoll doctor          what was found on this machine
  plimsoll completions SHELL, plimsoll man

FILE is a .plan file, or - for standard input. A first one to try:

  cluster one { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }
  train tune  { model = llama3_8b  cluster = one  seq = 8Ki  batch = 64 }

'plimsoll COMMAND --help' has every option; examples/ is a course in nine files;
--html FILE on plan, bill and timeline writes a page to show to others.
)";

/// nullopt where the text is no number, or one that does not fit.
std::optional<Rational> decimal(const std::string& text) try {
  return Rational::parse(text);
} catch (const ArithmeticError&) {
  return std::nullopt;
}

/// "30", "30s", "2min"; nullopt where it is no time above 0.
std::optional<double> time_in_seconds(const std::string& text) try {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto value = Rational::parse(text.substr(0, digits));
  const auto unit = find_unit(digits == text.size() ? "s" : text.substr(digits));
  if (!value || value->sign() <= 0 || !unit || unit->dimension != kSeconds) return std::nullopt;
  return (*value * unit->scale).to_double();
} catch (const ArithmeticError&) {
  return std::nullopt;
}

/// "2GiB", "500MB" (glued, as the shell wants it) in bytes; nullopt where it is no size above 0.
std::optional<std::int64_t> size_in_bytes(const std::string& text) try {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto value = Rational::parse(text.substr(0, digits));
  const auto unit = find_unit(digits == text.size() ? "B" : text.substr(digits));
  if (!value || value->sign() <= 0 || !unit || unit->dimension != kBytes) return std::nullopt;
  return (*value * unit->scale).floor().to_int64();
} catch (const ArithmeticError&) {
  return std::nullopt;
}

class Parser {
 public:
  Parser() {
    app_.set_version_flag("-V,--version", version_text(), "The version and what it was built with");
    app_.require_subcommand(0, 1);
    json(command("check", "Look for mistakes; say in a line what each declaration is"));
    auto* bill =
        command("bill", "What fills each GPU at one layout, item by item, at its worst moment");
    job(bill);
    routing(bill);
    bill->add_option("--layout", options_.layout,
                     "The layout to price; else the file's only one, else the plan's best");
    whole_number(bill, "--stage", 0, options_.stage,
                 "The pipeline stage whose items are listed; else the fullest");
    bill->add_option("--against", options_.against,
                     "Set the bill under another framework beside it");
    html(bill);
    json(bill);
    auto* plan = command(
        "plan", "Search for the best layout; or why nothing fits and what would change that");
    job(plan);
    whole_number(plan, "--top", 1, options_.top, "How many layouts to show, the best included (3)");
    whole_number(plan, "--budget", 1, options_.budget,
                 "Look at so many candidates at most: the same answer on every machine");
    seconds(plan, "--timeout", options_.timeout,
            "Stop after a time such as 30s: goes by the clock");
    plan->add_option("--on", options_.on,
                     "Plan the file on these GPUs too, side by side: a100_80gb,h200")
        ->delimiter(',')
        ->type_name("GPU,…");
    plan->add_flag("--no-proof", options_.no_proof,
                   "Do not have a solver check that the search left nothing out");
    plan->add_flag("--pareto", options_.pareto,
                   "Step time against memory left: what each tenth costs");
    html(plan);
    json(plan);
    auto* explain = command(
        "explain", "What each item is, where its formula comes from, and what would change it");
    job(explain);
    routing(explain);
    explain->add_option("--layout", options_.layout,
                        "The layout to explain; else the file's only one, else the plan's best");
    whole_number(explain, "--stage", 0, options_.stage,
                 "The pipeline stage whose items are explained; else the fullest");
    json(explain);
    auto* timeline =
        command("timeline",
                "What a GPU holds over a step, moment by moment, and why its peak is where it is");
    job(timeline);
    routing(timeline);
    timeline->add_option("--layout", options_.layout,
                         "The layout to play; else the file's only one, else the plan's best");
    whole_number(timeline, "--rank", 0, options_.rank,
                 "The rank to watch; else the first of the fullest stage");
    html(timeline);
    json(timeline);
    auto* verify =
        command("verify", "Run the ranks' steps; set what was predicted beside what was seen");
    job(verify);
    routing(verify);
    verify->add_option("--layout", options_.layout,
                       "The layout to run; else the file's only one, else the plan's best");
    words(verify, "--device", {"dry", "host", "cuda"}, options_.device,
          "dry counts (as if unsaid), host computes in memory, cuda on a GPU");
    ranks(verify);
    whole_number(verify, "--steps", 2, options_.steps,
                 "Steps that a device that computes makes of the same text (2)");
    bytes(verify, "--limit", options_.limit, "Memory that the run may take, such as 2GiB");
    json(verify);
    auto* calibrate =
        without_files("calibrate", "Measure this machine; print a gpu and a cluster declaration");
    words(calibrate, "--device", {"cuda"}, options_.device,
          "What is measured: a GPU (as if unsaid)");
    auto* importing =
        command("import", "A .plan file from what a run is launched with, on standard output");
    importing
        ->add_option("--from", options_.from,
                     "megatron, torchtitan, deepspeed or huggingface; else it is recognised")
        ->type_name("KIND");
    importing->add_option("--gpu", options_.gpu, "The GPU, where the file does not tell: h100_sxm")
        ->type_name("GPU");
    whole_number(importing, "--gpus", 1, options_.gpus, "How many GPUs the run has");
    importing
        ->add_option("--set", options_.set, "A further field of the job: --set te_version=2.11")
        ->type_name("FIELD=VALUE")
        ->allow_extra_args(false);
    auto* diagnose =
        command("diagnose", "An out-of-memory message or a memory log, explained against the bill");
    job(diagnose);
    diagnose->add_option("--layout", options_.layout,
                         "The layout that ran; else the file's only one");
    whole_number(diagnose, "--stage", 0, options_.stage,
                 "The pipeline stage that the log is of; else its rank's, or the likeliest");
    json(diagnose);
    auto* export_to = command("export", "A layout as another tool is launched with it");
    job(export_to);
    export_to->add_option("--layout", options_.layout,
                          "The layout to export; else the file's only one, else the plan's best");
    export_to
        ->add_option("--to", options_.to,
                     "megatron, nemo, torchtitan, deepspeed, accelerate, vllm or sglang")
        ->type_name("TOOL");
    json(export_to);
    auto* format = command("fmt", "The file in canonical form, on standard output");
    format->add_flag("--write", options_.write, "Change the files in place instead");
    format->add_flag("--check", options_.check,
                     "Change nothing; exit 1 if a file is not in canonical form");
    without_files("lsp", "A language server for editors, on standard input and output");
    json(without_files("doctor", "What was found on this machine: Z3, CUDA, the driver, GPUs"));
    shell(without_files("completions", "A script that completes plimsoll in a shell"));
    without_files("man", "The manual page, in roff");
  }

  std::variant<Options, Outcome> parse(int argc, const char* const* argv) {
    if (argc < 2) return Outcome{kDone, std::string(kShortPage), ""};
    const std::string first = argv[1];
    if (!first.starts_with('-') && !contains(names_, first)) return unknown_command(first);
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForVersion&) {
      return Outcome{kDone, version_text(), ""};
    } catch (const CLI::Success&) {
      return Outcome{kDone, help(), ""};
    } catch (const CLI::ExtrasError& mistake) {
      return unknown_option(mistake.what());
    } catch (const CLI::ParseError& mistake) {
      return user_error(mistake.what(), see_help());
    }
    if (begun() == &app_) return Outcome{kDone, std::string(kShortPage), ""};
    options_.command = begun()->get_name();
    if (auto wrong = value_mistake()) return *std::move(wrong);
    return with_files();
  }

  /// Every command with what it takes, as the parser has it.
  std::vector<CommandRow> table() const {
    std::vector<CommandRow> all;
    for (const std::string& name : names_) {
      const CLI::App* app = app_.get_subcommand(name);
      CommandRow command;
      command.name = name;
      command.description = app->get_description();
      for (const CLI::Option* option : app->get_options()) {
        if (option->get_positional()) {
          command.argument = option->get_name();
          if (const auto at = words_.find(key(*app, command.argument)); at != words_.end())
            command.words = at->second;
        } else if (option->get_lnames().front() != "help") {
          command.options.push_back(row(*app, *option));
        }
      }
      all.push_back(std::move(command));
    }
    return all;
  }

 private:
  /// A command; every one takes files, counted in with_files() so that the message is ours.
  CLI::App* command(const std::string& name, const std::string& description) {
    names_.push_back(name);
    CLI::App* made = app_.add_subcommand(name, description);
    made->add_option("FILE", options_.files, "A .plan file, or - for standard input");
    return made;
  }
  CLI::App* without_files(const std::string& name, const std::string& description) {
    names_.push_back(name);
    fileless_.push_back(name);
    CLI::App* made = app_.add_subcommand(name, description);
    return made;
  }
  void shell(CLI::App* to) {
    const auto read = [this](const std::string& text) {
      if (!contains(shells(), text))
        throw CLI::ValidationError(
            fmt::format("completions expects {}, found '{}'", fmt::join(shells(), " or "), text));
      options_.shell = text;
    };
    to->add_option_function<std::string>("SHELL", read, "bash, zsh or fish")->type_name("WORD");
    words_[key(*to, "SHELL")] = shells();
  }
  static const std::vector<std::string>& shells() {
    static const std::vector<std::string> known = {"bash", "zsh", "fish"};
    return known;
  }
  void job(CLI::App* to) {
    to->add_option("--job", options_.job, "The job, where the file has several");
  }
  void routing(CLI::App* to) {
    const auto read = [this](const std::string& text) {
      const auto value = decimal(text);
      const Imbalances known = measured_imbalances();
      if (!value || *value < known.least || *value > known.most)
        throw CLI::ValidationError(fmt::format(
            "--routing expects a share from {:.2f} to {:.2f}, of what {} measured runs "
            "tell; found '{}'",
            known.least.to_double() + 0.005, known.most.to_double() - 0.005, known.runs, text));
      options_.routing = value;
    };
    to->add_option_function<std::string>(
          "--routing", read,
          "Routed tokens that this share of measured runs stayed below, such as 0.9; else the "
          "job's imbalance")
        ->type_name("SHARE");
  }
  template <class Number>
  static void whole_number(CLI::App* to, const std::string& name, std::int64_t least,
                           Number& number, const std::string& description) {
    const auto read = [=, &number](const std::string& text) {
      std::int64_t value = 0;
      const char* end = text.data() + text.size();
      const auto [at, error] = std::from_chars(text.data(), end, value);
      if (error != std::errc() || at != end || value < least)
        throw CLI::ValidationError(
            fmt::format("{} expects a whole number of at least {}, found '{}'", name, least, text));
      number = value;
    };
    to->add_option_function<std::string>(name, read, description)->type_name("N");
  }
  static void seconds(CLI::App* to, const std::string& name, std::optional<double>& number,
                      const std::string& description) {
    const auto read = [=, &number](const std::string& text) {
      number = time_in_seconds(text);
      if (!number)
        throw CLI::ValidationError(
            fmt::format("{} expects a time such as 30s or 2min, found '{}'", name, text));
    };
    to->add_option_function<std::string>(name, read, description)->type_name("TIME");
  }
  static void bytes(CLI::App* to, const std::string& name, std::optional<std::int64_t>& number,
                    const std::string& description) {
    const auto read = [=, &number](const std::string& text) {
      number = size_in_bytes(text);
      if (!number)
        throw CLI::ValidationError(
            fmt::format("{} expects a size such as 2GiB or 500MB, found '{}'", name, text));
    };
    to->add_option_function<std::string>(name, read, description)->type_name("SIZE");
  }
  void words(CLI::App* to, const std::string& name, const std::vector<std::string>& known,
             std::string& word, const std::string& description) {
    words_[key(*to, name)] = known;
    const auto read = [=, &word](const std::string& text) {
      if (!contains(known, text))
        throw CLI::ValidationError(
            fmt::format("{} expects {}, found '{}'", name, fmt::join(known, " or "), text));
      word = text;
    };
    to->add_option_function<std::string>(name, read, description)->type_name("WORD");
  }
  void ranks(CLI::App* to) {
    const auto read = [this](const std::string& text) {
      std::int64_t rank = 0;
      const char* end = text.data() + text.size();
      const auto [at, error] = std::from_chars(text.data(), end, rank);
      const bool number = error == std::errc() && at == end && rank >= 0;
      if (!number && text != "worst" && text != "all")
        throw CLI::ValidationError(
            fmt::format("--ranks expects worst, all or the number of a rank, found '{}'", text));
      options_.ranks.kind = number            ? runtime::RankChoice::one
                            : text == "worst" ? runtime::RankChoice::worst
                                              : runtime::RankChoice::all;
      options_.ranks.rank = rank;
    };
    to->add_option_function<std::string>(
          "--ranks", read, "worst: the first of the fullest stage (as if unsaid), all, or a number")
        ->type_name("WHICH");
  }
  void html(CLI::App* to) {
    to->add_option("--html", options_.html,
                   "Write a page with the answer to this file, besides ('-': instead)")
        ->type_name("FILE");
  }
  void json(CLI::App* to) {
    to->add_flag("--json", options_.json, "Print one JSON object instead");
  }

  /// A value that was forgotten: an empty one, as of an unset variable of the shell, or the option
  /// that follows, which would be taken for it.
  std::optional<Outcome> value_mistake() const {
    for (const CLI::Option* option : begun()->get_options()) {
      if (option->get_positional() || option->get_expected_max() == 0) continue;
      for (const std::string& value : option->results())
        if (value.empty() || value.starts_with("--"))
          return no_value(*option,
                          value.empty() ? "nothing" : fmt::format("the option '{}'", value));
    }
    return std::nullopt;
  }
  Outcome no_value(const CLI::Option& option, const std::string& found) const {
    const OptionRow of = row(*begun(), option);
    return user_error(fmt::format("{} needs a {}, found {}", of.name, of.value, found),
                      fmt::format("write {} {}, or leave it out", of.name, of.value));
  }

  std::variant<Options, Outcome> with_files() const {
    if (options_.command == "completions" && options_.shell.empty())
      return user_error("completions needs the name of a shell",
                        fmt::format("name {}", fmt::join(shells(), " or ")));
    if (contains(fileless_, options_.command)) return options_;
    if (options_.files.empty())
      return user_error(fmt::format("{} needs a file", options_.command),
                        "name a .plan file, or - for standard input");
    if (options_.command == "diagnose") {
      if (options_.files.size() != 2)
        return user_error(
            "diagnose needs a file and a log",
            "plimsoll diagnose job.plan run.log; one of them may be - for standard input");
      if (options_.files[0] == "-" && options_.files[1] == "-")
        return user_error("both the file and the log are standard input",
                          "give one of them a name");
      return options_;
    }
    if (options_.files.size() > 1 && options_.command != "fmt" && options_.command != "import")
      return user_error(
          fmt::format("{} takes one file, not {}", options_.command, options_.files.size()),
          "run it once for each; 'use \"other.plan\"' brings files together");
    return options_;
  }

  /// One option may be other words for another command.
  static std::string key(const CLI::App& command, const std::string& option) {
    return command.get_name() + " " + option;
  }

  OptionRow row(const CLI::App& command, const CLI::Option& option) const {
    OptionRow out;
    out.name = "--" + option.get_lnames().front();
    out.description = option.get_description();
    if (option.get_expected_max() == 0) return out;
    out.value = option.get_type_name() == "TEXT" ? "NAME" : option.get_type_name();
    out.kind = ValueKind::plain;
    if (const auto at = words_.find(key(command, out.name)); at != words_.end()) {
      out.kind = ValueKind::words;
      out.words = at->second;
    }
    static const std::map<std::string, ValueKind> kKinds = {
        {"--job", ValueKind::job},   {"--layout", ValueKind::layout},
        {"--html", ValueKind::file}, {"--on", ValueKind::gpu},
        {"--gpu", ValueKind::gpu},   {"--against", ValueKind::framework}};
    if (const auto at = kKinds.find(out.name); at != kKinds.end()) out.kind = at->second;
    return out;
  }

  Outcome unknown_command(const std::string& word) const {
    if (word.ends_with(".plan"))
      return user_error(
          fmt::format("'{}' is not a command", word),
          fmt::format("say what to do with it: plimsoll {} {}", names_.front(), word));
    const std::string near = did_you_mean(word, names_);
    return user_error(fmt::format("unknown command '{}'", word),
                      near.empty() ? fmt::format("the commands are {}", fmt::join(names_, ", "))
                                   : fmt::format("did you mean '{}'?", near));
  }
  Outcome unknown_option(const std::string& otherwise) const {
    for (const std::string& word : app_.remaining(true)) {
      if (!word.starts_with('-')) continue;
      std::vector<std::string> known;
      for (const CLI::Option* option : begun()->get_options())
        for (const std::string& name : option->get_lnames())
          if (word == "--" + name + "=" && option->get_expected_max() > 0)
            return no_value(*option, "nothing");
      for (const CLI::Option* option : begun()->get_options())
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      const std::string near = did_you_mean(word, known);
      return user_error(fmt::format("unknown option '{}'", word),
                        near.empty() ? see_help() : fmt::format("did you mean '{}'?", near));
    }
    return user_error(otherwise, see_help());
  }

  /// The command that was begun, or the program itself.
  const CLI::App* begun() const {
    const auto parsed = app_.get_subcommands();
    return parsed.empty() ? &app_ : parsed.front();
  }
  std::string see_help() const {
    return fmt::format("'plimsoll {}--help' shows what it takes",
                       begun() == &app_ ? "" : begun()->get_name() + ' ');
  }
  std::string help() const { return begun()->help(begun() == &app_ ? "" : "plimsoll"); }

  static bool contains(const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  }

  CLI::App app_{"What a training or serving job puts in each GPU's memory, and which layout fits.",
                "plimsoll"};
  Options options_;
  std::vector<std::string> names_, fileless_;
  std::map<std::string, std::vector<std::string>> words_;  ///< of an option, by its key()
};

}  // namespace

std::variant<Options, Outcome> parse_arguments(int argc, const char* const* argv) {
  return Parser().parse(argc, argv);
}

std::vector<CommandRow> command_table() { return Parser().table(); }

}  // namespace plimsoll::cli
