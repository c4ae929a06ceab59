// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/check_job_reader.hpp"

/// `adapt = lora(…)`.
namespace plimsoll {

void JobReader::read_adapter(const ast::Expr& e) {
  const bool call = e.kind == ast::ExprKind::call;
  const std::string text = call || e.kind == ast::ExprKind::name ? e.text : "";
  if (text == "none" && !call) {
    job_.adapt.kind = "none";
    return;
  }
  if ((text != "lora" && text != "qlora") || !call) {
    const std::vector<std::string> words = {"none", "lora", "qlora"};
    const std::string example = fmt::format("adapt = {}(rank = 16, on = {{q, k, v, o}})",
                                            text == "qlora" ? "qlora" : "lora");
    const std::string near = did_you_mean(text, words);
    diags_
        .error(e.span,
               fmt::format("expected none, lora(…) or qlora(…) for 'adapt', got {}", describe(e)))
        .with_help(near.empty() || near == text ? "for example " + example
                                                : fmt::format("did you mean '{}'?", near));
    return;
  }
  job_.adapt.kind = text;
  job_.adapt.on = {"q", "k", "v", "o"};
  if (text == "qlora") job_.adapt.base = "nf4";
  for (const ast::Argument& argument : e.args) read_adapter_argument(text, argument);
  if (job_.adapt.rank == 0)
    diags_.error(e.span, fmt::format("'{}' needs a rank", text))
        .with_help(fmt::format("for example adapt = {}(rank = 16, on = {{q, k, v, o}})", text));
}

void JobReader::read_adapter_argument(const std::string& kind, const ast::Argument& argument) {
  const std::string& name = argument.name.text;
  if (!name.empty() && !given_.emplace(name, argument.name.span).second) {
    diags_.error(argument.name.span, fmt::format("'{}' is given twice", name))
        .label(given_.at(name), "first given here")
        .with_help("keep one of them");
    return;
  }
  if (name == "rank") {
    job_.adapt.rank = reader_.integer(kLoraRank, *argument.value).value_or(1);
  } else if (name == "on") {
    if (const auto on = reader_.name_set(kLoraOn, *argument.value, &adapt_spans_))
      job_.adapt.on = *on;
  } else if (name == "base" && kind == "qlora") {
    job_.adapt.base = dtype_of("base", *argument.value);
  } else {
    std::vector<std::string> known = {"rank", "on"};
    if (kind == "qlora") known.emplace_back("base");
    if (name.empty() && job_.adapt.rank == 0) job_.adapt.rank = 1;  // say one thing at a time
    diags_
        .error(name.empty() ? argument.value->span : argument.name.span,
               name.empty() ? fmt::format("the arguments of '{}' are given by name", kind)
                            : fmt::format("'{}' takes no argument '{}'", kind, name))
        .with_help(name.empty() ? fmt::format("for example {}(rank = 16)", kind)
                                : suggest(name, known, "its arguments"));
  }
}

}  // namespace plimsoll
