// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <filesystem>
#include <utility>

#include "lang/module_impl.hpp"
#include "lang/parse.hpp"

namespace plimsoll {

namespace {

struct KindRow {
  std::string_view word;
  std::string_view noun;
};
constexpr std::array<KindRow, kKindCount> kKinds = {{
    {"gpu", "gpu"},
    {"cluster", "cluster"},
    {"dtype", "dtype"},
    {"optimizer", "optimizer"},
    {"framework", "framework"},
    {"block", "block"},
    {"model", "model"},
    {"train", "train job"},
    {"serve", "serve job"},
    {"layout", "layout"},
}};

constexpr Kind kind_at(std::size_t i) { return static_cast<Kind>(i); }
constexpr std::size_t index(Kind kind) { return static_cast<std::size_t>(kind); }

/// One name for one file, however it is spelled: "a/../b.plan" is "b.plan".
std::string normal(const std::filesystem::path& path) {
  return path.lexically_normal().generic_string();
}

class Loading {
 public:
  Loading(Module::Impl& module, const Loader& load, Diagnostics& diags)
      : module_(module), load_(load), diags_(diags) {}

  void file(const std::string& name, std::string text) {
    const std::uint32_t number = module_.sources.add(name, std::move(text));
    module_.files.push_back(std::make_unique<ast::File>(parse(module_.sources, number, diags_)));
    const ast::File& parsed = *module_.files.back();
    path_.push_back(normal(name));
    loaded_.insert(path_.back());
    for (const ast::Use& use : parsed.uses) bring_in(use);
    path_.pop_back();
    for (const ast::Declaration& declaration : parsed.declarations) declare(declaration);
  }

 private:
  void bring_in(const ast::Use& use) {
    if (use.path.empty()) {
      diags_.error(use.span, "'use' expects the name of a file, got an empty string")
          .with_help("name a file beside this one: use \"models.plan\"");
      return;
    }
    const std::filesystem::path given(use.path);
    const std::string name = normal(
        given.is_absolute() ? given : std::filesystem::path(path_.back()).parent_path() / given);
    const auto on_path = std::find(path_.begin(), path_.end(), name);
    if (on_path != path_.end()) {
      std::string chain;
      for (auto at = on_path; at != path_.end(); ++at) chain += *at + " -> ";
      diags_.error(use.span, fmt::format("'{}' brings itself in: {}{}", use.path, chain, name))
          .with_help("remove one 'use' of the circle; what both files need can stand in a third");
      return;
    }
    if (loaded_.contains(name)) return;
    if (path_.size() >= kMaxUseDepth) {
      diags_.error(use.span, fmt::format("files are brought in more than {} deep", kMaxUseDepth))
          .with_help("use the file from a file nearer to the first one");
      return;
    }
    std::string why;
    std::optional<std::string> text = load_(name, why);
    if (!text) {
      diags_
          .error(use.span, fmt::format("cannot read '{}'{}{}", name, why.empty() ? "" : ": ", why))
          .with_help(why == "it is a directory" ? "name a .plan file in it: use \"models.plan\""
                                                : "the path is relative to the file that says it");
      return;
    }
    file(name, std::move(*text));
  }

  void declare(const ast::Declaration& declaration) {
    const std::optional<Kind> kind = find_kind(declaration.kind.text);
    if (!kind) {
      unknown_kind(declaration);
      return;
    }
    const std::string& name = declaration.name.text;
    if (name.empty()) return;  // the parser has said so
    auto [at, added] = module_.user[index(*kind)].emplace(name, &declaration);
    if (!added) {
      diags_
          .error(declaration.name.span, fmt::format("{} '{}' is declared twice", noun(*kind), name))
          .label(at->second->name.span, "first declared here")
          .with_help("rename one of them, or remove it");
      return;
    }
    module_.order.emplace_back(*kind, &declaration);
    if (const ast::Declaration* shadowed = prelude().find(*kind, name)) {
      diags_
          .note(declaration.name.span,
                fmt::format("{} '{}' hides the prelude's in this file", noun(*kind), name))
          .label(shadowed->name.span, "the prelude's")
          .with_help("what the prelude declares itself still uses its own");
    }
  }

  void unknown_kind(const ast::Declaration& declaration) {
    std::vector<std::string> words;
    for (const KindRow& row : kKinds) words.emplace_back(row.word);
    const std::string near = did_you_mean(declaration.kind.text, words);
    diags_
        .error(declaration.kind.span,
               fmt::format("expected a kind of declaration, got '{}'", declaration.kind.text))
        .with_help(near.empty() ? "kinds are: " + fmt::format("{}", fmt::join(words, ", "))
                                : fmt::format("did you mean '{}'?", near));
  }

  Module::Impl& module_;
  const Loader& load_;
  Diagnostics& diags_;
  std::vector<std::string> path_;
  std::set<std::string, std::less<>> loaded_;
};

}  // namespace

std::string_view word(Kind kind) { return kKinds[index(kind)].word; }
std::string_view noun(Kind kind) { return kKinds[index(kind)].noun; }

std::optional<Kind> find_kind(std::string_view word) {
  for (std::size_t i = 0; i < kKindCount; ++i)
    if (kKinds[i].word == word) return kind_at(i);
  return std::nullopt;
}

void load_files(Module::Impl& module, std::string name, std::string text, const Loader& load,
                Diagnostics& diags) {
  const std::size_t errors = diags.error_count();
  Loading(module, load, diags).file(name, std::move(text));
  std::sort(module.order.begin(), module.order.end(), [](const auto& a, const auto& b) {
    const Span x = a.second->span, y = b.second->span;
    return std::pair(x.file, x.begin) < std::pair(y.file, y.begin);
  });
  const ast::File& first = *module.files.front();
  if (first.declarations.empty() && first.uses.empty() && diags.error_count() == errors)
    diags.error(Span{first.file, 0, 0}, "expected a declaration, got an empty file")
        .with_help(
            "begin with a job: train mine { model = llama3_8b  cluster = …  seq = 8Ki  "
            "batch = 64 }");
}

}  // namespace plimsoll
