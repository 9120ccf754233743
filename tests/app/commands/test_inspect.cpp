// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <string>

#include "app/commands/commands.h"
#include "io/checkpoint/checkpoint.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

constexpr float kMarker = 1234.5625f;  // found again in the file's bytes

/// A checkpoint of one tensor in a folder of its own.
std::string write_example() {
  std::string folder = (std::filesystem::temp_directory_path() / "convoy-test-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  Checkpoint checkpoint;
  HostTensor tensor("fc.weight", Shape{2, 3}, DType::kF32);
  const float values[6] = {kMarker, kMarker, kMarker, kMarker, kMarker, kMarker};
  std::memcpy(tensor.bytes.data(), values, sizeof values);
  checkpoint.model.push_back(tensor);
  checkpoint.step = 7;
  checkpoint.config = "[run]\nname = \"x\"\n";
  std::string path = folder + "/step-00000007.h5";
  write_checkpoint(path, checkpoint);
  return path;
}

int exit_code(const std::string& path) {
  try {
    return inspect_command({path});
  } catch (const Error& error) {
    return static_cast<int>(error.code());
  }
}

void flip_marker(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  const std::string marker(reinterpret_cast<const char*>(&kMarker), sizeof kMarker);
  const std::size_t at = bytes.find(marker + marker);
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("a whole checkpoint, a damaged one, a truncated one, none") {
  const std::string path = write_example();
  CHECK(exit_code(path) == 0);
  flip_marker(path);
  CHECK(exit_code(path) == 1);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  CHECK(exit_code(path) == 2);
  std::filesystem::remove_all(std::filesystem::path(path).parent_path());
  CHECK(exit_code(path) == 2);
}
