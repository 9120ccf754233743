// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "app/report/chart.h"
#include "app/report/page.h"
#include "app/report/phases.h"
#include "app/report/report_run.h"
#include "app/report/summary.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

std::string start(int step, const char* from = "") {
  return fmt::format(
      R"({{"event":"start","step":{},"ranks":2,"replicas":2,"stages":1,"device":"cpu","total_steps":100,)"
      R"("resumed_from":"{}"}})"
      "\n",
      step, from);
}

std::string step(int number, const char* loss) {
  return fmt::format(R"({{"event":"step","step":{},"epoch":{},"samples":10,"loss":{},"lr":0.1,"images_per_second":20,)"
                     R"("data_wait_s":0.125}})"
                     "\n",
                     number, number / 50, loss);
}

RunMetrics parse(const std::string& text) { return parse_metrics(text, "m.jsonl"); }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++result;
  return result;
}

}  // namespace

TEST_CASE("metrics of a run") {
  const RunMetrics run = parse(start(0) + step(1, "2.5") + step(2, "null") + "\n" +
                               R"({"event":"eval","step":2,"epoch":1,"loss":2,"top1":0.25,"top5":0.5,"seconds":3})"
                               "\n"
                               R"({"event":"checkpoint","step":2,"path":"x","seconds":4,"stall_s":0.5})"
                               "\n"
                               R"({"event":"health","step":2,"steps":2,"step_s":[1,2,3],"busy_s":[1,1,2],)"
                               R"("data_wait_s":[0,0.25,1],"communication_wait_s":[0,0.125,1],"slowest_rank":1,)"
                               R"("slowest_host":"n1","slowdown":2})"
                               "\n"
                               R"({"event":"end","reason":"signal","step":2,"epoch":0})"
                               "\n");
  REQUIRE(run.steps.size() == 2);
  CHECK(run.steps[0].loss == 2.5);
  CHECK(std::isnan(run.steps[1].loss));
  CHECK(run.evals.at(0).top1 == 0.25);
  CHECK(run.checkpoints.at(0).stall_s == 0.5);
  CHECK(run.health.at(0).busy_s[2] == 2);
  CHECK(run.health.at(0).slowest_host == "n1");
  CHECK(run.end_reason == "signal");
  CHECK(run.bad_lines == 0);
  CHECK(!run.cut);
}

TEST_CASE("a start drops what it takes again; a fresh one drops all") {
  const RunMetrics resumed =
      parse(start(0) + step(1, "1") + step(2, "2") + step(3, "3") + start(1, "c.h5") + step(2, "9"));
  CHECK(resumed.starts.size() == 2);
  REQUIRE(resumed.steps.size() == 2);
  CHECK(resumed.steps[1].loss == 9);
  const RunMetrics fresh = parse(start(0) + step(1, "1") + start(1, "c.h5") + step(2, "2") + start(0) + step(1, "7"));
  CHECK(fresh.starts.size() == 1);
  REQUIRE(fresh.steps.size() == 1);
  CHECK(fresh.steps[0].loss == 7);
  CHECK(fresh.end_reason.empty());
}

TEST_CASE("what is not metrics, and what is skipped") {
  const auto refused = [](const std::string& text) -> std::string {
    try {
      (void)parse(text);
      return "";
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kUsage);
      return error.what();
    }
  };
  CHECK(refused("").starts_with("m.jsonl is empty"));
  for (const char* text :
       {"hello\n", "{}\n", "\n\n", "{\"event\":\"dance\"}\n", "{\"event\":\"step\"}\n", "\x89HDF\r\n"}) {
    CHECK(refused(text).starts_with("m.jsonl is no file of metrics"));
  }
  const RunMetrics run =
      parse(start(0) + "{\"event\":\"dance\",\"step\":1}\nrubbish\n{\"event\":\"step\",\"step\":1.5}\n" + step(1, "1") +
            "{\"event\":\"step\",\"st");
  CHECK(run.unknown_events == 1);
  CHECK(run.bad_lines == 2);
  CHECK(run.cut);
  CHECK(run.steps.size() == 1);
}

TEST_CASE("second copies of checkpoints are no unknown events") {
  const RunMetrics run =
      parse(start(0) + step(1, "1") +
            "{\"event\":\"copy\",\"step\":1,\"path\":\"copies/step-00000001.h5\",\"seconds\":0.1}\n"
            "{\"event\":\"copy\",\"step\":2,\"path\":\"copies/x.h5\",\"seconds\":0,\"error\":\"full\"}\n");
  CHECK(run.unknown_events == 0);
  CHECK(run.bad_lines == 0);
  CHECK(run.steps.size() == 1);
}

