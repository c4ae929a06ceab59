// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "lang/module.hpp"

#include <chrono>
#include <map>
#include <random>
#include <string>

#include "lang/conditions.hpp"
#include "lang/models.hpp"
#include "lang/parse.hpp"
#include "tests/catch.hpp"
#include "tests/unit/seed.hpp"

using namespace plimsoll;

namespace {

using Files = std::map<std::string, std::string>;

Module compile_files(const Files& files, Diagnostics& diags) {
  CompileOptions options;
  options.load = [&](const std::string& path, std::string& why) {
    const auto at = files.find(path);
    why = "there is no such file";
    return at != files.end() ? std::optional(at->second) : std::nullopt;
  };
  return compile("main.plan", files.at("main.plan"), diags, options);
}

/// What is said about a file, notes left out, without the source lines.
std::string said(const Module& module, const Diagnostics& diags) {
  std::string text;
  for (const Diagnostic* d : diags.sorted())
    if (d->severity != Severity::note)
      text += module.sources().where(d->span) + ": " + d->message + "\n";
  return text;
}

std::string errors_of(const Files& files) {
  Diagnostics diags;
  const Module module = compile_files(files, diags);
  return said(module, diags);
}

/// A file that must compile.
Module accept(const std::string& text) {
  Diagnostics diags;
  Module module = compile_files({{"main.plan", text}}, diags);
  INFO(diags.render(module.sources(), false));
  REQUIRE_FALSE(diags.has_errors());
  return module;
}

const std::string kPod = "cluster pod { gpu = h100_sxm  nodes = 8  gpus_per_node = 8 }\n";
const std::string kJob = "train t { model = llama3_70b  cluster = pod  seq = 8Ki  batch = 512 }\n";

std::string job_with(const std::string& lines) {
  return kPod + "train t { model = llama3_70b  cluster = pod  seq = 8Ki  batch = 512\n" + lines +
         "\n}\n";
}

Expr lowered(const Module& module, const std::string& condition) {
  Diagnostics diags;
  for (const Condition& each : module.jobs()[0].require)
    if (each.name == condition) {
      const auto result = lower_condition(module, module.jobs()[0], *each.expr, diags);
      REQUIRE(result);
      REQUIRE(result->expr);
      return *result->expr;
    }
  FAIL("no condition " << condition);
  return {};
}

}  // namespace

TEST_CASE("the file of LANGUAGE.md", "[module]") {
  const Module module = accept(kPod + R"(
train pretrain {
  model     = llama3_70b
  cluster   = pod
  seq       = 8Ki
  batch     = 512
  optimizer = adamw
  precision = bf16
  framework = megatron
  attention = flash

  require "inside a node": tp <= gpus_per_node
  require headroom >= 5%
  prefer  recompute == none
  minimize step_time
}
layout hand { tp = 8  pp = 4  zero = 1  mbs = 1  recompute = selective }
)");
  REQUIRE(module.jobs().size() == 1);
  const Job& job = module.jobs()[0];
  CHECK(job.seq == Rational(8192));
  CHECK(job.batch == Rational(512));
  CHECK(job.require[0].from_framework);
  CHECK(job.require[1].name == "inside a node");
  CHECK(job.require[2].name == "headroom >= 5%");
  CHECK(job.prefer[0].weight == Rational(5));
  CHECK(job.objective.minimize);
  CHECK(module.cluster("pod")->gpus() == 64);
  CHECK(module.gpu("h100_sxm")->memory == 85024000000);
  CHECK(module.layouts()[0].values.size() == 5);
  Diagnostics diags;
  const auto lines = module.summary(diags);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].text == "64 GPUs: 8 nodes of 8 h100_sxm");
  CHECK(lines[1].text ==
        "llama3_70b on pod (64 GPUs), seq 8,192, batch 512, adamw, bf16, megatron; the layout is "
        "free");
  CHECK(lines[2].text == "tp = 8, pp = 4, zero = 1, mbs = 1, recompute = selective");
}

