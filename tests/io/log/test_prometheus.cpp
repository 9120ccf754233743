// SPDX-License-Identifier: Apache-2.0
#include "io/log/prometheus.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <limits>

#include "layers/base/error.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

TEST_CASE("text format: help, type and value of each metric, names of runs escaped") {
  const TemporaryFolder folder;
  PrometheusFile file((folder / "a.prom"), "say \"no\"\\\n");
  file.set("loss", 0.5, "Loss.");
  file.set("step", 3, "Steps.");
  file.set("loss", std::numeric_limits<double>::quiet_NaN(), "");
  const std::string run = R"({run="say \"no\"\\\n"})";
  CHECK(file.text(1.5) == "# HELP convoy_loss Loss.\n# TYPE convoy_loss gauge\nconvoy_loss" + run + " NaN\n" +
                              "# HELP convoy_step Steps.\n# TYPE convoy_step gauge\nconvoy_step" + run + " 3\n" +
                              "# HELP convoy_timestamp_seconds When this file was written, in seconds since 1970.\n" +
                              "# TYPE convoy_timestamp_seconds gauge\nconvoy_timestamp_seconds" + run + " 1.5\n");
  CHECK(file.due());
  file.write();
  CHECK_FALSE(file.due());
  CHECK(read_text((folder / "a.prom")).find("convoy_step" + run + " 3\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists((folder / "a.prom.tmp")));
  CHECK_THROWS_AS(PrometheusFile((folder / "missing/a.prom"), "r").write(), Error);
}