TEST_CASE("phases add up") {
  // One rank, every second step logged: 2 steps of 0.5 s each line, an eighth of a second of data in each.
  ReportRun run;
  run.metrics = parse(start(0) + step(2, "1") + step(4, "1"));
  CHECK(phase_times(run.metrics) == PhaseTimes{1.5, 0.5, 0, 0, 0});
  run.metrics.health.push_back({4, 4, {}, {}, {0, 0.0625, 1}, {0, 0.125, 1}, 1, "n1", 1.5});
  run.metrics.evals.push_back({4, 1, 1, 0.5, 0.75, 3});
  run.metrics.checkpoints.push_back({4, 9, 0.25});
  CHECK(phase_times(run.metrics) == PhaseTimes{1.25, 0.25, 0.5, 3, 0.25});
  const Summary summary = summarize_run(run);
  CHECK(summary.seconds == 5.25);
  CHECK(summary.best == "50.00 %");
  CHECK(summary.best_at == "epoch 1");
  CHECK(summary.steps == 4);
  CHECK(summary.total_steps == 100);
  CHECK(summary.images_per_second == 20);
  CHECK(summary.state == "broke off (killed, or an error)");
  CHECK(straggler_table({run}).find("rank 1 on n1") != std::string::npos);
}

TEST_CASE("a chart draws gaps, marks and no more than it must") {
  Chart chart{.title = "a < b"};
  CHECK(draw_chart(chart).empty());
  chart.lines.push_back({{{0, 1}, {1, NAN}, {2, 3}, {3, 4}}, 0, LineKind::kMain, "x"});
  chart.marks.push_back({2, 1, "again"});
  chart.marks.push_back({2, 1, "again"});
  const std::string svg = draw_chart(chart);
  CHECK(count(svg, "a &lt; b") == 2);
  CHECK(count(svg, "class=\"mark\"") == 1);
  const std::size_t path = svg.find("class=\"line\" d=\"");
  REQUIRE(path != std::string::npos);
  const std::string drawn = svg.substr(path, svg.find("\"/>", path) - path);
  CHECK(count(drawn, "M") == 2);
  CHECK(count(drawn, "L") == 1);
  CHECK(drawn.find("nan") == std::string::npos);

  Chart large{.title = "t"};
  large.lines.emplace_back();
  for (int i = 0; i < 100000; ++i) large.lines[0].points.push_back({double(i), double(i % 7)});
  CHECK(count(draw_chart(large), "L") <= kPointsOfALine);
}

TEST_CASE("the scale of an axis") {
  const auto lines = [](double low, double high) {
    return std::vector<ChartLine>{{{{0, low}, {1, high}}, 0, LineKind::kMain, ""}};
  };
  CHECK(scale_for(lines(1, 49), AxisKind::kLinear) == AxisKind::kLinear);
  CHECK(scale_for(lines(1, 50), AxisKind::kLinear) == AxisKind::kLog);
  CHECK(scale_for(lines(0, 50), AxisKind::kFromZero) == AxisKind::kFromZero);
}

TEST_CASE("configs and names side by side") {
  const auto flat = flat_config("[a]\nx = 0.05\ny = [1, 2]\n[[a.l]]\nt = \"u\"\n", "c.toml");
  CHECK(flat == std::map<std::string, std::string>{{"a.x", "0.05"}, {"a.y", "[ 1, 2 ]"}, {"a.l[0].t", "\"u\""}});
  CHECK_THROWS_AS((void)flat_config("[a\n", "c.toml"), Error);
  std::vector<ReportRun> runs(3);
  runs[0] = {.name = "r",
             .folder = "/x/a/r",
             .metrics = {},
             .config = {},
             .values = {{"run.name", "1"}, {"o.lr", "1"}, {"s", "1"}},
             .config_problem = {},
             .confusion = {},
             .holder = {}};
  runs[1] = {.name = "r",
             .folder = "/x/b/r",
             .metrics = {},
             .config = {},
             .values = {{"run.name", "2"}, {"o.lr", "2"}, {"s", "1"}, {"n", "1"}},
             .config_problem = {},
             .confusion = {},
             .holder = {}};
  runs[2].name = "other";
  runs[2].folder = "/x/other";
  runs[2].config_problem = "none there";
  CHECK(differing_keys(runs) == std::vector<std::string>{"n", "o.lr"});
  tell_apart(runs);
  CHECK(runs[0].name == "a/r");
  CHECK(runs[1].name == "b/r");
  CHECK(runs[2].name == "other");
  const auto says = [&](const char* text) { return report_page(runs).find(text) != std::string::npos; };
  CHECK(says("<th>differs</th>"));
  runs[1].values = runs[0].values;
  CHECK(says("All runs that have one have the same config"));
  runs[1].config_problem = "none there";
  CHECK(!says("the same config"));
  CHECK(!says("<th>differs</th>"));
  std::vector<ReportRun> twice(2, runs[2]);
  tell_apart(twice);
  CHECK(twice[0].name != twice[1].name);
}
