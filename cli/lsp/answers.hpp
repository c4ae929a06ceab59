// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <nlohmann/json.hpp>

#include "cli/lsp/documents.hpp"

/// The protocol's answers to what an editor asks of one file.
namespace plimsoll::cli::lsp {

using Json = nlohmann::json;

/// One file's diagnostics by the URI of the file that they are in, the document's own always among
/// them.
std::map<std::string, Json> diagnostics(const Document&, const Analysis&, Encoding);
/// null where nothing is to be said.
Json hover(const Document&, Analysis&, std::uint32_t offset, Encoding);
Json definition(const Document&, const Analysis&, std::uint32_t offset, Encoding);
Json completion(const Document&, const Analysis&, std::uint32_t offset, Encoding, bool after_blank);
/// Edits that bring the text into canonical form; null where it has syntax errors.
Json formatting(const Document&, Encoding);
Json symbols(const Document&, const Analysis&, Encoding);

}  // namespace plimsoll::cli::lsp
