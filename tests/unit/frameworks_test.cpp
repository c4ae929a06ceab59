// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors

#include "tests/unit/priced.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

/// The frameworks of the prelude against numbers worked out by hand and
/// measured elsewhere (MEGATRON.md §4-8, FSDP.md R1, R2), and the GPT block's
/// formula.
namespace {

constexpr double kMiB = 1 << 20;
double mib(std::int64_t bytes) { return static_cast<double>(bytes) / kMiB; }
double mib(Int128 bytes) { return mib(static_cast<std::int64_t>(bytes)); }

/// Tensor bytes inside the framework's allocator: what MEGATRON.md calls
/// allocated, unrounded.
double tensors(const StageBill& stage) { return mib(stage.live_bytes); }

/// Llama-70B's shape with 12 layers on 8 B200, tp 1, pp 2, dp 4 (MEGATRON.md
/// §8).
const Priced& llama_12() {
  static const Priced p = price(R"(
    model m = llama3_70b { layers = 12 }
    cluster c { gpu = b200  nodes = 1  gpus_per_node = 8 }
    train t { model = m  cluster = c  seq = 4Ki  batch = 32  framework = megatron  loss = te  attention = cudnn }
    layout l { pp = 2  zero = 1  mbs = 1 }
  )");
  return p;
}

/// Megatron's GPT-7B recipe on 8 GPUs, tp 4, dp 2 (MEGATRON.md §8).
Priced gpt_7b(const std::string& gpu, const std::string& attention) {
  return price(fmt::format(R"(
    model gpt7 = decoder {{
      layers = 32  hidden = 4096  heads = 32  kv_heads = 8  ffn = 16384  vocab = 131073
      positions = 8192  position = learned  norm = layernorm  kind = gelu  gated = false
      bias_qkv = true  bias_o = true  bias_mlp = true
    }}
    cluster c {{ gpu = {}  nodes = 1  gpus_per_node = 8 }}
    train t {{
      model = gpt7  cluster = c  seq = 8Ki  batch = 8  framework = megatron  attention = {}
      dropout = 0.1  attention_dropout = 0.1  deterministic = true  fuse_wgrad = false  dataloader_mask = true
    }}
    layout l {{ tp = 4  sp = false  zero = 1  mbs = 2 }}
  )",
                           gpu, attention));
}

std::string llama_8b(const std::string& framework) {
  return "cluster c { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }\n"
         "train t { model = llama3_8b  cluster = c  seq = 8Ki  batch = 8  " +
         framework + " }\nlayout l { zero = 3  mbs = 1 }\n";
}

}  // namespace

TEST_CASE("a Llama 70B layer under megatron: 1,073.03 MiB", "[frameworks]") {
  const auto kept = saved(llama_12());
  for (const auto& [name, bytes] : kept) INFO(name << ' ' << mib(bytes));
  // x, norm, q, k, v, log-sum-exp, output, residual, norm, gate and up,
  // product, two norms' statistics
  CHECK(mib(total(kept)) ==
        Approx(64 + 64 + 64 + 8 + 8 + 1 + 64 + 64 + 64 + 448 + 224 + 0.03125).margin(0.001));
}

TEST_CASE("both stages of the Llama 70B shape under megatron", "[frameworks]") {
  const Priced& p = llama_12();
  REQUIRE(p.bill.stages.size() == 2);
  for (const StageBill& stage : p.bill.stages) {
    std::string lines = stage.peak_moment + "\n";
    for (const BillLine& l : stage.lines) lines += fmt::format("{} {:.2f}\n", l.name, mib(l.bytes));
    INFO(lines);
    CHECK(tensors(stage) == Approx(stage.stage == 0 ? 68151.5 : 64463.4).margin(0.1));
  }
  CHECK(mib(states(p.bill.stages[0])) == Approx(53083).margin(1));
  CHECK(mib(line(p.bill.stages[0], "dummy weight gradients")) == Approx(160 + 128 + 896 + 448));
  CHECK(mib(line(p.bill.stages[1], "dummy weight gradients")) == Approx(1632 + 2004));
}

