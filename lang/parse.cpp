// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/parse.hpp"

#include "lang/lexer.hpp"
#include "lang/syntax.hpp"

namespace plimsoll {

ast::File parse(const Sources& sources, std::uint32_t file, Diagnostics& diagnostics) {
  ast::File result;
  result.file = file;
  const std::string_view text = sources[file].text();
  if (text.size() > kMaxFileBytes) {
    diagnostics
        .error({file, 0, 1}, fmt::format("the file is larger than {} MiB", kMaxFileBytes >> 20))
        .with_help("split it: use \"other.plan\" brings a file in");
    return result;
  }
  const std::vector<syntax::Token> tokens =
      syntax::lex(sources, file, result.comments, diagnostics);
  syntax::State state{sources, file, text, tokens.data(), &tokens.back(), diagnostics, result};
  try {
    syntax::parse_tokens(state);
  } catch (const syntax::GiveUp&) {
    // Reported where it was thrown; the declarations before it stand.
  }
  return result;
}

}  // namespace plimsoll
