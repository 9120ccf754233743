// SPDX-License-Identifier: Apache-2.0
//
// Every test case begins with the order of work of the program's seed, so that it can be repeated alone, and says that
// seed when it fails.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <mutex>

#include "tests/layers/backend/cuda/host/grid.h"
#include "tests/layers/backend/cuda/host/scheduler.h"

namespace {

using convoy::on_host::Scheduler;

struct EachCase final : doctest::IReporter {
  explicit EachCase(const doctest::ContextOptions& /*options*/) {}

  void test_case_start(const doctest::TestCaseData& /*data*/) override {
    Scheduler& scheduler = Scheduler::instance();
    const std::lock_guard lock(scheduler.mutex);
    if (seed == 0) seed = scheduler.seed();
    scheduler.seed(seed);
    convoy::on_host::set_order(seed);
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (stats.testCaseSuccess) return;
    fmt::print("the order of work was that of {}={}\n", convoy::on_host::kSeedVariable, seed);
  }
  void report_query(const doctest::QueryData& /*data*/) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& /*stats*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*e*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*name*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*data*/) override {}
  void log_message(const doctest::MessageData& /*data*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*data*/) override {}

 private:
  std::uint64_t seed = 0;  // 0: not read yet
};

}  // namespace

REGISTER_LISTENER("each_case", 1, EachCase);
