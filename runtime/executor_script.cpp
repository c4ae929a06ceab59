// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

// Where the device looks at no more than requests, a chunk's first micro-batch writes a script, and
// the others are played from it.

#include <utility>

#include "runtime/pass_script.hpp"
#include "runtime/segment_frame.hpp"

namespace plimsoll::runtime {

void Executor::Script::begins(std::size_t most_lines) {
  written().lines.reserve(most_lines);
  written().infos.reserve(most_lines / 2);
}

void Executor::Script::allocates(TensorId tensor, const TensorInfo& info, const StepPoint& at) {
  if (vacant_.empty()) vacant_.push_back(places_++);
  if (place_of_.size() <= tensor) place_of_.resize(tensor + 1);
  place_of_[tensor] = vacant_.back();
  written().lines.push_back({Line::Kind::allocate, vacant_.back(), at.segment, at.op});
  written().infos.push_back(info);
  vacant_.pop_back();
}

void Executor::Script::frees(TensorId tensor, const StepPoint& at) {
  std::vector<Line>& lines = written().lines;
  const std::uint32_t place = place_of_[tensor];
  if (!lines.empty() && lines.back().kind == Line::Kind::allocate && lines.back().place == place)
    lines.back().kind = Line::Kind::touch;
  else
    lines.push_back({Line::Kind::free, place, at.segment, at.op});
  vacant_.push_back(place);
}

void Executor::Script::grows(std::size_t segment, const StepPoint& at) {
  written().lines.push_back(
      {Line::Kind::grow, static_cast<std::uint32_t>(segment), at.segment, at.op});
}

void Executor::Script::ends(const StepPoint& at) {
  Pass& pass = written();
  pass.end = {Line::Kind::free, 0, at.segment, at.op};
  pass.is_complete = true;
}

void Executor::write_script() {
  if (scripts_.empty()) return;
  const auto chunk = static_cast<std::size_t>(at_.chunk);
  std::size_t most_lines = 0;
  for (const PlannedSegment& s : plan_.chunks[chunk].segments) most_lines += events(s).size();
  written_ = &scripts_[chunk];
  written_->begins(most_lines);
}

void Executor::end_script() {
  if (written_) written_->ends(at_);
  written_ = nullptr;
}

TensorId Executor::allocate(const TensorInfo& info) {
  const TensorId tensor = device_.allocate(info);
  if (written_) written_->allocates(tensor, info, at_);
  return tensor;
}

void Executor::free(TensorId tensor) {
  if (written_) written_->frees(tensor, at_);
  device_.free(tensor);
}

/// The pass of a micro-batch that begins; false where there is no script of it yet.
bool Executor::play_script(MicroBatch& micro_batch) {
  if (scripts_.empty()) return false;
  Script& script = scripts_[static_cast<std::size_t>(at_.chunk)];
  Script::Pass& pass = script.pass(backward());
  if (!pass.is_complete) return false;
  const PlannedChunk& chunk = plan_.chunks[static_cast<std::size_t>(at_.chunk)];
  std::vector<TensorId>& places = micro_batch.places;
  places.resize(script.places(), kNoTensor);
  auto info = pass.infos.begin();
  const Script::Line* line = pass.lines.data();
  const auto arrive = [&](const Script::Line& l) {
    at_.segment = l.segment;
    at_.op = l.op;
  };
  try {
    for (const Script::Line* end = line + pass.lines.size(); line != end; ++line) {
      switch (line->kind) {
        case Script::Line::Kind::allocate:
          info->micro_batch = at_.micro_batch;
          places[line->place] = device_.allocate(*info++);
          break;
        case Script::Line::Kind::free:
          device_.free(std::exchange(places[line->place], kNoTensor));
          break;
        case Script::Line::Kind::touch:
          info->micro_batch = at_.micro_batch;
          device_.touch(*info++);
          break;
        case Script::Line::Kind::grow:
          if (!grown_) grow(chunk.segments[line->place]);
          break;
      }
    }
  } catch (const OutOfMemory&) {
    arrive(*line);
    throw;
  }
  arrive(pass.end);
  return true;
}

}  // namespace plimsoll::runtime
