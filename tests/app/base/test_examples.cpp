// SPDX-License-Identifier: Apache-2.0
//
// Examples by name, with those of the source tree and with files that the test writes.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/base/examples.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

const std::string kFolder = CONVOY_CONFIGS;

std::string example_problem(const std::string& named, ExampleKind kind, const std::string& folder) {
  try {
    return "no error: " + find_example(named, kind, folder);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
}

}  // namespace

TEST_CASE("names of examples: configs in folders, without machines and without other files") {
  const std::vector<std::string> configs = example_names(kFolder, ExampleKind::kConfig);
  CHECK(std::is_sorted(configs.begin(), configs.end()));
  for (const char* name : {"quickstart", "toy", "tutorials/toy_ddp"}) {
    CHECK(std::count(configs.begin(), configs.end(), name) == 1);
  }
  for (const std::string& name : configs) {
    CHECK(std::filesystem::is_regular_file(kFolder + "/" + name + ".toml"));
    CHECK(!name.starts_with("machines"));
  }
  CHECK(example_names(kFolder, ExampleKind::kMachine) == std::vector<std::string>{"a100_40gb_4x", "h200_dgx"});
  CHECK(example_names(kFolder + "/no/such", ExampleKind::kConfig).empty());
}

TEST_CASE("a name means the file that is there, else the example") {
  CHECK(find_example("toy", ExampleKind::kConfig, kFolder) == kFolder + "/toy.toml");
  CHECK(find_example("tutorials/toy_ddp", ExampleKind::kConfig, kFolder) == kFolder + "/tutorials/toy_ddp.toml");
  CHECK(find_example("h200_dgx", ExampleKind::kMachine, kFolder) == kFolder + "/machines/h200_dgx.toml");
  std::ofstream("mlp_digits") << "\n";
  CHECK(find_example("mlp_digits", ExampleKind::kConfig, kFolder) == "mlp_digits");
  std::filesystem::remove("mlp_digits");
  std::filesystem::create_directory("mlp_digits");
  CHECK(find_example("mlp_digits", ExampleKind::kConfig, kFolder) == "mlp_digits");
  std::filesystem::remove("mlp_digits");
}

TEST_CASE("paths stay as they are; names that are nothing are refused") {
  for (const char* path : {"", "toy.toml", "./toy", "../toy", "/no/such", "data.h5"}) {
    CHECK(find_example(path, ExampleKind::kConfig, kFolder) == path);
  }
  CHECK(example_problem("quikstart", ExampleKind::kConfig, kFolder) ==
        "quikstart: there is no such file, and no example config of that name (did you mean \"quickstart\"?)");
  CHECK(example_problem("h100", ExampleKind::kMachine, kFolder) ==
        "h100: there is no such file, and no example machine of that name (the examples: a100_40gb_4x, h200_dgx)");
  const std::string all = example_problem("machines/h200_dgx", ExampleKind::kConfig, kFolder);
  CHECK(
      all.starts_with("machines/h200_dgx: there is no such file, and no example config of that name (the examples: "));
  CHECK(all.find(", quickstart, ") != std::string::npos);
  CHECK(example_problem("toy", ExampleKind::kConfig, "") ==
        "toy: there is no such file, and no example config of that name (name a TOML file)");
}
