// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lang/source.hpp"
#include "lang/units.hpp"

/// The syntax tree: what was written, with the place of every node. Nothing here has a meaning yet:
/// field names, units of dimension and kinds are checked by check.cpp.
namespace plimsoll::ast {

struct Name {
  std::string text;
  Span span;
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// An argument of a call: positional where `name` is empty.
struct Argument {
  Name name;
  ExprPtr value;
};

/// `{ t => body }` after a call (experts).
struct Closure {
  Name parameter;
  ExprPtr body;
  Span span;
};

enum class ExprKind : std::uint8_t {
  number,   ///< quantity (value in base units), unit_text as written ("GiB", "tokens", "" for none)
  string,   ///< text
  boolean,  ///< flag
  name,     ///< text; `none` and words of enumerations are names too
  unary,    ///< op on args[0]: negate, not
  binary,   ///< op on args[0], args[1]
  call,     ///< text(args…) with optional closure; `if(…)`, `min(…)`, ops and blocks alike
  index,    ///< args[0] [ args[1] ]
  set,      ///< { args… }, ranges may stand in it
  list,     ///< [ args… ]
};

/// From loosest to tightest, see LANGUAGE.md §3.
enum class Op : std::uint8_t {
  implies,
  logical_or,
  logical_and,
  logical_not,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  range,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  negate,
  power,
};

struct Expr {
  ExprKind kind = ExprKind::number;
  Op op = Op::add;
  bool flag = false;
  std::uint16_t depth = 1;  ///< of the tree below, itself included; at most kMaxDepth
  Span span;                ///< the whole expression
  Span op_span;             ///< the operator, or the callee's name
  Quantity quantity;        ///< number
  std::string text;         ///< number: the source text without its unit; string; name; callee
  std::string unit_text;
  std::vector<Argument> args;
  std::unique_ptr<Closure> closure;  ///< of a few calls

  const Expr& arg(std::size_t i) const { return *args[i].value; }
};

enum class EntryKind : std::uint8_t {
  assign,     ///< name = value            (a field, or a value in a block or model)
  narrow,     ///< name in value
  param,      ///< param name [in value2] [= value]      one entry a parameter
  repeat,     ///< repeat value [as name] { body }
  ret,        ///< return value
  item,       ///< item label [each word] { body }
  require,    ///< require [label:] value
  prefer,     ///< prefer [label:] value [weight value2]
  minimize,   ///< minimize value
  maximize,   ///< maximize value
  state,      ///< state name : value [{ body }]
  on,         ///< on word {…} or on {words} {…}
  save,       ///< save name [: value]
  fuse,       ///< fuse name = value (a set)
  default_,   ///< default name = value
  recompute,  ///< recompute name { body }   body: keep = {…} or drop = {…}
  pool,       ///< pool name { body }
  observed,   ///< observed { body }
  beside,     ///< beside name { body }
};

struct Entry {
  EntryKind kind = EntryKind::assign;
  Span span;
  Span keyword;       ///< of `repeat`, `item` …; empty for assign and narrow
  Name name;          ///< assigned name, parameter, state, saved value, recompute word …
  std::string label;  ///< item, require, prefer: the string, without quotes
  Span label_span;
  std::vector<Name> words;  ///< on: the ops; item: what `each` names, if it does
  ExprPtr value;
  ExprPtr value2;  ///< param: the set after `in`; prefer: its weight
  std::vector<Entry> body;
};

struct Parameter {  ///< of a block's header
  Name name;
  ExprPtr default_value;
};

/// `kind name [(parameters)] [= base] [{ entries }]`
struct Declaration {
  Name kind;
  Name name;
  std::vector<Parameter> parameters;
  std::optional<Name> base;
  bool has_body = false;
  std::vector<Entry> entries;
  std::string doc;  ///< the `##` lines before it, joined by newlines, without the marks
  Span span;
};

struct Use {
  std::string path;
  Span span;  ///< the string
};

/// A comment, for fmt: `#` to the end of the line. `own_line` where nothing precedes it on its
/// line.
struct Comment {
  Span span;
  bool own_line = false;
};

struct File {
  std::uint32_t file = 0;
  std::vector<Use> uses;
  std::vector<Declaration> declarations;
  std::vector<Comment> comments;
};

}  // namespace plimsoll::ast
