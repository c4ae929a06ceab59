// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <algorithm>
#include <limits>

#include "lang/fields.hpp"

/// gpu, cluster and dtype declarations.
namespace plimsoll {

namespace {

/// A machine of more nodes, or a node of more GPUs, is a slip of the finger.
constexpr std::int64_t kMaxNodes = 1'000'000;
constexpr std::int64_t kMaxGpusPerNode = 100'000;

/// Nodes may be narrowed, GPUs of one may not.
constexpr Field machines(std::string_view name, bool required, std::int64_t most) {
  Field field{name, FieldType::integer, "8", kCount, Range::positive, required};
  field.narrows = name == "nodes";
  field.most = most;
  return field;
}

constexpr Field kGpuFields[] = {
    {"memory", FieldType::quantity, "80 GiB", kBytes, Range::positive, true},
    {"reserved", FieldType::quantity, "1.5 GiB", kBytes, Range::non_negative},
    {"sm", FieldType::integer, "90", kCount, Range::non_negative},
    {"multiprocessors", FieldType::integer, "132"},
    {"bandwidth", FieldType::quantity, "3.35 TB/s", kBytesPerSecond},
    {"nvlink", FieldType::quantity, "450 GB/s", kBytesPerSecond, Range::non_negative},
    {"nic", FieldType::quantity, "400 Gb/s", kBytesPerSecond, Range::non_negative},
    {"pcie", FieldType::quantity, "64 GB/s", kBytesPerSecond, Range::non_negative},
    {"price", FieldType::quantity, "2.5 USD/h", kMoneyPerSecond, Range::non_negative},
};
constexpr Field kPeak = {"peak_bf16", FieldType::quantity, "989 TFLOP/s", kFlopsPerSecond};
constexpr Field kEfficiency = {"efficiency", FieldType::share, "0.6"};

constexpr Field kClusterFields[] = {
    {"gpu", FieldType::reference, "h100_sxm", kCount, Range::positive, false, false, {}, Kind::gpu},
    machines("nodes", false, kMaxNodes),
    machines("gpus_per_node", false, kMaxGpusPerNode),
    {"nvlink_domain", FieldType::integer, "72"},
    {"host_memory", FieldType::quantity, "2 TiB", kBytes, Range::non_negative},
    {"pcie", FieldType::quantity, "64 GB/s", kBytesPerSecond, Range::non_negative},
    {"occupied", FieldType::quantity, "2 GiB", kBytes, Range::non_negative},
    {"nvlink", FieldType::quantity, "450 GB/s", kBytesPerSecond, Range::non_negative},
    {"nic", FieldType::quantity, "400 Gb/s", kBytesPerSecond, Range::non_negative},
    {"price", FieldType::quantity, "2.5 USD/h", kMoneyPerSecond, Range::non_negative},
};
constexpr Field kPoolFields[] = {
    {"gpu", FieldType::reference, "h100_sxm", kCount, Range::positive, true, false, {}, Kind::gpu},
    machines("nodes", true, kMaxNodes),
    machines("gpus_per_node", true, kMaxGpusPerNode),
};
constexpr Field kDTypeFields[] = {
    {"bits", FieldType::quantity, "4 + 8 / 32", kCount, Range::positive, true},
};

const Field* find_field(std::span<const Field> fields, std::string_view name) {
  for (const Field& field : fields)
    if (field.name == name) return &field;
  return nullptr;
}

/// `peak_fp8`, `gemm_efficiency`: families of fields.
bool is_peak(std::string_view name) { return name.starts_with("peak_") && name.size() > 5; }
bool is_efficiency(std::string_view name) { return name.ends_with("_efficiency"); }

std::vector<std::string> family_names(const std::vector<const ast::Entry*>& entries, bool peaks) {
  std::vector<std::string> names;
  for (const ast::Entry* entry : entries)
    if (is_field(*entry) &&
        (is_efficiency(entry->name.text) || (peaks && is_peak(entry->name.text))))
      names.push_back(entry->name.text);
  return names;
}

/// The named table row, or a row of a family with the name that was written.
Field row_for(std::span<const Field> fields, const std::string& name) {
  if (const Field* field = find_field(fields, name)) return *field;
  Field row = is_peak(name) ? kPeak : kEfficiency;
  row.name = name;
  return row;
}

/// Every numeric field that is given, checked.
std::map<std::string, Quantity> read_numbers(std::span<const Field> fields,
                                             const std::vector<const ast::Entry*>& entries,
                                             FieldReader& reader) {
  std::map<std::string, Quantity> numbers;
  for (const ast::Entry* entry : entries) {
    if (entry->kind != ast::EntryKind::assign || !entry->value) continue;
    const std::string& name = entry->name.text;
    if (find_field(fields, name) == nullptr && !is_peak(name) && !is_efficiency(name)) continue;
    const Field row = row_for(fields, name);
    if (row.type == FieldType::reference) continue;
    if (const std::optional<Rational> value = reader.number(row, *entry->value))
      numbers[name] = {*value, row.dimension};
  }
  return numbers;
}

Rational value_of(const std::map<std::string, Quantity>& numbers, std::string_view name) {
  const auto at = numbers.find(std::string(name));
  return at == numbers.end() ? Rational(0) : at->second.value;
}
Int128 bytes_of(const std::map<std::string, Quantity>& numbers, std::string_view name) {
  return value_of(numbers, name).floor().num();
}

void fill(Gpu& gpu) {
  gpu.memory = bytes_of(gpu.numbers, "memory");
  gpu.reserved = bytes_of(gpu.numbers, "reserved");
  gpu.sm = static_cast<int>(value_of(gpu.numbers, "sm").to_int64());
  gpu.bandwidth = value_of(gpu.numbers, "bandwidth");
  gpu.nvlink = value_of(gpu.numbers, "nvlink");
  gpu.nic = value_of(gpu.numbers, "nic");
  gpu.price = value_of(gpu.numbers, "price");
  for (const auto& [name, quantity] : gpu.numbers)
    if (is_peak(name)) gpu.peak[name.substr(5)] = quantity.value;
}

void must_leave_memory(const Merged& merged, std::string_view field, Int128 taken, Int128 memory,
                       Diagnostics& diags) {
  const ast::Entry* entry = merged.field(field);
  if (entry == nullptr || memory == 0 || taken < memory) return;
  diags
      .error(entry->value->span, fmt::format("'{}' must be below the GPU's memory of {}, got {}",
                                             field, human_bytes(memory), human_bytes(taken)))
      .with_help(fmt::format("'{}' is what a job cannot use of one GPU", field));
}

class ClusterReader {
 public:
  ClusterReader(Module::Impl& module, const Merged& merged, Diagnostics& diags)
      : module_(module),
        merged_(merged),
        diags_(diags),
        reader_(module, "cluster", empty_, diags) {}

