// SPDX-License-Identifier: Apache-2.0
//
// Which files are read in a child process first, counted by the page faults of children: a fork has some.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "io/hdf5/hdf5.h"
#include "io/hdf5/hdf5_trial.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;

namespace {

using namespace std::chrono_literals;

void write_file(const std::string& path, std::int64_t number) {
  hdf5::FileImage image(path, 4096);
  image.write_attribute("/", "number", number);
  const auto bytes = image.bytes();
  test::write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void written_ago(const std::string& path, std::chrono::seconds age) {
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - age);
}

// Whether `body` has a child.
template <class Body>
bool tries(Body&& body) {
  const auto faults = [] {
    rusage usage{};
    ::getrusage(RUSAGE_CHILDREN, &usage);
    return usage.ru_minflt + usage.ru_majflt;
  };
  const long before = faults();
  body();
  return faults() != before;
}

bool tries_file(const std::string& path) {
  return tries([&] { hdf5::try_reading(path); });
}

}  // namespace

TEST_CASE("a file is tried once, and again when it has changed or may have") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  write_file(path, 1);
  CHECK(tries_file(path));
  CHECK(tries_file(path));  // written to a moment ago: its time tells nothing yet
  written_ago(path, 60s);
  CHECK(tries_file(path));
  CHECK_FALSE(tries_file(path));
  written_ago(path, 30s);
  CHECK(tries_file(path));
  CHECK_FALSE(tries_file(path));
  CHECK(hdf5::File(path).int_attribute("/", "number") == 1);
}

TEST_CASE("files that are tried together are known, and so is what is not to be tried again") {
  const test::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (const char* name : {"a.h5", "b.h5", "c.h5"}) {
    paths.push_back(folder / name);
    write_file(paths.back(), 2);
    written_ago(paths.back(), 60s);
  }
  CHECK(tries([&] { hdf5::try_reading_together(paths); }));
  for (const auto& path : paths) CHECK_FALSE(tries_file(path));
  CHECK_FALSE(tries([&] { hdf5::try_reading_together(paths); }));
  CHECK(tries_file(folder / "missing.h5"));  // who opens it says so
}
