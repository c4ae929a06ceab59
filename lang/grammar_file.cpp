// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <iterator>
#include <utility>
#include <vector>

#include "lang/grammar.hpp"

/// The grammar of files, declarations and entries (LANGUAGE.md §4). Which fields, ops and kinds
/// there are is no matter of syntax: all of that is names here.
namespace plimsoll::syntax {

namespace {

using ast::EntryKind;

constexpr auto begins_label = [](Iterator at) {
  return at->kind == Kind::string && at[1].kind == Kind::colon;
};
constexpr auto is_separator = [](Iterator at) {
  return at->kind == Kind::comma || at->kind == Kind::semicolon;
};
constexpr auto is_given = [](Iterator at) {
  return at->kind == Kind::assign || at->kind == Kind::kw_in;
};
constexpr auto is_each = [](Iterator at) { return at->soft == Soft::each; };
constexpr auto is_objective = [](Iterator at) {
  return at->kind == Kind::kw_minimize || at->kind == Kind::kw_maximize;
};
constexpr auto is_entry_due = [](Iterator at) {
  return at->kind != Kind::right_brace && at->kind != Kind::end && !begins_declaration(at);
};
constexpr auto is_kind = [](Iterator at) {
  return at->kind == Kind::word && (at->soft == Soft::declaration || !is_given(at + 1));
};
constexpr auto follows_name = [](Iterator at) {
  return at->kind == Kind::left_brace || at->kind == Kind::assign || at->kind == Kind::left_paren;
};
constexpr auto is_not_end = [](Iterator at) { return at->kind != Kind::end; };
/// `param a, b`: the list goes on after a comma within its line. One that ends its line is an
/// error, and it goes on where a name follows.
constexpr auto is_comma_within = [](Iterator at) {
  return at->kind == Kind::comma && !at[1].starts_line;
};
constexpr auto is_last_comma = [](Iterator at) {
  return at->kind == Kind::comma && at[1].starts_line;
};

/// What a rule does with a failed expectation: report it and go on where \a Resume says.
template <const Token* (*Resume)(const State&, const Token*, const Token*)>
struct Recovers {
  template <typename Ctx>
  x3::error_handler_result on_error(Iterator& first, const Iterator&,
                                    const x3::expectation_failure<Iterator>& failure,
                                    const Ctx& context) const {
    State& state = state_of(context);
    report(state, failure.where(), failure.which());
    first = Resume(state, first, failure.where());
    return x3::error_handler_result::accept;
  }
};

/// A body whose '}' is missing ends where that was noticed.
const Token* stay(const State&, const Token*, const Token* where) { return where; }

/// `param a, b = 1`: an entry for each, all with the one keyword.
struct ParamList {
  Span keyword;
  std::vector<ast::Entry> entries;
};

struct EntryClass : Recovers<next_entry> {};
struct ParamListClass : Recovers<next_entry> {};
struct BodyClass : Recovers<stay> {};
struct UseClass : Recovers<next_declaration> {};
struct DeclarationClass : Recovers<next_declaration> {};

// Actions of entries.
constexpr auto begin(EntryKind kind) {
  return [kind](auto& context) {
    x3::_val(context).kind = kind;
    x3::_val(context).keyword = state_of(context).span(*x3::_attr(context));
  };
}
constexpr auto begin_objective = [](auto& context) {
  const Token& word = *x3::_attr(context);
  x3::_val(context).kind =
      word.kind == Kind::kw_minimize ? EntryKind::minimize : EntryKind::maximize;
  x3::_val(context).keyword = state_of(context).span(word);
};
constexpr auto set_given = [](auto& context) {
  const bool assigned = x3::_attr(context)->kind == Kind::assign;
  x3::_val(context).kind = assigned ? EntryKind::assign : EntryKind::narrow;
};
constexpr auto set_name = [](auto& context) {
  x3::_val(context).name = make_name(state_of(context), *x3::_attr(context));
};
constexpr auto add_word = [](auto& context) {
  x3::_val(context).words.push_back(make_name(state_of(context), *x3::_attr(context)));
};
constexpr auto set_label = [](auto& context) {
  const Token& string = *x3::_attr(context);
  x3::_val(context).label = make_string(state_of(context), string);
  x3::_val(context).label_span = state_of(context).span(string);
};
constexpr auto set_value = [](auto& context) {
  x3::_val(context).value = std::move(x3::_attr(context));
};
constexpr auto set_value2 = [](auto& context) {
  x3::_val(context).value2 = std::move(x3::_attr(context));
};
constexpr auto set_body = [](auto& context) {
  x3::_val(context).body = std::move(x3::_attr(context));
};

constexpr auto set_param_kind = [](auto& context) { x3::_val(context).kind = EntryKind::param; };
constexpr auto begin_params = [](auto& context) {
  x3::_val(context).keyword = state_of(context).span(*x3::_attr(context));
};
constexpr auto add_param = [](auto& context) {
  ParamList& list = x3::_val(context);
  list.entries.push_back(std::move(x3::_attr(context)));
  list.entries.back().keyword = list.keyword;
  if (list.entries.size() == 1) list.entries.back().span.begin = list.keyword.begin;
};
constexpr auto report_last_comma = [](auto& context) {
  State& state = state_of(context);
  const Token* comma = x3::_attr(context);
  state.last_error = comma;
  state.diagnostics
      .error(state.span(*comma), "expected a parameter after ',', got the end of the line")
      .with_help("go on with the list on this line, or begin the next one with 'param'");
};

/// What failed has no span and is dropped; it has been reported.
constexpr auto add_entry = [](auto& context) {
  if (x3::_attr(context).span) x3::_val(context).push_back(std::move(x3::_attr(context)));
};
constexpr auto add_params = [](auto& context) {
  std::vector<ast::Entry>& params = x3::_attr(context).entries;
  std::vector<ast::Entry>& entries = x3::_val(context);
  entries.insert(entries.end(), std::make_move_iterator(params.begin()),
                 std::make_move_iterator(params.end()));
};
constexpr auto take_entries = [](auto& context) {
  x3::_val(context) = std::move(x3::_attr(context));
};

// Actions of declarations and files.
constexpr auto set_kind = [](auto& context) {
  const Token* kind = x3::_attr(context);
  x3::_val(context).kind = make_name(state_of(context), *kind);
  x3::_val(context).doc = documentation(state_of(context), kind);
};
constexpr auto report_missing_name = [](auto& context) {
  report(state_of(context), x3::_attr(context), "a name");
};
constexpr auto set_parameter_default = [](auto& context) {
  x3::_val(context).default_value = std::move(x3::_attr(context));
};
constexpr auto add_parameter = [](auto& context) {
  x3::_val(context).parameters.push_back(std::move(x3::_attr(context)));
};
constexpr auto set_base = [](auto& context) {
  x3::_val(context).base = make_name(state_of(context), *x3::_attr(context));
};
constexpr auto set_entries = [](auto& context) {
  x3::_val(context).has_body = true;
  x3::_val(context).entries = std::move(x3::_attr(context));
};
constexpr auto set_path = [](auto& context) {
  x3::_val(context).path = make_string(state_of(context), *x3::_attr(context));
  x3::_val(context).span = state_of(context).span(*x3::_attr(context));
};
constexpr auto add_use = [](auto& context) {
  if (x3::_attr(context).span)
    state_of(context).result.uses.push_back(std::move(x3::_attr(context)));
};
constexpr auto add_declaration = [](auto& context) {
  if (x3::_attr(context).span)
    state_of(context).result.declarations.push_back(std::move(x3::_attr(context)));
};

// clang-format off
const x3::rule<EntryClass, ast::Entry> entry = "an entry";
const x3::rule<struct ParamClass, ast::Entry> param = "a name";
const x3::rule<ParamListClass, ParamList> params = "a list of parameters";
const x3::rule<struct EntriesClass, std::vector<ast::Entry>> entries = "entries";
const x3::rule<BodyClass, std::vector<ast::Entry>> body = "'{'";
const x3::rule<struct ParameterClass, ast::Parameter> parameter = "a name";
const x3::rule<DeclarationClass, ast::Declaration> declaration = "a declaration";
const x3::rule<UseClass, ast::Use> use = "a use";
const x3::rule<struct FileClass, x3::unused_type> file = "a file";

const auto name = token(Kind::word);
const auto string = token(Kind::string);
const auto comma = token(Kind::comma);
const auto value = expression[set_value];

// Entries, by the keyword they begin with. A word that is given a value is a field, whatever the word.
const auto label = -(when(begins_label) >> string[set_label] >> token(Kind::colon));
const auto ops =
      name[add_word]
    | (token(Kind::left_brace) > name[add_word] > *(comma >> name[add_word]) > -comma > token(Kind::right_brace, "',' or '}'"))
    | due("a name or '{'");

const auto given     = name[set_name] > token_if(is_given, "'=' or 'in'")[set_given] > value;
const auto ret       = token(Kind::kw_return)[begin(EntryKind::ret)] > value;
const auto repeat    = token(Kind::kw_repeat)[begin(EntryKind::repeat)] > value > -(token(Kind::kw_as) > name[set_name]) > body[set_body];
const auto item      = token(Kind::kw_item)[begin(EntryKind::item)] > string[set_label] > -(token_if(is_each, "") > name[add_word]) > body[set_body];
const auto require   = token(Kind::kw_require)[begin(EntryKind::require)] > label > value;
const auto prefer    = token(Kind::kw_prefer)[begin(EntryKind::prefer)] > label > value > -(soft(Soft::weight) > expression[set_value2]);
const auto objective = token_if(is_objective, "")[begin_objective] > value;
const auto state     = soft(Soft::state)[begin(EntryKind::state)] > name[set_name] > token(Kind::colon) > value > -body[set_body];
const auto on        = soft(Soft::on)[begin(EntryKind::on)] > ops > body[set_body];
const auto save      = soft(Soft::save)[begin(EntryKind::save)] > name[set_name] > -(token(Kind::colon) > value);
const auto fuse      = soft(Soft::fuse)[begin(EntryKind::fuse)] > name[set_name] > token(Kind::assign) > value;
const auto default_  = soft(Soft::default_)[begin(EntryKind::default_)] > name[set_name] > token(Kind::assign) > value;
const auto recompute = soft(Soft::recompute)[begin(EntryKind::recompute)] > name[set_name] > body[set_body];
const auto pool      = soft(Soft::pool)[begin(EntryKind::pool)] > name[set_name] > body[set_body];
const auto observed  = soft(Soft::observed)[begin(EntryKind::observed)] > body[set_body];
const auto beside    = soft(Soft::beside)[begin(EntryKind::beside)] > name[set_name] > body[set_body];

const auto entry_def = spanned[
    ret | repeat | item | require | prefer | objective
  | state | on | save | fuse | default_ | recompute | pool | observed | beside
  | given | due("an entry")];

const auto param_def = spanned[
    name[set_name][set_param_kind] >> -(token(Kind::kw_in) > expression[set_value2]) >> -(token(Kind::assign) > value)];
const auto params_def =
    token(Kind::kw_param)[begin_params] > param[add_param]
      > *( (token_if(is_comma_within, "") > param[add_param])
         | (token_if(is_last_comma, "")[report_last_comma] >> param[add_param]) );

const auto entries_def =
    *( token_if(is_separator, "")
     | params[add_params]
     | (when(is_entry_due) >> entry[add_entry]) );

const auto body_def =
    token(Kind::left_brace) > nested[entries[take_entries]] > token(Kind::right_brace, "an entry or '}'");

// Declarations.
const auto parameter_def = name[set_name] >> -(token(Kind::assign) > expression[set_parameter_default]);
const auto parameters =
    token(Kind::left_paren) > listed(parameter[add_parameter]) > token(Kind::right_paren, "',' or ')'");
const auto base = token(Kind::assign) > name[set_base];
const auto header_name = name[set_name] | &token_if(follows_name, "")[report_missing_name] | due("a name");

const auto declaration_def = spanned[
    (token_if(is_kind, "")[set_kind] | due("a declaration")) >> header_name >> -parameters
      >> ( (base >> -body[set_entries]) | body[set_entries] | due("'{' or '='") )];

const auto use_def = token(Kind::kw_use) > string[set_path];

const auto file_def =
    *( token_if(is_separator, "")
     | use[add_use]
     | (when(is_not_end) >> (declaration[add_declaration])) );
// clang-format on

BOOST_SPIRIT_DEFINE(entry, param, params, entries, body, parameter, declaration, use, file)

}  // namespace

void parse_tokens(State& parsing) {
  const auto reference = std::ref(parsing);
  Iterator first = parsing.begin;
  x3::parse(first, parsing.end, x3::with<StateTag>(reference)[file]);
  PLIMSOLL_ASSERT(first == parsing.end);
}

}  // namespace plimsoll::syntax
