// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/assist_place.hpp"

#include <algorithm>
#include <iterator>

namespace plimsoll::assist {

namespace {

using syntax::Soft;
using syntax::Token;
using Tok = syntax::Kind;

constexpr bool is_operand_end(const Token& t) {
  return t.kind == Tok::word || t.kind == Tok::number || t.kind == Tok::string ||
         t.kind == Tok::kw_true || t.kind == Tok::kw_false || t.kind == Tok::right_paren ||
         t.kind == Tok::right_bracket || t.kind == Tok::right_brace;
}

/// Entries whose braces hold entries.
bool opens_body(std::string_view entry) {
  static constexpr std::string_view kWords[] = {"repeat", "item",     "state",  "on",
                                                "pool",   "observed", "beside", "recompute"};
  return std::find(std::begin(kWords), std::end(kWords), entry) != std::end(kWords);
}

class Reader {
 public:
  Reader(std::string_view text, const std::vector<Token>& tokens) : text_(text), tokens_(tokens) {}

  Place read(std::uint32_t cursor) {
    std::size_t i = 0;
    for (; i < tokens_.size(); ++i) {
      const Token& t = tokens_[i];
      if (t.kind == Tok::end || t.end > cursor) break;
      // The word that the cursor stands at the end of is not written yet.
      if (t.end == cursor && (t.kind == Tok::word || syntax::is_reserved(t.kind))) break;
      take(i);
    }
    if (i > 0) {
      place_.before = spelling(tokens_[i - 1]);
      place_.after_number = tokens_[i - 1].kind == Tok::number;
    }
    if (!place_.open.empty()) gather();
    return std::move(place_);
  }

 private:
  std::string spelling(const Token& t) const {
    return std::string(text_.substr(t.begin, t.end - t.begin));
  }
  Frame* top() { return place_.open.empty() ? nullptr : &place_.open.back(); }

  void begin_declaration(std::size_t i) {
    place_ = Place{};
    place_.kind = spelling(tokens_[i]);
    start_ = i;
    header_ = 0;
  }

  void take(std::size_t i) {
    const Token& t = tokens_[i];
    // A declaration begins here whatever stands open: the body before is unfinished.
    const bool begins =
        t.soft == Soft::declaration && t.starts_line && i + 2 < tokens_.size() &&
        tokens_[i + 1].kind == Tok::word &&
        (tokens_[i + 2].kind == Tok::left_brace || tokens_[i + 2].kind == Tok::assign ||
         tokens_[i + 2].kind == Tok::left_paren) &&
        t.begin == line_start(t.begin);
    if (begins) return begin_declaration(i);
    if (place_.open.empty()) return take_at_top(i);
    switch (t.kind) {
      case Tok::left_paren:
      case Tok::left_bracket:
        return open_group();
      case Tok::left_brace:
        return open_brace(i);
      case Tok::right_paren:
      case Tok::right_bracket:
      case Tok::right_brace:
        return close(t.kind == Tok::right_brace);
      default:
        return top()->type == Frame::group ? take_in_group(i) : take_in_body(i);
    }
  }

  std::uint32_t line_start(std::uint32_t at) const {
    while (at > 0 && text_[at - 1] != '\n') --at;
    return at;
  }

  void take_at_top(std::size_t i) {
    const Token& t = tokens_[i];
    if (header_ > 0) {  // a block's parameters
      if (t.kind == Tok::left_paren) ++header_;
      if (t.kind == Tok::right_paren) --header_;
      if (t.kind == Tok::word && header_ == 1) place_.locals.push_back(spelling(t));
      return;
    }
    if (t.kind == Tok::left_paren) {
      header_ = 1;
    } else if (t.kind == Tok::left_brace) {
      place_.open.push_back({Frame::body, place_.kind, "", "", false});
    } else if (t.kind == Tok::assign) {
      place_.base_due = true;
    } else if (t.kind == Tok::right_brace) {
      place_ = Place{};
    } else if (t.kind == Tok::word) {
      if (place_.base_due) {
        place_.base = spelling(t);
        place_.base_due = false;
      } else if (place_.kind.empty() || place_.named) {
        begin_declaration(i);
      } else {
        place_.named = true;
      }
    }
  }

