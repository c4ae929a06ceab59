// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/allocator.hpp"

namespace plimsoll::test {

/// The policy of ACCOUNTING.md D once more, slow and obvious, to set beside runtime/allocator.hpp.
/// It has no blocks, lists or pools: a segment is a range of bytes with the ranges in use and, by
/// page, whether there is memory. What is free is computed anew for every question.
class ReferenceAllocator {
 public:
  using Bytes = std::int64_t;
  struct Use {
    Bytes begin, end;
    Bytes requested;
    bool freed = false;  ///< but other streams still use it
    std::vector<int> other_streams;
  };
  struct Segment {
    Bytes base, size;
    int stream;
    bool small;
    std::vector<bool> page_there;  ///< of an expandable segment; empty: all is there
    std::map<Bytes, Use> uses;     ///< by address
  };
  struct Extent {
    Bytes begin, end;
    std::size_t segment;
    Bytes size() const { return end - begin; }
  };

  ReferenceAllocator(Bytes total, Bytes capacity, const runtime::AllocatorOptions& o)
      : total_(total), capacity_(capacity), o_(o) {}

  std::optional<Bytes> allocate(Bytes requested, int stream) {
    const Bytes size = round(requested);
    const bool small = size <= o_.small_size;
    auto place = look(size, stream, small);
    if (!place) place = fresh(size, stream, small);
    if (!place && release_oversized(size, stream, small)) place = fresh(size, stream, small);
    if (!place) {
      settle_all();
      release_cached();
      place = fresh(size, stream, small);
    }
    if (!place) return std::nullopt;
    const Bytes rest = place->size() - size;
    const bool split = small || o_.expandable_segments
                           ? rest >= o_.min_block
                           : size < o_.max_split_size && rest > o_.small_size;
    const Bytes end = split ? place->begin + size : place->end;
    segments_[place->segment].uses[place->begin] = {place->begin, end, requested, false, {}};
    return place->begin;
  }

  void free(Bytes address) {
    for (Segment& s : segments_)
      if (const auto use = s.uses.find(address); use != s.uses.end()) {
        if (use->second.other_streams.empty())
          s.uses.erase(use);
        else
          use->second.freed = true;
        return;
      }
  }

  void record_stream(Bytes address, int stream) {
    for (Segment& s : segments_)
      if (const auto use = s.uses.find(address); use != s.uses.end() && s.stream != stream)
        use->second.other_streams.push_back(stream);
  }

  void finished(int stream) {
    for (Segment& s : segments_) {
      for (auto& [at, use] : s.uses)
        if (use.freed) std::erase(use.other_streams, stream);
      std::erase_if(s.uses, [](const auto& entry) {
        return entry.second.freed && entry.second.other_streams.empty();
      });
    }
  }

