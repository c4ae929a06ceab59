// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "runtime/wire.hpp"

/// Messages between processes that torchrun or srun started, over TCP: every rank is connected to
/// rank 0, which passes on what is for others. For the start of NCCL and for toy sizes; no more is
/// asked of it.
namespace plimsoll::runtime {

struct TcpPlace {
  int rank = 0, size = 1;
  std::string host;  ///< of rank 0
  int port = 0;
};

/// Joins the others, or says why that cannot be (after \a seconds without an answer).
std::variant<std::unique_ptr<Wire>, std::string> open_tcp(const TcpPlace&, int seconds = 60);

}  // namespace plimsoll::runtime
