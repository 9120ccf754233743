// SPDX-License-Identifier: Apache-2.0
//
// What the tests of io share: a folder that goes away with its object, whole files as strings, and the message of the
// Error that a call throws. Relies on std::filesystem. Invariant: nothing outside the folder is touched.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <string>
#include <system_error>

#include "layers/base/error.h"

namespace convoy::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::current_path() / "io-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) fail("cannot make a folder {}", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
}

/// What the Error says that `body` throws; "" when it throws none. Its exit code goes to *code.
template <class Body>
std::string error_of(Body&& body, ExitCode* code = nullptr) {
  try {
    std::forward<Body>(body)();
    return "";
  } catch (const Error& error) {
    if (code != nullptr) *code = error.code();
    return error.what();
  }
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace convoy::test
