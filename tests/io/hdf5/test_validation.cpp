// SPDX-License-Identifier: Apache-2.0
//
// Which files are validated in a child process, counted by the page faults of children: each has some.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/hdf5/hdf5.h"
#include "io/hdf5/validation.h"
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
bool has_child(Body&& body) {
  const auto faults = [] {
    rusage usage{};
    ::getrusage(RUSAGE_CHILDREN, &usage);
    return usage.ru_minflt + usage.ru_majflt;
  };
  const long before = faults();
  body();
  return faults() != before;
}

bool validates(const std::string& path) {
  return has_child([&] { hdf5::validate(path); });
}

}  // namespace

TEST_CASE("a file is validated once, and again when it has changed or may have") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  write_file(path, 1);
  CHECK(validates(path));
  CHECK(validates(path));  // written to a moment ago: its time tells nothing yet
  written_ago(path, 60s);
  CHECK(validates(path));
  CHECK_FALSE(validates(path));
  written_ago(path, 30s);
  CHECK(validates(path));
  CHECK_FALSE(validates(path));
  CHECK(hdf5::File(path).int_attribute("/", "number") == 1);
}

TEST_CASE("files that are validated together are not validated again, here or where the list is taken over") {
  const test::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (const char* name : {"a.h5", "b.h5", "c.h5"}) {
    paths.push_back(folder / name);
    write_file(paths.back(), 2);
    written_ago(paths.back(), 60s);
  }
  CHECK(has_child([&] { hdf5::validate_together(paths); }));
  for (const auto& path : paths) CHECK_FALSE(validates(path));
  CHECK_FALSE(has_child([&] { hdf5::validate_together(paths); }));
  CHECK(validates(folder / "missing.h5"));  // who opens it says so

  const std::string list = hdf5::validated_files();
  written_ago(paths[0], 90s);
  CHECK(list.find(paths[1]) != std::string::npos);
  const std::string moved = folder / "d.h5";
  std::filesystem::rename(paths[1], moved);
  std::string other = list;
  other.replace(other.find(paths[1]), paths[1].size(), moved);
  hdf5::add_validated_files(other);
  CHECK_FALSE(validates(moved));
  CHECK(validates(paths[0]));
}
