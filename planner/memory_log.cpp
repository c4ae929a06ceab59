// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "planner/memory_log.hpp"

#include <algorithm>
#include <utility>

#include "planner/memory_log_text.hpp"

namespace plimsoll::logs {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
/// As far as a message may reach over lines that a terminal wrapped.
constexpr std::size_t kMessage = 1500;
/// Of a traceback, before the message.
constexpr std::size_t kTraceback = 20'000;
constexpr std::size_t kLastCalls = 1000;
/// Of a line, before the message.
constexpr std::size_t kLine = 2000;

/// Where the lines of a text begin.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {
    for (std::size_t at = 0; at < text.size();) {
      starts_.push_back(at);
      const std::size_t end = text.find('\n', at);
      at = end == kNone ? text.size() : end + 1;
    }
  }
  std::size_t size() const { return starts_.size(); }
  std::string_view operator[](std::size_t i) const {
    const std::size_t end = i + 1 < starts_.size() ? starts_[i + 1] : text_.size();
    std::string_view line = text_.substr(starts_[i], end - starts_[i]);
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    return line;
  }
  /// From 1.
  std::int64_t number(std::size_t at) const {
    return std::upper_bound(starts_.begin(), starts_.end(), at) - starts_.begin();
  }
  std::size_t start(std::int64_t number) const {
    return starts_[static_cast<std::size_t>(number) - 1];
  }

 private:
  std::string_view text_;
  std::vector<std::size_t> starts_;
};

/// "[rank3]:", "[Rank 3]", "[default3]:" (torchrun) before a line's own text.
std::optional<std::int64_t> rank_of(std::string_view line) {
  for (const std::string_view mark : {"[rank", "[Rank ", "[default", "[Rank"})
    if (const std::size_t at = line.find(mark); at != kNone)
      if (const auto n = count_at(line.substr(at + mark.size()))) return n;
  return std::nullopt;
}

/// Lines that were wrapped become one: blanks in a row become one.
std::string flat(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool blank = is_blank(c);
    if (!blank || (!out.empty() && out.back() != ' ')) out += blank ? ' ' : c;
  }
  return out;
}

/// The last call of a traceback that tells the part of a step. Autograd names itself in it; an
/// optimizer's step stands above it in no case.
Where where_of(std::string_view before) {
  const std::size_t begin = before.rfind("Traceback (most recent call last)");
  // Its last calls, where only those were pasted.
  before.remove_prefix(begin != kNone ? begin
                                      : before.size() - std::min(before.size(), kLastCalls));
  const auto says = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view w) { return before.find(w) != kNone; });
  };
  if (says({"optimizer.step(", "in _init_group", "in _init_state", "exp_avg", "in _fused_adam",
            "in _multi_tensor_adam", "in step_with_ready_grads"}))
    return Where::update;
  if (says({".backward(", "run_backward", "in backward"})) return Where::backward;
  if (says({"in forward", "_call_impl"})) return Where::forward;
  if (says({"in __init__", ".to(", ".cuda(", "from_pretrained", "load_state_dict"}))
    return Where::construction;
  return Where::unknown;
}

/// All "Process N has X memory in use" of a message. In a container the process itself is among
/// them, by a number that it does not know: the one that holds what PyTorch reserved.
void read_processes(std::string_view message, Failure& f) {
  std::vector<Seen> sizes;
  for (std::size_t at = message.find("Process "); at != kNone;
       at = message.find("Process ", at + 8))
    if (const auto one = size_after(message.substr(at, 60), " has ")) sizes.push_back(*one);
  if (!f.in_use && f.allocated) {
    const std::int64_t own =
        f.allocated->bytes + (f.unallocated ? f.unallocated->bytes : 0) - f.allocated->slack;
    auto best = sizes.end();
    for (auto s = sizes.begin(); s != sizes.end(); ++s)
      if (s->bytes >= own && (best == sizes.end() || s->bytes < best->bytes)) best = s;
    if (best != sizes.end()) {
      f.in_use = *best;
      sizes.erase(best);
      if (sizes.empty()) f.others = Seen{};
    }
  }
  for (const Seen& one : sizes) {
    if (!f.others) f.others = Seen{};
    f.others->bytes += one.bytes;
    f.others->slack += one.slack;
  }
}

/// PyTorch 2.1 and later ("capacty" is how 2.1 spelled it).
void read_sentences(std::string_view m, Failure& f) {
  f.gpu = count_after(m, "GPU ");
  f.capacity = size_after(m, "total capacity of ");
  if (!f.capacity) f.capacity = size_after(m, "total capacty of ");
  f.free = size_before(m, " is free");
  f.in_use = size_after(m, "this process has ");
  f.allowed = size_before(m, " allowed");
  f.allocated = size_before(m, " is allocated by PyTorch");
  if (!f.allocated) f.allocated = size_before(m, " allocated by PyTorch");
  f.graphs = size_before(m, " allocated in private pools");
  f.unallocated = size_before(m, " is reserved by PyTorch but unallocated");
  read_processes(m, f);
}

