// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/lsp/server.hpp"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include "cli/lsp/answers.hpp"
#include "cli/lsp/message.hpp"
#include "cli/lsp/transport.hpp"
#include "cli/version.hpp"
#include "lang/parse.hpp"

namespace plimsoll::cli::lsp {

namespace {

/// Codes of JSON-RPC and of the protocol.
enum Code : int {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kMethodNotFound = -32601,
  kInvalidParams = -32602,
  kInternal = -32603,
  kNotInitialized = -32002,
};

/// What is wrong with a request: an answer, not a bug.
struct Refusal {
  int code;
  std::string message;
};

class Server {
 public:
  Server(int in, int out) : transport_(in, out) {}

  int run() {
    for (;;) {
      if (!transport_.pending()) publish();
      if (!transport_.pending()) look_ahead();
      const auto body = transport_.read();
      if (!body || !take(*body)) return shut_down_ ? 0 : 1;
    }
  }

 private:
  /// False after `exit`.
  bool take(const std::string& body) {
    const Json message = parse_message(body);
    if (message.is_discarded()) return fail(nullptr, {kParseError, "the message is no JSON"}), true;
    if (message.is_array()) {  // a batch of JSON-RPC, which the protocol does not use
      for (const Json& one : message)
        if (!take_one(one)) return false;
      return true;
    }
    return take_one(message);
  }

  bool take_one(const Json& message) {
    const Json id = message.is_object() && message.contains("id") ? message["id"] : Json(nullptr);
    const bool is_request = message.is_object() && message.contains("id");
    try {
      if (!message.is_object()) throw Refusal{kInvalidRequest, "expected an object"};
      if (!message.contains("method")) {
        // An answer to a question of ours, of which there are none.
        if (message.contains("result") || message.contains("error")) return true;
        throw Refusal{kInvalidRequest, "the message has no method"};
      }
      if (!message["method"].is_string())
        throw Refusal{kInvalidRequest, "expected a string for 'method'"};
      const std::string method = message["method"];
      if (method == "exit") return false;
      const Json params = message.contains("params") ? message["params"] : Json::object();
      if (is_request)
        answer(id, request(method, params));
      else
        notice(method, params);
    } catch (const Refusal& refusal) {
      if (is_request || !message.is_object()) fail(id, refusal);
    } catch (const Json::exception& e) {
      if (is_request) fail(id, {kInvalidParams, e.what()});
    } catch (const std::exception& e) {
      if (is_request)
        fail(id, {kInternal, fmt::format("internal error of plimsoll: {}", e.what())});
    }
    return true;
  }

  Json request(const std::string& method, const Json& params) {
    if (method == "initialize" && !initialized_) return initialize(params);
    if (!initialized_) throw Refusal{kNotInitialized, "'initialize' comes first"};
    if (shut_down_) throw Refusal{kInvalidRequest, "after 'shutdown' only 'exit' may come"};
    if (method == "initialize") throw Refusal{kInvalidRequest, "'initialize' came before"};
    if (method == "shutdown") {
      shut_down_ = true;
      return nullptr;
    }
    if (method == "textDocument/formatting") return formatting(document(params), encoding_);
    if (method == "textDocument/documentSymbol") {
      Document& of = document(params);
      return symbols(of, documents_.analysis(of), encoding_);
    }
    if (method == "textDocument/hover") {
      Document& of = document(params);
      return hover(of, documents_.analysis(of), offset(of, params), encoding_);
    }
    if (method == "textDocument/definition") {
      Document& of = document(params);
      return definition(of, documents_.analysis(of), offset(of, params), encoding_);
    }
    if (method == "textDocument/completion") {
      Document& of = document(params);
      const bool after_blank = params.contains("context") && params["context"].is_object() &&
                               params["context"].value("triggerCharacter", "") == " ";
      return completion(of, documents_.analysis(of), offset(of, params), encoding_, after_blank);
    }
    throw Refusal{kMethodNotFound, fmt::format("there is no method '{}'", method)};
  }

