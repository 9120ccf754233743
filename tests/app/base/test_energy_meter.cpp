// SPDX-License-Identifier: Apache-2.0
//
// RAPL's counters in a made-up powercap folder.
#include "app/base/energy_meter.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text << "\n";
}

void set_domain(const std::string& folder, const std::string& name, const std::string& energy) {
  write(folder + "/name", name);
  write(folder + "/energy_uj", energy);
  write(folder + "/max_energy_range_uj", "10000000");
}

}  // namespace

TEST_CASE("package domains are summed, a counter that wraps around counts on, domains within a package do not count") {
  const TemporaryFolder folder;
  const std::string root = (folder / "powercap");
  set_domain(root + "/intel-rapl:0", "package-0", "9000000");
  set_domain(root + "/intel-rapl:1", "package-1", "1000000");
  set_domain(root + "/intel-rapl:0:0", "core", "5");
  set_domain(root + "/intel-rapl:2", "psys", "7");
  EnergyMeter meter(true, "", root);
  CHECK(meter.readable());
  CHECK(meter.problem().empty());
  CHECK(meter.take() == 0);
  set_domain(root + "/intel-rapl:0", "package-0", "500000");
  set_domain(root + "/intel-rapl:1", "package-1", "1250000");
  set_domain(root + "/intel-rapl:0:0", "core", "50000");
  CHECK(meter.take() == doctest::Approx(1.5 + 0.25));
  CHECK(meter.take() == 0);
  CHECK(meter.take_sometimes() == 0);  // too soon
}

TEST_CASE("what cannot be read is said; a rank that reads nothing has no problem") {
  const TemporaryFolder folder;
  EnergyMeter none(true, "", (folder / "missing"));
  CHECK_FALSE(none.readable());
  CHECK(none.problem().find("has no package domain") != std::string::npos);
  CHECK(none.take() == 0);
  set_domain((folder / "powercap") + "/intel-rapl:0", "package-0", "no number");
  const EnergyMeter damaged(true, "", (folder / "powercap"));
  CHECK_FALSE(damaged.readable());
  CHECK(damaged.problem().find("intel-rapl:0/energy_uj") != std::string::npos);
  const EnergyMeter other(false, "", (folder / "missing"));
  CHECK_FALSE(other.readable());
  CHECK(other.problem().empty());
}
