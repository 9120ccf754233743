// SPDX-License-Identifier: Apache-2.0
//
// metrics.jsonl: every line parses back to what was written, floats survive, and a resumed run leaves one joined
// series.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "io/log/metrics_log.h"
#include "layers/base/random.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
using nlohmann::json;

namespace {

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::istringstream text(read_text(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("a line has its keys in order and parses back") {
  const std::string line = metrics_line({{"event", "step"},
                                         {"step", 12},
                                         {"loss", 0.1F},
                                         {"big", std::int64_t{1} << 60},
                                         {"ok", true},
                                         {"text", std::string("a\"b\\c\n\x01é")},
                                         {"nan", std::nan("")},
                                         {"inf", -std::numeric_limits<float>::infinity()},
                                         {"bytes", "\xFF\xFE"}});
  CHECK(line.starts_with(R"({"event":"step","step":12,"loss":0.100000001,"big":1152921504606846976,"ok":true,)"));
  const json object = json::parse(line);
  CHECK(object["text"] == "a\"b\\c\n\x01é");
  CHECK(object["nan"].is_null());
  CHECK(object["inf"].is_null());
}

TEST_CASE("every float32 survives") {
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random_bits(1, i));
    float value = 0;
    std::memcpy(&value, &bits, 4);
    if (!std::isfinite(value)) continue;
    const json object = json::parse(metrics_line({{"v", value}}));
    REQUIRE(static_cast<float>(object["v"].get<double>()) == value);
  }
}

TEST_CASE("lines are in the file at once, and a second log appends") {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsLog log(path);
    log.write({{"event", "start"}});
    CHECK(lines_of(path).size() == 1);
  }
  MetricsLog log(path);
  log.write({{"event", "end"}});
  CHECK(lines_of(path).size() == 2);
  ExitCode code{};
  CHECK(contains(error_of([&] { MetricsLog(folder / "no/m.jsonl"); }, &code), "No such file"));
  CHECK(code == ExitCode::kUsage);
  CHECK(contains(error_of([] { MetricsLog("/dev/full").write({{"event", "start"}}); }), "No space left"));
}

TEST_CASE("a half-written last line is cut off at opening") {
  const TemporaryFolder folder;
  const std::string path = folder / "m";
  write_text(path, "{\"event\":\"start\"}\n{\"event\":\"st");
  MetricsLog log(path);
  log.write({{"event", "start"}});
  CHECK(lines_of(path).size() == 2);
  write_text(path, "{\"ev");
  MetricsLog again(path);
  CHECK(read_text(path).empty());
}

TEST_CASE("a resumed run drops what the interrupted one wrote beyond its step") {
  const TemporaryFolder folder;
  const std::string path = folder / "m";
  MetricsLog log(path);
  log.write({{"event", "start"}, {"step", 0}});
  for (int step = 1; step <= 10; ++step) {
    log.write({{"event", "step"}, {"step", step}, {"loss", 1.0 / step}});
    if (step % 4 == 0) log.write({{"event", "eval"}, {"step", step}});
    if (step % 4 == 0) log.write({{"event", "checkpoint"}, {"step", step}});
  }
  log.write({{"event", "end"}, {"step", 10}});
  CHECK(log.truncate_after(10) == 0);
  write_text(folder / "m", read_text(path) + "garbage\n");
  CHECK(log.truncate_after(7) == 6);  // steps 8, 9, 10, the evaluation and checkpoint of 8, and the garbage
  log.write({{"event", "step"}, {"step", 8}});
  const auto lines = lines_of(path);
  std::vector<int> steps;
  for (const auto& line : lines) {
    if (line["event"] == "step") steps.push_back(line["step"]);
  }
  CHECK(steps == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(lines.front()["event"] == "start");
  CHECK(lines[lines.size() - 2]["event"] == "end");
  CHECK(log.truncate_after(-1) == 10);
  CHECK(lines_of(path).size() == 2);
}