TEST_CASE("GPT-7B under megatron, flash on A100 and cuDNN on H100", "[frameworks]") {
  const Priced a100 = gpt_7b("a100_80gb", "flash"), h100 = gpt_7b("h100_sxm", "cudnn");
  CHECK(mib(total(saved(a100))) == Approx(1008.75).margin(0.01));
  CHECK(mib(total(saved(h100))) == Approx(976.75).margin(0.01));
  CHECK(mib(states(a100.bill.stages[0])) == Approx(19608).margin(1));
  const auto lines = [](const Priced& p) {
    std::string text = p.bill.stages[0].peak_moment + "\n";
    for (const BillLine& l : p.bill.stages[0].lines)
      text += fmt::format("{} {:.2f}\n", l.name, mib(l.bytes));
    return text;
  };
  INFO(lines(a100) << lines(h100));
  CHECK(tensors(a100.bill.stages[0]) == Approx(55487.4).margin(0.5));
  // Hopper's Transformer Engine has 28 MiB more of workspace than Ampere's.
  CHECK(tensors(h100.bill.stages[0]) == Approx(54491.4).margin(0.5));
}

TEST_CASE("a small GPT under megatron, unfused attention with dropout", "[frameworks]") {
  const Priced p = price(R"(
    model small = decoder {
      layers = 12  hidden = 512  heads = 8  ffn = 2048  vocab = 50257  tied = true  positions = 1024
      position = learned  norm = layernorm  kind = gelu  gated = false
      bias_qkv = true  bias_o = true  bias_mlp = true
    }
    cluster c { gpu = a100_80gb  nodes = 1  gpus_per_node = 8 }
    train t {
      model = small  cluster = c  seq = 1Ki  batch = 32  framework = megatron  attention = unfused
      dropout = 0.1  attention_dropout = 0.1  deterministic = true  fuse_wgrad = false  dataloader_mask = true
    }
    layout l { zero = 1  mbs = 4 }
  )");
  const StageBill& stage = p.bill.stages[0];
  std::string lines = stage.peak_moment + "\n";
  for (const BillLine& l : stage.lines) lines += fmt::format("{} {:.2f}\n", l.name, mib(l.bytes));
  INFO(lines);
  CHECK(mib(states(stage)) == Approx(458.55).margin(0.01));
  CHECK(mib(states(stage) + category(stage, Category::workspace)) == Approx(526.55).margin(0.05));
  CHECK(tensors(stage) == Approx(4456.4).margin(0.5));
}

TEST_CASE("FSDP2 eager keeps 16h + 8q + 4n + 8f bytes a token and layer", "[frameworks]") {
  const Priced p = price(llama_8b("framework = torchtitan  compile = false  loss = eager"));
  const auto kept = saved(p);
  for (const auto& [name, bytes] : kept) UNSCOPED_INFO(name << ' ' << bytes);
  const std::int64_t h = 4096, q = 4096, n = 32, f = 14336, tokens = 8192;
  CHECK(total(kept) == tokens * (16 * h + 8 * q + 4 * n + 8 * f));
}

TEST_CASE("FSDP2 compiled keeps 8h + 8q + 6f + 4n bytes a token and layer", "[frameworks]") {
  const Priced p = price(llama_8b("framework = torchtitan"));
  const auto kept = saved(p);
  for (const auto& [name, bytes] : kept) UNSCOPED_INFO(name << ' ' << bytes);
  const std::int64_t h = 4096, q = 4096, n = 32, f = 14336, tokens = 8192;
  CHECK(total(kept) == tokens * (8 * h + 8 * q + 4 * n + 6 * f));
}

TEST_CASE("FSDP2 with selective recomputation keeps outputs of some products", "[frameworks]") {
  const std::int64_t h = 4096, q = 4096, k = 1024, n = 32, f = 14336, tokens = 8192;
  const std::int64_t kept = tokens * (2 * h + 2 * q + 2 * k + 2 * f + 2 * q + 4 * n);
  for (const bool compile : {true, false}) {
    std::string text = llama_8b(fmt::format("framework = torchtitan  compile = {}", compile));
    text.insert(text.rfind('}'), " recompute = selective ");
    const Priced p = price(text);
    for (const auto& [name, bytes] : saved(p, p.layout.recompute))
      UNSCOPED_INFO(name << ' ' << bytes);
    // In eager mode the last product of a layer is kept too, though nothing reads it.
    CHECK(total(saved(p, p.layout.recompute)) == kept + (compile ? 0 : tokens * 2 * h));
  }
}

