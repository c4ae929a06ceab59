// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "runtime/report_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <utility>

#include "lang/diagnostics.hpp"
#include "lang/units.hpp"
#include "planner/report_parts.hpp"

namespace plimsoll::report {

namespace {

using runtime::MomentView;
using runtime::StepPart;
using runtime::StepPoint;
using runtime::StepTimeline;
using runtime::Timeline;
using runtime::TimelineColumn;

constexpr std::size_t kScale = 11;  ///< columns of the numbers at the left
constexpr std::size_t kHeight = 12;
/// Items that are listed of a peak, and of what tells two moments apart.
constexpr std::size_t kLines = 14, kDifferences = 8;

constexpr std::array<std::string_view, 9> kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

/// What the picture tells apart: from the bottom up, with its fill.
struct Layer {
  std::string_view name, fill;
  std::vector<Category> categories;
};

const std::array<Layer, 3>& layers() {
  static const std::array<Layer, 3> kLayers = {{
      {"states",
       "░",
       {Category::weights, Category::gradients, Category::master, Category::moments}},
      {"buffers, workspace",
       "▒",
       {Category::buffers, Category::workspace, Category::kv_cache, Category::overhead}},
      {"activations", "█", {Category::activations}},
  }};
  return kLayers;
}

std::int64_t layer_bytes(const Layer& layer, const runtime::CategoryBytes& bytes) {
  std::int64_t sum = 0;
  for (const Category c : layer.categories) sum += bytes[static_cast<std::size_t>(c)];
  return sum;
}

char letter(const StepPoint& at) {
  switch (at.part) {
    case StepPart::forward:
      return 'f';
    case StepPart::backward:
      return 'b';
    case StepPart::update:
      return 'u';
    case StepPart::between:
      return '-';
  }
  return ' ';
}

std::size_t fullest(const std::vector<TimelineColumn>& columns) {
  const auto most = std::max_element(
      columns.begin(), columns.end(),
      [](const TimelineColumn& a, const TimelineColumn& b) { return a.bytes < b.bytes; });
  return static_cast<std::size_t>(most - columns.begin());
}

std::string scale(std::size_t row, const std::string& top, const std::string& bottom) {
  return fmt::format("{:>{}} │", row + 1 == kHeight ? top : row == 0 ? bottom : "", kScale - 1);
}

std::string foot(const std::vector<TimelineColumn>& columns) {
  std::string out = std::string(kScale, ' ') + "└";
  for (const TimelineColumn& column : columns) out += column.many ? '~' : letter(column.at);
  return out + '\n';
}

std::string peak_mark(std::size_t column) {
  return std::string(kScale + 1 + column, ' ') + "▼ peak\n";
}

/// The stacked picture of a row of columns, from nothing up.
std::string picture(const std::vector<TimelineColumn>& columns) {
  const std::size_t peak = fullest(columns);
  const std::int64_t most = std::max<std::int64_t>(columns[peak].bytes, 1);
  // Halves of a row that a number of bytes is high, rounded.
  const auto height = [&](std::int64_t bytes) {
    const Int128 halves = 2 * static_cast<std::int64_t>(kHeight);
    return static_cast<std::size_t>((halves * bytes + most / 2) / most);
  };
  std::string out = peak_mark(peak);
  for (std::size_t row = kHeight; row-- > 0;) {
    out += scale(row, human_bytes(most), "0");
    for (const TimelineColumn& column : columns) {
      std::string_view mark = " ";
      std::int64_t so_far = 0;
      for (const Layer& layer : layers()) {
        const std::int64_t bytes = layer_bytes(layer, column.categories);
        so_far += bytes;
        if (bytes == 0 || mark != " ") continue;
        const std::size_t top = height(so_far);
        if (top >= 2 * row + 2)
          mark = layer.fill;
        else if (top == 2 * row + 1)
          mark = so_far == column.bytes && layer.fill == "█" ? "▄" : layer.fill;
      }
      out += mark;
    }
    out += '\n';
  }
  return out + foot(columns);
}

/// What rises above the least of the columns, in eighths of a row.
std::string close_up(const std::vector<TimelineColumn>& columns) {
  const std::size_t peak = fullest(columns);
  std::int64_t least = columns[peak].bytes;
  for (const TimelineColumn& c : columns) least = std::min(least, c.bytes);
  const std::int64_t range = std::max<std::int64_t>(columns[peak].bytes - least, 1);
  std::string out = peak_mark(peak);
  for (std::size_t row = kHeight; row-- > 0;) {
    out += scale(row, human_bytes(columns[peak].bytes), human_bytes(least));
    for (const TimelineColumn& column : columns) {
      // The least is one eighth high, so that it is seen.
      const Int128 all = 8 * static_cast<std::int64_t>(kHeight) - 1;
      const auto eighths = 1 + static_cast<std::size_t>(all * (column.bytes - least) / range);
      out += kEighths[eighths <= 8 * row ? 0 : std::min<std::size_t>(eighths - 8 * row, 8)];
    }
    out += '\n';
  }
  return out + foot(columns);
}

/// One line of bars a column, a part of the columns where there is no room for all.
std::string sparkline(const std::vector<TimelineColumn>& columns, Category category,
                      std::size_t width, std::int64_t most) {
  std::string out;
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t from = i * columns.size() / width;
    const std::size_t to = std::max(from + 1, (i + 1) * columns.size() / width);
    std::int64_t bytes = 0;
    for (std::size_t c = from; c < std::min(to, columns.size()); ++c)
      bytes = std::max(bytes, columns[c].categories[static_cast<std::size_t>(category)]);
    std::size_t eighths = 0;
    if (bytes > 0)
      eighths = std::max<std::size_t>(1, static_cast<std::size_t>(Int128{bytes} * 8 / most));
    out += kEighths[std::min<std::size_t>(eighths, 8)];
  }
  return out;
}

std::int64_t most_of(const StepTimeline& s, Category category) {
  std::int64_t most = 0;
  for (const TimelineColumn& c : s.columns)
    most = std::max(most, c.categories[static_cast<std::size_t>(category)]);
  for (const MomentView& m : s.parts)
    most = std::max(most, m.categories[static_cast<std::size_t>(category)]);
  return most;
}

/// First step beside steady state, a line a category.
std::string categories(const Timeline& t, const Style& style) {
  const std::size_t width = (style.width - 13 - 2 * 11 - 6) / 2;
  std::string out = fmt::format("  {:<11} {:<{}}  {:<{}} {:>10} {:>10}\n", "", "first step", width,
                                "steady step", width, "most", "at the peak");
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    const auto category = static_cast<Category>(i);
    const std::int64_t most =
        std::max({most_of(t.first, category), most_of(t.steady, category), std::int64_t{0}});
    if (most == 0) continue;
    out += fmt::format("  {:<11} {}  {} {:>10} {:>10}\n", label(category),
                       sparkline(t.first.columns, category, width, most),
                       sparkline(t.steady.columns, category, width, most),
                       human_bytes(most_of(t.steady, category)),
                       human_bytes(t.steady.peak.categories[i]));
  }
  return out;
}