  Cluster read() {
    const ast::Name& name = merged_.declaration->name;
    cluster_.name = name.text;
    cluster_.span = name.span;
    check_body(module_, "cluster", name, merged_.entries,
               {ast::EntryKind::assign, ast::EntryKind::pool}, kClusterFields,
               family_names(merged_.entries, true), diags_);
    cluster_.numbers = read_numbers(kClusterFields, merged_.entries, reader_);
    cluster_.host_memory = bytes_of(cluster_.numbers, "host_memory");
    cluster_.pcie = value_of(cluster_.numbers, "pcie");
    cluster_.occupied = bytes_of(cluster_.numbers, "occupied");
    const bool has_pools =
        std::any_of(merged_.entries.begin(), merged_.entries.end(),
                    [](const ast::Entry* entry) { return entry->kind == ast::EntryKind::pool; });
    if (has_pools)
      read_pools();
    else
      read_single();
    for (Pool& pool : cluster_.pools) override_links(pool.gpu);
    read_domain();
    if (!cluster_.pools.empty())
      must_leave_memory(merged_, "occupied", cluster_.occupied, cluster_.pools.front().gpu.memory,
                        diags_);
    return std::move(cluster_);
  }

 private:
  void read_single() {
    for (const std::string_view field : {"gpu", "nodes", "gpus_per_node"})
      if (merged_.field(field) == nullptr)
        diags_
            .error(cluster_.span,
                   fmt::format("cluster '{}' has no field '{}'", cluster_.name, field))
            .with_help(fmt::format("add a line such as {} = {}", field,
                                   find_field(kClusterFields, field)->example));
    Pool pool;
    read_pool(merged_.entries, kClusterFields, pool);
    cluster_.pools.push_back(std::move(pool));
  }

