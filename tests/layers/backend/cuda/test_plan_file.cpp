// SPDX-License-Identifier: Apache-2.0
//
// The file of the plans that were quickest: it is shared by processes and may be damaged.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <ios>
#include <string>

#include "layers/backend/cuda/plan_file.h"

using namespace convoy;

namespace {

/// An empty folder, removed at the end.
struct Folder {
  Folder() { std::filesystem::remove_all(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path = "plan-file";
  std::string file = path + "/nested/plans.txt";
};

void append(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }

std::string plan_of(const PlanFile& file, const std::string& convolution) {
  const std::string* plan = file.find(convolution);
  return plan == nullptr ? "none" : *plan;
}

}  // namespace

TEST_CASE("a plan that was kept is found by the next process") {
  const Folder folder;
  PlanFile first(folder.file);
  CHECK(plan_of(first, "output of a") == "none");
  first.add("output of a", "eng1_k2=3", 0.5);
  CHECK(plan_of(first, "output of a") == "eng1_k2=3");
  PlanFile second(folder.file);
  CHECK(plan_of(second, "output of a") == "eng1_k2=3");
  CHECK(plan_of(second, "output of b") == "none");

  struct stat status {};
  REQUIRE(::stat(folder.file.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("processes that share a file add to it, and the last plan of a convolution counts") {
  const Folder folder;
  PlanFile one(folder.file), other(folder.file);
  one.add("a", "eng1", 0.5);
  other.add("b", "eng2", 0.5);
  other.add("a", "eng3", 0.5);
  CHECK(plan_of(one, "a") == "eng1");  // it keeps what it has begun with
  const PlanFile later(folder.file);
  CHECK(plan_of(later, "a") == "eng3");
  CHECK(plan_of(later, "b") == "eng2");
}

TEST_CASE("lines that are no entries are passed over, and so is one without an end") {
  const Folder folder;
  PlanFile(folder.file).add("a", "eng1", 0.5);
  append(
      folder.file,
      "nonsense\n\nplan\nplan\tb\teng2\nplan\t\teng9\t1\nplan\tc\t\t1\nplan\td\teng2\t1\tmore\nnoplan\te\teng3\t1\n");
  append(folder.file, "plan\tf\teng4\t0.1\nplan\ta\teng9\t0.");
  const PlanFile file(folder.file);
  CHECK(plan_of(file, "a") == "eng1");
  CHECK(plan_of(file, "f") == "eng4");
  for (const char* convolution : {"", "b", "c", "d", "e"}) CHECK(plan_of(file, convolution) == "none");
}

TEST_CASE("without a file, or where none can be written, plans are kept in memory") {
  PlanFile none("");
  none.add("a", "eng1", 0.5);
  CHECK(plan_of(none, "a") == "eng1");

  const Folder folder;
  append(folder.path, "a file where the folder would be");
  PlanFile refused(folder.file);
  refused.add("a", "eng1", 0.5);
  CHECK(plan_of(refused, "a") == "eng1");
  CHECK(plan_of(PlanFile(folder.file), "a") == "none");
}

TEST_CASE("each GPU and each cuDNN has a file of its own") {
  CHECK(plan_file_name("NVIDIA H100 80GB HBM3", 132, 91900) == "cudnn-91900-NVIDIA_H100_80GB_HBM3-132.txt");
  CHECK(plan_file_name("../x", 16, 1) == "cudnn-1-___x-16.txt");
}
