// SPDX-License-Identifier: Apache-2.0
//
// What the fuzz targets share: a file with the bytes under test, and the rule that code which reads strange input may
// throw an Error and nothing else. A target is one file fuzz_NAME.cpp that defines LLVMFuzzerTestOneInput: libFuzzer
// calls it (preset fuzz), and replay.cpp does for every file of corpus/NAME in the ordinary tests. Relies on the
// sanitizers to notice what goes wrong. Invariant: an input leaves nothing behind for the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "io/data/dataset.h"
#include "io/hdf5/validation.h"
#include "layers/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
/// Called first, by libFuzzer and by replay.cpp: this program is also the child that validates HDF5 files.
extern "C" inline __attribute__((used)) int LLVMFuzzerInitialize(int* argc, char*** argv) {
  convoy::hdf5::validate_if_child(*argc, *argv);
  return 0;
}

namespace convoy::fuzz {

/// A folder of this process, in memory where the system has such a place; it goes away at the end.
class Folder {
 public:
  Folder() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code ignored;
    const auto base = std::filesystem::is_directory(memory, ignored) ? memory : std::filesystem::temp_directory_path();
    path_ = (base / "convoy-fuzz-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// Writes a file of that name; returns its path.
  [[nodiscard]] std::string write(const std::string& name, std::span<const std::uint8_t> bytes) const {
    std::string path = path_ + "/" + name;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path;
  }

 private:
  std::string path_;
};

inline const Folder& folder() {
  static const Folder shared;
  return shared;
}

/// Bad input is told by an Error; anything else that `body` throws ends the program, which is a finding.
template <class Body>
void allow_errors(Body&& body) {
  try {
    std::forward<Body>(body)();
  } catch (const Error&) {
  }
}

/// What a training does with a data set: looks at the labels and reads samples.
inline void use(const Dataset& data) {
  constexpr std::int64_t kMaxBytes = 1 << 24, kMaxSamples = 16;
  const std::int64_t bytes = data.sample_shape().size() * (data.input_dtype() == DType::kU8 ? 1 : 4);
  if (bytes > kMaxBytes || data.target_size() > kMaxBytes) return;
  std::vector<std::byte> input(static_cast<std::size_t>(bytes));
  std::vector<float> target(static_cast<std::size_t>(data.target_size()));
  allow_errors([&] { data.check_labels(10); });
  for (std::int64_t i = 0; i < std::min(data.size(), kMaxSamples); ++i) {
    std::int64_t label = 0;
    allow_errors([&] { data.read(i, input.data(), &label, target.data()); });
  }
}

}  // namespace convoy::fuzz
