// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include "cli/answer.hpp"
#include "cli/streams.hpp"

int main(int argc, char** argv) {
  using namespace plimsoll::cli;
  prepare_streams();
  return say(answer(argc, argv, look_at_terminal()));
}