TEST_CASE("the GPT block's 34 and 5, by adding saved tensors", "[frameworks]") {
  struct Shape {
    std::int64_t hidden, heads, seq, mbs;
  };
  for (const Shape& s : {Shape{64, 4, 32, 1}, Shape{768, 12, 1024, 2}, Shape{4096, 32, 2048, 1}}) {
    for (const char* activation : {"gelu", "relu"}) {
      const auto text = [&](const char* framework) {
        return fmt::format(
            "model g = gpt {{ layers = 2  hidden = {}  heads = {}  vocab = 512 "
            " activation = {} }}\n"
            "cluster c {{ gpu = h100_sxm  nodes = 1  gpus_per_node = 1 }}\n"
            "train t {{ model = g  cluster = c  framework = {}  attention = "
            "unfused  dropout = 0.1\n"
            "  attention_dropout = 0.1  seq = {}  batch = {} }}\nlayout l {{ "
            "mbs = {} }}\n",
            s.hidden, s.heads, activation, framework, s.seq, s.mbs, s.mbs);
      };
      const std::int64_t expected =
          s.seq * s.mbs * (34 * s.hidden + 5 * s.heads * s.seq);  // s b h (34 + 5 a s / h)
      const Priced plain = price(text("plain")), textbook = price(text("textbook"));
      for (const auto& [name, bytes] : saved(plain)) UNSCOPED_INFO(name << ' ' << bytes);
      CHECK(total(saved(plain)) == expected);
      CHECK(total(saved(textbook)) == expected);
      CHECK(category(textbook.bill.stages[0], Category::activations) == 2 * expected);
      CHECK(category(textbook.bill.stages[0], Category::overhead) == 0);
      CHECK(category(plain.bill.stages[0], Category::overhead) == 0);
      CHECK(category(plain.bill.stages[0], Category::workspace) == 0);
    }
  }
}

TEST_CASE("every framework prices every kind of model", "[frameworks]") {
  for (const char* model : {"llama3_8b", "gpt_2_xl", "mixtral_8x7b", "deepseek_v2_lite",
                            "gemma_2_2b", "gpt_oss_20b", "t5_base", "vlm", "nemotron_h_8b"})
    for (const char* framework :
         {"plain", "textbook", "megatron", "torchtitan", "huggingface", "deepspeed"})
      for (const char* mode : {"none", "selective", "full"}) {
        const std::string target =
            std::string(model) == "t5_base" ? "  target = 1Ki" : std::string();
        const Priced p =
            price(fmt::format("cluster c {{ gpu = h200  nodes = 1  gpus_per_node = 8 }}\n"
                              "train t {{ model = {}  cluster = c  framework = {}  seq = 4Ki{}  "
                              "batch = 16 }}\n"
                              "layout l {{ zero = 3  mbs = 2  recompute = {} }}\n",
                              model, framework, target, mode));
        CHECK(p.bill.peak_bytes > 0);
      }
}

TEST_CASE("a layer that holds nothing keeps nothing, recomputed or not", "[frameworks]") {
  for (const char* framework : {"megatron", "torchtitan", "deepspeed", "plain"}) {
    INFO(framework);
    const auto kept = [&](const char* recompute) {
      const Priced p = price(fmt::format(
          "model m = decoder {{ layers = 4 hidden = 512 heads = 8 kv_heads = 8 ffn = 1024 vocab = "
          "1000 head_dim = 64 pattern = [dense, dense, dense, empty] }}\n"
          "cluster c {{ gpu = h100_sxm nodes = 1 gpus_per_node = 4 }}\n"
          "train t {{ model = m cluster = c seq = 1Ki batch = 16 framework = {} }}\n"
          "layout l {{ pp = 4 mbs = 1 recompute = {} }}\n",
          framework, recompute));
      return category(p.bill.stages[3], Category::activations);
    };
    CHECK(kept("full") == kept("none"));
  }
}

