// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include "lang/fields.hpp"

/// The fields of train and serve declarations and of their bodies.
namespace plimsoll {

constexpr Field reference(std::string_view name, Kind kind, std::string_view example,
                          bool required = false) {
  return {name, FieldType::reference, example, kCount, Range::positive, required, false, {}, kind};
}
constexpr Field tokens(std::string_view name, bool required, bool narrows) {
  return {name, FieldType::tokens, "8Ki", kCount, Range::positive, required, narrows};
}
constexpr Field word_field(std::string_view name, std::string_view words,
                           std::string_view example) {
  return {name, FieldType::word, example, kCount, Range::positive, false, false, words};
}

inline constexpr Field kTrainFields[] = {
    reference("model", Kind::model, "llama3_8b", true),
    reference("cluster", Kind::cluster, "pod", true),
    tokens("seq", true, true),
    {"batch", FieldType::integer, "512", kCount, Range::positive, true, true},
    tokens("target", false, false),
    reference("optimizer", Kind::optimizer, "adamw"),
    reference("framework", Kind::framework, "megatron"),
    word_field("precision", "fp32 fp16 bf16 fp8", "bf16"),
    {"attention", FieldType::other, "flash"},
    {"loss", FieldType::other, "unfused"},
    {"grads", FieldType::other, "fp32"},
    {"dropout", FieldType::share, "0.1"},
    {"attention_dropout", FieldType::share, "0.1"},
    {"freeze", FieldType::other, "{vit, lm}"},
    {"adapt", FieldType::other, "lora(rank = 16, on = {q, k, v, o})"},
    {"imbalance", FieldType::quantity, "1.2"},
    {"tokens", FieldType::quantity, "15T"},
};
inline constexpr Field kServeFields[] = {
    reference("model", Kind::model, "llama3_8b", true),
    reference("cluster", Kind::cluster, "pod", true),
    tokens("context", true, false),
    reference("framework", Kind::framework, "vllm"),
    {"attention", FieldType::other, "flash"},
    {"weights", FieldType::other, "bf16"},
    {"kv", FieldType::other, "bf16"},
    {"weights_on", FieldType::other, "{linear, expert}"},
    {"kv_block", FieldType::integer, "16"},
    tokens("batch_tokens", false, false),
    {"utilization", FieldType::share, "90%"},
    {"sequences", FieldType::integer, "64", kCount, Range::positive, false, true},
    {"imbalance", FieldType::quantity, "1.2"},
};
inline constexpr Field kBesideFields[] = {
    reference("model", Kind::model, "llama3_8b"),
    {"weights", FieldType::other, "bf16"},
    reference("job", Kind::serve, "rollout"),
};
inline constexpr Field kObservedFields[] = {
    reference("layout", Kind::layout, "hand", true),
    {"allocated", FieldType::quantity, "61.2 GiB", kBytes},
    {"reserved", FieldType::quantity, "64.0 GiB", kBytes},
    {"peak", FieldType::quantity, "66.1 GiB", kBytes},
    {"step", FieldType::quantity, "8.4 s", kSeconds},
};
inline constexpr Field kLoraRank{"rank", FieldType::integer, "16"};
inline constexpr Field kLoraOn{"on", FieldType::other, "{q, k, v, o}"};

/// The field of that name.
template <std::size_t N>
const Field& row(const Field (&fields)[N], std::string_view name) {
  for (const Field& field : fields)
    if (field.name == name) return field;
  throw InternalError(fmt::format("no field '{}'", name));
}

}  // namespace plimsoll
