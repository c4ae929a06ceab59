// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

// Debian 12 has Catch2 v2, Ubuntu 24.04 has v3.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
