// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#pragma once

#include <string>
#include <vector>

/// A shared library that is looked for when it is needed, so that the program starts without it.
namespace plimsoll::runtime::cuda {

class Library {
 public:
  /// The first of \a names that is found, as the system's loader looks for it and in the toolkit's
  /// usual place. Throws GpuError that names them where there is none.
  explicit Library(const std::vector<std::string>& names);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Sets \a function; throws GpuError where the library does not have it.
  template <class F>
  void get(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(symbol(name));  // NOLINT: dlsym has no types
  }

 private:
  void* symbol(const char* name) const;
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace plimsoll::runtime::cuda