  void open_group() { place_.open.push_back({Frame::group, "", top()->field, top()->entry, true}); }

  void open_brace(std::size_t i) {
    Frame& at = *top();
    const bool after_on = at.entry == "on" && i > 0 && spelling(tokens_[i - 1]) == "on";
    if (at.type == Frame::group || at.due || after_on || !opens_body(at.entry)) {
      // A set, or what an expert does: { t => … }.
      place_.open.push_back({Frame::group, "", at.field, at.entry, true});
      return;
    }
    place_.open.push_back({Frame::body, at.entry, "", "", false});
  }

  void close(bool brace) {
    // A brace closes what an unfinished bracket left open.
    while (brace && place_.open.size() > 1 && top()->type == Frame::group &&
           place_.open[place_.open.size() - 2].type == Frame::group)
      place_.open.pop_back();
    place_.open.pop_back();
    if (place_.open.empty()) {
      place_ = Place{};
    } else {
      top()->due = false;
    }
  }

  void take_in_group(std::size_t i) { top()->due = !is_operand_end(tokens_[i]); }

  void take_in_body(std::size_t i) {
    Frame& at = *top();
    const Token& t = tokens_[i];
    const bool names_next = i + 1 < tokens_.size() && (tokens_[i + 1].kind == Tok::assign ||
                                                       tokens_[i + 1].kind == Tok::kw_in);
    const bool word = t.kind == Tok::word || syntax::is_reserved(t.kind);
    const bool inside_entry = t.kind == Tok::kw_and || t.kind == Tok::kw_or ||
                              t.kind == Tok::kw_not || t.kind == Tok::kw_in ||
                              t.kind == Tok::kw_as || t.soft == Soft::weight ||
                              t.soft == Soft::each;
    if (!word || inside_entry) {
      at.due = !is_operand_end(t) && t.kind != Tok::comma && t.kind != Tok::semicolon;
      if (t.kind == Tok::kw_as) at.due = false;
      if (t.soft == Soft::weight || t.soft == Soft::each) at.due = true;
      if (t.kind == Tok::string && (at.entry == "require" || at.entry == "prefer")) at.due = true;
      return;
    }
    if (at.due && t.kind != Tok::kw_param) {
      at.due = false;
      return;
    }
    const bool keyword = !names_next && (syntax::is_reserved(t.kind) ||
                                         (t.soft != Soft::none && t.soft != Soft::declaration));
    if (keyword) {
      at.entry = spelling(t);
      at.field.clear();
      at.due = t.kind == Tok::kw_require || t.kind == Tok::kw_prefer ||
               t.kind == Tok::kw_minimize || t.kind == Tok::kw_maximize ||
               t.kind == Tok::kw_return || t.kind == Tok::kw_repeat;
      return;
    }
    // The name after `save`, `state`, `on` … belongs to the entry that they began.
    const bool named_entry = i > 0 && spelling(tokens_[i - 1]) == at.entry && !at.entry.empty();
    at.field = spelling(t);
    if (!named_entry && at.entry != "param") at.entry.clear();
    if (at.entry == "param" || names_next) place_.locals.push_back(at.field);
  }

  /// What the whole declaration gives, before and after the cursor.
  void gather() {
    int depth = 0;
    for (std::size_t i = start_; i + 2 < tokens_.size(); ++i) {
      if (tokens_[i].kind == Tok::left_brace) ++depth;
      if (tokens_[i].kind == Tok::right_brace && --depth <= 0) return;
      if (depth == 1 && tokens_[i].kind == Tok::word && tokens_[i + 1].kind == Tok::assign &&
          tokens_[i + 2].kind == Tok::word && !tokens_[i + 2].starts_line)
        place_.given.emplace(spelling(tokens_[i]), spelling(tokens_[i + 2]));
    }
  }

  std::string_view text_;
  const std::vector<Token>& tokens_;
  Place place_;
  std::size_t start_ = 0;
  int header_ = 0;  ///< brackets of a block's parameters that stand open
};

}  // namespace

Place place_at(std::string_view text, const std::vector<Token>& tokens, std::uint32_t cursor) {
  return Reader(text, tokens).read(cursor);
}

}  // namespace plimsoll::assist