/// Before that: all in one pair of parentheses; "cached" of 1.3 and before is what is reserved and
/// not allocated (it is the smaller of the two in every message seen).
void read_parentheses(std::string_view m, Failure& f) {
  f.gpu = count_after(m, "(GPU ");
  f.capacity = size_before(m, " total capacity");
  f.free = size_before(m, " free");
  f.allowed = size_before(m, " allowed");
  f.allocated = size_before(m, " already allocated");
  const auto reserved = size_before(m, " reserved in total by PyTorch");
  if (!reserved) f.unallocated = size_before(m, " cached");
  if (reserved && f.allocated)
    f.unallocated = Seen{std::max<std::int64_t>(0, reserved->bytes - f.allocated->bytes),
                         reserved->slack + f.allocated->slack};
}

void read_failures(std::string_view text, const Lines& lines, MemoryLog& log) {
  constexpr std::string_view kTried = "ried to allocate ";
  for (std::size_t at = text.find("out of memory"); at != kNone;
       at = text.find("out of memory", at + 1)) {
    std::size_t end = text.find("out of memory", at + 1);
    end = std::min({end, text.size(), at + kMessage});
    const std::string message = flat(text.substr(at, end - at));
    Failure f;
    f.line = lines.number(at);
    const std::size_t line_start = lines.start(f.line);
    // What stands before it on its line, if that is a line that somebody would read.
    const std::size_t said_from = std::max(line_start, at - std::min(at, kLine));
    const std::string_view said = text.substr(said_from, at - said_from);
    f.rank = rank_of(said);
    f.segment = size_after(std::string_view(message).substr(0, 200), kTried);
    // "CUDA error: out of memory", "Cuda failure 2 'out of memory'" of CUDA itself and of NCCL.
    const bool driver = said.find("CUDA error: ") != kNone || said.find("Cuda failure") != kNone ||
                        said.find("cudaErrorMemoryAllocation") != kNone;
    if (!f.segment && !driver) continue;
    f.outside = !f.segment;
    if (f.segment && message.find("(GPU ") != std::string::npos)
      read_parentheses(message, f);
    else if (f.segment)
      read_sentences(message, f);
    // Ranks, and loggers beside them, repeat one message.
    const auto same = [&](const Failure& g) {
      return g.rank == f.rank && g.gpu == f.gpu && g.segment == f.segment &&
             g.allocated == f.allocated;
    };
    if (std::any_of(log.failures.begin(), log.failures.end(), same)) continue;
    const std::size_t from = line_start > kTraceback ? line_start - kTraceback : 0;
    f.where = where_of(text.substr(from, line_start - from));
    log.failures.push_back(f);
  }
}

/// "memory (MB) | allocated: 1.0 | max allocated: 2.0 | reserved: 3.0 | max reserved: 4.0" of
/// Megatron-LM (training/utils.py report_memory).
bool read_megatron(std::string_view line, Counters& c) {
  if (line.find("memory (MB)") == kNone || line.find("| allocated:") == kNone) return false;
  c.tool = "Megatron-LM";
  c.rank = rank_of(line);
  c.allocated = size_after(line, "| allocated:", "MB");
  c.most_allocated = size_after(line, "| max allocated:", "MB");
  c.reserved = size_after(line, "| reserved:", "MB");
  c.most_reserved = size_after(line, "| max reserved:", "MB");
  return true;
}

/// "MA 1.0 GB  Max_MA 2.0 GB  CA 3.0 GB  Max_CA 4 GB" of DeepSpeed (runtime/utils.py
/// see_memory_usage), "MemAllocated=1.0GB, MaxMemAllocated=2.0GB" (utils/timer.py).
bool read_deepspeed(std::string_view line, Counters& c) {
  if (line.find("MaxMemAllocated=") != kNone) {
    c.tool = "DeepSpeed";
    c.rank = rank_of(line);
    c.allocated = size_after(line, "MemAllocated=");
    c.most_allocated = size_after(line, "MaxMemAllocated=");
    return c.most_allocated.has_value();
  }
  const std::size_t at = line.find("Max_MA ");
  if (at == kNone) return false;
  c.tool = "DeepSpeed";
  c.rank = rank_of(line);
  c.most_allocated = size_after(line, "Max_MA ", "GB");
  c.most_reserved = size_after(line, "Max_CA ", "GB");
  if (const std::size_t now = line.rfind("MA ", at - 1); now != kNone && at > 0)
    c.allocated = size_at(line.substr(now + 3), "GB");
  c.reserved = size_after(line, " CA ", "GB");
  return true;
}

/// "step: 10  loss: 7.1  memory: 47.54GiB(59.86%)  tps: …" of torchtitan (components/metrics.py):
/// the most reserved since the last line.
bool read_torchtitan(std::string_view line, Counters& c) {
  const std::size_t at = line.find("memory:");
  if (at == kNone || line.find("tps:") == kNone || line.find("step:") == kNone) return false;
  // It colours its words on a terminal.
  std::string_view rest = line.substr(at + 7);
  while (!rest.empty() && !is_digit(rest.front())) {
    const bool escape = rest.front() == '\033';
    const std::size_t end = escape ? rest.find('m') : 0;
    if (end == kNone) return false;
    rest.remove_prefix(end + 1);
  }
  c.tool = "torchtitan";
  c.rank = rank_of(line);
  c.most_reserved = size_at(rest);
  return c.most_reserved.has_value();
}