  void read_pools() {
    for (const std::string_view field : {"gpu", "nodes", "gpus_per_node"})
      if (const ast::Entry* entry = merged_.field(field))
        diags_
            .error(entry->name.span,
                   fmt::format("'{}' stands in each pool of a cluster that has pools", field))
            .with_help("move it into the pools, or remove the pools");
    for (const ast::Entry* entry : merged_.entries) {
      if (entry->kind != ast::EntryKind::pool) continue;
      std::vector<const ast::Entry*> body;
      std::map<std::string, const ast::Entry*> seen;
      for (const ast::Entry& line : entry->body) {
        body.push_back(&line);
        if (!is_field(line)) continue;
        const auto [at, added] = seen.emplace(line.name.text, &line);
        if (!added)
          diags_.error(line.name.span, fmt::format("'{}' is given twice", line.name.text))
              .label(at->second->name.span, "first given here")
              .with_help("keep one of them");
      }
      check_body(module_, "pool", entry->name, body, {ast::EntryKind::assign}, kPoolFields, {},
                 diags_);
      Pool pool;
      pool.name = entry->name.text;
      read_pool(body, kPoolFields, pool);
      cluster_.pools.push_back(std::move(pool));
    }
  }

  void read_pool(const std::vector<const ast::Entry*>& entries, std::span<const Field> fields,
                 Pool& pool) {
    for (const ast::Entry* entry : entries) {
      if (!is_field(*entry) || !entry->value) continue;
      const std::string& name = entry->name.text;
      if (name == "gpu" && entry->kind == ast::EntryKind::assign) {
        const ast::Declaration* gpu = reader_.reference(*find_field(fields, "gpu"), *entry->value);
        const Gpu* resolved = gpu != nullptr ? resolve_gpu(module_, *gpu, diags_) : nullptr;
        if (resolved != nullptr) pool.gpu = *resolved;
      } else if (name == "nodes") {
        read_nodes(*entry, *find_field(fields, "nodes"), pool);
      } else if (name == "gpus_per_node") {
        // The cluster's own numbers have been checked already; a pool's have not.
        if (const auto count = reader_.integer(*find_field(fields, "gpus_per_node"), *entry->value))
          pool.gpus_per_node = *count;
      }
    }
  }

  void read_nodes(const ast::Entry& entry, const Field& field, Pool& pool) {
    if (entry.kind == ast::EntryKind::assign) {
      if (const auto count = reader_.integer(field, *entry.value)) pool.nodes = {*count};
      return;
    }
    const auto choices = reader_.choices("nodes", *entry.value);
    if (!choices) return;
    for (const eval::Value& choice : *choices) {
      const auto count = reader_.check_number(field, choice, choice.span);
      if (!count) return;
      pool.nodes.push_back(count->to_int64());
    }
    std::sort(pool.nodes.begin(), pool.nodes.end());
    pool.nodes.erase(std::unique(pool.nodes.begin(), pool.nodes.end()), pool.nodes.end());
  }

  void override_links(Gpu& gpu) {
    for (const auto& [name, quantity] : cluster_.numbers)
      if (name == "nvlink" || name == "nic" || name == "price" || is_efficiency(name) ||
          is_peak(name))
        gpu.numbers[name] = quantity;
    fill(gpu);
  }

  void read_domain() {
    cluster_.nvlink_domain = value_of(cluster_.numbers, "nvlink_domain").to_int64();
    if (cluster_.nvlink_domain != 0) return;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Pool& pool : cluster_.pools) least = std::min(least, pool.gpus_per_node);
    cluster_.nvlink_domain = cluster_.pools.empty() ? 1 : least;
    cluster_.numbers["nvlink_domain"] = {Rational(cluster_.nvlink_domain), kCount};
  }

  Module::Impl& module_;
  const Merged& merged_;
  Diagnostics& diags_;
  eval::Scope empty_;
  FieldReader reader_;
  Cluster cluster_;
};

/// Makes what is asked for once: nullptr stands for one with errors.
template <class T, class Make>
const T* once(std::map<const ast::Declaration*, std::unique_ptr<T>>& made,
              const ast::Declaration& declaration, Diagnostics& diags, const Make& make) {
  const auto [at, added] = made.try_emplace(&declaration);
  if (!added) return at->second.get();
  const std::size_t before = diags.error_count();
  std::unique_ptr<T> result = make();
  // The map may have grown meanwhile: look again.
  if (result != nullptr && diags.error_count() == before) made[&declaration] = std::move(result);
  return made[&declaration].get();
}

}  // namespace

