// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/parse.hpp"

#include "lang/lexer.hpp"
#include "lang/syntax.hpp"

namespace plimsoll {

ast::File parse(const Sources& sources, std::uint32_t file, Diagnostics& diagnostics) {
  const std::string_view text = sources[file].text();
  if (text.size() > kMaxFileBytes) {
    diagnostics
        .error({file, 0, 1}, fmt::format("the file is larger than {} MiB", kMaxFileBytes >> 20))
        .with_help("split it: use \"other.plan\" brings a file in");
    ast::File nothing;
    nothing.file = file;
    return nothing;
  }
  return parse(sources, Span{file, 0, static_cast<std::uint32_t>(text.size())}, diagnostics);
}

ast::File parse(const Sources& sources, Span part, Diagnostics& diagnostics) {
  ast::File result;
  result.file = part.file;
  const std::vector<syntax::Token> tokens =
      syntax::lex(sources, part, result.comments, diagnostics);
  syntax::State state{sources,       part.file,      sources[part.file].text(),
                      tokens.data(), &tokens.back(), diagnostics,
                      result};
  try {
    syntax::parse_tokens(state);
  } catch (const syntax::GiveUp&) {
    // Reported where it was thrown; the declarations before it stand.
  }
  return result;
}

}  // namespace plimsoll
