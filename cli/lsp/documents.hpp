// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "cli/lsp/text.hpp"
#include "lang/diagnostics.hpp"
#include "lang/module.hpp"
#include "planner/enumerate.hpp"
#include "planner/peak.hpp"

/// The files that an editor has open, and what their text comes to.
namespace plimsoll::cli::lsp {

/// A job at a layout: the file's own, else the best of a search that was made while nothing else
/// was asked for.
struct PricedJob {
  std::unique_ptr<Problem> problem;
  Layout layout;
  Bill bill;
  bool searched = false;
};

/// A file as it was compiled. Made anew with every change of its text or of a file that it uses.
struct Analysis {
  std::unique_ptr<Module> module;
  Diagnostics diags;
  std::uint32_t file = 0;                   ///< its number in the module's sources
  std::set<std::string> uses;               ///< paths of the files that it brings in
  std::map<std::string, PricedJob> priced;  ///< by job
  bool tried_search = false;                ///< a search came to its end, whatever it found
};

struct Document {
  std::string uri, text;
  std::unique_ptr<Analysis> analysis;  ///< nullptr: the text has changed since
  std::set<std::string> told;          ///< files that diagnostics were published for
  bool published = false;
};

class Documents {
 public:
  /// \a text replaces what was there.
  void open(const std::string& uri, std::string text);
  void close(const std::string& uri);
  Document* find(const std::string& uri);
  std::map<std::string, Document>& all() { return all_; }
  /// The document's text has changed: it and those that use it are compiled again when asked for.
  void touch(Document&);
  Analysis& analysis(Document&);

 private:
  std::map<std::string, Document> all_;
};

/// The job priced at the file's first layout; nullptr where there is none, where its text has
/// errors, or where it cannot be priced, unless a search has been made.
const PricedJob* priced(Analysis&, const std::string& job);
/// Searches for the best layout of the file's first job that has none. \a stop ends it; then it is
/// begun anew the next time.
void search_ahead(Analysis&, const std::function<bool()>& stop);

}  // namespace plimsoll::cli::lsp
