// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/check_job.hpp"

#include <algorithm>

#include "lang/behaviour_scope.hpp"
#include "lang/conditions.hpp"
#include "lang/grouped.hpp"
#include "lang/layout_values.hpp"
#include "lang/models.hpp"
#include "lang/versions.hpp"

/// train and serve declarations.
namespace plimsoll {

namespace {

using ast::EntryKind;

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

constexpr Field kTrainFields[] = {
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
constexpr Field kServeFields[] = {
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
constexpr Field kBesideFields[] = {
    reference("model", Kind::model, "llama3_8b"),
    {"weights", FieldType::other, "bf16"},
    reference("job", Kind::serve, "rollout"),
};
constexpr Field kObservedFields[] = {
    reference("layout", Kind::layout, "hand", true),
    {"allocated", FieldType::quantity, "61.2 GiB", kBytes},
    {"reserved", FieldType::quantity, "64.0 GiB", kBytes},
    {"peak", FieldType::quantity, "66.1 GiB", kBytes},
    {"step", FieldType::quantity, "8.4 s", kSeconds},
};
constexpr Field kLoraRank{"rank", FieldType::integer, "16"};
constexpr Field kLoraOn{"on", FieldType::other, "{q, k, v, o}"};

template <std::size_t N>
const Field& row(const Field (&fields)[N], std::string_view name) {
  for (const Field& field : fields)
    if (field.name == name) return field;
  throw InternalError(fmt::format("no field '{}'", name));
}

class JobReader {
 public:
  JobReader(const Module& module, Kind kind, const Merged& merged, Diagnostics& diags)
      : module_(module),
        impl_(module.impl()),
        merged_(merged),
        diags_(diags),
        reader_(impl_, std::string(noun(kind)), empty_, diags),
        kind_(kind) {}

  bool read() {
    const std::size_t errors = diags_.error_count();
    const ast::Name& name = merged_.declaration->name;
    job_.name = name.text;
    job_.span = name.span;
    job_.serve = kind_ == Kind::serve;
    read_references();
    check_fields();
    if (job_.serve)
      read_serve();
    else
      read_train();
    read_switches();
    if (job_.serve) check_no_training();
    read_bodies();
    // What is left reads the model's, cluster's and framework's names: without one of them, one
    // mistake would be ten.
    if (cluster_ == nullptr || framework_ == nullptr || !has_model()) return false;
    read_pins();
    check_names_of_model();
    read_conditions();
    if (diags_.error_count() > errors) return false;
    check_degrees(module_, job_, *program_, diags_);
    if (diags_.error_count() > errors) return false;
    impl_.jobs.push_back(std::move(job_));
    return true;
  }

 private:
  const ast::Expr* value(std::string_view field) const {
    const ast::Entry* entry = merged_.field(field);
    return entry != nullptr && entry->kind == EntryKind::assign ? entry->value.get() : nullptr;
  }
  const Field& field(std::string_view name) const {
    return job_.serve ? row(kServeFields, name) : row(kTrainFields, name);
  }

  /// The named declaration, or the default of that name, which only the prelude can lack.
  const ast::Declaration* find(std::string_view name, std::string_view default_name) {
    if (const ast::Expr* e = value(name)) return reader_.reference(field(name), *e);
    if (default_name.empty()) return nullptr;
    const ast::Declaration* found = impl_.find(field(name).refers_to, default_name, false);
    if (found == nullptr)
      diags_
          .error(job_.span, fmt::format("{} '{}', the default, is nowhere declared",
                                        noun(field(name).refers_to), default_name))
          .with_help(fmt::format("name another: {} = …", name));
    return found;
  }

  void read_references() {
    if (const ast::Declaration* found = find("model", "")) job_.model = found->name.text;
    if (const ast::Declaration* found = find("cluster", "")) {
      cluster_ = resolve_cluster(impl_, *found, diags_);
      job_.cluster = found->name.text;
    }
    if (const ast::Declaration* found = find("framework", job_.serve ? "vllm" : "megatron")) {
      framework_ = resolve_behaviour(impl_, Kind::framework, *found, diags_);
      job_.framework = found->name.text;
    }
    if (job_.serve) return;
    if (const ast::Declaration* found = find("optimizer", "adamw")) {
      optimizer_ = resolve_behaviour(impl_, Kind::optimizer, *found, diags_);
      job_.optimizer = found->name.text;
    }
  }

  /// The model's program; a template is an error where the job names it.
  bool has_model() {
    const ast::Declaration* model = impl_.find(Kind::model, job_.model, false);
    const ModelSource* source = model != nullptr ? model_source(impl_, *model, diags_) : nullptr;
    if (source == nullptr) return false;
    if (const std::vector<std::string> missing = missing_parameters(*source); !missing.empty()) {
      diags_
          .error(value("model")->span,
                 fmt::format("model '{}' is a template: {} {} no value", job_.model,
                             fmt::join(missing, ", "), missing.size() == 1 ? "has" : "have"))
          .label(model->name.span, "declared here")
          .with_help(fmt::format("make a model of it: model mine = {} {{ {} = … }}", job_.model,
                                 fmt::join(missing, " = …  ")));
      return false;
    }
    program_ = module_.program(job_.model, diags_);
    return program_ != nullptr;
  }

  void check_fields() {
    std::vector<std::string> accepts = layout_names();
    for (const Behaviour* behaviour : {framework_, optimizer_})
      if (behaviour != nullptr)
        for (const auto& [name, param] : behaviour->params) accepts.push_back(name);
    for (const ast::Entry* entry : merged_.entries) {
      const bool derived =
          is_field(*entry) && find_name(derived_numbers(), entry->name.text) != nullptr;
      if (!derived) continue;
      accepts.push_back(entry->name.text);
      diags_
          .error(entry->name.span,
                 fmt::format("'{}' is derived, a job cannot set it", entry->name.text))
          .with_help(fmt::format("demand it: require {} == …", entry->name.text));
    }
    // A framework that has errors of its own may well declare what looks unknown here.
    if (framework_ == nullptr)
      for (const ast::Entry* entry : merged_.entries)
        if (is_field(*entry)) accepts.push_back(entry->name.text);
    check_body(
        impl_, noun(kind_), merged_.declaration->name, merged_.entries,
        {EntryKind::assign, EntryKind::require, EntryKind::prefer, EntryKind::minimize,
         EntryKind::maximize, EntryKind::item, EntryKind::observed, EntryKind::beside},
        job_.serve ? std::span<const Field>(kServeFields) : std::span<const Field>(kTrainFields),
        accepts, diags_);
  }

  Rational number(std::string_view name, Rational otherwise = 0) {
    const ast::Expr* e = value(name);
    if (e == nullptr) return otherwise;
    return reader_.number(field(name), *e).value_or(otherwise);
  }

  /// A field that may be narrowed: its one value, or 0 and the choices in Job::layout.
  Rational number_or_choice(std::string_view name) {
    const ast::Entry* entry = merged_.field(name);
    if (entry == nullptr || !entry->value) return 0;
    if (entry->kind == EntryKind::assign) return number(name);
    const auto members = reader_.choices(name, *entry->value);
    if (!members) return 0;
    Choice choice;
    choice.span = entry->value->span;
    for (const eval::Value& member : *members) {
      const Span at = member.span ? member.span : entry->value->span;
      if (!reader_.check_number(field(name), member, at)) return 0;
      choice.values.push_back(member);
    }
    if (field(name).type == FieldType::tokens)
      reader_.warn_of_powers_of_ten(field(name), *entry->value);
    if (choice.values.size() == 1) return *constant_of(impl_, choice.values.front());
    job_.layout[std::string(name)] = std::move(choice);
    return 0;
  }

  void read_train() {
    job_.seq = number_or_choice("seq");
    job_.target = number("target", job_.seq);
    read_batch();
    if (const ast::Expr* e = value("precision"))
      job_.precision = reader_.word(field("precision"), *e).value_or("bf16");
    job_.dropout = number("dropout");
    job_.attention_dropout = number("attention_dropout");
    read_imbalance();
    job_.tokens = number("tokens");
    if (const ast::Expr* e = value("freeze"))
      job_.freeze = reader_.name_set(field("freeze"), *e, &freeze_spans_)
                        .value_or(std::vector<std::string>{});
    if (const ast::Expr* e = value("adapt")) read_adapter(*e);
  }

  void read_imbalance() {
    job_.imbalance = number("imbalance", 1);
    const ast::Expr* e = value("imbalance");
    if (e != nullptr && job_.imbalance < Rational(1) && job_.imbalance.sign() > 0)
      diags_
          .error(e->span,
                 fmt::format("'imbalance' must be 1 or more, got {}", grouped(job_.imbalance)))
          .with_help("the fullest expert rank has at least the mean: 1 is balanced");
  }

  /// `512`, `512 sequences` or `4Mi tokens`.
  void read_batch() {
    const ast::Expr* e = value("batch");
    if (e == nullptr) {
      job_.batch = number_or_choice("batch");
      return;
    }
    const std::optional<eval::Value> found = reader_.value(*e);
    if (!found) return;
    const auto* count = found->as<eval::Number>();
    job_.batch_in_tokens = count != nullptr && count->unit == "tokens";
    const std::optional<Rational> batch = reader_.check_number(field("batch"), *found, e->span);
    if (!batch) return;
    job_.batch = *batch;
    if (!job_.batch_in_tokens || job_.seq.is_zero() || (job_.batch / job_.seq).is_integer()) return;
    diags_
        .error(e->span, fmt::format("a batch of {} tokens is no whole number of sequences of {}",
                                    grouped(job_.batch.num()), grouped(job_.seq.num())))
        .with_help("give a multiple of seq, or the batch in sequences: batch = 512");
  }

  std::string dtype(std::string_view name) {
    const ast::Expr* e = value(name);
    return e == nullptr ? "bf16" : dtype_of(name, *e);
  }
  std::string dtype_of(std::string_view name, const ast::Expr& e) {
    const Field like = word_field(name, "", "bf16");
    const std::optional<std::string> word =
        e.kind == ast::ExprKind::name ? std::optional(e.text) : std::nullopt;
    const auto& known = impl_.dtype_words->words;
    if (word && std::find(known.begin(), known.end(), *word) != known.end()) {
      if (const ast::Declaration* declared = impl_.find(Kind::dtype, *word, false))
        resolve_dtype(impl_, *declared, diags_);
      return *word;
    }
    if (word)
      diags_.error(e.span, fmt::format("unknown dtype '{}'", *word))
          .with_help(suggest(*word, known, "known dtypes"));
    else
      diags_.error(e.span, fmt::format("expected a dtype for '{}', got {}", like.name, describe(e)))
          .with_help(fmt::format("for example {} = fp8", like.name));
    return "bf16";
  }

  void read_serve() {
    job_.context = number("context");
    job_.weights = dtype("weights");
    job_.kv = dtype("kv");
    read_imbalance();
    if (const ast::Expr* e = value("weights_on")) read_weights_on(*e);
    job_.kv_block = number("kv_block", 16).to_int64();
    for (const char* name : {"batch_tokens", "utilization"}) {
      const ast::Expr* e = value(name);
      if (e == nullptr && framework_ != nullptr) e = framework_->field(name);
      if (e == nullptr) continue;
      const std::optional<Rational> given = reader_.number(field(name), *e);
      (std::string_view(name) == "utilization" ? job_.utilization : job_.batch_tokens) = given;
      if (given && given->is_zero())
        diags_.error(e->span, fmt::format("'{}' must be above 0, got 0", name))
            .with_help(fmt::format("for example {} = {}", name, field(name).example));
    }
    const Rational sequences = number_or_choice("sequences");
    if (!sequences.is_zero())
      job_.layout["sequences"] = {
          {{eval::Number{impl_.pool.constant(sequences), kCount, "sequences"},
            value("sequences") != nullptr ? value("sequences")->span : job_.span}},
          merged_.field("sequences")->span};
  }

  /// Layout variables that only a training step has.
  void check_no_training() {
    static constexpr std::string_view kOfTraining[] = {
        "zero", "shard", "mbs", "recompute", "recompute_layers", "offload"};
    for (const ast::Entry* entry : merged_.entries) {
      if (!is_field(*entry) || std::find(std::begin(kOfTraining), std::end(kOfTraining),
                                         entry->name.text) == std::end(kOfTraining))
        continue;
      diags_
          .error(entry->name.span,
                 fmt::format("'{}' does not belong to a serving job", entry->name.text))
          .with_help("remove the line: a server has no backward pass and no optimizer");
    }
  }

  void read_weights_on(const ast::Expr& e) {
    static const std::vector<std::string> kRoles = {"linear", "expert", "head",   "embedding",
                                                    "norm",   "bias",   "router", "other"};
    std::vector<Span> spans;
    const auto names = reader_.name_set(field("weights_on"), e, &spans);
    if (!names) return;
    for (std::size_t i = 0; i < names->size(); ++i)
      if (std::find(kRoles.begin(), kRoles.end(), (*names)[i]) == kRoles.end())
        diags_.error(spans[i], fmt::format("unknown role '{}' of a weight", (*names)[i]))
            .with_help(suggest((*names)[i], kRoles, "roles"));
    job_.weights_on = *names;
  }

  /// `lora(rank = 16, on = {q, k, v, o})`, `qlora(…, base = nf4)`.
  void read_adapter(const ast::Expr& e) {
    const bool call = e.kind == ast::ExprKind::call;
    const std::string text = call || e.kind == ast::ExprKind::name ? e.text : "";
    if (text == "none" && !call) {
      job_.adapt.kind = "none";
      return;
    }
    if ((text != "lora" && text != "qlora") || !call) {
      const std::vector<std::string> words = {"none", "lora", "qlora"};
      const std::string example = fmt::format("adapt = {}(rank = 16, on = {{q, k, v, o}})",
                                              text == "qlora" ? "qlora" : "lora");
      const std::string near = did_you_mean(text, words);
      diags_
          .error(e.span,
                 fmt::format("expected none, lora(…) or qlora(…) for 'adapt', got {}", describe(e)))
          .with_help(near.empty() || near == text ? "for example " + example
                                                  : fmt::format("did you mean '{}'?", near));
      return;
    }
    job_.adapt.kind = text;
    job_.adapt.on = {"q", "k", "v", "o"};
    if (text == "qlora") job_.adapt.base = "nf4";
    for (const ast::Argument& argument : e.args) read_adapter_argument(text, argument);
    if (job_.adapt.rank == 0)
      diags_.error(e.span, fmt::format("'{}' needs a rank", text))
          .with_help(fmt::format("for example adapt = {}(rank = 16, on = {{q, k, v, o}})", text));
  }

  void read_adapter_argument(const std::string& kind, const ast::Argument& argument) {
    const std::string& name = argument.name.text;
    if (!name.empty() && !given_.emplace(name, argument.name.span).second) {
      diags_.error(argument.name.span, fmt::format("'{}' is given twice", name))
          .label(given_.at(name), "first given here")
          .with_help("keep one of them");
      return;
    }
    if (name == "rank") {
      job_.adapt.rank = reader_.integer(kLoraRank, *argument.value).value_or(1);
    } else if (name == "on") {
      if (const auto on = reader_.name_set(kLoraOn, *argument.value, &adapt_spans_))
        job_.adapt.on = *on;
    } else if (name == "base" && kind == "qlora") {
      job_.adapt.base = dtype_of("base", *argument.value);
    } else {
      std::vector<std::string> known = {"rank", "on"};
      if (kind == "qlora") known.emplace_back("base");
      if (name.empty() && job_.adapt.rank == 0) job_.adapt.rank = 1;  // say one thing at a time
      diags_
          .error(name.empty() ? argument.value->span : argument.name.span,
                 name.empty() ? fmt::format("the arguments of '{}' are given by name", kind)
                              : fmt::format("'{}' takes no argument '{}'", kind, name))
          .with_help(name.empty() ? fmt::format("for example {}(rank = 16)", kind)
                                  : suggest(name, known, "its arguments"));
    }
  }

  /// Params of the framework and the optimizer that the job sets; `attention`, `loss` and `grads`.
  void read_switches() {
    for (const Behaviour* behaviour : {framework_, optimizer_}) {
      if (behaviour == nullptr) continue;
      for (const auto& [name, param] : behaviour->params)
        if (const ast::Entry* entry = merged_.field(name)) read_switch(*behaviour, param, *entry);
    }
    if (framework_ == nullptr) return;
    job_.attention = word_or("attention", {"flash", "cudnn", "unfused"}, "flash",
                             "the attention kernels that a framework has by default");
    job_.grads = word_or("grads", {"fp32", "bf16"}, "", "words of 'grads'");
    if (const ast::Expr* e = value("loss"); e != nullptr && !framework_->params.contains("loss"))
      diags_
          .error(e->span,
                 fmt::format("framework '{}' declares no words for 'loss'", job_.framework))
          .with_help("leave the line out: the framework has one way to compute the loss");
    if (const auto at = job_.switches.find("loss"); at != job_.switches.end())
      if (const auto* word = at->second.as<eval::Word>()) job_.loss = word->text;
  }

  /// The word of a field that a framework may declare as a param of its own.
  std::string word_or(std::string_view name, std::vector<std::string> words, std::string otherwise,
                      std::string_view what) {
    if (const auto at = job_.switches.find(std::string(name)); at != job_.switches.end()) {
      const auto* word = at->second.as<eval::Word>();
      return word != nullptr ? word->text : otherwise;
    }
    const ast::Expr* e = job_.serve && name == "grads" ? nullptr : value(name);
    if (e == nullptr || framework_->params.contains(name)) return otherwise;
    if (e->kind == ast::ExprKind::name &&
        std::find(words.begin(), words.end(), e->text) != words.end())
      return e->text;
    diags_.error(e->span, fmt::format("expected a word for '{}', got {}", name, describe(*e)))
        .with_help(suggest(e->kind == ast::ExprKind::name ? e->text : "", words, what));
    return otherwise;
  }

  void read_switch(const Behaviour& behaviour, const Param& param, const ast::Entry& entry) {
    const auto fail = [&](const std::string& expected, const std::string& found) {
      diags_
          .error(entry.value->span,
                 fmt::format("expected {} for '{}', got {}", expected, param.name, found))
          .label(param.span,
                 fmt::format("declared by {} '{}'", behaviour.optimizer ? "optimizer" : "framework",
                             behaviour.name))
          .with_help("give it a value of the kind of its default");
    };
    if (entry.kind != EntryKind::assign) {
      fail("one value", "a choice with 'in'");
      return;
    }
    if (param.words != nullptr) {
      read_word_switch(param, entry);
      return;
    }
    std::optional<eval::Value> value = reader_.value(*entry.value);
    if (!value) return;
    Diagnostics ignored;
    const OpenScope place(impl_, behaviour, Site::weight);
    eval::Evaluator evaluator(impl_.pool, ignored);
    const BehaviourScope scope(behaviour, nullptr, place, evaluator);
    const eval::Value* like = scope.find(param.name);
    const bool comparable = like != nullptr && like->as<eval::Unknown>() == nullptr &&
                            !like->is_none() && !value->is_none();
    if (comparable) {
      const auto* a = like->as<eval::Number>();
      const auto* b = value->as<eval::Number>();
      const bool same = like->data.index() == value->data.index() &&
                        (a == nullptr || a->dimension == b->dimension);
      if (!same) {
        if (like->as<eval::String>() != nullptr && b != nullptr) {
          diags_
              .error(entry.value->span,
                     fmt::format("expected a string for '{}', got {}", param.name, value->kind()))
              .with_help(fmt::format("versions are strings: {} = \"{}\"", param.name,
                                     impl_.sources.text(entry.value->span)));
          return;
        }
        fail(like->kind(), value->kind());
        return;
      }
      if (!check_version(param, *like, *value, entry.value->span)) return;
    }
    job_.switches[param.name] = std::move(*value);
  }

  /// Where the default is a version, so is what replaces it: "2.11".
  bool check_version(const Param& param, const eval::Value& like, const eval::Value& value,
                     Span span) {
    const auto* before = like.as<eval::String>();
    const auto* text = value.as<eval::String>();
    if (before == nullptr || text == nullptr || !eval::is_version(before->text) ||
        eval::is_version(text->text))
      return true;
    diags_
        .error(span, fmt::format("expected a version for '{}', got \"{}\"", param.name, text->text))
        .with_help(fmt::format("a version is numbers with dots between: {} = \"{}\"", param.name,
                               before->text));
    return false;
  }

  void read_word_switch(const Param& param, const ast::Entry& entry) {
    const ast::Expr& e = *entry.value;
    const auto& words = param.words->words;
    const bool known = e.kind == ast::ExprKind::name &&
                       std::find(words.begin(), words.end(), e.text) != words.end();
    if (known) {
      job_.switches[param.name] = {eval::Word{e.text, param.words}, e.span};
      return;
    }
    diags_.error(e.span, fmt::format("expected a word for '{}', got {}", param.name, describe(e)))
        .with_help(suggest(e.kind == ast::ExprKind::name ? e.text : "", words,
                           fmt::format("framework '{}' has", job_.framework)));
  }

  void read_bodies() {
    for (const ast::Entry* entry : merged_.entries) {
      if (entry->kind == EntryKind::item) job_.items.push_back(entry);
      if (entry->kind == EntryKind::beside) read_beside(*entry);
      if (entry->kind == EntryKind::observed) read_observed(*entry);
    }
    if (job_.items.empty()) return;
    static const Behaviour kNobody;
    const OpenScope place(impl_, framework_ != nullptr ? *framework_ : kNobody, Site::stage);
    check_items(impl_, job_.items, place, diags_);
  }

  std::vector<const ast::Entry*> lines(const ast::Entry& entry) {
    std::vector<const ast::Entry*> result;
    for (const ast::Entry& line : entry.body) result.push_back(&line);
    return result;
  }

  void read_beside(const ast::Entry& entry) {
    check_body(impl_, "beside", entry.name, lines(entry), {EntryKind::assign}, kBesideFields, {},
               diags_);
    Beside beside;
    beside.name = entry.name.text;
    beside.span = entry.name.span;
    for (const ast::Entry& line : entry.body) {
      if (line.kind != EntryKind::assign || !line.value) continue;
      if (line.name.text == "weights") beside.weights = dtype_of("weights", *line.value);
      if (line.name.text == "model") {
        if (const auto* found = reader_.reference(row(kBesideFields, "model"), *line.value)) {
          beside.model = found->name.text;
          module_.program(beside.model, diags_);
        }
      }
      if (line.name.text == "job") {
        const Field& job = row(kBesideFields, "job");
        const std::optional<std::string> name = reader_.name(job, *line.value);
        if (!name) continue;
        if (impl_.find(Kind::serve, *name, false) == nullptr)
          unknown_name(impl_, Kind::serve, *name, line.value->span, diags_);
        beside.job = *name;
      }
    }
    const bool both = !beside.model.empty() && !beside.job.empty();
    const bool says = std::any_of(entry.body.begin(), entry.body.end(), [](const ast::Entry& line) {
      return line.name.text == "model" || line.name.text == "job";
    });
    if (both || !says)
      diags_
          .error(entry.name.span, fmt::format("beside '{}' expects a model or a job, got {}",
                                              entry.name.text, both ? "both" : "neither"))
          .with_help("for example model = llama3_8b, or job = NAME of a serve job");
    job_.beside.push_back(std::move(beside));
  }

  void read_observed(const ast::Entry& entry) {
    ast::Name name{"", entry.keyword};
    check_body(impl_, "observed", name, lines(entry), {EntryKind::assign}, kObservedFields, {},
               diags_);
    for (const ast::Entry& line : entry.body) {
      if (line.kind != EntryKind::assign || !line.value) continue;
      for (const Field& field : kObservedFields) {
        if (field.name != line.name.text) continue;
        if (field.type == FieldType::reference)
          reader_.reference(field, *line.value);
        else
          reader_.number(field, *line.value);
      }
    }
    job_.observed.push_back(&entry);
  }

  void read_pins() {
    const ConditionScope names(module_, job_);
    const eval::Enumeration* recompute = recompute_words(module_, job_);
    const PinScope scope(impl_, merged_.entries, &names, recompute, diags_);
    std::map<std::string, eval::Value> pinned;
    for (const ast::Entry* entry : merged_.entries) {
      if (!is_field(*entry) || !entry->value) continue;
      const VariableName* variable = find_name(layout_variables(), entry->name.text);
      if (variable == nullptr) continue;
      Choice choice;
      choice.span = entry->span;
      if (entry->kind == EntryKind::assign) {
        const eval::Value* value = scope.value_of(*entry);
        if (value == nullptr) continue;
        pinned[entry->name.text] = *value;
        choice.values.push_back(*value);
      } else {
        FieldReader reader(impl_, "job", scope, diags_);
        const auto members =
            reader.choices(entry->name.text, *entry->value, words_of(impl_, *variable, recompute));
        if (!members) continue;
        for (const eval::Value& member : *members) {
          const Span at = member.span ? member.span : entry->value->span;
          if (!check_layout_value(impl_, *variable, member, at, diags_)) break;
          choice.values.push_back(member);
        }
        if (choice.values.size() != members->size()) continue;
      }
      job_.layout[entry->name.text] = std::move(choice);
    }
    check_stage_lists(impl_, pinned, diags_);
    check_pools(pinned);
  }

  void check_pools(const std::map<std::string, eval::Value>& pinned) {
    const auto at = pinned.find("stage_pool");
    if (at == pinned.end() || at->second.as<eval::List>() == nullptr) return;
    const std::vector<std::string> pools = pool_names(module_, job_);
    for (const eval::Value& item : at->second.as<eval::List>()->items) {
      const auto* word = item.as<eval::Word>();
      if (word == nullptr || std::find(pools.begin(), pools.end(), word->text) != pools.end())
        continue;
      diags_
          .error(item.span ? item.span : at->second.span,
                 fmt::format("cluster '{}' has no pool '{}'", job_.cluster, word->text))
          .with_help(suggest(word->text, pools, "its pools"));
    }
  }

  /// `freeze` and the adapter name weights, or blocks, of the model.
  void check_names_of_model() {
    std::set<std::string> weights;
    for (const Weight& weight : program_->weights)
      if (!weight.name.empty()) weights.insert(weight.name);
    const std::vector<std::string> known(weights.begin(), weights.end());
    for (std::size_t i = 0; i < adapt_spans_.size() && i < job_.adapt.on.size(); ++i)
      if (!weights.contains(job_.adapt.on[i]))
        diags_
            .error(adapt_spans_[i],
                   fmt::format("model '{}' has no weight '{}'", job_.model, job_.adapt.on[i]))
            .with_help(suggest(job_.adapt.on[i], known, "its named weights"));
    std::set<std::string> blocks;
    for (const std::string& path : program_->blocks)
      for (std::size_t at = 0; at < path.size();) {
        const std::size_t end = std::min(path.find('.', at), path.size());
        blocks.insert(path.substr(at, end - at));
        at = end + 1;
      }
    std::vector<std::string> all = known;
    all.insert(all.end(), blocks.begin(), blocks.end());
    for (std::size_t i = 0; i < freeze_spans_.size() && i < job_.freeze.size(); ++i)
      if (!weights.contains(job_.freeze[i]) && !blocks.contains(job_.freeze[i]))
        diags_
            .warning(freeze_spans_[i], fmt::format("model '{}' has no weight or block '{}': "
                                                   "nothing is frozen by it",
                                                   job_.model, job_.freeze[i]))
            .with_help(suggest(job_.freeze[i], all, "its named weights and blocks"));
  }

  void read_conditions() {
    if (framework_ != nullptr)
      for (const ast::Entry* entry : framework_->entries)
        if (entry->kind == EntryKind::require || entry->kind == EntryKind::prefer)
          read_condition(*entry, true);
    for (const ast::Entry* entry : merged_.entries) {
      if (entry->kind == EntryKind::require || entry->kind == EntryKind::prefer)
        read_condition(*entry, false);
      if ((entry->kind == EntryKind::minimize || entry->kind == EntryKind::maximize) &&
          entry->value) {
        job_.objective = {entry->kind == EntryKind::minimize, entry->value.get(), entry->span};
        check_condition(module_, job_, *entry->value, true, diags_);
      }
    }
    if (job_.objective.expr == nullptr) job_.objective.minimize = !job_.serve;
  }

  void read_condition(const ast::Entry& entry, bool from_framework) {
    if (!entry.value) return;
    Condition condition;
    condition.name =
        entry.label.empty() ? std::string(impl_.sources.text(entry.value->span)) : entry.label;
    condition.expr = entry.value.get();
    condition.span = entry.value->span;
    condition.from_framework = from_framework;
    check_condition(module_, job_, *entry.value, false, diags_);
    if (entry.kind == EntryKind::require) {
      job_.require.push_back(std::move(condition));
      return;
    }
    if (entry.value2) read_weight(*entry.value2, condition);
    job_.prefer.push_back(std::move(condition));
  }

  void read_weight(const ast::Expr& e, Condition& condition) {
    static constexpr std::string_view kHelp = "weight 5 is worth up to 5 % of the objective";
    if (e.kind == ast::ExprKind::number && !e.unit_text.empty()) {
      diags_.error(e.span, fmt::format("'weight' expects a plain number, got {}", describe(e)))
          .with_help(std::string(kHelp));
      return;
    }
    const std::optional<eval::Value> found = reader_.value(e);
    if (!found) return;
    const std::optional<Rational> weight = constant_of(impl_, *found);
    if (!weight || weight->sign() <= 0) {
      diags_
          .error(e.span, fmt::format("'weight' expects a plain number above 0, got {}",
                                     weight ? grouped(*weight) : found->kind()))
          .with_help(std::string(kHelp));
      return;
    }
    condition.weight = *weight;
  }

  const Module& module_;
  Module::Impl& impl_;
  const Merged& merged_;
  Diagnostics& diags_;
  eval::Scope empty_;
  FieldReader reader_;
  Kind kind_;
  Job job_;
  const Cluster* cluster_ = nullptr;
  const Behaviour* framework_ = nullptr;
  const Behaviour* optimizer_ = nullptr;
  const Program* program_ = nullptr;
  std::vector<Span> freeze_spans_, adapt_spans_;
  std::map<std::string, Span> given_;  ///< arguments of the adapter
};

}  // namespace

bool check_job(const Module& module, Kind kind, const ast::Declaration& declaration,
               Diagnostics& diags) {
  const Merged* merged = merge(module.impl(), kind, declaration, diags);
  return merged != nullptr && JobReader(module, kind, *merged, diags).read();
}

std::span<const Field> job_fields(bool serve) {
  if (serve) return kServeFields;
  return kTrainFields;
}
std::span<const Field> job_entry_fields(ast::EntryKind kind) {
  if (kind == ast::EntryKind::beside) return kBesideFields;
  if (kind == ast::EntryKind::observed) return kObservedFields;
  return {};
}

}  // namespace plimsoll