/// The cells of a line, blanks around them taken off.
std::vector<std::string_view> cells_of(std::string_view line, char mark = ',') {
  std::vector<std::string_view> cells;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(mark, at), line.size());
    std::string_view cell = without_blanks(line.substr(at, end - at));
    while (!cell.empty() && is_blank(cell.back())) cell.remove_suffix(1);
    cells.push_back(cell);
    at = end + 1;
  }
  return cells;
}

/// torch.cuda.memory_summary(): a table with a row a metric, "| Allocated memory | current | peak |
/// …". False where the line is no row of one.
bool read_summary(std::string_view line, std::int64_t number, std::vector<Counters>& counters) {
  if (!line.starts_with("|")) return false;
  const std::vector<std::string_view> cells = cells_of(line, '|');
  if (cells.size() < 4) return false;
  const bool allocated = cells[1] == "Allocated memory";
  if (!allocated && cells[1] != "GPU reserved memory") return false;
  const auto now = size_at(cells[2]), most = size_at(cells[3]);
  if (!now || !most) return false;
  // The rows of one table follow each other, allocated first.
  if (counters.empty() || counters.back().tool != "PyTorch" || allocated) {
    counters.emplace_back();
    counters.back().tool = "PyTorch";
    counters.back().line = number;
  }
  Counters& c = counters.back();
  (allocated ? c.allocated : c.reserved) = now;
  (allocated ? c.most_allocated : c.most_reserved) = most;
  return true;
}

/// nvidia-smi: its table and what `--query-gpu=… --format=csv` prints, with its heading or without.
class Smi {
 public:
  explicit Smi(MemoryLog& log) : log_(log) {}

  void read(std::string_view line, std::int64_t number) {
    if (line.find("memory.used") != kNone && line.find(',') != kNone) {
      heading_ = cells_of(line);
      return;
    }
    if (line.starts_with("|"))
      read_table(line, number);
    else if (line.find(" MiB") != kNone && line.find(',') != kNone)
      read_csv(line, number);
  }

 private:
  void read_table(std::string_view line, std::int64_t number) {
    const std::size_t slash = line.find("MiB /");
    if (slash == kNone) {
      // The line above a GPU's numbers begins with its own.
      const std::string_view rest = without_blanks(line.substr(1));
      const auto n = count_at(rest);
      gpu_ = n && line.find("MiB") == kNone ? n : std::nullopt;
      return;
    }
    Device d;
    d.line = number;
    d.gpu = gpu_;
    std::size_t begin = slash;
    while (begin > 0 && is_digit(line[begin - 1])) --begin;
    const auto size = size_at(line.substr(begin));
    if (!size) return;
    d.used = *size;
    d.total = size_at(line.substr(slash + 5));
    log_.devices.push_back(d);
    gpu_.reset();
  }

  void read_csv(std::string_view line, std::int64_t number) {
    const std::vector<std::string_view> cells = cells_of(line);
    Device d;
    d.line = number;
    bool found = false;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string_view head = i < heading_.size() ? heading_[i] : "";
      if (head == "index") d.gpu = count_at(cells[i]);
      const bool is_size = cells[i].ends_with("MiB");
      if (!is_size) continue;
      const auto size = size_at(cells[i]);
      if (!size) continue;
      if (heading_.empty() ? !found : head.starts_with("memory.used")) {
        d.used = *size;
        found = true;
      } else if (heading_.empty() || head.starts_with("memory.total")) {
        d.total = size;
      }
    }
    // Without a heading, used and total may stand either way; the total is the larger.
    if (heading_.empty() && d.total && d.total->bytes < d.used.bytes) std::swap(d.used, *d.total);
    if (!found) return;
    if (heading_.empty() && !d.gpu && !cells.empty() && !cells.front().ends_with("MiB"))
      d.gpu = count_at(cells.front());
    log_.devices.push_back(d);
  }

  MemoryLog& log_;
  std::vector<std::string_view> heading_;
  std::optional<std::int64_t> gpu_;
};

}  // namespace

MemoryLog read_memory_log(std::string_view pasted) {
  MemoryLog log;
  const std::string plain = plain_text(pasted);
  const std::string_view text = plain;
  const Lines lines(text);
  read_failures(text, lines, log);
  Smi smi(log);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const auto number = static_cast<std::int64_t>(i) + 1;
    Counters c;
    c.line = number;
    if (read_megatron(line, c) || read_deepspeed(line, c) || read_torchtitan(line, c))
      log.counters.push_back(std::move(c));
    else if (!read_summary(line, number, log.counters) &&
             !read_server_line(line, number, log.server))
      smi.read(line, number);
  }
  return log;
}

}  // namespace plimsoll::logs