const MomentView* part(const StepTimeline& s, StepPart which) {
  for (const MomentView& m : s.parts)
    if (m.at.part == which) return &m;
  return nullptr;
}

std::string where(const Timeline& t, const StepPoint& at) {
  if (at.micro_batch < 0) return "";
  return fmt::format(", micro-batch {} of {}{}", at.micro_batch, t.micro_batches,
                     t.chunks > 1 ? fmt::format(", chunk {} of {}", at.chunk, t.chunks) : "");
}

/// What \a a has live and \a b has not, and the reverse, largest first.
std::string differences(const MomentView& a, const MomentView& b, const Style& style) {
  std::map<std::pair<std::string, Category>, std::int64_t> sums;
  for (const auto& line : a.lines) sums[{line.name, line.category}] += line.bytes;
  for (const auto& line : b.lines) sums[{line.name, line.category}] -= line.bytes;
  std::vector<std::pair<std::int64_t, std::string>> list;
  for (const auto& [key, bytes] : sums)
    if (bytes != 0) list.emplace_back(bytes, key.first);
  std::stable_sort(list.begin(), list.end(), [](const auto& x, const auto& y) {
    return std::abs(x.first) > std::abs(y.first);
  });
  Table table({{Table::Align::right}, {Table::Align::left, style.width - 16}});
  std::int64_t rest = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i < kDifferences || list.size() == kDifferences + 1)
      table.add({signed_bytes(list[i].first), list[i].second});
    else
      rest += list[i].first;
  }
  if (list.size() > kDifferences + 1)
    table.add({signed_bytes(rest), fmt::format("{} smaller items", list.size() - kDifferences)});
  return table.str(style, 2);
}