TEST_CASE("what exchanges tokens holds its own buffers, not NCCL's", "[frameworks]") {
  // DeepSeek V3 on 64 ranks of one domain, 4,096 tokens each: worked out from DeepEP's sources.
  const std::int64_t rows = 64 * 4096, ring = 12 * 16 * 2;
  const std::int64_t hybrid = rows * (2 * 7168 + 4 * 7168 / 128 + 4 * 256);
  const std::int64_t nvlink = (std::int64_t{32} << 20) + 10 * 8 * 288 * (2 * 7168 + 2056);
  const std::int64_t network = std::int64_t{512}
                               << 20;  // 10 * 8 * 140 * 2 * (2 * 7168 + 2072), less
  struct {
    const char* dispatcher;
    const char* item;
    std::int64_t bytes, nccl_mib;
  } const all[] = {{"alltoall", "", 0, 12 * 32 * 63},
                   {"hybridep", "HybridEP buffers", hybrid, ring},
                   {"deepep", "DeepEP buffers", nvlink + network, ring}};
  for (const auto& expected : all) {
    const Priced p = price(fmt::format(
        "cluster c {{ gpu = gb200  nodes = 64  gpus_per_node = 4  nvlink_domain = 72 }}\n"
        "train t {{ model = deepseek_v3  cluster = c  seq = 4Ki  batch = 2048  framework = "
        "megatron "
        "dispatcher = {} }}\nlayout l {{ pp = 4  ep = 64  mbs = 1  zero = 1 }}\n",
        expected.dispatcher));
    std::int64_t buffers = 0, nccl = 0;
    for (const BillLine& line : p.bill.stages[1].lines) {
      if (line.item == kNone) continue;
      const std::string& name = p.problem->inventory.items[line.item].name;
      if (name == "NCCL, ep") nccl = static_cast<std::int64_t>(line.bytes);
      if (name.ends_with("EP buffers")) {
        CHECK(name == expected.item);
        buffers = static_cast<std::int64_t>(line.bytes);
      }
    }
    INFO(expected.dispatcher);
    CHECK(buffers == expected.bytes);
    CHECK(nccl == expected.nccl_mib << 20);
  }
}

TEST_CASE("every optimizer keeps its states", "[frameworks]") {
  const std::pair<const char*, double> bytes[] = {
      {"adamw", 8}, {"sgd", 4}, {"sgd_plain", 0}, {"lion", 4}, {"adamw8bit", 2.03125}, {"muon", 4}};
  for (const auto& [optimizer, expected] : bytes) {
    // Norms and biases are few, and there is no embedding to speak of.
    const Priced p =
        price(fmt::format("model m = llama {{ layers = 8  hidden = 4096  heads = 32  "
                          "ffn = 16384  vocab = 8 }}\n"
                          "cluster c {{ gpu = h200  nodes = 1  gpus_per_node = 1 }}\n"
                          "train t {{ model = m  cluster = c  framework = plain  "
                          "optimizer = {}  seq = 64  batch = 1 }}\n"
                          "layout l {{ mbs = 1 }}\n",
                          optimizer));
    const double each = static_cast<double>(category(p.bill.stages[0], Category::moments)) /
                        static_cast<double>(p.problem->program->parameter_count());
    INFO(optimizer);
    CHECK(each == Approx(expected).epsilon(0.001));
  }
}

TEST_CASE("freeze takes names of weights and of blocks", "[frameworks]") {
  const auto gradients = [](const std::string& freeze) {
    const Priced p = price(
        "cluster c { gpu = h200  nodes = 1  gpus_per_node = 8 }\n"
        "train t { model = vlm  cluster = c  framework = plain  seq = 1Ki  batch = 8  " +
        freeze + " }\nlayout l { mbs = 1 }\n");
    return category(p.bill.stages[0], Category::gradients);
  };
  // Two bytes a parameter of the vision tower's 24 layers, of the Llama's 32.
  const std::int64_t tower =
      2 * 24 * (4 * (1024 * 1024 + 1024) + 4 * 1024 + 2 * 1024 * 4096 + 4096 + 1024);
  const std::int64_t llama = 2LL * 32 * (4 * 4096 * 4096 + 3LL * 4096 * 11008 + 2 * 4096);
  CHECK(gradients("") - gradients("freeze = {vit}") == tower);
  CHECK(gradients("") - gradients("freeze = {vit, lm}") == tower + llama);
  CHECK(gradients("") - gradients("freeze = {head}") == 2 * 4096 * 32064);
}
