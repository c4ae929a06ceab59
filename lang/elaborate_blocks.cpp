// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <bit>

#include "lang/elaborate_impl.hpp"

/// Calls of blocks: arguments, scopes, recursion, and what an error inside one says of the way
/// there.
namespace plimsoll::elab {

namespace {

/// Calls shown below an error, the innermost first.
constexpr std::size_t kShownFrames = 6;
/// Names of a chain of blocks that are shown.
constexpr std::size_t kShownChain = 6;

bool is_name(const ast::Expr* e) { return e != nullptr && e->kind == ast::ExprKind::name; }

std::string signature(const BlockSource& block) {
  std::string text = block.name + "(";
  for (const BlockSource::Parameter& parameter : block.parameters) {
    if (&parameter != &block.parameters.front()) text += ", ";
    text += parameter.name;
    if (parameter.default_value != nullptr) text += " = …";
  }
  return text + ")";
}

}  // namespace

const BlockTable* Elaborator::blocks() const {
  return frames_.empty() ? model_.sees : frames_.back().block->sees;
}

bool Elaborator::knows(std::string_view name) const {
  if (find_op(name) != nullptr) return true;
  const BlockTable* table = blocks();
  return table != nullptr && table->contains(name);
}

std::vector<std::string> Elaborator::names() const {
  std::vector<std::string> result = op_names();
  if (const BlockTable* table = blocks())
    for (const auto& [name, block] : *table) result.push_back(name);
  return result;
}

std::optional<eval::Value> Elaborator::call(const ast::Expr& call, const eval::Scope& scope) {
  if (const OpSpec* spec = find_op(call.text)) return call_op(*spec, call, scope);
  return call_block(*blocks()->find(call.text)->second, call, scope);
}

void Elaborator::explain(Diagnostic& d) const {
  std::size_t shown = 0;
  for (std::size_t i = frames_.size(); i-- > 0 && shown < kShownFrames; ++shown)
    d.label(frames_[i].call, fmt::format("in block '{}', called here", frames_[i].block->name));
  const Span place = frames_.empty() ? d.span : frames_.front().call;
  if (place.file != model_.span.file || place.begin < model_.span.begin)
    d.label(model_.span, fmt::format("while model '{}' is built", model_.name));
}

/// A parameter may be given a word where its default is one, or where it has none to say.
const Elaborator::BlockInfo& Elaborator::info(const BlockSource& block) {
  const auto [at, added] = infos_.try_emplace(&block);
  BlockInfo& info = at->second;
  if (!added) return info;
  for (const BlockSource::Parameter& parameter : block.parameters) {
    const ast::Expr* value = parameter.default_value;
    if (value != nullptr && value->kind == ast::ExprKind::list && !value->args.empty())
      value = value->args.front().value.get();
    const bool earlier =
        is_name(value) && std::ranges::find(info.names, value->text) != info.names.end();
    const bool words = value == nullptr || (is_name(value) && !earlier);
    info.hints.push_back(words ? &eval::any_words() : nullptr);
    info.names.push_back(parameter.name);
  }
  return info;
}

std::uint32_t Elaborator::path_of(const BlockSource& block) {
  std::vector<std::string>& paths = draft_.program.blocks;
  std::string path = frames_.empty() ? std::string() : paths[frames_.back().path] + ".";
  path += block.name;
  const auto [at, added] = paths_.try_emplace(path, static_cast<std::uint32_t>(paths.size()));
  if (added) paths.push_back(std::move(path));
  return at->second;
}

bool Elaborator::may_call(const BlockSource& block, const ast::Expr& call) {
  if (frames_.size() >= kMaxBlockDepth) {
    std::string chain;
    const std::size_t first = frames_.size() - kShownChain;
    for (std::size_t i = first; i < frames_.size(); ++i) chain += frames_[i].block->name + " -> ";
    fail(call.span,
         fmt::format("blocks call one another more than {} deep: … -> {}{}", kMaxBlockDepth, chain,
                     block.name),
         "a block that calls itself needs an if(…) that ends it");
    return false;
  }
  if (++calls_ > kMaxBlockCalls) {
    fail(call.span,
         fmt::format("this model calls blocks more than {} times", grouped(kMaxBlockCalls)));
    return false;
  }
  return true;
}

std::optional<eval::Value> Elaborator::call_block(const BlockSource& block, const ast::Expr& call,
                                                  const eval::Scope& scope) {
  if (!may_call(block, call)) return std::nullopt;
  eval::Scope local;
  if (!bind_arguments(block, call, scope, local)) return std::nullopt;
  const std::uint32_t path = path_of(block);
  frames_.push_back({&block, call.span, path});
  const std::size_t errors_before = diags_.error_count();
  std::optional<eval::Value> result = eval::Value{eval::None{}, {}};
  // Defaults see the parameters before them, in the block's own scope.
  const BlockInfo& known = info(block);
  for (std::size_t i = 0; i < block.parameters.size() && result; ++i) {
    const BlockSource::Parameter& parameter = block.parameters[i];
    if (local.own(parameter.name) != nullptr) continue;
    result = evaluator_.eval(*parameter.default_value, local, known.hints[i]);
    if (result) local.set(parameter.name, std::move(*result));
  }
  if (result) {
    result = eval::Value{eval::None{}, {}};
    statements(block.entries, local, local, &*result);
    if (diags_.error_count() > errors_before) {
      result.reset();
    } else if (result->as<eval::Tensor>() == nullptr) {
      const bool nothing = result->is_none();
      fail(block.span,
           nothing ? fmt::format("block '{}' returns nothing", block.name)
                   : fmt::format("a block returns a tensor; '{}' returns {}", block.name,
                                 result->kind()),
           nothing ? "end it with return …" : "");
      result.reset();
    }
  }
  frames_.pop_back();
  return result;
}

/// The parameter that an argument is given to, by place or by name.
std::optional<std::size_t> Elaborator::parameter_index(const BlockSource& block,
                                                       const ast::Expr& call,
                                                       std::size_t argument) {
  const ast::Name& name = call.args[argument].name;
  if (name.text.empty()) {
    if (argument < block.parameters.size()) return argument;
    return fail(
        call.args[argument].value->span,
        fmt::format("block '{}' takes {} arguments at most", block.name, block.parameters.size()),
        signature(block));
  }
  for (std::size_t i = 0; i < block.parameters.size(); ++i)
    if (block.parameters[i].name == name.text) return i;
  std::vector<std::string> names;
  for (const BlockSource::Parameter& parameter : block.parameters) names.push_back(parameter.name);
  const std::string meant = did_you_mean(name.text, names);
  return fail(name.span, fmt::format("block '{}' has no parameter '{}'", block.name, name.text),
              meant.empty() ? signature(block) : fmt::format("did you mean '{}'?", meant));
}

bool Elaborator::bind_arguments(const BlockSource& block, const ast::Expr& call,
                                const eval::Scope& scope, eval::Scope& local) {
  const BlockInfo& known = info(block);
  if (call.closure) {
    fail(call.closure->span, fmt::format("block '{}' takes no body", block.name));
    return false;
  }
  bool good = true;
  bool named = false;
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    const ast::Argument& arg = call.args[i];
    if (arg.name.text.empty() && named) {
      fail(arg.value->span, "arguments by place come before those by name");
      return false;
    }
    named = !arg.name.text.empty();
    const std::optional<std::size_t> index = parameter_index(block, call, i);
    if (!index) return false;
    const std::string& name = block.parameters[*index].name;
    if (local.own(name) != nullptr) {
      fail(arg.name.span, fmt::format("'{}' is given twice", name));
      return false;
    }
    std::optional<eval::Value> value = evaluator_.eval(*arg.value, scope, known.hints[*index]);
    if (!value) {
      good = false;
      value = eval::Value{eval::Unknown{}, arg.value->span};
    }
    local.set(name, std::move(*value));
  }
  for (const BlockSource::Parameter& parameter : block.parameters)
    if (parameter.default_value == nullptr && local.own(parameter.name) == nullptr) {
      fail(call.span, fmt::format("block '{}' needs '{}'", block.name, parameter.name),
           signature(block));
      return false;
    }
  return good;
}

}  // namespace plimsoll::elab