/// "Why in the backward pass and not the forward?"
std::string why_there(const Timeline& t, const Style& style) {
  const MomentView* forward = part(t.steady, StepPart::forward);
  const MomentView* backward = part(t.steady, StepPart::backward);
  if (!forward || !backward) return "";
  const bool in_backward = backward->bytes >= forward->bytes;
  const MomentView& more = in_backward ? *backward : *forward;
  const MomentView& less = in_backward ? *forward : *backward;
  const char* names[] = {in_backward ? "backward" : "forward",
                         in_backward ? "forward" : "backward"};
  std::string out =
      more.bytes == less.bytes
          ? fmt::format("Forward and backward reach the same {}: {}, and {}.",
                        human_bytes(more.bytes), less.name, more.name)
          : fmt::format(
                "The {} holds {} more than the {} ever does: {} at {}{}, against {} at {}{}.",
                names[0], human_bytes(more.bytes - less.bytes), names[1], human_bytes(more.bytes),
                more.name, where(t, more.at), human_bytes(less.bytes), less.name,
                where(t, less.at));
  return paint(style, Paint::bold,
               fmt::format("Why in the {} and not in the {}\n", names[0], names[1])) +
         paragraph(style, out, 0) +
         fmt::format("Live in the {}, less what is live in the {}\n", names[0], names[1]) +
         differences(more, less, style);
}

std::string live_at(const MomentView& m, const Style& style) {
  Table table({{Table::Align::right}, {Table::Align::right}, {}, {Table::Align::left, 44}});
  std::vector<runtime::LiveLine> lines = m.lines;
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::int64_t rest = 0;
  const bool all = lines.size() <= kLines + 1;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!all && i >= kLines) {
      rest += lines[i].bytes;
      continue;
    }
    table.add({human_bytes(lines[i].bytes),
               percent(static_cast<double>(lines[i].bytes), static_cast<double>(m.bytes)),
               std::string(label(lines[i].category)), lines[i].name});
  }
  if (!all)
    table.add({human_bytes(rest), percent(static_cast<double>(rest), static_cast<double>(m.bytes)),
               "", fmt::format("{} smaller items", lines.size() - kLines)});
  return table.str(style, 2);
}

std::string moments(const Timeline& t, const Style& style) {
  Table table({{}, {Table::Align::right}, {}, {Table::Align::right}, {}});
  table.add({"", "first step", "", "steady step", ""});
  for (const StepPart which :
       {StepPart::forward, StepPart::backward, StepPart::update, StepPart::between}) {
    const MomentView* a = part(t.first, which);
    const MomentView* b = part(t.steady, which);
    if (!a || !b) continue;
    const bool named = which == StepPart::forward || which == StepPart::backward;
    table.add({std::string(runtime::name(which)), human_bytes(a->bytes), "", human_bytes(b->bytes),
               named ? "at " + b->name : ""});
  }
  return table.str(style, 2);
}

std::string legend() {
  std::string out;
  for (const Layer& layer : layers())
    out += fmt::format("{}{} {}", out.empty() ? "" : " · ", layer.fill, layer.name);
  return out;
}

}  // namespace

std::size_t timeline_columns(const Style& style) { return style.width - kScale - 2; }

std::string timeline_text(const Heading& heading, const Bill& bill, const Timeline& t,
                          const Style& style) {
  const MomentView& peak = t.steady.peak;
  const std::string stage = bill.stages.size() == 1 ? "" : fmt::format(", stage {}", t.place.stage);
  std::string out =
      paragraph(style,
                fmt::format("{} live at most, at {} (rank {}{}{})", human_bytes(peak.bytes),
                            peak.name, t.place.rank, stage, where(t, peak.at)),
                2);
  out += title(heading, bill, style);
  const bool cut = std::any_of(t.steady.columns.begin(), t.steady.columns.end(),
                               [](const TimelineColumn& c) { return c.many; });
  out += '\n' + paint(style, Paint::bold,
                      fmt::format("Live bytes of step {}, {} moments\n", t.steady.step,
                                  grouped(t.steady.moments)));
  out += picture(t.steady.columns);
  const std::string margin(kScale + 1, ' ');
  out += margin + legend() + '\n' + margin + "f forward, b backward, u optimizer step" +
         (cut ? ", ~ all passes between\n" : "\n");
  if (2 * t.around_moments < t.steady.moments && !t.around.empty()) {
    const TimelineColumn& first = t.around.front();
    const TimelineColumn& last = t.around.back();
    out += '\n' + paint(style, Paint::bold,
                        fmt::format("Around the peak: {} of micro-batch {}, {} of micro-batch {}\n",
                                    runtime::name(first.at.part), first.at.micro_batch,
                                    runtime::name(last.at.part), last.at.micro_batch));
    out += close_up(t.around);
  }
  out += '\n' + paint(style, Paint::bold, "Categories\n") + categories(t, style);
  out += '\n' + why_there(t, style);
  out += '\n' + paint(style, Paint::bold, "Most of each part\n") + moments(t, style);
  out += '\n' + paint(style, Paint::bold, "Live at the peak\n") + live_at(peak, style);
  return finish(style, out);
}

}  // namespace plimsoll::report