TEST_CASE("conditions, lowered and on concrete values", "[module]") {
  const Module module = accept(job_with(R"(
  require "node": tp <= gpus_per_node
  require "model": heads >= 64 and layers == 80
  require "words": recompute == none or schedule == interleaved
  require "switch": te_version >= "2.9"
  require "lists": sum(stage_layers) == layers and stage_layers[1] <= 21
  require "bytes": bytes("activations") <= 30 GiB)"));
  ExprPool& pool = module.pool();
  Env env;
  env[Var::tp] = 8;
  CHECK(pool.eval(lowered(module, "node"), env) == Rational(1));
  env[Var::tp] = 16;
  CHECK(pool.eval(lowered(module, "node"), env) == Rational(0));
  CHECK(pool.is_constant(lowered(module, "model")));
  CHECK(pool.value(lowered(module, "switch")) == Rational(1));  // "2.11" is after "2.9"
  env[Var::recompute] = 2;
  env[Var::schedule] = 1;
  CHECK(pool.eval(lowered(module, "words"), env) == Rational(1));
  env[Var::schedule] = 0;
  CHECK(pool.eval(lowered(module, "words"), env) == Rational(0));

  const Job& job = module.jobs()[0];
  const auto condition = [&](std::string_view name) -> const ast::Expr& {
    for (const Condition& each : job.require)
      if (each.name == name) return *each.expr;
    throw std::runtime_error("no such condition");
  };
  Diagnostics diags;
  const auto lists = lower_condition(module, job, condition("lists"), diags);
  REQUIRE(lists);
  CHECK(lists->lists);
  CHECK_FALSE(lists->expr);
  LayoutValues values;
  values.env[Var::pp] = 4;
  values.stage_layers = {19, 21, 21, 19};
  CHECK(eval_condition(module, job, condition("lists"), values) == true);
  values.stage_layers = {18, 22, 21, 19};
  CHECK(eval_condition(module, job, condition("lists"), values) == false);
  values.stage_layers = {80};  // a part of it has no value, and so does not hold
  CHECK(eval_condition(module, job, condition("lists"), values) == false);
  const auto bytes = lower_condition(module, job, condition("bytes"), diags);
  REQUIRE(bytes);
  CHECK(bytes->bytes);
  values.bytes = [](std::string_view name) {
    return name == "activations" ? std::optional<Int128>(Int128{31} << 30) : std::nullopt;
  };
  CHECK(eval_condition(module, job, condition("bytes"), values) == false);
  CHECK_FALSE(diags.has_errors());
}

TEST_CASE("a job pins, narrows and leaves free", "[module]") {
  const Module module =
      accept(job_with("tp = 8  pp in {1, 2, 4..6}  sp = tp in {2, 4}  zero = if(pp > 1, 1, 3)\n"
                      "recompute in {none, selective}"));
  const Job& job = module.jobs()[0];
  CHECK(job.layout.at("tp").values.size() == 1);
  CHECK(job.layout.at("pp").values.size() == 5);
  const auto* sp = job.layout.at("sp").values[0].as<eval::Boolean>();
  REQUIRE(sp);
  CHECK(module.pool().value(sp->expr).is_zero());  // tp is 8
  const auto* zero = job.layout.at("zero").values[0].as<eval::Number>();
  REQUIRE(zero);
  CHECK(module.pool().str(zero->expr).find("pp") != std::string::npos);
  CHECK(job.layout.at("recompute").values.size() == 2);
  CHECK_FALSE(job.layout.contains("cp"));

  const Module open = accept(kPod +
                             "train t { model = llama3_8b  cluster = pod  seq in {8Ki, 16Ki}  "
                             "batch = 4Mi tokens  maximize seq }");
  CHECK(open.jobs()[0].seq.is_zero());
  CHECK(open.jobs()[0].layout.at("seq").values.size() == 2);
  CHECK(open.jobs()[0].batch_in_tokens);
}

TEST_CASE("templates copy and override", "[module]") {
  const Module module = accept(kPod + R"(
train base {
  model = llama3_8b  cluster = pod  seq = 8Ki  batch = 64
  require "small": tp <= 4
  require "any": headroom >= 1%
  tp in {1, 2}
  item "mine" { bytes = 1 MiB }
  minimize step_time
}
train other = base {
  batch = 128
  require "small": tp <= 2
  require zero >= 1
  tp = 2
  item "mine" { bytes = 2 MiB }
  item "more" { bytes = 3 MiB }
  maximize mfu
}
framework slim = megatron { deterministic = true  grads = bf16 }
gpu h100_sxm = h100_sxm { memory = 79 GiB }
train third = other { framework = slim }
)");
  const Job& job = module.jobs()[1];
  CHECK(job.batch == Rational(128));
  std::string names;
  for (const Condition& each : job.require)
    if (!each.from_framework) names += std::string(module.sources().text(each.span)) + "; ";
  CHECK(names == "tp <= 2; headroom >= 1%; zero >= 1; ");
  CHECK(job.layout.at("tp").values.size() == 1);
  CHECK(job.items.size() == 2);
  CHECK_FALSE(job.objective.minimize);
  CHECK(module.gpu("h100_sxm")->memory == Int128{79} << 30);
  CHECK(module.gpu("h100_sxm")->sm == 90);
  const Behaviour* slim = module.framework("slim");
  REQUIRE(slim);
  CHECK(module.sources().text(slim->params.at("grads").value->span) == "bf16");
  CHECK(slim->recompute_modes == module.framework("megatron")->recompute_modes);
}

TEST_CASE("a user's declarations hide the prelude's from the user's files only", "[module]") {
  // The prelude's llama3_8b is made of the prelude's blocks, whatever `mlp` is here.
  const std::string block = "block mlp(x) { return x }\nblock gqa(x) { return x }\n";
  Diagnostics diags;
  const Module module = compile_files({{"main.plan", block + kPod + kJob}}, diags);
  INFO(diags.render(module.sources(), false));
  REQUIRE_FALSE(diags.has_errors());
  CHECK(diags.render(module.sources(), false).find("note: block 'mlp' hides the prelude's") !=
        std::string::npos);
  CHECK(module.program("llama3_70b", diags)->parameter_count() == 70553706496);
}

TEST_CASE("use brings files in", "[module]") {
  SECTION("relative to the file that says it, each once") {
    CHECK(errors_of({{"main.plan", "use \"lib/a.plan\"\nuse \"lib/b.plan\"\n" + kJob},
                     {"lib/a.plan", "use \"b.plan\"\nuse \"../lib/b.plan\"\n"},
                     {"lib/b.plan", kPod}}) == "");
  }
  SECTION("a circle is an error that shows the path") {
    CHECK(errors_of({{"main.plan", "use \"a.plan\"\n" + kPod},
                     {"a.plan", "use \"b.plan\"\n"},
                     {"b.plan", "use \"main.plan\"\n"}}) ==
          "b.plan:1:5: 'main.plan' brings itself in: main.plan -> a.plan -> b.plan -> "
          "main.plan\n");
  }
  SECTION("a name declared in two files is an error at the second") {
    CHECK(errors_of({{"main.plan", "use \"a.plan\"\n" + kPod}, {"a.plan", kPod}}) ==
          "main.plan:2:9: cluster 'pod' is declared twice\n");
  }
  SECTION("a missing file is an error at its string") {
    CHECK(errors_of({{"main.plan", kPod + "use \"gone.plan\"\n"}}) ==
          "main.plan:2:5: cannot read 'gone.plan': there is no such file\n");
  }
  SECTION("depth is bounded") {
    Files files;
    for (int i = 0; i < 100; ++i)
      files["f" + std::to_string(i) + ".plan"] = "use \"f" + std::to_string(i + 1) + ".plan\"\n";
    files["main.plan"] = "use \"f0.plan\"\n" + kPod;
    CHECK(errors_of(files) == "f30.plan:1:5: files are brought in more than 32 deep\n");
  }
}

TEST_CASE("which job a command works on", "[module]") {
  Diagnostics diags;
  const Module none = accept(kPod);
  CHECK(find_job(none, "", diags) == nullptr);
  CHECK(said(none, diags) ==
        "main.plan:1:1: expected a train or serve job in the file, got none\n");
  const Module two = accept(kPod + kJob + "train u = t { batch = 64 }\n");
  Diagnostics of_two;
  CHECK(find_job(two, "", of_two) == nullptr);
  CHECK(find_job(two, "v", of_two) == nullptr);
  CHECK(said(two, of_two) ==
        "main.plan:1:1: the file has 2 jobs: t, u\nmain.plan:1:1: no job is called 'v'\n");
  REQUIRE(find_job(two, "u", of_two));
  CHECK(find_job(two, "u", of_two)->batch == Rational(64));
}

TEST_CASE("a serving job takes its framework's defaults", "[module]") {
  const Module module =
      accept(kPod +
             "serve s { model = llama3_8b  cluster = pod  context = 32Ki  kv = fp8\n"
             "require sequences >= 64 }\n"
             "serve u { model = llama3_8b  cluster = pod  context = 32Ki  utilization = 40%  "
             "sequences = 8 }\n");
  const Job& job = module.jobs()[0];
  CHECK(job.utilization == Rational::fraction(9, 10));
  CHECK(job.batch_tokens == Rational(8192));
  CHECK(job.kv == "fp8");
  CHECK_FALSE(job.objective.minimize);
  CHECK(module.jobs()[1].utilization == Rational::fraction(2, 5));
  CHECK(module.jobs()[1].layout.at("sequences").values.size() == 1);
}

TEST_CASE("adapters and unlike nodes", "[module]") {
  const Module module = accept(R"(
cluster mixed {
  pool fast { gpu = h100_sxm  nodes = 4  gpus_per_node = 8 }
  pool slow { gpu = a100_80gb nodes in 1..4  gpus_per_node = 8 }
  nic = 800 Gb/s
}
train t { model = llama3_8b  cluster = mixed  seq = 4Ki  batch = 64
  adapt = qlora(rank = 16, on = {q, v}, base = nf4)
  pp = 2  stage_pool = [fast, slow]
}
)");
  const Cluster* cluster = module.cluster("mixed");
  REQUIRE(cluster->pools.size() == 2);
  CHECK(cluster->pools[1].nodes.size() == 4);
  CHECK(cluster->nodes_are_free());
  CHECK(cluster->pools[1].gpu.nic == Rational(100'000'000'000));
  CHECK(module.jobs()[0].adapt.on == std::vector<std::string>{"q", "v"});
  CHECK(module.jobs()[0].adapt.base == "nf4");
}

TEST_CASE("a declaration of the prelude is parsed alone as it is in its file", "[module]") {
  std::size_t declarations = 0, known = 0;
  for (std::size_t kind = 0; kind < kKindCount; ++kind)
    known += prelude().names(static_cast<Kind>(kind)).size();
  for (std::uint32_t file = 0; file < prelude().sources().count(); ++file) {
    Diagnostics diags;
    const ast::File whole = parse(prelude().sources(), file, diags);
    CHECK(diags.error_count() == 0);
    for (const ast::Declaration& d : whole.declarations) {
      INFO(d.kind.text << ' ' << d.name.text);
      const ast::Declaration* alone = prelude().find(*find_kind(d.kind.text), d.name.text);
      REQUIRE(alone != nullptr);
      CHECK(alone->span == d.span);
      CHECK(alone->doc == d.doc);
      CHECK(alone->entries.size() == d.entries.size());
      ++declarations;
    }
  }
  CHECK(declarations == known);
  CHECK(prelude().find(Kind::gpu, "h1000") == nullptr);
}

// A job trusts the prelude's: this is where they are checked.
TEST_CASE("the prelude's frameworks and optimizers pass as a user's own", "[module]") {
  for (std::uint32_t file = 0; file < prelude().sources().count(); ++file) {
    Diagnostics diags;
    const std::string text(prelude().sources()[file].text());
    const Module module = compile("user.plan", text, diags);
    INFO(diags.render(module.sources(), false));
    CHECK(diags.error_count() == 0);
  }
  std::string framework(prelude().sources().text(prelude().find(Kind::framework, "plain")->span));
  framework.insert(framework.rfind('}'), "  state weight : bf16 { where = nonsense }\n");
  Diagnostics diags;
  const Module module = compile("user.plan", framework, diags);
  CHECK(diags.error_count() > 0);
}

TEST_CASE("everything in the prelude is right", "[module]") {
  Diagnostics diags;
  const Module module = accept(kPod);
  Module::Impl& impl = module.impl();
  std::size_t models = 0;
  for (const auto& [name, d] : prelude().all(Kind::gpu)) resolve_gpu(impl, *d, diags);
  for (const auto& [name, d] : prelude().all(Kind::dtype)) resolve_dtype(impl, *d, diags);
  for (const Kind kind : {Kind::framework, Kind::optimizer})
    for (const auto& [name, d] : prelude().all(kind)) resolve_behaviour(impl, kind, *d, diags);
  for (const auto& [name, d] : prelude().all(Kind::model)) {
    const ModelSource* source = model_source(impl, *d, diags);
    if (source == nullptr || !missing_parameters(*source).empty()) continue;
    resolve_program(impl, *d, diags);
    ++models;
  }
  INFO(diags.render(module.sources(), false));
  CHECK(diags.error_count() == 0);
  CHECK(models >= 82);
}

TEST_CASE("whatever is lost or doubled in a file, the compiler answers", "[module]") {
  const unsigned seed = test::seed_of_run();
  INFO("PLIMSOLL_SEED=" << seed);
  std::mt19937 random(seed);
  const std::string text = kPod + R"(
block b(x, n) { y = linear(x, n, split = column, name = up)  return linear(gelu(y), width(x), split = row) }
model m { param hidden = 64, layers = 2
  x = embedding(256, hidden)
  repeat layers as i { x = x + if(mod(i, 2) == 0, b(rmsnorm(x), 4 * hidden), x) }
  loss = cross_entropy(linear(rmsnorm(x), 256)) }
framework f = megatron { param extra = 1  on linear { save input  item "i" { bytes = 2 B * input } } }
optimizer o { state m : fp32 { where = dims == 2 } }
train t { model = m  cluster = pod  seq = 8Ki  batch = 512  framework = f  optimizer = o
  tp in {1, 2, 4}  sp = tp > 1  require "a": sum(stage_layers) <= 2 and peak <= 70 GiB
  prefer recompute == none weight 3  adapt = lora(rank = 4, on = {up})
  item "e" { bytes = 4 B * params_on_gpu  lifetime = backward..update } }
serve s { model = m  cluster = pod  context = 8Ki  weights = fp8  maximize sequences }
layout l { tp = 2  pp = 2  stage_layers = [1, 1]  recompute = full }
)";
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (std::isalnum(static_cast<unsigned char>(text[at])) != 0)
      while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  for (int round = 0; round < 150; ++round) {
    std::vector<std::string> changed = words;
    for (unsigned change = random() % 3 + 1; change > 0; --change) {
      const std::size_t at = random() % changed.size();
      const auto place = changed.begin() + static_cast<std::ptrdiff_t>(at);
      switch (random() % 3) {
        case 0:
          changed.erase(place);
          break;
        case 1:
          changed.insert(place, changed[at]);
          break;
        default:
          changed[at] = changed[random() % changed.size()];
      }
    }
    std::string file;
    for (const std::string& word : changed) file += word;
    INFO("round " << round << "\n" << file);
    Diagnostics diags;
    const Module module = compile_files({{"main.plan", file}}, diags);
    const std::string rendered = diags.render(module.sources(), false);
    CHECK(diags.has_errors() == (rendered.find(" error: ") != std::string::npos));
    for (const Diagnostic* said : diags.sorted())
      if (said->severity == Severity::error) CHECK_FALSE(said->help.empty());
    if (!diags.has_errors()) module.summary(diags);
  }
}

TEST_CASE("a file of 10,000 lines", "[module][.time]") {
  std::string text = kPod;
  for (int i = 0; i < 1000; ++i) {
    const std::string n = std::to_string(i);
    text += "gpu g" + n + " = h100_sxm {\n  memory = 80 GiB\n}\n";
    text += "layout l" + n + " {\n  tp = 8\n  pp = 4\n  zero = 1\n}\n";
    text += "train t" + n +
            " { model = llama3_8b  cluster = pod  seq = 8Ki  batch = 512\n  require tp <= 8 }\n";
  }
  const auto begin = std::chrono::steady_clock::now();
  const Module module = accept(text);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(module.jobs().size() == 1000);
  WARN("10,000 lines: " << took.count() << " s");
}
