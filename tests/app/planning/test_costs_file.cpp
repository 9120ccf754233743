// SPDX-License-Identifier: Apache-2.0
//
// The file of measured costs: read back, and refused for another model or with impossible numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "app/planning/machine_model.h"
#include "layers/base/error.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;

namespace {

MachineModel measured_machine() {
  MachineModel machine;
  machine.name = "measured";
  const std::vector<UnitCost> units(4, UnitCost{1, 1, 1, 100, 10, 1000});
  machine.sizes = {{1, units}, {2, units}};
  machine.measured.precision = "fp32";
  for (const char* name : {"fc1", "fc2", "fc3", "fc4"}) machine.measured.units.push_back({name, 25, 250});
  return machine;
}

// What reading says of its file where one text is another one.
std::string complaint_of_costs(const MeasuredModel& wanted, const std::string& from = "", const std::string& to = "") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "costs.json";
  std::string text = machine_json(measured_machine());
  REQUIRE(text.find(from) != std::string::npos);
  text.replace(text.find(from), from.size(), to);
  std::ofstream(path) << text;
  try {
    static_cast<void>(read_machine(path, wanted));
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    const std::string words = error.what();
    CHECK(words.starts_with("--costs: " + path));
    return words.substr(std::min(words.size(), words.find("costs.json") + 12));
  }
  return "";
}

}  // namespace

TEST_CASE("a machine survives its file") {
  MachineModel machine = measured_machine();
  machine.cluster.node = {1e-6, 1e9};
  machine.crowding = 1.25;
  const test::TemporaryFolder folder;
  const std::string path = folder / "costs.json";
  std::ofstream(path) << machine_json(machine);
  const MachineModel back = read_machine(path, machine.measured);
  CHECK(back.name == machine.name);
  CHECK(back.cluster.node.latency == machine.cluster.node.latency);
  CHECK(back.crowding == machine.crowding);
  REQUIRE(back.sizes.size() == 2);
  CHECK(back.sizes[0].units[3].cache_bytes == 10);
  CHECK(back.measured.units[3].name == "fc4");
  CHECK_THROWS_AS((void)read_machine("/nonexistent/costs.json", machine.measured), Error);
  const std::string place = folder / "";
  CHECK_THROWS_WITH_AS((void)read_machine(place, machine.measured),
                       ("--costs: " + place + " is a folder (name a file of measured costs)").c_str(), Error);
}

TEST_CASE("costs of another model or precision are refused") {
  const MeasuredModel model = measured_machine().measured;
  CHECK(complaint_of_costs(model).empty());
  MeasuredModel other = model;
  other.precision = "bf16";
  CHECK(complaint_of_costs(other) == "measured in fp32, and train.precision is bf16 (measure again: --calibrate)");
  other = model;
  other.units.pop_back();
  CHECK(complaint_of_costs(other) ==
        "measured for a model of 4 units, and this one has 3 (measure again: --calibrate)");
  other = model;
  other.units[1].parameters = 8192;
  CHECK(complaint_of_costs(other) ==
        "measured for another model: unit 1 is fc2 of 250 parameters and 25 outputs of a sample, here fc2 of 8192 "
        "parameters and 25 outputs of a sample (measure again: --calibrate)");
  other = model;
  other.units[2].outputs = 1;
  CHECK(complaint_of_costs(other).find("here fc3 of 250 parameters and 1 output of") != std::string::npos);
  CHECK(complaint_of_costs(model, "\"precision\"", "\"before\"") ==
        "does not say for which model it was measured (measure again: --calibrate)");
}

TEST_CASE("impossible numbers in a file of costs are refused") {
  const MeasuredModel model = measured_machine().measured;
  CHECK(complaint_of_costs(model, "\"forward\": 1.0", "\"forward\": -1") ==
        "forward: -1 is not a finite number of at least 0 (measure again: --calibrate)");
  CHECK(complaint_of_costs(model, "\"crowding\": 1.0", "\"crowding\": 0").starts_with("crowding: 0 is not above 0"));
  CHECK(complaint_of_costs(model, "\"samples\": 2", "\"samples\": 1")
            .starts_with("samples: 1 is not a whole number of at least 2"));
  CHECK(complaint_of_costs(model, "\"samples\": 1", "\"samples\": 1.5")
            .starts_with("samples: 1.5 is not a whole number of at least 1"));
  CHECK(complaint_of_costs(model, "\"ranks_per_node\": 0", "\"ranks_per_node\": 99999999999")
            .starts_with("ranks_per_node: 99999999999 is not"));
  CHECK(complaint_of_costs(model, "\"units\": [", "\"units\": [], \"others\": [")
            .starts_with("0 for 1 sample of the model's 4 units"));
  CHECK_FALSE(complaint_of_costs(model, "\"forward\": 1.0", "\"forward\": \"a\"").empty());
  CHECK_FALSE(complaint_of_costs(model, "\"forward\": 1.0", "\"forward\": 1e999").empty());
}