  Json initialize(const Json& params) {
    initialized_ = true;
    if (params.is_object())
      if (const auto at = params.find("capabilities"); at != params.end() && at->is_object())
        if (const Json::json_pointer where("/general/positionEncodings"); at->contains(where))
          for (const Json& one : (*at)[where])
            if (one == "utf-8") encoding_ = Encoding::utf8;
    return {{"capabilities",
             {{"positionEncoding", encoding_ == Encoding::utf8 ? "utf-8" : "utf-16"},
              {"textDocumentSync", {{"openClose", true}, {"change", 2}}},
              {"hoverProvider", true},
              {"definitionProvider", true},
              {"documentFormattingProvider", true},
              {"documentSymbolProvider", true},
              {"completionProvider", {{"triggerCharacters", {"=", " ", "{", ",", "("}}}}}},
            {"serverInfo", {{"name", "plimsoll"}, {"version", version_number()}}}};
  }

  void notice(const std::string& method, const Json& params) {
    if (!initialized_ || shut_down_) return;
    if (method == "textDocument/didOpen") {
      const Json& opened = params.at("textDocument");
      documents_.open(opened.at("uri").get<std::string>(), checked(opened.at("text")));
    } else if (method == "textDocument/didChange") {
      change(document(params), params.at("contentChanges"));
    } else if (method == "textDocument/didClose") {
      const std::string uri = params.at("textDocument").at("uri");
      if (const Document* closed = documents_.find(uri))
        for (const std::string& file : closed->told) tell(file, Json::array());
      documents_.close(uri);
    }
  }

  /// No more than the language's largest file is held.
  static std::string checked(const Json& text) {
    std::string held = text.get<std::string>();
    if (held.size() > kMaxFileBytes) throw Refusal{kInvalidParams, "the text is too large"};
    return held;
  }

  void change(Document& of, const Json& changes) {
    std::string text = of.text;
    for (const Json& one : changes) {
      if (!one.contains("range")) {
        text = checked(one.at("text"));
        continue;
      }
      const std::uint32_t begin = offset_of(text, place(one["range"].at("start")), encoding_);
      const std::uint32_t end = offset_of(text, place(one["range"].at("end")), encoding_);
      if (begin > end) throw Refusal{kInvalidParams, "a range that ends before it begins"};
      text.replace(begin, end - begin, one.at("text").get<std::string>());
      if (text.size() > kMaxFileBytes) throw Refusal{kInvalidParams, "the text is too large"};
    }
    of.text = std::move(text);
    documents_.touch(of);
  }

  Document& document(const Json& params) {
    const std::string uri = params.at("textDocument").at("uri");
    Document* found = documents_.find(uri);
    if (found == nullptr) throw Refusal{kInvalidParams, fmt::format("'{}' is not open", uri)};
    return *found;
  }
  static Place place(const Json& at) {
    return {at.at("line").get<std::uint32_t>(), at.at("character").get<std::uint32_t>()};
  }
  std::uint32_t offset(const Document& of, const Json& params) const {
    return offset_of(of.text, place(params.at("position")), encoding_);
  }

  void publish() {
    for (auto& [uri, one] : documents_.all()) {
      if (one.published) continue;
      const auto by_file = diagnostics(one, documents_.analysis(one), encoding_);
      for (const std::string& before : one.told)
        if (!by_file.contains(before)) tell(before, Json::array());
      one.told.clear();
      for (const auto& [file, said] : by_file) {
        tell(file, said);
        one.told.insert(file);
      }
      one.published = true;
    }
  }
  void tell(const std::string& uri, const Json& said) {
    send({{"jsonrpc", "2.0"},
          {"method", "textDocument/publishDiagnostics"},
          {"params", {{"uri", uri}, {"diagnostics", said}}}});
  }

  /// While the editor is silent: what a hover could say of jobs without a layout.
  void look_ahead() {
    for (auto& [uri, one] : documents_.all()) {
      if (transport_.pending()) return;
      try {
        search_ahead(documents_.analysis(one), [this] { return transport_.pending(); });
      } catch (const std::exception&) {
        // `plan` reports it; an editor goes on.
        one.analysis->tried_search = true;
      }
    }
  }

  void answer(const Json& id, Json result) {
    send({{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}});
  }
  void fail(const Json& id, const Refusal& why) {
    send({{"jsonrpc", "2.0"},
          {"id", id},
          {"error", {{"code", why.code}, {"message", why.message}}}});
  }
  void send(const Json& message) {
    // Names of files may be any bytes; JSON holds text only.
    transport_.write(message.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  Transport transport_;
  Documents documents_;
  Encoding encoding_ = Encoding::utf16;
  bool initialized_ = false, shut_down_ = false;
};

}  // namespace

int serve(int in, int out) { return Server(in, out).run(); }

}  // namespace plimsoll::cli::lsp