  void release_cached() {
    for (std::size_t i = 0; i < segments_.size();) {
      Segment& s = segments_[i];
      for (const Extent& e : extents(i, true))
        for (std::size_t page = 0; page < s.page_there.size(); ++page) {
          const Bytes begin = s.base + static_cast<Bytes>(page) * page_size(s);
          if (begin >= e.begin && begin + page_size(s) <= e.end) s.page_there[page] = false;
        }
      const bool nothing_there = std::count(s.page_there.begin(), s.page_there.end(), true) == 0;
      if (s.uses.empty() && nothing_there)
        segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
  }

  Bytes requested() const {
    Bytes sum = 0;
    for (const Segment& s : segments_)
      for (const auto& [at, use] : s.uses) sum += use.freed ? 0 : use.requested;
    return sum;
  }
  Bytes allocated() const {
    Bytes sum = 0;
    for (const Segment& s : segments_)
      for (const auto& [at, use] : s.uses) sum += use.freed ? 0 : use.end - use.begin;
    return sum;
  }
  Bytes active() const {
    Bytes sum = 0;
    for (const Segment& s : segments_)
      for (const auto& [at, use] : s.uses) sum += use.end - use.begin;
    return sum;
  }
  Bytes reserved() const {
    Bytes sum = 0;
    for (const Segment& s : segments_)
      sum += s.page_there.empty()
                 ? s.size
                 : std::count(s.page_there.begin(), s.page_there.end(), true) * page_size(s);
    return sum;
  }
  Bytes inactive_split() const {
    Bytes sum = 0;
    for (std::size_t i = 0; i < segments_.size(); ++i)
      if (segments_[i].page_there.empty() && !segments_[i].uses.empty())
        for (const Extent& e : extents(i, true)) sum += e.size();
    return sum;
  }
  std::size_t segments() const { return segments_.size(); }

  Bytes round(Bytes n) const {
    if (n < o_.min_block) return o_.min_block;
    Bytes power = 1;
    std::size_t exponent = 0;
    while (power * 2 <= n) power *= 2, ++exponent;
    const std::size_t index = exponent < 20 ? 0 : std::min<std::size_t>(exponent - 20, 15);
    const Bytes d = o_.roundup_power2_divisions[index];
    const Bytes step = d > 1 && n > o_.min_block * d ? power / d : o_.min_block;
    Bytes rounded = power;
    if (step == o_.min_block) rounded = 0;
    while (rounded < n) rounded += step * std::max<Bytes>(1, (n - rounded) / step);
    return rounded;
  }

 private:
  Bytes page_size(const Segment& s) const { return s.small ? o_.small_segment : o_.large_segment; }

  bool there(const Segment& s, Bytes address) const {
    return s.page_there.empty() ||
           s.page_there[static_cast<std::size_t>((address - s.base) / page_size(s))];
  }

  /// Longest unused stretches of a segment that have memory (or have none), by address.
  std::vector<Extent> extents(std::size_t index, bool with_memory) const {
    const Segment& s = segments_[index];
    std::vector<Bytes> borders{s.base, s.base + s.size};
    for (const auto& [at, use] : s.uses) borders.insert(borders.end(), {use.begin, use.end});
    for (std::size_t p = 0; p < s.page_there.size(); ++p)
      borders.push_back(s.base + static_cast<Bytes>(p) * page_size(s));
    std::sort(borders.begin(), borders.end());
    std::vector<Extent> found;
    for (std::size_t b = 0; b + 1 < borders.size(); ++b) {
      const Bytes begin = borders[b], end = borders[b + 1];
      if (begin == end || there(s, begin) != with_memory) continue;
      const auto after = s.uses.upper_bound(begin);
      if (after != s.uses.begin() && std::prev(after)->second.end > begin) continue;  // in use
      if (!found.empty() && found.back().end == begin)
        found.back().end = end;
      else
        found.push_back({begin, end, index});
    }
    return found;
  }

  std::vector<Extent> extents(int stream, bool small, bool with_memory) const {
    std::vector<Extent> all;
    for (std::size_t i = 0; i < segments_.size(); ++i)
      if (segments_[i].stream == stream && segments_[i].small == small)
        for (const Extent& e : extents(i, with_memory)) all.push_back(e);
    return all;
  }

  std::optional<Extent> look(Bytes size, int stream, bool small) const {
    std::vector<Extent> free = extents(stream, small, true);
    std::sort(free.begin(), free.end(), [](const Extent& a, const Extent& b) {
      return a.size() != b.size() ? a.size() < b.size() : a.begin < b.begin;
    });
    std::erase_if(free, [&](const Extent& e) { return e.size() < size; });
    if (free.empty()) return std::nullopt;
    std::size_t best = 0;
    if (o_.expandable_segments) {
      const auto could_be = [&](const Extent& e) {
        for (const Extent& u : extents(e.segment, false))
          if (u.begin == e.end) return e.size() + u.size();
        return e.size();
      };
      while (best + 1 < free.size() && could_be(free[best + 1]) < could_be(free[best])) ++best;
    }
    const Bytes found = free[best].size();
    if (size < o_.max_split_size && found >= o_.max_split_size) return std::nullopt;
    if (size >= o_.max_split_size && found >= size + o_.max_non_split_rounding) return std::nullopt;
    return free[best];
  }

  std::optional<Extent> fresh(Bytes size, int stream, bool small) {
    Bytes bytes = o_.small_segment;
    if (!small) bytes = o_.large_segment;
    if (!small && size >= o_.min_large_segment)
      bytes = (size + o_.round_large - 1) / o_.round_large * o_.round_large;
    if (o_.limit - reserved() < bytes) return std::nullopt;
    if (o_.expandable_segments) return expand(size, stream, small);
    if (capacity_ - reserved() < bytes) return std::nullopt;
    segments_.push_back({next_, bytes, stream, small, {}, {}});
    next_ += bytes;
    return Extent{next_ - bytes, next_, segments_.size() - 1};
  }

  std::optional<Extent> expand(Bytes size, int stream, bool small) {
    for (const Extent& gap : extents(stream, small, false)) {
      Bytes begin = gap.begin;
      for (const Extent& f : extents(gap.segment, true))
        if (f.end == gap.begin) begin = f.begin;
      const Segment& s = segments_[gap.segment];
      const auto next_use = s.uses.lower_bound(begin);
      const Bytes end = next_use == s.uses.end() ? s.base + s.size : next_use->first;
      if (end - begin >= size) return back(gap.segment, begin, size);
    }
    Segment s{next_, 0, stream, small, {}, {}};
    const Bytes page = page_size(s);
    s.size = (std::max(total_ + total_ / 8, size) + page - 1) / page * page;
    s.page_there.assign(static_cast<std::size_t>(s.size / page), false);
    next_ += s.size;
    segments_.push_back(s);
    const auto place = back(segments_.size() - 1, s.base, size);
    if (!place) segments_.pop_back();
    return place;
  }

  /// Memory under the pages of a stretch, gap by gap; those of a gap come all or not at all.
  std::optional<Extent> back(std::size_t index, Bytes begin, Bytes size) {
    Segment& s = segments_[index];
    const Bytes page = page_size(s);
    for (const Extent& gap : extents(index, false)) {
      const Bytes wanted = std::min(gap.end, begin + size) - gap.begin;
      if (gap.end <= begin || wanted <= 0) continue;
      const Bytes pages = (wanted + page - 1) / page;
      if (reserved() + pages * page > capacity_) return std::nullopt;
      for (Bytes p = 0; p < pages; ++p)
        s.page_there[static_cast<std::size_t>((gap.begin - s.base) / page + p)] = true;
    }
    for (const Extent& e : extents(index, true))
      if (e.begin == begin) return e;
    return std::nullopt;
  }

  bool release_oversized(Bytes size, int stream, bool small) {
    if (o_.max_split_size == runtime::AllocatorOptions::kNever || o_.expandable_segments)
      return false;
    const Bytes wanted = std::max(size, o_.max_split_size);
    std::vector<Extent> free = extents(stream, small, true);
    std::sort(free.begin(), free.end(), [](const Extent& a, const Extent& b) {
      return a.size() != b.size() ? a.size() < b.size() : a.begin < b.begin;
    });
    std::vector<Bytes> gone;  // bases of segments
    Bytes released = 0;
    const auto whole = [&](const Extent& e) { return segments_[e.segment].uses.empty(); };
    for (const Extent& e : free)
      if (e.size() >= wanted && gone.empty()) {
        if (!whole(e)) return false;
        gone.push_back(e.begin);
        released = e.size();
      }
    if (gone.empty())
      for (auto e = free.rbegin(); e != free.rend(); ++e) {
        if (e->size() < o_.max_split_size || released >= wanted) break;
        if (!whole(*e)) continue;
        gone.push_back(e->begin);
        released += e->size();
      }
    std::erase_if(segments_, [&](const Segment& s) {
      return std::find(gone.begin(), gone.end(), s.base) != gone.end();
    });
    return released >= wanted;
  }

  void settle_all() {
    for (Segment& s : segments_) std::erase_if(s.uses, [](auto& u) { return u.second.freed; });
  }

  Bytes total_, capacity_;
  runtime::AllocatorOptions o_;
  Bytes next_ = Bytes{1} << 21;
  std::vector<Segment> segments_;  ///< by address
};

}  // namespace plimsoll::test