std::int64_t Cluster::gpus() const {
  std::int64_t total = 0;
  for (const Pool& pool : pools)
    total += (pool.nodes.empty() ? 0 : pool.nodes.front()) * pool.gpus_per_node;
  return total;
}

bool Cluster::nodes_are_free() const {
  return std::any_of(pools.begin(), pools.end(),
                     [](const Pool& pool) { return pool.nodes.size() > 1; });
}

std::optional<Dimension> hardware_dimension(std::string_view name) {
  for (const Field& field : kGpuFields)
    if (field.name == name) return field.dimension;
  for (const Field& field : kClusterFields)
    if (field.name == name && field.type != FieldType::reference) return field.dimension;
  if (is_peak(name)) return kFlopsPerSecond;
  if (is_efficiency(name)) return kCount;
  return std::nullopt;
}

std::vector<std::string> hardware_names() {
  std::set<std::string> names;
  for (const Field& field : kGpuFields) names.emplace(field.name);
  for (const Field& field : kClusterFields)
    if (field.type != FieldType::reference) names.emplace(field.name);
  return {names.begin(), names.end()};
}

const Gpu* resolve_gpu(Module::Impl& module, const ast::Declaration& declaration,
                       Diagnostics& diags) {
  return once<Gpu>(module.gpus, declaration, diags, [&]() -> std::unique_ptr<Gpu> {
    const Merged* merged = merge(module, Kind::gpu, declaration, diags);
    if (merged == nullptr) return nullptr;
    check_body(module, "gpu", declaration.name, merged->entries, {ast::EntryKind::assign},
               kGpuFields, family_names(merged->entries, true), diags);
    const eval::Scope empty;
    FieldReader reader(module, "gpu", empty, diags);
    auto gpu = std::make_unique<Gpu>();
    gpu->name = declaration.name.text;
    gpu->span = declaration.name.span;
    gpu->numbers = read_numbers(kGpuFields, merged->entries, reader);
    fill(*gpu);
    must_leave_memory(*merged, "reserved", gpu->reserved, gpu->memory, diags);
    return gpu;
  });
}

const Cluster* resolve_cluster(Module::Impl& module, const ast::Declaration& declaration,
                               Diagnostics& diags) {
  return once<Cluster>(module.clusters, declaration, diags, [&]() -> std::unique_ptr<Cluster> {
    const Merged* merged = merge(module, Kind::cluster, declaration, diags);
    if (merged == nullptr) return nullptr;
    return std::make_unique<Cluster>(ClusterReader(module, *merged, diags).read());
  });
}

const DType* resolve_dtype(Module::Impl& module, const ast::Declaration& declaration,
                           Diagnostics& diags) {
  return once<DType>(module.dtypes, declaration, diags, [&]() -> std::unique_ptr<DType> {
    const Merged* merged = merge(module, Kind::dtype, declaration, diags);
    if (merged == nullptr) return nullptr;
    check_body(module, "dtype", declaration.name, merged->entries, {ast::EntryKind::assign},
               kDTypeFields, {}, diags);
    const eval::Scope empty;
    FieldReader reader(module, "dtype", empty, diags);
    auto dtype = std::make_unique<DType>();
    dtype->name = declaration.name.text;
    const ast::Entry* bits = merged->field("bits");
    if (bits != nullptr)
      if (const auto value = reader.number(kDTypeFields[0], *bits->value)) dtype->bits = *value;
    return dtype;
  });
}

std::span<const Field> hardware_fields(Kind kind) {
  if (kind == Kind::gpu) return kGpuFields;
  if (kind == Kind::cluster) return kClusterFields;
  if (kind == Kind::dtype) return kDTypeFields;
  return {};
}
std::span<const Field> hardware_entry_fields(ast::EntryKind kind) {
  if (kind == ast::EntryKind::pool) return kPoolFields;
  return {};
}

}  // namespace plimsoll
